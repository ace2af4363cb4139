//! Runs: how one is begun, observed, ended. Shared by what is supervised and by handovers.
//!
//! The ledger (or the handover's record) has a run before it is begun: [`Task::begin_process`] and
//! [`Task::begin_container`] are only called with an instance that is written down.

use std::time::Duration;

use mesh_engine::{Container, ContainerId, State as EngineState};
use mesh_protocol::chain::chain;
use mesh_protocol::declaration::{ModuleSection, Owner};
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::handover::{Reason, Role};
use mesh_protocol::id::{AccountName, Digest, InstanceId, ResourceId, ResourceKind};
use mesh_protocol::report::Runtime;
use mesh_protocol::variable;

use super::needs::Need;
use super::{Job, JobEnd, Task};
use crate::containers::effect::{self, GRACE, Tag};
use crate::fault::Fault;
use crate::handover::decide::Haste;
use crate::handover::seen::Life;
use crate::log;
use crate::place::Place;
use crate::processes::{self, Grouping, Launch, ProcessState};
use crate::run_folder::RunFolder;
use mesh_durable::DurableError;

/// A process's log is turned at this size; with the one before, a day of what a program says in trouble.
const LOG_LIMIT: u64 = 8 << 20;

/// What a run is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) id: &'a ResourceId,
    pub(super) digest: &'a Digest,
    pub(super) section: &'a ModuleSection,
}

impl<'a> From<&'a LedgerEntry> for Subject<'a> {
    fn from(entry: &'a LedgerEntry) -> Self {
        Self { id: &entry.id, digest: &entry.digest, section: &entry.section }
    }
}

impl Task {
    /// An id for a run that never was.
    pub(super) fn fresh_instance(kind: ResourceKind) -> Result<InstanceId, Fault> {
        let mut bytes = [0_u8; 5];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Fault::surroundings(format!("no random bytes: {error}")))?;
        let prefix = if kind == ResourceKind::Process { 'p' } else { 'c' };
        let mut text = format!("{prefix}-");
        for byte in bytes {
            text.push_str(&format!("{byte:02x}"));
        }
        text.parse().map_err(|error: mesh_protocol::id::InvalidId| Fault::declared(error.to_string()))
    }

    /// Whom something runs as, once the account is there.
    fn ids_of(&self, owner: &Owner) -> Result<(u32, u32), Fault> {
        match owner {
            Owner::User(number) => Ok((*number, *number)),
            Owner::Account(name) => self.account_ids(name),
        }
    }

    fn account_ids(&self, name: &AccountName) -> Result<(u32, u32), Fault> {
        self.needs
            .account(&Need::Account(name.clone()))
            .ok_or_else(|| Fault::pending(format!("account {name}")))
    }

    pub(super) fn place(&self, subject: Subject<'_>, run: &InstanceId) -> Result<Place, Fault> {
        let owner = match subject.id.kind() {
            ResourceKind::Process => {
                let processes = &subject.section.processes;
                let process = processes.iter().find(|p| p.name.as_str() == subject.id.name());
                process.map(|process| Owner::Account(process.account.clone()))
            }
            _ => {
                let containers = &subject.section.containers;
                let container = containers.iter().find(|c| c.name.as_str() == subject.id.name());
                container.map(|container| container.owner.clone())
            }
        };
        let owner = owner.ok_or_else(|| Fault::declared(format!("{} is not in its section", subject.id)))?;
        Ok(Place::new(&self.layout, &self.file, subject.section, run, self.ids_of(&owner)?))
    }

    /// Begins a process: its run folder, its launch record, its shim. Begun twice, it runs once.
    pub(super) fn begin_process(
        &mut self,
        subject: Subject<'_>,
        instance: &InstanceId,
        role: Option<Role>,
    ) -> Result<(), Fault> {
        let launch = self.launch(subject, instance)?;
        self.make_run_folder(instance, instance, (launch.uid, launch.gid), role)?;
        processes::prepare(&self.layout, &launch).map_err(|error| Fault::surroundings(chain(&error)))?;
        log::line(&format!("{} starts as {instance}", subject.id));
        self.pauses.started(subject.id, instance, self.clock.running());
        processes::spawn(&self.layout, instance, &processes::own_program())
            .map_err(|error| Fault::surroundings(chain(&error)))
    }

    fn make_run_folder(
        &self,
        run: &InstanceId,
        instance: &InstanceId,
        ids: (u32, u32),
        role: Option<Role>,
    ) -> Result<(), Fault> {
        let surroundings = |error: DurableError| Fault::surroundings(chain(&error));
        let folder = RunFolder::make(&self.layout, run, ids.0, ids.1).map_err(surroundings)?;
        folder.write_instance(instance).map_err(surroundings)?;
        if let Some(role) = role {
            self.give_role(run, instance, role)?;
        }
        Ok(())
    }

    fn launch(&self, subject: Subject<'_>, instance: &InstanceId) -> Result<Launch, Fault> {
        let place = self.place(subject, instance)?;
        self.make_data_folder(subject.section, &place)?;
        let section = subject.section;
        let missing = || Fault::declared(format!("{} is not in its section", subject.id));
        let process =
            section.processes.iter().find(|p| p.name.as_str() == subject.id.name()).ok_or_else(missing)?;
        let bundle = section.bundles.iter().find(|b| b.name == process.bundle).ok_or_else(missing)?;
        let folder = self.layout.bundle(&bundle.digest);
        let values = place.values();
        let mut words = Vec::new();
        for word in &process.run {
            words.push(variable::expand(word, &values).map_err(|error| Fault::declared(error.to_string()))?);
        }
        let mut words = words.into_iter();
        let program = words.next().ok_or_else(|| Fault::declared(format!("{} has no words", subject.id)))?;
        Ok(Launch {
            instance: instance.clone(),
            program: folder.join(program.trim_start_matches("./")),
            arguments: words.collect(),
            working_directory: folder,
            uid: place.uid,
            gid: place.gid,
            log: self.layout.log_of(subject.id, instance),
            log_limit_bytes: LOG_LIMIT,
            grouping: Grouping::ControlGroup,
        })
    }

    /// `${data.dir}`, where the section's words speak of it.
    fn make_data_folder(&self, section: &ModuleSection, place: &Place) -> Result<(), Fault> {
        let speaks_of_it = |text: &String| text.contains("${data.dir}");
        let processes = section.processes.iter().any(|process| process.run.iter().any(speaks_of_it));
        let containers = section.containers.iter().any(|container| {
            container.run.iter().any(speaks_of_it)
                || container.mounts.iter().any(|mount| speaks_of_it(&mount.source))
        });
        if processes || containers {
            crate::paths::data_folder(&self.layout, &section.name, (place.uid, place.gid))
                .map_err(|error| Fault::surroundings(chain(&error)))?;
        }
        Ok(())
    }

    /// Begins a container: makes it and starts it, as a job. `run` names its run folder.
    pub(super) fn begin_container(
        &mut self,
        subject: Subject<'_>,
        (run, instance): (&InstanceId, &InstanceId),
        role: Option<Role>,
    ) -> Result<(), Fault> {
        let place = self.place(subject, run)?;
        self.make_data_folder(subject.section, &place)?;
        let containers = &subject.section.containers;
        let Some(container) = containers.iter().find(|c| c.name.as_str() == subject.id.name()) else {
            return Err(Fault::declared(format!("{} is not in its section", subject.id)));
        };
        let engine = self.reached_engine()?;
        self.make_run_folder(run, instance, (place.uid, place.gid), role)?;
        log::line(&format!("{} starts as {instance}", subject.id));
        self.pauses.started(subject.id, instance, self.clock.running());
        let tag = Tag {
            mesh: self.file.mesh.clone(),
            id: subject.id.clone(),
            digest: subject.digest.clone(),
            run: run.clone(),
        };
        let name = self.file.prefixed(container.name.as_str());
        let (container, section) = (container.clone(), subject.section.clone());
        self.jobs.begin(Job::Run(run.clone()), async move {
            let made = effect::create_and_start(engine, (name, tag), container, section, place).await;
            JobEnd::Container(made.map(Box::new))
        });
        Ok(())
    }

    /// Starts a container that is there, as a new run.
    pub(super) fn restart_container(
        &mut self,
        entry: &LedgerEntry,
        engine_id: ContainerId,
        role: Option<Role>,
    ) -> Result<(), Fault> {
        let (Some(run), Some(instance)) = (&entry.run, &entry.instance) else {
            return Err(Fault::declared(format!("{} has no run", entry.id)));
        };
        let place = self.place(entry.into(), run)?;
        let engine = self.reached_engine()?;
        self.make_run_folder(run, instance, (place.uid, place.gid), role)?;
        log::line(&format!("{} starts again as {instance}", entry.id));
        self.pauses.started(&entry.id, instance, self.clock.running());
        self.jobs.begin(Job::Run(run.clone()), async move {
            JobEnd::Container(effect::start(engine, engine_id).await.map(Box::new))
        });
        Ok(())
    }

    fn reached_engine(&self) -> Result<mesh_engine::Engine, Fault> {
        self.engine.engine().ok_or_else(|| {
            let error = self.engine.snapshot().error;
            Fault::surroundings(
                error.unwrap_or_else(|| "the container engine was not reached yet".to_owned()),
            )
        })
    }

    /// Ends a run, as a job.
    pub(super) fn end_run(
        &mut self,
        id: &ResourceId,
        run: &InstanceId,
        engine_id: Option<&ContainerId>,
        haste: Haste,
    ) {
        if id.kind() == ResourceKind::Process {
            let (layout, instance) = (self.layout.clone(), run.clone());
            let grace = if haste == Haste::Now { Duration::ZERO } else { GRACE };
            self.jobs.begin(Job::Run(run.clone()), async move {
                let ended = processes::end(&layout, &instance, grace).await;
                JobEnd::Ended(ended.map(|_| ()).map_err(|error| Fault::surroundings(chain(&error))))
            });
        } else if let (Some(engine), Some(engine_id)) = (self.engine.engine(), engine_id.cloned()) {
            let grace = (haste == Haste::Grace).then_some(GRACE);
            let look = self.engine.clone();
            self.jobs.begin(Job::Run(run.clone()), async move {
                let ended = effect::end(engine, engine_id, grace).await;
                look.look();
                JobEnd::Ended(ended)
            });
        }
    }

    /// Removes what is left of a container's run, as a job.
    pub(super) fn remove_container(&mut self, run: &InstanceId, engine_id: ContainerId) {
        if let Some(engine) = self.engine.engine() {
            let look = self.engine.clone();
            self.jobs.begin(Job::Run(run.clone()), async move {
                let removed = effect::remove(engine, engine_id).await;
                look.look();
                JobEnd::Ended(removed)
            });
        }
    }

    pub(super) fn run_ended(&mut self, run: &InstanceId, end: JobEnd) {
        match end {
            JobEnd::Container(Ok(container)) => {
                self.fresh.insert(run.clone(), (self.clock.running(), *container));
                self.faults.remove(run);
                self.engine.look();
            }
            JobEnd::Container(Err(fault)) | JobEnd::Ended(Err(fault)) => {
                log::line(&format!("{run}: {fault}"));
                let id = self.ledger.entries().find(|entry| entry.run.as_ref() == Some(run));
                if let Some(id) = id.map(|entry| entry.id.clone()) {
                    self.pauses.ended(&id, None, self.clock.running());
                }
                self.faults.insert(run.clone(), fault);
                self.engine.look();
            }
            JobEnd::Ended(Ok(())) => {
                self.fresh.remove(run);
                self.faults.remove(run);
            }
            JobEnd::Need(_) => {}
        }
    }

    /// The container of a run: as a job left it, where the snapshot is older.
    pub(super) fn container_of(
        &self,
        entry: Subject<'_>,
        run: &InstanceId,
        engine_id: Option<&str>,
    ) -> Option<Container> {
        let snapshot = self.engine.snapshot();
        if let Some((at, container)) = self.fresh.get(run)
            && snapshot.at.is_none_or(|seen| seen <= *at)
        {
            return Some(container.clone());
        }
        let by_id = engine_id.and_then(|engine_id| snapshot.by_engine_id(engine_id));
        by_id.or_else(|| snapshot.made_for(entry.id, run)).cloned()
    }

    /// Whether a run lives.
    pub(super) fn life(
        &self,
        subject: Subject<'_>,
        run: Option<&InstanceId>,
        runtime: Option<&Runtime>,
    ) -> Life {
        let Some(run) = run else { return Life::NotStarted };
        if subject.id.kind() == ResourceKind::Process {
            return process_life(processes::observe(&self.layout, run));
        }
        let engine_id = match runtime {
            Some(Runtime::Container { engine_id, .. }) => Some(engine_id.as_str()),
            _ => None,
        };
        if let Some(container) = self.container_of(subject, run, engine_id) {
            return container_life(&container.state);
        }
        match (self.engine.snapshot().at, engine_id) {
            (None, _) => Life::Starting,
            (Some(_), None) => Life::NotStarted,
            (Some(_), Some(_)) => Life::Gone("it is not in the container engine".to_owned()),
        }
    }
}

fn process_life(observed: Result<ProcessState, processes::ProcessError>) -> Life {
    match observed {
        Ok(ProcessState::Absent | ProcessState::Prepared) => Life::NotStarted,
        Ok(ProcessState::Starting) => Life::Starting,
        Ok(ProcessState::Running(_)) => Life::Running,
        Ok(ProcessState::Ended(exit)) => Life::Ended(blame(exit.kind.reason())),
        Ok(ProcessState::Closed) => Life::Gone("it was given up before it was started".to_owned()),
        Ok(ProcessState::Lost { why }) => Life::Gone(why),
        Err(error) => Life::Gone(chain(&error)),
    }
}

fn container_life(state: &EngineState) -> Life {
    match state {
        EngineState::Created => Life::NotStarted,
        EngineState::Running { .. } | EngineState::Paused { .. } | EngineState::Restarting => Life::Running,
        EngineState::Exited { out_of_memory: true, .. } => Life::Ended(Reason::OutOfMemory),
        EngineState::Exited { code, .. } => {
            let code = i32::try_from(*code).unwrap_or(i32::MAX);
            // The engine gives the end by a signal as a shell does: 128 and the number.
            let signal = code.checked_sub(128).filter(|signal| (1..=64).contains(signal));
            Life::Ended(blame(signal.map_or(Reason::Exited { code }, |signal| Reason::Signalled { signal })))
        }
        EngineState::Removing | EngineState::Dead => Life::Gone("it is being removed".to_owned()),
    }
}

/// No program sends itself SIGKILL: somebody else did, and that is nothing against the program.
fn blame(reason: Reason) -> Reason {
    const SIGKILL: i32 = 9;
    match reason {
        Reason::Signalled { signal: SIGKILL } => {
            Reason::Surroundings { detail: "it was killed from outside (SIGKILL)".to_owned() }
        }
        reason => reason,
    }
}
