//! Carries out the open plan, for as long as this instance serves.
//!
//! In: the store, the plan lock. Out: records, declarations, plans that go on and end, events. Not here: what is
//! decided ([`decide`], [`judge`]), and who serves ([`crate::roles`]).
//!
//! One step a turn: what is stored and reported is read, one thing is decided, one thing is done. Nothing is
//! remembered between two turns that another instance would need, so a turn may be given up at any moment.

pub mod decide;
mod effect;
pub mod judge;
mod tend;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use mesh_protocol::bus::PlanLock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::log::Log;
use crate::myself::Myself;
use crate::store::Store;

use turn::Turns;

/// How long to wait until the next turn, where nothing is to be done: the reports are looked at so often.
const PAUSE: Duration = Duration::from_millis(50);

/// What an executor works with.
#[derive(Debug, Clone)]
pub struct Means {
    /// The controller's documents.
    pub store: Store,
    /// The plan lock.
    pub lock: PlanLock,
    /// This instance.
    pub myself: Arc<Myself>,
    /// Where faults are told.
    pub log: Log,
    /// How long the lock outlives a holder that is gone.
    pub lease: Duration,
}

/// An executor at work.
#[derive(Debug)]
pub struct Executor {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Executor {
    /// Begins to work.
    #[must_use]
    pub fn start(means: Means) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(work(Turns::new(means.clone()), means, stop.clone()));
        Self { stop, task }
    }

    /// Stops at the next step, gives the lock back, and returns when that is so.
    pub async fn stop(self) {
        self.stop.cancel();
        // A task that ended otherwise holds nothing any more either.
        let _ = self.task.await;
    }
}

async fn work(mut turns: Turns, means: Means, stop: CancellationToken) {
    loop {
        let pause = tokio::select! {
            biased;
            // cancel safe: a token
            () = stop.cancelled() => break,
            // cancel safe: whatever a turn has begun is decided anew by the next, here or elsewhere; the lock is
            // taken and given back by a task of its own
            pause = turns.next() => pause,
        };
        if pause.is_zero() {
            continue;
        }
        tokio::select! {
            biased;
            // cancel safe: a token
            () = stop.cancelled() => break,
            // cancel safe: a permit that is lost costs one pause
            () = means.myself.wake.notified() => {}
            // cancel safe: a timer
            () = tokio::time::sleep(pause) => {}
        }
    }
    turns.end().await;
}
