//! The host's end of the bus: declarations in, reports out, and how the bus itself is.
//!
//! In: the bus's address and the host's credential. Out: fetched declarations, to the task; the latest report,
//! to the bus; whether the host's own echo returns. Not here: whether a declaration is taken.
//!
//! A hint is a hint: the node's key is fetched at each hint, at each connect, and every 30 s.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use mesh_protocol::bus::connect::{Connection, Link, Settings};
use mesh_protocol::bus::host::HostBus;
use mesh_protocol::chain::chain;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::door::BusLink;
use mesh_protocol::id::{MeshId, NodeName};
use mesh_protocol::report::Report;
use tokio::sync::{Notify, mpsc, watch};

use crate::clock::Clock;
use crate::handover::seen::Bus;
use crate::log;

/// How often the node's key is fetched without a hint.
const COMPARE: Duration = Duration::from_secs(30);
/// How often the host listens for its own echo.
const ECHO_EVERY: Duration = Duration::from_millis(500);
/// How long an echo may take before it counts as none.
const ECHO_WITHIN: Duration = Duration::from_secs(1);
/// How long after a report or a fetch that failed it is tried again.
const AGAIN: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, Default)]
struct Pulse {
    up: Option<Duration>,
    echo: Option<Duration>,
}

/// The host's end of the bus.
#[derive(Debug)]
pub struct BusEnd {
    connection: watch::Receiver<Option<Connection>>,
    pulse: Arc<Mutex<Pulse>>,
    reports: watch::Sender<Option<Report>>,
    started: jiff::Timestamp,
}

/// Where the host is on the bus.
#[derive(Debug, Clone)]
pub struct Member {
    /// The mesh.
    pub mesh: MeshId,
    /// This node.
    pub node: NodeName,
    /// How to connect.
    pub settings: Settings,
}

impl BusEnd {
    /// Begins to connect, for as long as it takes. Fetched declarations go to `declarations`; `wake` is notified
    /// when the bus comes or goes.
    #[must_use]
    pub fn start(
        member: Member,
        clock: Clock,
        declarations: mpsc::Sender<Declaration>,
        wake: Arc<Notify>,
    ) -> Self {
        let (connections, connection) = watch::channel(None);
        let (reports, to_send) = watch::channel(None);
        let pulse = Arc::new(Mutex::new(Pulse::default()));
        let beating = pulse.clone();
        tokio::spawn(async move {
            let connection = Connection::open_when_there(&member.settings).await;
            let host = HostBus::new(connection.clone(), member.mesh, member.node);
            let _ = connections.send(Some(connection.clone()));
            wake.notify_one();
            // cancel safe: none of the four ends, and they end together with the host
            tokio::join!(
                beat(connection.clone(), beating, clock, wake),
                fetch(host.clone(), connection, declarations),
                send(host, to_send),
            );
        });
        Self { connection, pulse, reports, started: jiff::Timestamp::now() }
    }

    /// The connection, once there was one.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        self.connection.borrow().clone()
    }

    /// How the bus is.
    #[must_use]
    pub fn bus(&self) -> Bus {
        let pulse = *self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        match pulse.up {
            Some(since) => Bus::Up { since, echo: pulse.echo },
            None => Bus::Away,
        }
    }

    /// How the bus is, for people.
    #[must_use]
    pub fn link(&self) -> BusLink {
        match self.connection() {
            Some(connection) => match connection.link().borrow().clone() {
                Link::Up { since, .. } => BusLink::Up { since: ago(since.elapsed()) },
                Link::Down { since, error } => BusLink::Down {
                    since: ago(since.elapsed()),
                    error: error.unwrap_or_else(|| "the connection broke off".to_owned()),
                },
            },
            None => BusLink::Down {
                since: self.started,
                error: "not connected since the host started".to_owned(),
            },
        }
    }

    /// The latest report: it is sent as soon as it can be, and only the latest.
    pub fn report(&self, report: Report) {
        self.reports.send_replace(Some(report));
    }
}

fn ago(passed: Duration) -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    now.checked_sub(passed).unwrap_or(now)
}

async fn beat(connection: Connection, pulse: Arc<Mutex<Pulse>>, clock: Clock, wake: Arc<Notify>) {
    let mut link = connection.link();
    let mut last = None;
    loop {
        let connected = match &*link.borrow_and_update() {
            Link::Up { count, .. } => Some(*count),
            Link::Down { .. } => None,
        };
        let up = connected.is_some();
        let again = connected != last;
        last = connected;
        let echo = if up { connection.echo(ECHO_WITHIN).await.ok() } else { None };
        let changed = {
            let mut pulse = pulse.lock().unwrap_or_else(PoisonError::into_inner);
            let was = pulse.up.is_some();
            pulse.echo = echo;
            // A connection that broke and came back while an echo was awaited is another one.
            let since = pulse.up.filter(|_| !again);
            pulse.up = up.then(|| since.unwrap_or_else(|| clock.running()));
            was != up
        };
        if changed {
            wake.notify_one();
        }
        // cancel safe: a change of the link that is missed here is read at the top
        tokio::select! {
            () = tokio::time::sleep(ECHO_EVERY) => {}
            _ = link.changed() => {}
        }
    }
}

/// Before the controller made its streams nobody answers for them, and the bus does not say so: the first
/// answers are not waited for as long as later ones.
const FIRST_PATIENCE: Duration = Duration::from_millis(300);

/// `work`, given up early while nothing was answered yet. `None`: it was given up.
async fn patiently<T>(answered: bool, work: impl Future<Output = T>) -> Option<T> {
    if answered { Some(work.await) } else { tokio::time::timeout(FIRST_PATIENCE, work).await.ok() }
}

async fn fetch(host: HostBus, connection: Connection, declarations: mpsc::Sender<Declaration>) {
    let mut link = connection.link();
    let mut hints = Box::pin(host.hints());
    let mut answered = false;
    loop {
        link.borrow_and_update();
        let mut again = COMPARE;
        let fetched = patiently(answered, host.declaration()).await;
        answered |= matches!(fetched, Some(Ok(_)));
        match fetched.unwrap_or(Ok(None)) {
            _ if !answered => again = FIRST_PATIENCE,
            Ok(Some(declaration)) => {
                if declarations.send(declaration).await.is_err() {
                    return;
                }
            }
            Ok(None) => {}
            Err(error) => {
                log::line(&format!("the declaration cannot be fetched: {}", chain(&error)));
                again = AGAIN;
            }
        }
        // cancel safe: a hint or change that is missed is made up for by the next fetch
        tokio::select! {
            () = tokio::time::sleep(again) => {}
            _ = link.changed() => {}
            hint = hints.next() => {
                if hint.is_none() {
                    hints = Box::pin(host.hints());
                }
            }
        }
    }
}

async fn send(host: HostBus, mut reports: watch::Receiver<Option<Report>>) {
    let mut answered = false;
    while reports.changed().await.is_ok() {
        loop {
            let report = reports.borrow_and_update().clone();
            let Some(report) = report else { break };
            match patiently(answered, host.report(&report)).await {
                Some(Ok(())) => {
                    answered = true;
                    break;
                }
                None => {}
                Some(Err(error)) => {
                    log::line(&format!("the report cannot be sent: {}", chain(&error)));
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }
}
