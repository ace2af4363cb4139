//! Housekeeping: bundles, accounts, files, run folders and records of runs that nothing refers to any more go.
//!
//! Only while nothing is under way, and only what the ledger, the declaration, the handovers' records, the versions that
//! a seat may be brought back to, and whatever runs all do not name.

use std::collections::BTreeSet;

use camino::Utf8PathBuf;
use mesh_protocol::chain::chain;
use mesh_protocol::declaration::{AccountOrigin, Declaration, ModuleSection};
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::handover::State;
use mesh_protocol::id::{AccountName, Digest, InstanceId};
use mesh_protocol::layout::label;
use mesh_protocol::report::ResourceState;

use super::Task;
use super::needs::Need;
use crate::handover::record::Record;
use crate::processes::{self, ProcessState};
use crate::recovery::Recovery;
use crate::run_folder::RunFolder;
use crate::steady::Steady;
use crate::{accounts, bundles, files, log};
use mesh_durable as durable;

/// How many logs of ended runs of one process are kept.
const LOGS: usize = 5;

/// What housekeeping depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    runs: BTreeSet<InstanceId>,
    folders: BTreeSet<Utf8PathBuf>,
    bundles: BTreeSet<Digest>,
}

/// Everything on a node that refers to something.
#[derive(Debug)]
pub(super) struct Referring<'a> {
    pub(super) declaration: Option<&'a Declaration>,
    pub(super) ledger: &'a [&'a LedgerEntry],
    pub(super) records: &'a [&'a Record],
    pub(super) steady: &'a [&'a Steady],
    pub(super) recoveries: &'a [&'a Recovery],
}

impl<'a> Referring<'a> {
    /// The sections that it needs.
    pub(super) fn sections(&self) -> impl Iterator<Item = &'a ModuleSection> + use<'a> {
        let declared = self.declaration.into_iter().flat_map(|declaration| &declaration.modules);
        let held = self.ledger.iter().map(|entry| &entry.section).collect::<Vec<_>>();
        // A held newcomer may be tried again, and the old one of an open handover may have to come back.
        let open = self.records.iter().filter(|record| record.state != State::Done);
        let records = open.flat_map(|record| [&record.new.section, &record.old.section]).collect::<Vec<_>>();
        // What a seat may be brought back to, or was, is there when that is asked for.
        let steady = self.steady.iter().flat_map(|steady| &steady.versions).map(|version| &version.section);
        let recovered = self.recoveries.iter().map(|recovery| &recovery.section);
        let others = steady.chain(recovered).collect::<Vec<_>>();
        declared.chain(held).chain(records).chain(others)
    }
}

impl Task {
    pub(super) fn keep_house(&mut self) {
        let calm = !self.jobs.any()
            && self.accepted.declaration.is_some()
            && !self.states.values().any(|state| matches!(state, ResourceState::Waiting(_)))
            && self.open_records().next().is_none();
        if !calm || self.kept == self.kept_for() {
            return;
        }
        self.kept = self.kept_for();
        if let Err(why) = self.collect() {
            log::line(&format!("housekeeping: {why}"));
        }
    }

    /// A container of ours that has a tombstone is removed, whoever brought it back: a crash between its end and
    /// its removal, or an engine whose store went back in time.
    pub(super) fn sweep_buried(&mut self) {
        let buried: Vec<_> = self
            .engine
            .snapshot()
            .containers
            .into_iter()
            .filter(|container| self.ledger.is_buried_engine_id(container.id.as_str()))
            .collect();
        for container in buried {
            let run = container.labels.get(label::INSTANCE).and_then(|run| run.parse::<InstanceId>().ok());
            let taking_part =
                |run: &InstanceId| self.open_records().any(|record| record.old.run.as_ref() == Some(run));
            if let Some(run) = run.filter(|run| !taking_part(run)) {
                self.remove_container(&run, container.id);
            }
        }
    }

    /// What housekeeping depends on: when it is the same as last time, there is nothing to do.
    fn kept_for(&self) -> Option<Kept> {
        let sections = self.sections_needed();
        let folder = |section: &ModuleSection| self.layout.module(&section.name, &section.files_digest());
        let bundles = sections.iter().flat_map(|section| &section.bundles);
        Some(Kept {
            runs: self.runs_needed(),
            folders: sections.iter().map(folder).collect(),
            bundles: bundles.map(|bundle| bundle.digest.clone()).collect(),
        })
    }

    fn collect(&mut self) -> Result<(), String> {
        let Some(Kept { runs, folders, bundles }) = self.kept_for() else { return Ok(()) };
        for run in processes::list(&self.layout).map_err(|error| error.to_string())? {
            if runs.contains(&run) {
                continue;
            }
            let state = processes::observe(&self.layout, &run).map_err(|error| chain(&error))?;
            if !matches!(state, ProcessState::Running(_) | ProcessState::Starting | ProcessState::Prepared) {
                processes::forget(&self.layout, &run).map_err(|error| chain(&error))?;
            }
        }
        for run in folder_names(&self.layout.runs())? {
            if !runs.contains(&run) && !self.layout.incarnation(&run).exists() {
                RunFolder::of(&self.layout, &run).remove().map_err(|error| chain(&error))?;
            }
        }
        // Whoever needs files again finds that they are not there.
        self.needs.retain(|need| match need {
            Need::Files(module, digest) => folders.contains(&self.layout.module(module, digest)),
            Need::Account(_) | Need::Bundle(_) => true,
        });
        files::collect(&self.layout, &folders).map_err(|error| chain(&error))?;
        self.collect_bundles(bundles)?;
        self.collect_accounts()?;
        self.collect_logs(&runs);
        self.fresh.retain(|run, _| runs.contains(run));
        self.faults.retain(|run, _| runs.contains(run));
        Ok(())
    }

    /// Bundles that nothing refers to go, but for one that something runs from, whoever started it: its folder is where
    /// it stands.
    fn collect_bundles(&mut self, mut keep: BTreeSet<Digest>) -> Result<(), String> {
        for run in processes::list(&self.layout).map_err(|error| error.to_string())? {
            keep.extend(processes::bundle_of(&self.layout, &run).map_err(|error| chain(&error))?);
        }
        let gone = bundles::collect(&self.layout, &keep).map_err(|error| chain(&error))?;
        for digest in &gone {
            log::line(&format!("bundle {} is removed: nothing refers to it", digest.short()));
        }
        // Whoever needs one again finds that it is not there.
        self.needs.retain(|need| match need {
            Need::Bundle(digest) => !gone.contains(digest),
            Need::Account(_) | Need::Files(..) => true,
        });
        Ok(())
    }

    fn collect_accounts(&mut self) -> Result<(), String> {
        let needed: BTreeSet<AccountName> = self
            .sections_needed()
            .iter()
            .flat_map(|section| section.accounts.iter().map(|account| account.name.clone()))
            .collect();
        let known: Vec<AccountName> = self.needs.accounts();
        for account in known.into_iter().filter(|account| !needed.contains(account)) {
            let prefixed = self.file.prefixed(account.as_str());
            accounts::remove(&self.file.mesh, &prefixed).map_err(|error| chain(&error))?;
            log::line(&format!("account {prefixed} is removed"));
        }
        self.needs.retain(|need| match need {
            Need::Account(name) => needed.contains(name),
            Need::Files(..) | Need::Bundle(_) => true,
        });
        Ok(())
    }

    /// Of each process the logs of the runs that are there stay, and of those that ended the newest few.
    fn collect_logs(&self, runs: &BTreeSet<InstanceId>) {
        let Ok(names) = crate::paths::files_in(&self.layout.logs()) else { return };
        let mut ended: Vec<(std::time::SystemTime, Utf8PathBuf)> = names
            .into_iter()
            .filter(|path| {
                let name = path.file_name().unwrap_or_default();
                let run = name.trim_end_matches(".1").trim_end_matches(".log").rsplit('.').next();
                name.starts_with("process-")
                    && run.and_then(|run| run.parse().ok()).is_some_and(|run| !runs.contains(&run))
            })
            .filter_map(|path| Some((std::fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        ended.sort();
        let surplus = ended.len().saturating_sub(LOGS);
        for (_, path) in ended.into_iter().take(surplus) {
            // A log that cannot be removed is a log that is kept.
            let _ = durable::remove(&path);
        }
    }

    /// Removes every account that this mesh made here.
    pub(super) fn remove_accounts(&mut self, left: &mut Vec<String>) {
        let sections = self.sections_needed();
        let made = sections.iter().flat_map(|section| {
            section.accounts.iter().filter(|account| account.origin == AccountOrigin::Made)
        });
        let names: BTreeSet<AccountName> =
            made.map(|account| account.name.clone()).chain(self.needs.accounts()).collect();
        for name in names {
            let prefixed = self.file.prefixed(name.as_str());
            if let Err(error) = accounts::remove(&self.file.mesh, &prefixed) {
                left.push(format!("account {prefixed}: {}", chain(&error)));
            }
        }
    }
}

fn folder_names(folder: &camino::Utf8Path) -> Result<Vec<InstanceId>, String> {
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{folder}: {error}")),
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use mesh_protocol::declaration::BundleSpec;
    use mesh_protocol::door::Standing;
    use mesh_protocol::id::Generation;

    use super::*;
    use crate::handover::record::Newcomer;
    use crate::recovery::Overridden;
    use crate::testing::{declaration, held, process_section};

    /// A section whose bundle is this word's.
    fn section(word: &str) -> ModuleSection {
        let name = "mesh-controller".parse().unwrap();
        let bundles = vec![BundleSpec { name, digest: Digest::of(word.as_bytes()), size: 1 }];
        ModuleSection { bundles, ..process_section(word, None) }
    }

    fn record(state: State) -> Record {
        let new = section("newcomer");
        let holder = held(&new, Standing::Declared);
        Record {
            format: 1,
            seat: "mesh-controller".parse().unwrap(),
            state,
            since: Timestamp::UNIX_EPOCH,
            boot_id: "b".to_owned(),
            generation: Generation(2),
            revision: 2,
            old: held(&section("old"), Standing::Declared),
            new: Newcomer {
                id: holder.id,
                digest: holder.digest,
                section: new,
                instance: None,
                program: None,
            },
            tries: 1,
            surroundings: 0,
            failure: None,
            next_try: None,
            old_ended: false,
        }
    }

    const NOTHING: Referring<'static> =
        Referring { declaration: None, ledger: &[], records: &[], steady: &[], recoveries: &[] };

    fn kept(referring: &Referring<'_>) -> Vec<String> {
        referring.sections().map(|section| section.processes[0].run[1].clone()).collect()
    }

    #[test]
    fn what_is_declared_and_what_runs_is_kept() {
        let declared = declaration(3, (1, 1), vec![section("declared")]);
        let entry = held(&section("runs"), Standing::Declared);
        let referring = Referring { declaration: Some(&declared), ledger: &[&entry], ..NOTHING };
        assert_eq!(kept(&referring), ["declared", "runs"]);
    }

    #[test]
    fn what_a_handover_may_return_to_or_try_again_is_kept_until_it_is_done() {
        for state in [
            State::Planned,
            State::Trial,
            State::Joined,
            State::Alone,
            State::Removing,
            State::Aborting,
            State::Held,
        ] {
            let record = record(state);
            let referring = Referring { records: &[&record], ..NOTHING };
            assert_eq!(kept(&referring), ["newcomer", "old"], "{state:?}");
        }
        let done = record(State::Done);
        assert!(kept(&Referring { records: &[&done], ..NOTHING }).is_empty());
    }

    #[test]
    fn what_a_seat_can_be_brought_back_to_and_what_it_was_brought_back_to_is_kept() {
        let seat = "mesh-controller".parse().unwrap();
        let mut steady = None;
        for word in ["before", "present"] {
            let entry = held(&section(word), Standing::Declared);
            steady = Steady::with(steady.as_ref(), &seat, &entry, Timestamp::UNIX_EPOCH).or(steady);
        }
        let steady = steady.unwrap();
        let bad = held(&section("bad"), Standing::Declared);
        let overridden = Overridden { id: bad.id, digest: bad.digest, revision: 1, version: "1".to_owned() };
        let recovery = Recovery {
            format: 1,
            seat,
            section: section("recovered"),
            overridden,
            at: Timestamp::UNIX_EPOCH,
        };
        let referring = Referring { steady: &[&steady], recoveries: &[&recovery], ..NOTHING };
        assert_eq!(kept(&referring), ["present", "before", "recovered"]);
    }
}
