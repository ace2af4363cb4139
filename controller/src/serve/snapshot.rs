//! What is known, read at most once in a moment, however many ask.
//!
//! In: the store. Out: a snapshot that is a tenth of a second old or so at most, or, where the state does not
//! answer, the last one, for a few seconds. Not here: anything that is decided from; that reads for itself.

use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;

use mesh_protocol::bus::PlanLock;
use mesh_protocol::verb::{PlanLockStatus, VerbRefusal};
use serde_json::value::RawValue;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::known::Known;
use crate::store::{Store, StoreError};

/// A snapshot is as good as new for this long: less than whoever looks can tell.
const FRESH: Duration = Duration::from_millis(50);

/// For this long it is still answered from, while the next one is read beside: where many ask, none of them waits for
/// the state.
const FAIR: Duration = Duration::from_millis(150);

/// Whoever asks is answered from the last snapshot after this long, if there is one.
const WITHIN: Duration = Duration::from_millis(300);

/// Older than this it would be a lie.
const STALE: Duration = Duration::from_secs(5);

/// What is known, and who holds the lock.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) known: Known,
    pub(super) plan_lock: PlanLockStatus,
    /// What is said of it to whoever asks for the status: written once, however many ask.
    status: OnceLock<Arc<RawValue>>,
}

impl Snapshot {
    /// What is said of it, as `say` writes it.
    pub(super) fn status(
        &self,
        say: impl FnOnce(&Known, &PlanLockStatus) -> Result<Arc<RawValue>, VerbRefusal>,
    ) -> Result<Arc<RawValue>, VerbRefusal> {
        if let Some(said) = self.status.get() {
            return Ok(said.clone());
        }
        let said = say(&self.known, &self.plan_lock)?;
        Ok(self.status.get_or_init(|| said).clone())
    }
}

#[derive(Debug)]
pub(super) struct Snapshots {
    store: Store,
    lock: PlanLock,
    last: std::sync::Mutex<Last>,
    /// Held by whoever reads.
    reading: Arc<Mutex<()>>,
}

/// The last snapshot, and what it must not be older than.
#[derive(Debug)]
struct Last {
    taken: Option<Taken>,
    forgotten: Instant,
}

/// A snapshot, and when its reading began.
#[derive(Debug, Clone)]
struct Taken {
    at: Instant,
    snapshot: Arc<Snapshot>,
}

impl Snapshots {
    pub(super) fn new(store: Store, lock: PlanLock) -> Arc<Self> {
        let last = std::sync::Mutex::new(Last { taken: None, forgotten: Instant::now() });
        Arc::new(Self { store, lock, last, reading: Arc::default() })
    }

    /// Whoever was told of something looks for it next: from now on nobody is answered from what was read before.
    pub(super) fn forget(&self) {
        self.last().forgotten = Instant::now();
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last one, if it is at most so old and nothing was told since.
    fn within(&self, age: Duration) -> Option<Arc<Snapshot>> {
        let last = self.last();
        let taken =
            last.taken.as_ref().filter(|taken| taken.at >= last.forgotten && taken.at.elapsed() < age)?;
        Some(taken.snapshot.clone())
    }

    /// What is known now. One reads, all that wait meanwhile get what it read.
    pub(super) async fn now(self: &Arc<Self>) -> Result<Arc<Snapshot>, VerbRefusal> {
        if let Some(snapshot) = self.within(FRESH) {
            return Ok(snapshot);
        }
        if let Some(snapshot) = self.within(FAIR) {
            if let Ok(turn) = self.reading.clone().try_lock_owned() {
                let me = self.clone();
                tokio::spawn(async move {
                    // What it came to, the next who asks sees.
                    let _ = me.look().await;
                    drop(turn);
                });
            }
            return Ok(snapshot);
        }
        let _turn = self.reading.lock().await;
        match self.within(FRESH) {
            Some(snapshot) => Ok(snapshot),
            None => self.look().await,
        }
    }

    async fn look(&self) -> Result<Arc<Snapshot>, VerbRefusal> {
        let at = Instant::now();
        let read = timeout(WITHIN, self.read()).await;
        let recent = self.last().taken.clone().filter(|taken| taken.at.elapsed() < STALE);
        match (read, recent) {
            (Ok(Ok(snapshot)), _) => {
                let snapshot = Arc::new(snapshot);
                self.last().taken = Some(Taken { at, snapshot: snapshot.clone() });
                Ok(snapshot)
            }
            (_, Some(recent)) => Ok(recent.snapshot),
            (Ok(Err(error)), None) => Err(super::unavailable(error)),
            (Err(_), None) => {
                let message = format!("the mesh's state did not answer within {} ms", WITHIN.as_millis());
                Err(super::refusal(mesh_protocol::verb::RefusalCode::Unavailable, message))
            }
        }
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let loaded = self.store.load().await?;
        let holder = self.lock.holder().await?;
        let plan_lock = match holder {
            Some(record) => {
                PlanLockStatus { holder: Some(record.instance), token: record.token, plan: record.plan }
            }
            None => PlanLockStatus { holder: None, token: None, plan: None },
        };
        Ok(Snapshot { known: loaded.known, plan_lock, status: OnceLock::new() })
    }
}
