//! Everything that runs and is not in a handover: one step each, decided by [`crate::supervise`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mesh_protocol::chain::chain;
use mesh_protocol::declaration::ModuleSection;
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::handover::{Role, State};
use mesh_protocol::id::{Digest, Generation, InstanceId, ResourceId, ResourceKind};
use mesh_protocol::report::{ResourceState, Runtime};

use super::runs::Subject;
use super::{Job, Task};
use crate::fault::{Blame, Fault};
use crate::handover::decide::Haste;
use crate::handover::open::{Opening, open};
use crate::handover::seen::{Bus, Life, Needs};
use crate::processes::{self, ProcessState};
use crate::run_folder::RunFolder;
use crate::supervise::{Buried, Facts, Hearing, Step, Want, decide, is_silent};

/// How long something must have run before it is said to be as declared: a program with a wrong word in its
/// configuration ends within some milliseconds.
const FIRST_MOMENTS: Duration = Duration::from_millis(250);

/// What is declared for one id.
#[derive(Clone)]
struct Declared {
    section: ModuleSection,
    digest: Digest,
    generation: Generation,
}

impl Task {
    /// One step for everything that runs.
    pub(super) async fn supervise(&mut self) {
        let declared = self.declared();
        let held: Vec<ResourceId> = self.ledger.entries().map(|entry| entry.id.clone()).collect();
        let ids: BTreeSet<ResourceId> = declared.keys().cloned().chain(held).collect();
        for id in ids {
            if self.in_handover(&id) {
                continue;
            }
            let state = match self.step(&id, declared.get(&id)).await {
                Ok(state) => state,
                Err(Fault { blame: Blame::Declared, text }) => {
                    self.pauses.ended(&id, None, self.clock.running());
                    Some(ResourceState::Failed(text))
                }
                Err(fault) => {
                    self.pauses.ended(&id, None, self.clock.running());
                    Some(ResourceState::Waiting(fault.text))
                }
            };
            match state {
                Some(state) => self.states.insert(id, state),
                None => self.states.remove(&id),
            };
        }
    }

    fn declared(&self) -> BTreeMap<ResourceId, Declared> {
        let Some(declaration) = self.wanted_declaration() else { return BTreeMap::new() };
        let mut all = BTreeMap::new();
        for section in &declaration.modules {
            for id in section.resource_ids() {
                let runs = matches!(id.kind(), ResourceKind::Process | ResourceKind::Container);
                if let Some(digest) = section.spec_digest(&id).filter(|_| runs) {
                    let generation = declaration.generation;
                    all.insert(id, Declared { section: section.clone(), digest, generation });
                }
            }
        }
        all
    }

    async fn step(
        &mut self,
        id: &ResourceId,
        declared: Option<&Declared>,
    ) -> Result<Option<ResourceState>, Fault> {
        self.note_runtime(id)?;
        let entry = self.ledger.entry(id).cloned();
        let (stays, note) = self.stays(id, declared, entry.as_ref());
        let buried = declared.is_some_and(|d| self.ledger.is_buried(id, &d.digest, d.generation));
        let want = match declared {
            _ if stays => Want::Stay,
            Some(declared) => Want::Run {
                digest: &declared.digest,
                standing: standing(declared.generation),
                buried: if buried { Buried::Yes } else { Buried::No },
            },
            None => Want::Go,
        };
        let facts = self.facts(id, declared, entry.as_ref());
        let step = decide(&want, &facts);
        let life = facts.life.clone();
        let mut state = match step {
            Step::Nothing if entry.is_none() => None,
            Step::Nothing => Some(self.running_state(id)),
            Step::Wait(what) => Some(self.waiting_state(id, &life, what)),
            Step::Hold(why) => Some(ResourceState::Held(why)),
            Step::TakeOver => self.take_over(declared, entry)?,
            Step::Create => self.create(id, declared, entry)?,
            Step::StartAgain => self.start_again(id, entry).await?,
            Step::Kill => self.end_entry(entry, Haste::Now, "its end, for it fell silent"),
            Step::End => self.end_entry(entry, Haste::Grace, "its end"),
            Step::Remove => self.remove_entry(entry)?,
        };
        if let Some(note) = note {
            state = Some(ResourceState::Held(note));
        }
        Ok(state)
    }

    /// Whether what is held stays although it is not what is declared: it is adopted, or it holds a seat that
    /// only a handover takes from it. With what there is to say about it.
    fn stays(
        &self,
        id: &ResourceId,
        declared: Option<&Declared>,
        entry: Option<&LedgerEntry>,
    ) -> (bool, Option<String>) {
        let Some(declared) = declared else {
            let stays = entry
                .is_some_and(|entry| entry.standing == Standing::Adopted || entry.section.seat.is_some());
            return (stays, None);
        };
        let Some(seat) = &declared.section.seat else { return (false, None) };
        if declared.section.seat_holder().as_ref() != Some(id) {
            return (false, None);
        }
        let record = self.seats.get(seat).map(|seat| &seat.record);
        let holder = self.ledger.holder(seat);
        match open(holder, &declared.section, declared.generation, record, &self.clock.now()) {
            Opening::Start | Opening::Nothing => (false, None),
            Opening::GoOn | Opening::Begin(_) => {
                let note = record.filter(|record| record.state == State::Held).and_then(|record| {
                    record.failure.as_ref().map(|failure| {
                        let tail =
                            failure.log_tail.last().map(|line| format!("; last line of its log: {line}"));
                        let next = record.report(None, 0, None).how_to_go_on();
                        format!(
                            "handed back, {} serves on: {}: {}; {}{}",
                            record.old.id,
                            failure.failed_at,
                            failure.reason,
                            next.unwrap_or_default(),
                            tail.unwrap_or_default()
                        )
                    })
                });
                // In `removing`, with the old one ended, the newcomer is the holder and is kept as such.
                let is_holder =
                    holder.is_some_and(|holder| &holder.id == id && holder.digest == declared.digest);
                (!is_holder, note)
            }
            Opening::Impossible(why) => (true, Some(why)),
        }
    }

    fn facts<'a>(
        &mut self,
        id: &ResourceId,
        declared: Option<&Declared>,
        entry: Option<&'a LedgerEntry>,
    ) -> Facts<'a> {
        let now = self.clock.running();
        let life = match entry {
            Some(entry) => self.life(entry.into(), entry.run.as_ref(), entry.runtime.as_ref()),
            None => Life::NotStarted,
        };
        let run = entry.and_then(|entry| entry.run.as_ref());
        let busy = run.is_some_and(|run| self.jobs.is_running(&Job::Run(run.clone())));
        if matches!(life, Life::Ended(_) | Life::Gone(_)) && !busy {
            let instance = entry.and_then(|entry| entry.instance.as_ref());
            self.pauses.ended(id, instance, now);
        }
        let section = declared.map(|declared| declared.section.clone());
        let section = section.or_else(|| entry.map(|entry| entry.section.clone()));
        let needs = match section {
            Some(section) => self.needs_of(&section, id),
            None => Needs::Met,
        };
        Facts {
            entry,
            silent: life == Life::Running && entry.is_some_and(|entry| self.is_silent(entry)),
            life,
            busy,
            due: self.pauses.is_over(id, now),
            needs,
        }
    }

    fn is_silent(&self, entry: &LedgerEntry) -> bool {
        let (Some(_), Some(instance)) = (&entry.section.seat, &entry.instance) else { return false };
        let Bus::Up { since, echo: Some(_) } = self.bus.bus() else { return false };
        let now = self.clock.running();
        let hearing = Hearing {
            asked: self.probes.heard(instance).ready.map(|answered| answered.asked),
            started: self.pauses.running_for(&entry.id, now).map(|ran| now.saturating_sub(ran)),
            connected: since,
            looking: self.looking,
        };
        is_silent(&hearing, now)
    }

    fn running_state(&self, id: &ResourceId) -> ResourceState {
        let ran = self.pauses.running_for(id, self.clock.running());
        match ran {
            Some(ran) if ran < FIRST_MOMENTS => ResourceState::Waiting("its first moments".to_owned()),
            _ => ResourceState::Converged,
        }
    }

    /// What ended twice soon after its start is not waited for any more: it failed, and is tried again.
    fn waiting_state(&self, id: &ResourceId, life: &Life, what: String) -> ResourceState {
        let run = self.ledger.entry(id).and_then(|entry| entry.run.as_ref());
        if let Some(fault) = run.and_then(|run| self.faults.get(run)) {
            return match fault.blame {
                Blame::Declared => ResourceState::Failed(fault.text.clone()),
                _ => ResourceState::Waiting(fault.text.clone()),
            };
        }
        match life {
            Life::Ended(reason) if self.pauses.ends(id) >= 2 => {
                let tail = run.and_then(|run| self.last_line(id, run));
                let tail = tail.map(|line| format!("; last line of its log: {line}")).unwrap_or_default();
                let help = self.help(id).map(|help| format!("; {help}")).unwrap_or_default();
                ResourceState::Failed(format!("{reason}; it is started again after a pause{help}{tail}"))
            }
            Life::Ended(reason) => ResourceState::Waiting(format!("{what} ({reason})")),
            _ => ResourceState::Waiting(what),
        }
    }

    fn last_line(&self, id: &ResourceId, run: &InstanceId) -> Option<String> {
        let lines = processes::log_tail(&self.layout.log_of(id, run), 1);
        lines.ok()?.pop()
    }

    /// What a person can do about a seat's holder that fails: its own seat is no help.
    fn help(&self, id: &ResourceId) -> Option<String> {
        let entry = self.ledger.entry(id).filter(|entry| entry.id.kind() == ResourceKind::Process)?;
        entry.section.seat.as_ref().map(|seat| {
            format!(
                "where it does not come to serve the seat {seat}, go back to a version that did: mesh recover"
            )
        })
    }

    fn take_over(
        &mut self,
        declared: Option<&Declared>,
        entry: Option<LedgerEntry>,
    ) -> Result<Option<ResourceState>, Fault> {
        if let (Some(declared), Some(mut entry)) = (declared, entry) {
            entry.standing = Standing::Declared;
            entry.section = declared.section.clone();
            entry.generation = declared.generation;
            self.hold(entry)?;
        }
        Ok(Some(ResourceState::Changed))
    }

    fn create(
        &mut self,
        id: &ResourceId,
        declared: Option<&Declared>,
        entry: Option<LedgerEntry>,
    ) -> Result<Option<ResourceState>, Fault> {
        let instance = Self::fresh_instance(id.kind())?;
        let entry = match (declared, entry) {
            (Some(declared), _) => LedgerEntry {
                id: id.clone(),
                digest: declared.digest.clone(),
                section: declared.section.clone(),
                runtime: None,
                instance: Some(instance.clone()),
                run: Some(instance),
                standing: standing(declared.generation),
                generation: declared.generation,
            },
            (None, Some(held)) => {
                LedgerEntry { runtime: None, instance: Some(instance.clone()), run: Some(instance), ..held }
            }
            (None, None) => return Ok(None),
        };
        self.hold(entry.clone())?;
        self.begin_again(&entry, role_of(&entry))?;
        Ok(Some(ResourceState::Waiting("its start".to_owned())))
    }

    async fn start_again(
        &mut self,
        id: &ResourceId,
        entry: Option<LedgerEntry>,
    ) -> Result<Option<ResourceState>, Fault> {
        let Some(mut entry) = entry else { return Ok(None) };
        if let Some(run) = &entry.run {
            self.faults.remove(run);
        }
        if self.renew(&mut entry).await? {
            self.begin_again(&entry, role_of(&entry))?;
        }
        let ends = self.pauses.ends(id);
        Ok(Some(match self.waiting_state(id, &Life::Starting, "its start".to_owned()) {
            ResourceState::Waiting(what) if ends >= 3 => {
                ResourceState::Failed(format!("it ended {ends} times in a row soon after its start; {what}"))
            }
            state => state,
        }))
    }

    /// A new run of what is held: its id is in the ledger before anything is started. `false` where the last
    /// one could not be closed yet.
    pub(super) async fn renew(&mut self, entry: &mut LedgerEntry) -> Result<bool, Fault> {
        let surroundings = |error: processes::ProcessError| Fault::surroundings(chain(&error));
        if entry.id.kind() == ResourceKind::Process {
            if let Some(last) = entry.run.clone() {
                // A late shim of the last run must not begin now, and what it left must be gone.
                if let ProcessState::Prepared =
                    processes::observe(&self.layout, &last).map_err(surroundings)?
                {
                    return Ok(true);
                }
                processes::end(&self.layout, &last, Duration::ZERO).await.map_err(surroundings)?;
            }
            let instance = Self::fresh_instance(ResourceKind::Process)?;
            entry.run = Some(instance.clone());
            entry.instance = Some(instance);
            entry.runtime = None;
        } else if self.engine_id(entry).is_some() || entry.runtime.is_some() {
            entry.instance = Some(Self::fresh_instance(ResourceKind::Container)?);
        }
        self.hold(entry.clone())?;
        Ok(true)
    }

    /// Begins the run that an entry names.
    pub(super) fn begin_again(&mut self, entry: &LedgerEntry, role: Option<Role>) -> Result<(), Fault> {
        let (Some(run), Some(instance)) = (&entry.run, &entry.instance) else { return Ok(()) };
        let subject = Subject::from(entry);
        if entry.id.kind() == ResourceKind::Process {
            return self.begin_process(subject, instance, role);
        }
        let life = self.life(subject, Some(run), entry.runtime.as_ref());
        match self.engine_id(entry) {
            Some(engine_id) if !matches!(life, Life::Gone(_)) => {
                self.restart_container(entry, engine_id, role)
            }
            Some(_) if entry.standing == Standing::Adopted => Err(Fault::surroundings(format!(
                "{} was removed from outside, and what is adopted is not made again",
                entry.id
            ))),
            _ => self.begin_container(subject, (run, instance), role),
        }
    }

    fn end_entry(&mut self, entry: Option<LedgerEntry>, haste: Haste, what: &str) -> Option<ResourceState> {
        let entry = entry?;
        if let Some(run) = &entry.run {
            let engine_id = self.engine_id(&entry);
            self.end_run(&entry.id, run, engine_id.as_ref(), haste);
        }
        Some(ResourceState::Waiting(what.to_owned()))
    }

    /// What is left of something that ended goes: the container, the run's record; then the entry, for a
    /// tombstone.
    fn remove_entry(&mut self, entry: Option<LedgerEntry>) -> Result<Option<ResourceState>, Fault> {
        let Some(entry) = entry else { return Ok(None) };
        if entry.id.kind() == ResourceKind::Container
            && let (Some(run), Some(engine_id)) = (&entry.run, self.engine_id(&entry))
        {
            let is_there = self.container_of((&entry).into(), run, Some(engine_id.as_str())).is_some();
            if is_there {
                self.remove_container(run, engine_id);
                return Ok(Some(ResourceState::Waiting("its removal".to_owned())));
            }
        }
        let by = self.accepted.declaration.as_ref().map_or(entry.generation, |held| held.generation);
        self.ledger
            .bury(&entry, by, self.clock.now().wall)
            .map_err(|error| Fault::surroundings(chain(&error)))?;
        Ok(None)
    }

    /// The ledger learns by what the machine knows a run: the engine's id, the pid.
    fn note_runtime(&mut self, id: &ResourceId) -> Result<(), Fault> {
        let Some(entry) = self.ledger.entry(id).cloned() else { return Ok(()) };
        let Some(run) = &entry.run else { return Ok(()) };
        let runtime = if entry.id.kind() == ResourceKind::Process {
            self.process_runtime(Some(run))
        } else {
            let engine_id = match &entry.runtime {
                Some(Runtime::Container { engine_id, .. }) => Some(engine_id.as_str()),
                _ => None,
            };
            self.container_of((&entry).into(), run, engine_id).map(|container| Runtime::Container {
                engine_id: container.id.as_str().to_owned(),
                engine_name: container.name.as_str().to_owned(),
                started_at: container.started_at.map(|at| at.to_string()),
            })
        };
        match runtime {
            Some(runtime) if entry.runtime.as_ref() != Some(&runtime) => {
                self.hold(LedgerEntry { runtime: Some(runtime), ..entry })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn process_runtime(&self, run: Option<&InstanceId>) -> Option<Runtime> {
        match processes::observe(&self.layout, run?) {
            Ok(ProcessState::Running(identity)) => Some(Runtime::Process {
                incarnation: run?.clone(),
                pid: Some(identity.pid),
                start_time: Some(identity.start_time),
                boot_id: identity.boot_id,
            }),
            _ => None,
        }
    }

    pub(super) fn hold(&mut self, entry: LedgerEntry) -> Result<(), Fault> {
        self.ledger.hold(entry).map_err(|error| Fault::surroundings(chain(&error)))
    }

    /// Gives an instance a role; the number is one above the last order in its run folder.
    pub(super) fn give_role(&self, run: &InstanceId, instance: &InstanceId, role: Role) -> Result<(), Fault> {
        let folder = RunFolder::of(&self.layout, run);
        let failed = |error: mesh_durable::DurableError| Fault::surroundings(chain(&error));
        let last = folder.ordered().map_err(failed)?;
        if last.as_ref().is_some_and(|order| order.role == role && &order.instance == instance) {
            return Ok(());
        }
        folder.order(instance, role, last.map_or(1, |order| order.number + 1)).map_err(failed)
    }
}

fn standing(generation: Generation) -> Standing {
    if generation == Generation::FIRST { Standing::Adopted } else { Standing::Declared }
}

/// A seat's holder serves; what holds no seat has no role.
fn role_of(entry: &LedgerEntry) -> Option<Role> {
    entry.section.seat.as_ref().map(|_| Role::Serving)
}
