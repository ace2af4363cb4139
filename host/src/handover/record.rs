//! What of a handover survives a crash: one file a seat, written before each effect that it stands for.
//!
//! In: decisions. Out: the record, and the report made from it. Not here: clocks and counts that begin again
//! when the host does (`Memory` in [`super::decide`]).

use jiff::Timestamp;
use mesh_protocol::declaration::ModuleSection;
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::handover::{HandoverReport, Reason, Side, State};
use mesh_protocol::id::{Digest, Generation, InstanceId, ResourceId, SeatName};
use serde::{Deserialize, Serialize};

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// One handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// The seat.
    pub seat: SeatName,
    /// Where it stands.
    pub state: State,
    /// Since when, by the wall clock; for people.
    pub since: Timestamp,
    /// The boot in which the state was entered: what ran in another boot runs no more.
    pub boot_id: String,
    /// The declaration that asked for it.
    pub generation: Generation,
    /// The revision of the module that asked for it: a higher one of the same spec is one more try.
    pub revision: u64,
    /// The holder that is to be replaced, pinned as the ledger had it.
    pub old: LedgerEntry,
    /// The one that shall hold the seat.
    pub new: Newcomer,
    /// How often this spec was tried.
    pub tries: u32,
    /// How often of these the surroundings failed.
    pub surroundings: u32,
    /// What went wrong, from `aborting` on.
    pub failure: Option<Failure>,
    /// When it is tried again by itself; only in `held`.
    pub next_try: Option<Timestamp>,
    /// Whether the old one was ended: the point from which nothing goes back.
    pub old_ended: bool,
}

/// The one that shall hold the seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Newcomer {
    /// Which resource.
    pub id: ResourceId,
    /// Its spec digest.
    pub digest: Digest,
    /// The section it is made from.
    pub section: ModuleSection,
    /// Its run: allocated with the state `trial`, before anything is started.
    pub instance: Option<InstanceId>,
    /// The sha256 of its program as unpacked.
    pub program: Option<Digest>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The state in which it did.
    pub state: State,
    /// How many checks had passed.
    pub checks_passed: u8,
    /// Which check failed, in words.
    pub failed_at: String,
    /// Why.
    pub reason: Reason,
    /// Whether it was weighed: whether the evidence was held against the surroundings.
    pub weighed: Weighed,
    /// The last lines of the new one's log.
    pub log_tail: Vec<String>,
}

impl Failure {
    /// Whether the newcomer ran, and lacked something that it may have by now.
    #[must_use]
    pub const fn lacked(&self) -> bool {
        matches!(self.reason, Reason::NeverReady { .. } | Reason::NeverServed { .. })
    }
}

/// Whether a failure was weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighed {
    /// Not yet: it is as it looked at first.
    NotYet,
    /// It is what it is said to be.
    Yes,
}

impl Record {
    /// The handover as it is reported.
    #[must_use]
    pub fn report(
        &self,
        waiting_for: Option<String>,
        checks_passed: u8,
        cleanup: Option<String>,
    ) -> HandoverReport {
        let failure = self.failure.as_ref();
        HandoverReport {
            seat: self.seat.clone(),
            state: self.state,
            since: self.since,
            old: Side {
                resource: self.old.id.clone(),
                spec: self.old.digest.clone(),
                instance: self.old.instance.clone(),
            },
            new: Side {
                resource: self.new.id.clone(),
                spec: self.new.digest.clone(),
                instance: self.new.instance.clone(),
            },
            generation: self.generation,
            waiting_for,
            checks_passed: failure.map_or(checks_passed, |failure| failure.checks_passed),
            failed_at: failure.map(|failure| failure.failed_at.clone()),
            reason: failure.map(|failure| failure.reason.clone()),
            log_tail: failure.map(|failure| failure.log_tail.clone()).unwrap_or_default(),
            next_try: self.next_try,
            tries: self.tries,
            cleanup_pending: cleanup,
            passed: Vec::new(),
        }
    }

    /// The record with the old one as it is held now. While nothing is handed over the old one is kept like
    /// any other, and may have run anew: only what was pinned when a handover began stays pinned.
    #[must_use]
    pub fn with_holder(mut self, holder: Option<&LedgerEntry>) -> Self {
        if let Some(holder) = holder.filter(|holder| self.state == State::Held && holder.id == self.old.id) {
            self.old = holder.clone();
        }
        self
    }

    /// Whether both sides are still in play.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Done | State::Held)
    }
}
