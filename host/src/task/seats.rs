//! Seats in handover: what is seen is gathered, the decision is asked for, and carried out.
//!
//! Not here: any judgement. The order is the decision's, and the first action that fails ends the round: the
//! next one decides anew.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_engine::ContainerId;
use mesh_protocol::chain::chain;
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::handover::{Passage, Role, State};
use mesh_protocol::id::{Digest, InstanceId, ResourceId, ResourceKind, SeatName};
use mesh_protocol::report::Runtime;
use serde::de::DeserializeOwned;

use super::runs::Subject;
use super::{Job, Seat, Task};
use crate::fault::Fault;
use crate::handover::decide::{Action, Haste, Memory, Which, decide};
use crate::handover::open::{Opening, open};
use crate::handover::record::Record;
use crate::handover::seen::{Instance, Needs, Seen, Wanted};
use crate::handover::trace::{self, Decided};
use crate::run_folder::RunFolder;
use crate::{log, processes};
use mesh_durable::{self as durable, DurableError};

/// How many lines of a log go with a failure.
const LOG_LINES: usize = 20;
/// A handover takes a handful of decisions at one look; more would be one that does not come to rest.
const ROUNDS: usize = 8;

/// The documents in a folder that has one for each seat.
pub(super) fn read_documents<T: DeserializeOwned>(folder: &Utf8Path) -> Result<Vec<T>, DurableError> {
    let mut documents = Vec::new();
    for path in crate::paths::files_in(folder)? {
        if path.extension() == Some("json")
            && let Some(document) = durable::read_json(&path)?
        {
            documents.push(document);
        }
    }
    Ok(documents)
}

impl Task {
    /// Opens what is to be opened, and takes each open handover as far as it goes now.
    pub(super) async fn drive_seats(&mut self) {
        self.open_handovers();
        let seats: Vec<SeatName> = self.seats.keys().cloned().collect();
        for seat in seats {
            for _ in 0..ROUNDS {
                match self.drive(&seat).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(fault) => {
                        log::line(&format!("handover of {seat}: {fault}"));
                        break;
                    }
                }
            }
        }
    }

    fn open_handovers(&mut self) {
        let Some(declaration) = self.wanted_declaration() else { return };
        let now = self.clock.now();
        for section in &declaration.modules {
            let Some(name) = &section.seat else { continue };
            let record = self.seats.get(name).map(|seat| &seat.record);
            let opening = open(self.ledger.holder(name), section, declaration.generation, record, &now);
            let held = record.is_some_and(|record| record.state == State::Held);
            let done = match opening {
                Opening::Begin(record) => {
                    log::line(&format!("handover of {name}: {} -> {}", record.old.id, record.new.id));
                    self.write_record(*record)
                }
                // What is declared is what holds the seat again: what was handed back is history.
                Opening::Nothing if held => self.drop_record(name),
                _ => Ok(()),
            };
            if let Err(fault) = done {
                log::line(&format!("handover of {name}: {fault}"));
            }
        }
    }

    fn drop_record(&mut self, seat: &SeatName) -> Result<(), Fault> {
        durable::remove(&self.layout.handover(seat.as_str()))
            .map_err(|error| Fault::surroundings(chain(&error)))?;
        self.seats.remove(seat);
        Ok(())
    }

    fn write_record(&mut self, record: Record) -> Result<(), Fault> {
        let path = self.layout.handover(record.seat.as_str());
        let written = durable::ensure_folder(&self.layout.handovers(), 0o700)
            .and_then(|()| durable::write_json(&path, &record, 0o600));
        written.map_err(|error| Fault::surroundings(chain(&error)))?;
        let seat = self.seats.entry(record.seat.clone()).or_insert_with(|| Seat::new(record.clone()));
        if seat.record.state != record.state {
            log::line(&format!(
                "handover of {}: {} -> {}{}",
                record.seat,
                seat.record.state.as_str(),
                record.state.as_str(),
                record
                    .failure
                    .as_ref()
                    .map(|f| format!(": {}: {}", f.failed_at, f.reason))
                    .unwrap_or_default()
            ));
        }
        if record.state == State::Planned && seat.record.state != State::Planned {
            // Another try, or another handover: nothing of the last one counts.
            seat.retry = false;
            seat.memory = Memory::default();
            seat.passed.clear();
        }
        if seat.passed.last().is_none_or(|last| last.state != record.state) {
            seat.passed.push(Passage { state: record.state, at: record.since });
        }
        seat.record = record;
        Ok(())
    }

    /// One decision, carried out. `true` where the record changed, and there may be more to decide at once.
    async fn drive(&mut self, name: &SeatName) -> Result<bool, Fault> {
        let Some(mut seat) = self.seats.get(name).cloned() else { return Ok(false) };
        if seat.record.state == State::Done {
            return Ok(false);
        }
        seat.record = seat.record.with_holder(self.ledger.holder(name));
        let seen = self.seen(&seat)?;
        let interval = Duration::from_millis(self.file.check_interval_ms);
        let now = self.clock.now();
        let decision = decide(&seat.record, &seat.memory, &seen, &now, interval);
        trace::note(&self.layout.host().join("trace"), || {
            let (record, memory, seen) = (seat.record.clone(), seat.memory.clone(), seen.clone());
            let (token, decision) = (self.accepted.token, decision.clone());
            Decided { token, record, memory, seen, now, interval, decision }
        });
        if let Some(seat) = self.seats.get_mut(name) {
            seat.memory = decision.memory;
            seat.waiting_for = decision.waiting_for;
        }
        let mut wrote = false;
        for action in decision.actions {
            wrote |= matches!(action, Action::Write(_));
            self.carry_out(name, action).await?;
        }
        Ok(wrote)
    }

    fn seen(&mut self, seat: &Seat) -> Result<Seen, Fault> {
        let record = &seat.record;
        let needs = match record.state {
            State::Planned | State::Trial => self.needs_of(&record.new.section, &record.new.id),
            _ => Needs::Met,
        };
        // The old one may have to be started again: its account must be known.
        let _ = self.needs_of(&record.old.section, &record.old.id);
        let program = match (&needs, record.state) {
            (Needs::Met, State::Planned) => self.program_digest(record),
            _ => None,
        };
        let old = self.instance(
            (&record.old).into(),
            (record.old.run.as_ref(), record.old.instance.as_ref()),
            record.old.runtime.as_ref(),
        );
        let new_run = record.new.instance.as_ref();
        let new = self.instance(newcomer(record), (new_run, new_run), None);
        let busy = [record.old.run.as_ref(), new_run]
            .into_iter()
            .flatten()
            .any(|run| self.jobs.is_running(&Job::Run(run.clone())));
        Ok(Seen {
            bus: self.bus.bus(),
            needs,
            old,
            new,
            wanted: self.wanted(seat),
            stopping: self.stopping,
            busy,
            fresh: Self::fresh_instance(record.new.id.kind())?,
            program,
        })
    }

    fn wanted(&self, seat: &Seat) -> Wanted {
        let record = &seat.record;
        let same = Wanted::Same { revision: record.revision, retry: seat.retry };
        let Some(declaration) = self.wanted_declaration() else { return same };
        let section = declaration.modules.iter().find(|section| section.seat.as_ref() == Some(&record.seat));
        let Some(section) = section else {
            // A seat is not emptied by absence; what is being handed over goes on.
            return same;
        };
        let is_same = section.seat_holder().as_ref() == Some(&record.new.id)
            && section.spec_digest(&record.new.id).as_ref() == Some(&record.new.digest);
        if is_same {
            Wanted::Same { revision: section.revision, retry: seat.retry }
        } else {
            Wanted::Other(declaration.generation)
        }
    }

    fn instance(
        &self,
        subject: Subject<'_>,
        (run, instance): (Option<&InstanceId>, Option<&InstanceId>),
        runtime: Option<&Runtime>,
    ) -> Instance {
        let life = self.life(subject, run, runtime);
        let (Some(run), Some(id)) = (run, instance) else {
            let (ordered, ack, ready, ready_error, public) = (None, None, None, None, None);
            return Instance { id: None, life, ordered, ack, ready, ready_error, public };
        };
        let folder = RunFolder::of(&self.layout, run);
        let ordered = folder.ordered().ok().flatten().filter(|order| &order.instance == id);
        let heard = self.probes.heard(id);
        Instance {
            id: Some(id.clone()),
            life,
            ordered: ordered.map(|order| (order.role, order.number)),
            ack: folder.acknowledged().filter(|ack| &ack.instance == id),
            ready: heard.ready,
            ready_error: heard.error,
            public: heard.public,
        }
    }

    /// The sha256 of the newcomer's program, as it was unpacked.
    fn program_digest(&self, record: &Record) -> Option<Digest> {
        let section = &record.new.section;
        let process = section.processes.iter().find(|p| p.name.as_str() == record.new.id.name())?;
        let bundle = section.bundles.iter().find(|bundle| bundle.name == process.bundle)?;
        let program = process.run.first()?.trim_start_matches("./");
        let path: Utf8PathBuf = self.layout.bundle(&bundle.digest).join(program);
        crate::paths::file_digest(&path).ok()
    }

    async fn carry_out(&mut self, name: &SeatName, action: Action) -> Result<(), Fault> {
        let Some(record) = self.seats.get(name).map(|seat| seat.record.clone()) else { return Ok(()) };
        match action {
            Action::Write(mut record) => {
                self.add_log_tail(&mut record);
                self.write_record(*record)
            }
            Action::CommitLedger => {
                // It has proved itself: what ended before it, under the same name, says nothing of it.
                self.pauses.clear(&record.new.id);
                let entry = self.new_entry(&record);
                self.hold(entry)
            }
            Action::RestoreLedger => self
                .ledger
                .restore(&record.old, &record.new.id)
                .map_err(|error| Fault::surroundings(chain(&error))),
            Action::Bury => self
                .ledger
                .bury(&record.old, record.generation, self.clock.now().wall)
                .map_err(|error| Fault::surroundings(chain(&error))),
            Action::SyncBus => self.sync_bus().await.map_err(Fault::surroundings),
            Action::StartNew => match &record.new.instance {
                Some(instance) => self.begin_process(newcomer(&record), instance, Some(Role::StandingBy)),
                None => Ok(()),
            },
            Action::StartOld(role) => self.start_old(record, role).await,
            Action::Order(which, role) => self.order(&record, which, role),
            Action::End(which, haste) => {
                self.end_side(&record, which, haste);
                Ok(())
            }
            Action::RemoveOld => self.remove_old(&record),
        }
    }

    fn add_log_tail(&self, record: &mut Record) {
        let Some(instance) = record.new.instance.clone() else { return };
        let path = self.layout.log_of(&record.new.id, &instance);
        if let Some(failure) = &mut record.failure
            && let Ok(lines) = processes::log_tail(&path, LOG_LINES)
        {
            failure.log_tail = lines;
        }
    }

    fn new_entry(&self, record: &Record) -> LedgerEntry {
        LedgerEntry {
            id: record.new.id.clone(),
            digest: record.new.digest.clone(),
            section: record.new.section.clone(),
            runtime: self.process_runtime(record.new.instance.as_ref()),
            instance: record.new.instance.clone(),
            run: record.new.instance.clone(),
            standing: Standing::Declared,
            generation: record.generation,
        }
    }

    fn order(&self, record: &Record, which: Which, role: Role) -> Result<(), Fault> {
        let (run, instance) = match which {
            Which::Old => (&record.old.run, &record.old.instance),
            Which::New => (&record.new.instance, &record.new.instance),
        };
        match (run, instance) {
            (Some(run), Some(instance)) => self.give_role(run, instance, role),
            _ => Ok(()),
        }
    }

    /// A new run of the old one: the ledger has it first, then the record.
    async fn start_old(&mut self, mut record: Record, role: Role) -> Result<(), Fault> {
        let mut entry = record.old.clone();
        if !self.renew(&mut entry).await? {
            return Ok(());
        }
        record.old = entry.clone();
        self.write_record(record)?;
        self.begin_again(&entry, Some(role))
    }

    fn end_side(&mut self, record: &Record, which: Which, haste: Haste) {
        match which {
            Which::Old => {
                if let Some(run) = &record.old.run {
                    let engine_id = self.engine_id(&record.old);
                    self.end_run(&record.old.id, run, engine_id.as_ref(), haste);
                }
            }
            Which::New => {
                if let Some(run) = &record.new.instance {
                    self.end_run(&record.new.id, run, None, haste);
                }
            }
        }
    }

    fn remove_old(&mut self, record: &Record) -> Result<(), Fault> {
        let Some(run) = &record.old.run else { return Ok(()) };
        if record.old.id.kind() == ResourceKind::Process {
            return processes::forget(&self.layout, run).map_err(|error| Fault::surroundings(chain(&error)));
        }
        if let Some(engine_id) = self.engine_id(&record.old) {
            self.remove_container(run, engine_id);
        }
        Ok(())
    }

    /// The engine's id of a container that is held: as recorded, or as its label tells.
    pub(super) fn engine_id(&self, entry: &LedgerEntry) -> Option<ContainerId> {
        if let Some(Runtime::Container { engine_id, .. }) = &entry.runtime {
            return engine_id.parse().ok();
        }
        let run = entry.run.as_ref()?;
        self.container_of(entry.into(), run, None).map(|container| container.id)
    }

    /// Whether a resource is a side of an open handover, which then alone says what becomes of it. Once the old
    /// one was ended the newcomer is the holder, and is kept like any other.
    pub(super) fn in_handover(&self, id: &ResourceId) -> bool {
        self.seats.values().map(|seat| &seat.record).filter(|record| record.is_open()).any(|record| {
            if record.old_ended {
                &record.old.id == id && &record.new.id != id
            } else {
                &record.old.id == id || &record.new.id == id
            }
        })
    }
}

fn newcomer(record: &Record) -> Subject<'_> {
    Subject { id: &record.new.id, digest: &record.new.digest, section: &record.new.section }
}
