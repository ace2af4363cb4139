//! Asking instances how they are: on their own subjects, and on the public one, from the host's own
//! connection.
//!
//! In: which instances, how often. Out: the last answer of each, with the time at which it was asked for. Not
//! here: what an answer is worth.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mesh_protocol::bus::connect::Connection;
use mesh_protocol::bus::seat::client::{Policy, SeatClient};
use mesh_protocol::chain::chain;
use mesh_protocol::id::{InstanceId, MeshId, SeatName};
use mesh_protocol::verb::{Answer, Outcome, Ready, Verb};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::handover::seen::Answered;

/// How long one question may take. Silence is decided on two of them, so a lost reply is not silence.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often an instance is asked when nothing is going on.
const CALM: Duration = Duration::from_millis(500);
/// How often in a handover, at most: a tenth of a second is below what a person sees.
const BUSY: Duration = Duration::from_millis(100);

/// How often to ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Nothing is going on.
    Calm,
    /// A handover, whose checks are this far apart.
    Handover(Duration),
}

impl Pace {
    fn every(self) -> Duration {
        match self {
            Self::Calm => CALM,
            // Four questions an interval: a check waits for the first answer asked after it is due.
            Self::Handover(interval) => (interval / 4).min(BUSY).max(Duration::from_millis(10)),
        }
    }
}

/// What is known of one instance.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    /// Its last answer on its own subject.
    pub ready: Option<Answered>,
    /// Why the last question had no answer.
    pub error: Option<String>,
    /// When its last answer on the public subject had been asked for.
    pub public: Option<Duration>,
}

type Book = Arc<Mutex<BTreeMap<InstanceId, Heard>>>;

/// The questions that are being asked.
#[derive(Debug)]
pub struct Probes {
    mesh: MeshId,
    clock: Clock,
    wake: Arc<Notify>,
    book: Book,
    asked: BTreeMap<InstanceId, (Pace, JoinHandle<()>)>,
    public: BTreeMap<SeatName, (Pace, JoinHandle<()>)>,
}

impl Probes {
    /// None yet.
    #[must_use]
    pub fn new(mesh: MeshId, clock: Clock, wake: Arc<Notify>) -> Self {
        Self { mesh, clock, wake, book: Book::default(), asked: BTreeMap::new(), public: BTreeMap::new() }
    }

    /// Asks these instances at this pace, and no others; the public subjects of the seats in handover too.
    pub fn ask(&mut self, connection: &Connection, instances: &BTreeMap<InstanceId, (SeatName, Pace)>) {
        self.asked.retain(|instance, (pace, job)| {
            let stays = instances.get(instance).is_some_and(|(_, wanted)| wanted == pace);
            if !stays {
                job.abort();
            }
            stays
        });
        lock(&self.book).retain(|instance, _| instances.contains_key(instance));
        for (instance, (seat, pace)) in instances {
            if !self.asked.contains_key(instance) {
                let client = SeatClient::new(connection.clone(), self.mesh.clone(), seat.clone());
                let asking = ask_instance(
                    client,
                    instance.clone(),
                    *pace,
                    (self.book.clone(), self.clock.clone(), self.wake.clone()),
                );
                self.asked.insert(instance.clone(), (*pace, tokio::spawn(asking)));
            }
        }
        let in_handover: BTreeMap<&SeatName, Pace> = instances
            .values()
            .filter(|(_, pace)| *pace != Pace::Calm)
            .map(|(seat, pace)| (seat, *pace))
            .collect();
        self.public.retain(|seat, (pace, job)| {
            let stays = in_handover.get(seat) == Some(pace);
            if !stays {
                job.abort();
            }
            stays
        });
        for (seat, pace) in in_handover {
            if !self.public.contains_key(seat) {
                let client = SeatClient::new(connection.clone(), self.mesh.clone(), seat.clone());
                let asking =
                    ask_public(client, pace, (self.book.clone(), self.clock.clone(), self.wake.clone()));
                self.public.insert(seat.clone(), (pace, tokio::spawn(asking)));
            }
        }
    }

    /// What is known of an instance.
    #[must_use]
    pub fn heard(&self, instance: &InstanceId) -> Heard {
        lock(&self.book).get(instance).cloned().unwrap_or_default()
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        let public = self.public.values().map(|(_, job)| job);
        self.asked.values().map(|(_, job)| job).chain(public).for_each(JoinHandle::abort);
    }
}

fn lock(book: &Book) -> std::sync::MutexGuard<'_, BTreeMap<InstanceId, Heard>> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

type Shared = (Book, Clock, Arc<Notify>);

async fn ask_instance(client: SeatClient, instance: InstanceId, pace: Pace, (book, clock, wake): Shared) {
    loop {
        let asked = clock.running();
        let answer: Result<Answer<Ready>, _> = client.ask_at(&instance, Verb::Ready, PATIENCE).await;
        {
            let mut book = lock(&book);
            let heard = book.entry(instance.clone()).or_default();
            match answer {
                Ok(Answer { outcome: Outcome::Answer(ready), .. }) => {
                    heard.ready = Some(Answered { asked, ready });
                    heard.error = None;
                }
                Ok(Answer { outcome: Outcome::Refused(refusal), .. }) => {
                    heard.error = Some(refusal.to_string());
                }
                Err(error) => heard.error = Some(chain(&error)),
            }
        }
        if pace != Pace::Calm {
            wake.notify_one();
        }
        tokio::time::sleep(pace.every().saturating_sub(clock.running() - asked)).await;
    }
}

async fn ask_public(client: SeatClient, pace: Pace, (book, clock, wake): Shared) {
    let nothing = serde_json::json!({});
    loop {
        let asked = clock.running();
        let answer: Result<Answer<Value>, _> =
            client.ask(Verb::Status, &nothing, Policy::Once(PATIENCE)).await;
        if let Ok(answer) = answer {
            lock(&book).entry(answer.by.instance).or_default().public = Some(asked);
            wake.notify_one();
        }
        tokio::time::sleep(pace.every().saturating_sub(clock.running() - asked)).await;
    }
}
