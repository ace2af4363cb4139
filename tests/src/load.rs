//! A seat under load: asked so many times a second, each attempt told with when it was made, how long it took and
//! who answered.
//!
//! In: a mesh, a rate, whether an attempt may be repeated. Out: [`Sample`]s, and what a few figures say of them. Not
//! here: what is right.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mesh_installer::mesh_file::MeshFile;
use mesh_installer::session::{self, Nothing, OPERATOR};
use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{Connection, Policy, SeatClient};
use mesh_protocol::id::InstanceId;
use mesh_protocol::verb::{Answer, Outcome, Verb};
use serde::de::IgnoredAny;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::mesh::Mesh;

/// One attempt at a question. What is lost is never answered: a machine that stands still for a second or two is slow, and
/// loses nothing.
pub const ONE_ATTEMPT: Policy = Policy::Once(ANSWERED_WITHIN);

/// How long an answer may take that counts.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// One attempt.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When it was due, by the wall clock.
    pub due: Timestamp,
    /// From when it was due until its end.
    pub took: Duration,
    /// Who answered, or why nobody did.
    pub answer: Result<InstanceId, String>,
}

/// A load that goes on until it is ended.
#[derive(Debug)]
pub struct Load {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Vec<Sample>>,
}

impl Load {
    /// Begins to ask for the seat's status, `rate` times a second on a fixed schedule, as the operator.
    ///
    /// # Panics
    /// When the bus does not take the operator's credential.
    pub async fn begin(mesh: &Mesh, rate: u32, policy: Policy) -> Self {
        let file: MeshFile = mesh.file();
        let user = User::Operator(OPERATOR.parse().unwrap());
        let settings = session::settings(mesh.layout(), &file, OPERATOR, &user);
        let connection = Connection::open(&settings).await.unwrap();
        let seat = Arc::new(session::seat(&connection, &file.mesh).unwrap());
        let (stop, stopped) = oneshot::channel();
        let every = Duration::from_secs(1) / rate;
        Self { stop, task: tokio::spawn(run(seat, every, policy, stopped)) }
    }

    /// Ends it, and tells of each attempt.
    ///
    /// # Panics
    /// When it broke off.
    pub async fn end(self) -> Vec<Sample> {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }
}

async fn run(
    seat: Arc<SeatClient>,
    every: Duration,
    policy: Policy,
    mut stopped: oneshot::Receiver<()>,
) -> Vec<Sample> {
    let (began, wall) = (Instant::now(), Timestamp::now());
    let mut schedule = tokio::time::interval_at(began, every);
    schedule.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (sender, mut samples) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            due = schedule.tick() => {
                let (seat, sender) = (seat.clone(), sender.clone());
                tokio::spawn(async move {
                    let answer = attempt(&seat, policy).await;
                    let sample = Sample { due: wall + (due - began), took: due.elapsed(), answer };
                    let _ = sender.send(sample);
                });
            }
            Some(sample) = samples.recv() => all.push(sample),
        }
    }
    drop(sender);
    while let Some(sample) = samples.recv().await {
        all.push(sample);
    }
    all
}

async fn attempt(seat: &SeatClient, policy: Policy) -> Result<InstanceId, String> {
    let answer: Result<Answer<IgnoredAny>, _> = seat.ask(Verb::Status, &Nothing {}, policy).await;
    match answer {
        Ok(Answer { by, outcome: Outcome::Answer(_) }) => Ok(by.instance),
        Ok(Answer { outcome: Outcome::Refused(refusal), .. }) => Err(refusal.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// How many failed, and why, in words; nothing where none did.
#[must_use]
pub fn failures(samples: &[Sample]) -> Vec<String> {
    samples
        .iter()
        .filter_map(|sample| sample.answer.as_ref().err().map(|why| format!("{} {why}", sample.due)))
        .collect()
}

/// What `part` of a hundred attempts took at most.
///
/// # Panics
/// When there is no attempt.
#[must_use]
pub fn percentile<'a>(samples: impl Iterator<Item = &'a Sample>, part: usize) -> Duration {
    let mut took: Vec<Duration> = samples.map(|sample| sample.took).collect();
    took.sort_unstable();
    took[(took.len() * part / 100).min(took.len() - 1)]
}

/// The longest time between two answers.
#[must_use]
pub fn longest_gap(samples: &[Sample]) -> Duration {
    let mut ends: Vec<Timestamp> = samples
        .iter()
        .filter(|sample| sample.answer.is_ok())
        .map(|sample| sample.due + sample.took)
        .collect();
    ends.sort_unstable();
    let gaps = ends.windows(2).map(|pair| pair[1].duration_since(pair[0]).unsigned_abs());
    gaps.max().unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(due: i64, took: u64, ok: bool) -> Sample {
        let answer = if ok { Ok("p-1".parse().unwrap()) } else { Err("nobody".to_owned()) };
        Sample { due: Timestamp::from_millisecond(due).unwrap(), took: Duration::from_millis(took), answer }
    }

    #[test]
    fn figures_are_of_what_was_answered() {
        let samples = [sample(0, 1, true), sample(10, 50, false), sample(20, 2, true), sample(30, 3, true)];
        assert_eq!(failures(&samples).len(), 1);
        assert_eq!(longest_gap(&samples), Duration::from_millis(21));
        assert_eq!(percentile(samples.iter(), 50), Duration::from_millis(3));
        assert_eq!(percentile(samples.iter(), 99), Duration::from_millis(50));
    }
}
