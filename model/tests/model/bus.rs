//! What the bus keeps: each key is written over the revision that was read, and the lock's forgets after the lease.

use mesh_protocol::bus::Versioned;
use mesh_protocol::bus::lock::decide::{Answer, Ask, LockRecord};
use mesh_protocol::id::Token;

use super::docs::{Doc, Docs, Id, Stored};
use super::faults::Fault;

/// A write under the plan lock, over the revision that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Put {
    pub(crate) doc: Doc,
    pub(crate) over: Option<u64>,
    pub(crate) token: Token,
}

/// What the bus keeps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Kept {
    pub(crate) lock: Option<Versioned<LockRecord>>,
    /// How many ticks ago it was written.
    pub(crate) lock_age: u8,
    pub(crate) lock_number: u64,
    pub(crate) epoch: Option<Versioned<u64>>,
    pub(crate) number: u64,
    pub(crate) plan: Option<(Id, u64)>,
    pub(crate) module: Option<(Id, u64)>,
    pub(crate) declaration: Option<(Id, u64)>,
    pub(crate) report: Option<Id>,
}

impl Kept {
    /// Answers a question about the plan lock.
    pub(crate) fn answer(&mut self, ask: &Ask, docs: &Docs, same: bool) -> Answer {
        let fits = |found: Option<u64>, over: u64| found == Some(over);
        let lock = self.lock.as_ref().map(|lock| lock.revision);
        match ask {
            Ask::ReadLock => Answer::Lock(self.lock.clone()),
            Ask::ReadEpoch => Answer::Epoch(self.epoch.clone()),
            Ask::CreateLock(_) if lock.is_some() && !docs.has(Fault::TheLockIsTakenWithoutLooking) => {
                Answer::Refused
            }
            Ask::CreateLock(record) => self.write_lock(record),
            Ask::UpdateLock { over, .. } if !fits(lock, *over) => Answer::Refused,
            Ask::UpdateLock { record, .. }
                if same && self.lock.as_ref().is_some_and(|lock| &lock.value == record) =>
            {
                // A renewal that comes through: whoever knows the revision learns the next, so that both may
                // keep the same number.
                self.lock_age = 0;
                Answer::Written(lock.unwrap_or_default())
            }
            Ask::UpdateLock { record, .. } => self.write_lock(record),
            Ask::DeleteLock { over } if !fits(lock, *over) => Answer::Refused,
            Ask::DeleteLock { .. } => {
                self.lock = None;
                self.lock_age = 0;
                self.lock_number += 1;
                Answer::Deleted
            }
            Ask::CreateEpoch(_) if self.epoch.is_some() => Answer::Refused,
            Ask::UpdateEpoch { over, .. } if !fits(self.epoch.as_ref().map(|e| e.revision), *over) => {
                Answer::Refused
            }
            Ask::CreateEpoch(epoch) | Ask::UpdateEpoch { epoch, .. } => {
                self.number += 1;
                self.epoch = Some(Versioned { value: *epoch, revision: self.number });
                Answer::Written(self.number)
            }
        }
    }

    fn write_lock(&mut self, record: &LockRecord) -> Answer {
        self.lock_number += 1;
        self.lock_age = 0;
        self.lock = Some(Versioned { value: record.clone(), revision: self.lock_number });
        Answer::Written(self.lock_number)
    }

    fn place(&mut self, doc: Doc) -> &mut Option<(Id, u64)> {
        match doc {
            Doc::Declaration(_) => &mut self.declaration,
            Doc::Module(_) => &mut self.module,
            Doc::Plan(_) => &mut self.plan,
        }
    }

    pub(crate) fn revision(&self, doc: Doc) -> Option<u64> {
        let place = match doc {
            Doc::Declaration(_) => self.declaration,
            Doc::Module(_) => self.module,
            Doc::Plan(_) => self.plan,
        };
        place.map(|(_, revision)| revision)
    }

    /// Writes a document over what it was read at; says whether it could.
    pub(crate) fn put(&mut self, put: &Put, docs: &Docs) -> bool {
        let found = self.revision(put.doc);
        if found != put.over && !docs.has(Fault::AStaleHolderWritesOverWhatItDidNotRead) {
            return false;
        }
        self.number += 1;
        let number = self.number;
        let (Doc::Declaration(id) | Doc::Module(id) | Doc::Plan(id)) = put.doc;
        *self.place(put.doc) = Some((id, number));
        true
    }

    pub(crate) fn stored(&self) -> Stored {
        Stored {
            plan: self.plan.map(|(id, _)| id),
            module: self.module.map(|(id, _)| id),
            declaration: self.declaration.map(|(id, _)| id),
            report: self.report,
        }
    }
}
