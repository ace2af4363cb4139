//! What the host holds, and what it removed for good: one file, replaced whole.
//!
//! In: decisions about runs. Out: entries by which the real thing is recognised again, and tombstones. Files,
//! bundles and accounts are not here: each is recognised by its own name (a digest, a mark), and what of them
//! is needed follows from the entries, which carry the whole section that they were made from.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use jiff::Timestamp;
use mesh_protocol::door::{LedgerEntry, Tombstone};
use mesh_protocol::id::{Digest, Generation, ResourceId, SeatName};
use mesh_protocol::report::Runtime;
use serde::{Deserialize, Serialize};

use mesh_durable::{self as durable, DurableError};

/// How many tombstones are kept: what is older than the last thousand removals comes from no declaration that
/// a host would still accept.
const TOMBSTONES: usize = 1000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    format: u32,
    entries: Vec<LedgerEntry>,
    tombstones: Vec<Tombstone>,
}

/// The ledger of one root.
#[derive(Debug)]
pub struct Ledger {
    path: Utf8PathBuf,
    entries: BTreeMap<ResourceId, LedgerEntry>,
    tombstones: Vec<Tombstone>,
}

impl Ledger {
    /// Reads it; a root without one has an empty ledger.
    ///
    /// # Errors
    /// When it is there and cannot be read: then nothing is known, and nothing may be done.
    pub fn open(path: Utf8PathBuf) -> Result<Self, DurableError> {
        let content: Content = durable::read_json(&path)?.unwrap_or_default();
        let entries = content.entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
        Ok(Self { path, entries, tombstones: content.tombstones })
    }

    /// The entries, by id.
    pub fn entries(&self) -> impl Iterator<Item = &LedgerEntry> {
        self.entries.values()
    }

    /// The tombstones, oldest first.
    #[must_use]
    pub fn tombstones(&self) -> &[Tombstone] {
        &self.tombstones
    }

    /// The entry of a resource.
    #[must_use]
    pub fn entry(&self, id: &ResourceId) -> Option<&LedgerEntry> {
        self.entries.get(id)
    }

    /// The holder of a seat.
    #[must_use]
    pub fn holder(&self, seat: &SeatName) -> Option<&LedgerEntry> {
        self.entries.values().find(|entry| entry.section.seat.as_ref() == Some(seat))
    }

    /// Whether this was removed by a declaration at least as new as `generation`.
    #[must_use]
    pub fn is_buried(&self, id: &ResourceId, digest: &Digest, generation: Generation) -> bool {
        self.tombstones
            .iter()
            .any(|stone| &stone.id == id && &stone.digest == digest && stone.generation >= generation)
    }

    /// Whether the engine's container of this id was removed.
    #[must_use]
    pub fn is_buried_engine_id(&self, engine_id: &str) -> bool {
        self.tombstones.iter().any(|stone| stone.engine_id.as_deref() == Some(engine_id))
    }

    /// Holds this, in place of what was held under its id.
    ///
    /// # Errors
    /// When it cannot be written; then the ledger is as it was.
    pub fn hold(&mut self, entry: LedgerEntry) -> Result<(), DurableError> {
        if self.entries.get(&entry.id) == Some(&entry) {
            return Ok(());
        }
        self.change(|entries, _| {
            entries.insert(entry.id.clone(), entry);
        })
    }

    /// Holds `old` again and `new` no more: what a handover that goes back does.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn restore(&mut self, old: &LedgerEntry, new: &ResourceId) -> Result<(), DurableError> {
        if self.entries.get(&old.id) == Some(old) && (&old.id == new || !self.entries.contains_key(new)) {
            return Ok(());
        }
        self.change(|entries, _| {
            entries.remove(new);
            entries.insert(old.id.clone(), old.clone());
        })
    }

    /// A tombstone for this entry, which is held no more unless another run took its id over.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn bury(&mut self, gone: &LedgerEntry, by: Generation, time: Timestamp) -> Result<(), DurableError> {
        let engine_id = match &gone.runtime {
            Some(Runtime::Container { engine_id, .. }) => Some(engine_id.clone()),
            _ => None,
        };
        let held = self.entries.get(&gone.id).is_some_and(|entry| entry.instance == gone.instance);
        let stone =
            Tombstone { id: gone.id.clone(), digest: gone.digest.clone(), engine_id, generation: by, time };
        let is_there = self.tombstones.iter().any(|other| {
            (&other.id, &other.digest, &other.engine_id, other.generation)
                == (&stone.id, &stone.digest, &stone.engine_id, stone.generation)
        });
        if is_there && !held {
            return Ok(());
        }
        self.change(|entries, tombstones| {
            if held {
                entries.remove(&gone.id);
            }
            tombstones.retain(|other| (&other.id, &other.digest) != (&stone.id, &stone.digest));
            tombstones.push(stone);
            let surplus = tombstones.len().saturating_sub(TOMBSTONES);
            tombstones.drain(..surplus);
        })
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut BTreeMap<ResourceId, LedgerEntry>, &mut Vec<Tombstone>),
    ) -> Result<(), DurableError> {
        let (mut entries, mut tombstones) = (self.entries.clone(), self.tombstones.clone());
        change(&mut entries, &mut tombstones);
        let content = Content {
            format: 1,
            entries: entries.values().cloned().collect(),
            tombstones: tombstones.clone(),
        };
        durable::write_json(&self.path, &content, 0o600)?;
        (self.entries, self.tombstones) = (entries, tombstones);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container_section, held, process_section};
    use mesh_protocol::door::Standing;

    fn ledger(folder: &tempfile::TempDir) -> Ledger {
        let path = camino::Utf8Path::from_path(folder.path()).unwrap().join("ledger.json");
        Ledger::open(path).unwrap()
    }

    #[test]
    fn what_is_held_is_there_for_the_next_host() {
        let folder = tempfile::tempdir().unwrap();
        let entry = held(&container_section("c"), Standing::Adopted);
        ledger(&folder).hold(entry.clone()).unwrap();
        let again = ledger(&folder);
        assert_eq!(again.entry(&entry.id), Some(&entry));
        assert_eq!(again.holder(&"mesh-controller".parse().unwrap()), Some(&entry));
    }

    #[test]
    fn a_tombstone_bars_older_declarations_and_no_later_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = ledger(&folder);
        let entry = held(&container_section("c"), Standing::Adopted);
        book.hold(entry.clone()).unwrap();
        book.bury(&entry, Generation(4), Timestamp::UNIX_EPOCH).unwrap();
        book.bury(&entry, Generation(4), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(book.entries().count(), 0);
        let again = ledger(&folder);
        assert_eq!(again.tombstones().len(), 1);
        assert!(again.is_buried(&entry.id, &entry.digest, Generation(4)));
        assert!(!again.is_buried(&entry.id, &entry.digest, Generation(5)));
        assert!(!again.is_buried(&entry.id, &Digest::of(b"another"), Generation(4)));
    }

    #[test]
    fn burying_the_old_version_leaves_the_new_one_of_the_same_id() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = ledger(&folder);
        let old = held(&process_section("--a", None), Standing::Declared);
        let mut new = held(&process_section("--b", None), Standing::Declared);
        new.instance = Some("p-2".parse().unwrap());
        book.hold(old.clone()).unwrap();
        book.hold(new.clone()).unwrap();
        book.bury(&old, Generation(4), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(book.entry(&new.id), Some(&new));
    }

    #[test]
    fn going_back_restores_the_old_one_and_forgets_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = ledger(&folder);
        let old = held(&container_section("mesh-controller"), Standing::Adopted);
        let new = held(&process_section("--a", Some("container:mesh-controller")), Standing::Declared);
        book.hold(new.clone()).unwrap();
        book.restore(&old, &new.id).unwrap();
        assert_eq!(book.entries().collect::<Vec<_>>(), [&old]);
    }

    #[test]
    fn a_ledger_that_cannot_be_read_is_an_error_and_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = camino::Utf8Path::from_path(folder.path()).unwrap().join("ledger.json");
        std::fs::write(&path, "{\"format\":1,").unwrap();
        Ledger::open(path).unwrap_err();
    }
}
