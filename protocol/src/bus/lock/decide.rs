//! What whoever wants the plan lock, holds it or gives it back asks of the buckets next: pure.
//!
//! In: the last answer, the time at which its question was sent. Out: the next question, or what it came to.
//! Not here: asking ([`super`]); the model of `tests/` asks buckets of its own.
//!
//! One question is under way at a time, and any of them may be the last: whatever was written by then is
//! recognised by its nonce, or runs out by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bus::state::Versioned;
use crate::id::{InstanceId, PlanId, Token};

/// What the lock's key holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LockRecord {
    /// Who holds it.
    pub instance: InstanceId,
    /// Under which token; none in the moment before the epoch is raised.
    pub token: Option<Token>,
    /// What is being carried out.
    pub plan: Option<PlanId>,
    /// Of this holding, and no other.
    pub nonce: String,
}

/// A question to the buckets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Ask {
    /// What the lock's key holds.
    ReadLock,
    /// The lock's key, where there is none.
    CreateLock(LockRecord),
    /// The lock's key, over this revision.
    UpdateLock {
        /// What it shall hold.
        record: LockRecord,
        /// The revision that is known.
        over: u64,
    },
    /// The end of the lock's key, at this revision.
    DeleteLock {
        /// The revision that is known.
        over: u64,
    },
    /// The last epoch.
    ReadEpoch,
    /// The first epoch, where there was none.
    CreateEpoch(u64),
    /// The next epoch, over this revision.
    UpdateEpoch {
        /// The epoch.
        epoch: u64,
        /// The revision that is known.
        over: u64,
    },
}

/// What became of a question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// The lock's key.
    Lock(Option<Versioned<LockRecord>>),
    /// The epoch.
    Epoch(Option<Versioned<u64>>),
    /// It is written, under this revision.
    Written(u64),
    /// It is deleted.
    Deleted,
    /// The key is not as it was known: somebody else was first.
    Refused,
    /// No answer, or none of use: whether something was written is not known.
    Failed,
}

/// Somebody who wants the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Taking {
    record: LockRecord,
    at_least: u64,
    step: TakingStep,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum TakingStep {
    /// Does somebody have it?
    Look,
    Create,
    /// It is ours, at this revision, and has no token yet.
    ReadEpoch {
        over: u64,
    },
    RaiseEpoch {
        over: u64,
        stored: Option<Versioned<u64>>,
    },
    Sign {
        over: u64,
        epoch: u64,
    },
    /// Something failed: what was created goes, so that nobody waits for it.
    TakeBack {
        over: u64,
    },
}

/// What an answer came to for somebody who wants the lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Taken {
    /// There is more to ask.
    GoesOn(Taking),
    /// It is held.
    Holds(Holding),
    /// Somebody else has it.
    NotOurs,
    /// Something failed.
    Failed,
}

impl Taking {
    /// By `instance`, as a holding of its own. The epoch of its token is above any before it and above
    /// `at_least`: hosts may have seen a higher one than a store that lost its last minute knows.
    #[must_use]
    pub const fn new(instance: InstanceId, nonce: String, at_least: u64) -> Self {
        let record = LockRecord { instance, token: None, plan: None, nonce };
        Self { record, at_least, step: TakingStep::Look }
    }

    /// The next question.
    #[must_use]
    pub fn ask(&self) -> Ask {
        match &self.step {
            TakingStep::Look => Ask::ReadLock,
            TakingStep::Create => Ask::CreateLock(self.record.clone()),
            TakingStep::ReadEpoch { .. } => Ask::ReadEpoch,
            TakingStep::RaiseEpoch { stored: None, .. } => Ask::CreateEpoch(self.epoch(None)),
            TakingStep::RaiseEpoch { stored: Some(stored), .. } => {
                Ask::UpdateEpoch { epoch: self.epoch(Some(stored.value)), over: stored.revision }
            }
            TakingStep::Sign { over, epoch } => {
                Ask::UpdateLock { record: self.signed(*over, *epoch), over: *over }
            }
            TakingStep::TakeBack { over } => Ask::DeleteLock { over: *over },
        }
    }

    /// What comes of the answer to [`Taking::ask`], which was sent at `sent`.
    #[must_use]
    pub fn answered(self, answer: Answer, sent: Duration) -> Taken {
        match (self.step.clone(), answer) {
            (TakingStep::Look, Answer::Lock(None)) => self.goes_on(TakingStep::Create),
            (TakingStep::Create, Answer::Written(over)) => self.goes_on(TakingStep::ReadEpoch { over }),
            (TakingStep::Look, Answer::Lock(Some(_)))
            | (TakingStep::Create, Answer::Refused)
            // So slow that the lease ran out: the token is of nobody.
            | (TakingStep::Sign { .. }, Answer::Refused) => Taken::NotOurs,
            (TakingStep::ReadEpoch { over }, Answer::Epoch(stored)) => {
                self.goes_on(TakingStep::RaiseEpoch { over, stored })
            }
            (TakingStep::RaiseEpoch { over, stored }, Answer::Written(_)) => {
                let epoch = self.epoch(stored.map(|stored| stored.value));
                self.goes_on(TakingStep::Sign { over, epoch })
            }
            (TakingStep::RaiseEpoch { over, .. }, Answer::Refused) => {
                self.goes_on(TakingStep::ReadEpoch { over })
            }
            (TakingStep::Sign { over, epoch }, Answer::Written(revision)) => {
                let record = self.signed(over, epoch);
                Taken::Holds(Holding { token: Token { epoch, revision: over }, record, revision, renewed: sent })
            }
            (
                TakingStep::ReadEpoch { over }
                | TakingStep::RaiseEpoch { over, .. }
                | TakingStep::Sign { over, .. },
                _,
            ) => self.goes_on(TakingStep::TakeBack { over }),
            (TakingStep::Look | TakingStep::Create | TakingStep::TakeBack { .. }, _) => Taken::Failed,
        }
    }

    const fn goes_on(mut self, step: TakingStep) -> Taken {
        self.step = step;
        Taken::GoesOn(self)
    }

    fn epoch(&self, stored: Option<u64>) -> u64 {
        stored.unwrap_or_default().max(self.at_least) + 1
    }

    fn signed(&self, revision: u64, epoch: u64) -> LockRecord {
        LockRecord { token: Some(Token { epoch, revision }), ..self.record.clone() }
    }
}

/// What is known of the lock's key by whoever holds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Holding {
    /// What is written under it.
    pub token: Token,
    /// What the key holds.
    pub record: LockRecord,
    /// At which revision.
    pub revision: u64,
    /// When the last write that succeeded was sent: the lease is counted from there, so it ends here before
    /// it ends in the bucket.
    pub renewed: Duration,
}

/// Whether the lock, held under one token, is lost to somebody who writes under another.
#[must_use]
pub fn is_lost_to(held: Token, heard_of: Token) -> bool {
    heard_of > held
}

/// A renewal under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Renewing {
    /// The key, over the revision that is known.
    Update,
    /// The key is not as it was left: by an earlier renewal that was believed lost, or by somebody else.
    LookAgain,
    /// It was an earlier renewal of our own.
    UpdateAgain {
        /// As it was found.
        over: u64,
    },
}

/// What an answer came to for a renewal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Renewed {
    /// There is more to ask.
    GoesOn(Renewing),
    /// It is over: renewed, or to be tried again.
    Ends,
    /// Somebody else has it.
    Lost,
}

/// A giving back under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Returning {
    /// The end of the key, at the revision that is known.
    Delete,
    /// A renewal that was believed lost may have come through.
    LookAgain,
    /// It had.
    DeleteAgain {
        /// As it was found.
        over: u64,
    },
}

impl Holding {
    /// How much of the lease is left.
    #[must_use]
    pub fn left(&self, lease: Duration, now: Duration) -> Duration {
        (self.renewed + lease).saturating_sub(now)
    }

    /// The next question of a renewal.
    #[must_use]
    pub fn renew(&self, renewing: &Renewing) -> Ask {
        let over = match renewing {
            Renewing::Update => self.revision,
            Renewing::LookAgain => return Ask::ReadLock,
            Renewing::UpdateAgain { over } => *over,
        };
        Ask::UpdateLock { record: self.record.clone(), over }
    }

    /// What comes of the answer to a renewal whose first question was sent at `sent`. What fails for other
    /// reasons than that somebody else has the lock is tried again.
    pub fn renewed(&mut self, renewing: Renewing, answer: Answer, sent: Duration) -> Renewed {
        match (renewing, answer) {
            (Renewing::Update | Renewing::UpdateAgain { .. }, Answer::Written(revision)) => {
                self.revision = revision;
                self.renewed = sent;
                Renewed::Ends
            }
            (Renewing::Update, Answer::Refused) => Renewed::GoesOn(Renewing::LookAgain),
            (Renewing::LookAgain, Answer::Lock(Some(found))) if self.is_ours(&found) => {
                self.revision = found.revision;
                Renewed::GoesOn(Renewing::UpdateAgain { over: found.revision })
            }
            (Renewing::LookAgain, Answer::Lock(_)) => Renewed::Lost,
            _ => Renewed::Ends,
        }
    }

    /// The next question of a giving back.
    #[must_use]
    pub const fn give_back(&self, returning: &Returning) -> Ask {
        match returning {
            Returning::Delete => Ask::DeleteLock { over: self.revision },
            Returning::LookAgain => Ask::ReadLock,
            Returning::DeleteAgain { over } => Ask::DeleteLock { over: *over },
        }
    }

    /// What comes of the answer to a giving back; none when it is over. Where it fails for good, the lock runs
    /// out by itself.
    #[must_use]
    pub fn given_back(&self, returning: &Returning, answer: &Answer) -> Option<Returning> {
        match (returning, answer) {
            (Returning::Delete, Answer::Refused) => Some(Returning::LookAgain),
            (Returning::LookAgain, Answer::Lock(Some(found))) if self.is_ours(found) => {
                Some(Returning::DeleteAgain { over: found.revision })
            }
            _ => None,
        }
    }

    fn is_ours(&self, found: &Versioned<LockRecord>) -> bool {
        found.value.nonce == self.record.nonce
    }
}

#[cfg(test)]
mod tests;
