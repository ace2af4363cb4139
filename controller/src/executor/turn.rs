//! One turn of the executor: the lock, the open plan, one step.
//!
//! In: the store. Out: one thing done, and how long to pause. Not here: what is decided, or how it is done.

use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::bus::{Held, StateError, Versioned};
use mesh_protocol::chain::chain;
use mesh_protocol::plan::{Plan, PlanState};
use tokio::task::JoinHandle;

use super::decide::{Step, View, decide, recovery};
use super::effect::Effects;
use super::tend::{Tending, next_recovery};
use super::{Means, PAUSE};
use crate::known::Known;
use crate::store::{Claim, StoreError};

/// After a fault of the surroundings.
const AFTER_FAULT: Duration = Duration::from_millis(200);

/// Taking and giving back the lock are never given up half-way: a lock that is taken and forgotten is nobody's
/// for a whole lease.
enum Errand {
    Taking(JoinHandle<Result<Option<Held>, StateError>>),
    Returning(JoinHandle<()>),
}

/// What lasts from turn to turn.
pub(super) struct Turns {
    means: Means,
    held: Option<Held>,
    errand: Option<Errand>,
    tending: Tending,
    /// Whether forgotten plans were looked for.
    swept: bool,
}

impl Turns {
    pub(super) fn new(means: Means) -> Self {
        let tending = Tending::new(means.clone());
        Self { means, held: None, errand: None, tending, swept: false }
    }

    /// One turn; answers how long to pause.
    pub(super) async fn next(&mut self) -> Duration {
        match self.turn().await {
            Ok(pause) => {
                self.means.log.clear("executor");
                pause
            }
            Err(error) if error.is_stale() => {
                // Somebody else wrote first: what was decided is void, and is decided anew.
                PAUSE / 5
            }
            Err(error) => {
                self.means.log.once("executor", &chain(&error));
                // The server passes over questions for a bucket that it does not have.
                let gone = |error: &StateError| {
                    matches!(error, StateError::Unavailable { .. } | StateError::Unanswered { .. })
                };
                if matches!(&error, StoreError::State(error) if gone(error)) {
                    self.make_buckets().await;
                }
                AFTER_FAULT
            }
        }
    }

    /// The last turn: gives the lock back.
    pub(super) async fn end(mut self) {
        if let Err(error) = self.finish_errand().await {
            self.means.log.once("executor", &chain(&error));
        }
        if let Some(held) = self.held.take() {
            held.give_back().await;
        }
    }

    async fn turn(&mut self) -> Result<Duration, StoreError> {
        self.finish_errand().await?;
        if self.held.as_ref().is_some_and(Held::is_lost) {
            self.drop_lock();
        }
        let idle = self.tending.tend_when_due().await?;
        if let Some(plan) = self.means.store.open_plan().await? {
            if !self.take_lock().await? {
                return Ok(PAUSE);
            }
            return self.step(plan).await;
        }
        if !self.swept {
            self.swept = true;
            if let Some(forgotten) = self.means.store.forgotten_plan().await?
                && self.means.store.claim(&forgotten).await? == Claim::Ours
            {
                return Ok(Duration::ZERO);
            }
        }
        if !self.means.myself.lock_taken() {
            return Ok(if self.take_lock().await? { Duration::ZERO } else { PAUSE });
        }
        if idle.is_some_and(|known| next_recovery(&known).is_some()) && self.take_lock().await? {
            return self.recover().await;
        }
        self.begin_to_give_back();
        self.finish_errand().await?;
        Ok(PAUSE)
    }

    /// One step for the open plan.
    async fn step(&mut self, plan: Versioned<Plan>) -> Result<Duration, StoreError> {
        let Some(held) = &self.held else { return Ok(PAUSE) };
        let nodes = Known::concerned(&plan.value.action);
        let loaded = self.means.store.load_nodes(&nodes).await?;
        self.tending.watch(&loaded.known).await;
        let view =
            View { plan: &plan.value, known: &loaded.known, token: held.token(), now: Timestamp::now() };
        let step = decide(&view);
        if held.is_lost() {
            self.drop_lock();
            return Ok(Duration::ZERO);
        }
        match step {
            Step::Wait => return Ok(PAUSE),
            Step::Lost(token) => {
                held.heard_of(token);
                self.drop_lock();
                return Ok(PAUSE);
            }
            Step::Store(next) => {
                let effects = Effects { means: &self.means, loaded: &loaded };
                effects.store(&next, plan.revision).await?;
                match (&plan.value.state, &next.state) {
                    (PlanState::Stored, PlanState::Open { .. }) => {
                        held.note_plan(Some(next.id)).await;
                    }
                    (_, ended) if ended.is_ended() => held.note_plan(None).await,
                    _ => {}
                }
            }
            step => {
                let done = Effects { means: &self.means, loaded: &loaded }.carry_out(step).await;
                if let Err(error) = done {
                    if !error.is_stale() {
                        // It may still get there: it is put again under another token, as somebody else's would be.
                        self.begin_to_give_back();
                    }
                    return Err(error);
                }
            }
        }
        Ok(Duration::ZERO)
    }

    fn begin_to_give_back(&mut self) {
        if let Some(held) = self.held.take() {
            self.errand = Some(Errand::Returning(tokio::spawn(held.give_back())));
        }
    }

    /// One step towards knowing what hosts hold.
    async fn recover(&mut self) -> Result<Duration, StoreError> {
        let Some(held) = &self.held else { return Ok(PAUSE) };
        // Read again, under the lock: what looked so before may be somebody's write under way.
        let loaded = self.means.store.load().await?;
        let Some(node) = next_recovery(&loaded.known) else { return Ok(Duration::ZERO) };
        let step = recovery(&loaded.known, &node, held.token(), Timestamp::now());
        if held.is_lost() || step.is_none() {
            return Ok(PAUSE);
        }
        if let Some(step) = step {
            Effects { means: &self.means, loaded: &loaded }.carry_out(step).await?;
        }
        self.tending.look_again();
        Ok(PAUSE)
    }

    /// Holds the lock, or answers that somebody else does.
    async fn take_lock(&mut self) -> Result<bool, StoreError> {
        if self.held.is_some() {
            return Ok(true);
        }
        if self.means.lock.holder().await?.is_some() {
            return Ok(false);
        }
        // Hosts may have seen a higher epoch than a store that went back knows.
        let epoch = self.means.store.load().await?.known.highest_epoch();
        let lock = self.means.lock.clone();
        self.errand = Some(Errand::Taking(tokio::spawn(async move { lock.take(epoch).await })));
        self.finish_errand().await?;
        Ok(self.held.is_some())
    }

    fn drop_lock(&mut self) {
        self.held = None;
    }

    async fn finish_errand(&mut self) -> Result<(), StateError> {
        match &mut self.errand {
            None => {}
            Some(Errand::Returning(returning)) => {
                let _ = returning.await;
                self.errand = None;
            }
            Some(Errand::Taking(taking)) => {
                let taken = taking.await;
                self.errand = None;
                if let Ok(taken) = taken
                    && let Some(held) = taken?
                {
                    self.means.myself.took_lock();
                    self.held = Some(held);
                }
            }
        }
        Ok(())
    }

    /// The bus lost its store and came back without: the buckets are made again.
    async fn make_buckets(&self) {
        let state = self.means.store.state();
        let connection = state.connection().clone();
        let made = mesh_protocol::bus::State::open(connection, state.mesh().clone(), self.means.lease).await;
        if let Err(error) = made {
            self.means.log.once("buckets", &chain(&error));
        }
    }
}
