//! The report: what there is to say of this node, composed anew at each pass, sent when it changed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mesh_protocol::declaration::{Declaration, ModuleSection};
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::handover::{Form, HandoverReport, Role, State};
use mesh_protocol::id::{InstanceId, ResourceId, ResourceKind, SeatName, System};
use mesh_protocol::report::{
    Adoption, FORMAT, InstanceReport, NodeState, Report, ResourceReport, ResourceState,
};

use super::keep::Referring;
use super::needs::Need;
use super::{HEARTBEAT, Task};
use crate::handover::record::Record;
use crate::probe::Pace;
use crate::run_folder::RunFolder;
use crate::{files, log};
use mesh_durable as durable;

impl Task {
    /// Which instances are asked how they are, and how often.
    pub(super) fn probe(&mut self) {
        let Some(connection) = self.bus.connection() else { return };
        let interval = std::time::Duration::from_millis(self.file.check_interval_ms);
        let mut instances: BTreeMap<InstanceId, (SeatName, Pace)> = BTreeMap::new();
        for record in self.open_records() {
            let both = [record.old.instance.as_ref(), record.new.instance.as_ref()];
            for instance in both.into_iter().flatten() {
                instances.insert(instance.clone(), (record.seat.clone(), Pace::Handover(interval)));
            }
        }
        for entry in self.ledger.entries() {
            if let (Some(seat), Some(instance)) = (&entry.section.seat, &entry.instance) {
                instances.entry(instance.clone()).or_insert_with(|| (seat.clone(), Pace::Calm));
            }
        }
        self.probes.ask(&connection, &instances);
    }

    /// Whether the accepted declaration was carried out to its end, whatever became of each resource: then it
    /// is written down as applied.
    pub(super) async fn settle(&mut self) {
        let Some(issued) = self.accepted.declaration.as_ref().map(Declaration::issued) else { return };
        if self.accepted.applied.as_ref() == Some(&issued) {
            return;
        }
        let Some(declaration) = self.wanted_declaration() else { return };
        let seats_rest = self
            .seats
            .values()
            .all(|seat| matches!(seat.record.state, State::Removing | State::Done | State::Held));
        let known: BTreeMap<ResourceId, ResourceState> =
            self.resource_reports().into_iter().map(|resource| (resource.id, resource.state)).collect();
        let all_rest = declaration
            .modules
            .iter()
            .flat_map(ModuleSection::resource_ids)
            .all(|id| known.get(&id).is_some_and(|state| !matches!(state, ResourceState::Waiting(_))));
        let gone = self.ledger.entries().all(|entry| {
            entry.standing == Standing::Adopted
                || entry.section.seat.is_some()
                || declaration.resources().contains_key(&entry.id)
        });
        if seats_rest && all_rest && gone && !self.retries_pending() {
            let mut accepted = self.accepted.clone();
            accepted.applied = Some(issued);
            match durable::write_json(&self.layout.declaration(), &accepted, 0o600) {
                Ok(()) => {
                    log::line(&format!("declaration {} is carried out", declaration.generation));
                    self.accepted = accepted;
                }
                Err(error) => log::line(&format!("what was carried out cannot be written down: {error}")),
            }
        }
    }

    /// A handover that the declaration asks for and that was not opened yet: the next pass opens it.
    fn retries_pending(&self) -> bool {
        let Some(declaration) = self.wanted_declaration() else { return false };
        declaration.modules.iter().any(|section| {
            let (Some(seat), Some(id)) = (&section.seat, section.seat_holder()) else { return false };
            let digest = section.spec_digest(&id);
            let holds = self
                .ledger
                .holder(seat)
                .is_some_and(|entry| entry.id == id && Some(&entry.digest) == digest.as_ref());
            let tried = self.seats.get(seat).is_some_and(|seat| {
                seat.record.new.id == id
                    && Some(&seat.record.new.digest) == digest.as_ref()
                    && seat.record.revision >= section.revision
                    && !seat.retry
            });
            let impossible = matches!(self.states.get(&id), Some(ResourceState::Held(_)));
            !holds && !tried && !impossible
        })
    }

    /// Sends the report where it changed, or nothing was heard of this host for a while.
    pub(super) fn send_report(&mut self) {
        let report = self.report();
        let now = self.clock.running();
        let due = match &self.last_report {
            None => true,
            Some((at, last)) => now >= *at + HEARTBEAT || differs(last, &report),
        };
        if due {
            self.number += 1;
            let report = Report { number: self.number, ..report };
            self.bus.report(report.clone());
            self.last_report = Some((now, report));
        }
    }

    /// The report as it would be sent now.
    pub(super) fn report(&self) -> Report {
        let resources = self.resource_reports();
        let declaration = self.accepted.declaration.as_ref();
        let state = match declaration {
            _ if self.diverged => NodeState::Diverged,
            None => NodeState::Empty,
            Some(declaration) => {
                let applied = self.accepted.applied.as_ref() == Some(&declaration.issued());
                let right = resources.iter().all(|resource| resource.state.is_right());
                match (applied, right) {
                    (true, true) => NodeState::Converged,
                    (true, false) => NodeState::Troubled,
                    (false, _) => NodeState::Working,
                }
            }
        };
        Report {
            format: FORMAT,
            mesh: self.file.mesh.clone(),
            node: self.file.node.clone(),
            system: System::of_this_program(),
            boot_id: self.clock.boot_id().to_owned(),
            host_version: env!("CARGO_PKG_VERSION").to_owned(),
            time: Timestamp::now(),
            number: self.number,
            host_started: self.started,
            check_interval_ms: Some(self.file.check_interval_ms),
            accepted: declaration.map(Declaration::issued),
            token: self.accepted.token,
            applied: self.accepted.applied.clone(),
            state,
            refused: self.refused.clone(),
            refused_count: self.refused_count,
            diverged: declaration.filter(|_| self.diverged).cloned().map(Box::new),
            secrets: files::secrets_held(&self.layout).unwrap_or_default(),
            resources,
            instances: self.instances(),
            handovers: self.handovers(),
        }
    }

    fn handovers(&self) -> Vec<HandoverReport> {
        let hung = self.engine.snapshot().error;
        self.seats
            .values()
            .map(|seat| {
                let cleanup = (seat.record.state == State::Removing)
                    .then(|| {
                        hung.clone()
                            .map(|error| format!("{} is not removed yet: {error}", seat.record.old.id))
                    })
                    .flatten();
                let report = seat.record.report(seat.waiting_for.clone(), seat.memory.checks_passed, cleanup);
                HandoverReport { passed: seat.passed.clone(), ..report }
            })
            .collect()
    }

    fn resource_reports(&self) -> Vec<ResourceReport> {
        let mut reports: BTreeMap<ResourceId, ResourceReport> = BTreeMap::new();
        let wanted = self.wanted_declaration();
        let declared = wanted.iter().flat_map(|declaration| {
            declaration.modules.iter().map(|section| (section, declaration.generation))
        });
        for (section, generation) in declared {
            let adopted = generation == mesh_protocol::id::Generation::FIRST;
            self.add_needs(&mut reports, section, adopted);
            for id in section.resource_ids() {
                if matches!(id.kind(), ResourceKind::Process | ResourceKind::Container) {
                    let entry = self.ledger.entry(&id);
                    let state = self.run_state(&id);
                    reports.insert(id.clone(), run_report(id, state, entry));
                }
            }
        }
        for entry in self.ledger.entries() {
            if !reports.contains_key(&entry.id) {
                let state = self.run_state(&entry.id);
                reports.insert(entry.id.clone(), run_report(entry.id.clone(), state, Some(entry)));
            }
            if entry.standing == Standing::Adopted {
                self.add_needs(&mut reports, &entry.section, true);
            }
        }
        reports.into_values().collect()
    }

    /// The accounts, bundles and files of a section; what a module declares goes before what is adopted.
    fn add_needs(
        &self,
        reports: &mut BTreeMap<ResourceId, ResourceReport>,
        section: &ModuleSection,
        adopted: bool,
    ) {
        for id in section.resource_ids() {
            let need = match id.kind() {
                ResourceKind::Account => section
                    .accounts
                    .iter()
                    .find(|account| account.name.as_str() == id.name())
                    .map(|account| Need::Account(account.name.clone())),
                ResourceKind::Bundle => section
                    .bundles
                    .iter()
                    .find(|bundle| bundle.name.as_str() == id.name())
                    .map(|bundle| Need::Bundle(bundle.digest.clone())),
                ResourceKind::File => Some(Need::Files(section.name.clone(), section.files_digest())),
                ResourceKind::Process | ResourceKind::Container => None,
            };
            let Some(need) = need else { continue };
            if reports.contains_key(&id) {
                continue;
            }
            let state = self.need_state(&need);
            let digest = section.spec_digest(&id).filter(|_| state.is_right());
            let adopted = adopted.then_some(Adoption::Genesis);
            reports.insert(id.clone(), ResourceReport { id, state, digest, adopted, runtime: None });
        }
    }

    fn run_state(&self, id: &ResourceId) -> ResourceState {
        let state = self.plain_run_state(id);
        // It is as somebody wants it, and not as it is declared.
        match self.recovery_of(id) {
            Some(recovery) if state.is_right() => ResourceState::Held(recovery.note()),
            _ => state,
        }
    }

    fn plain_run_state(&self, id: &ResourceId) -> ResourceState {
        if let Some(record) = self.open_records().find(|record| &record.new.id == id) {
            return self.handover_state(record);
        }
        if self.open_records().any(|record| &record.old.id == id) {
            return ResourceState::Converged;
        }
        self.states.get(id).cloned().unwrap_or_else(|| ResourceState::Waiting("its turn".to_owned()))
    }

    fn handover_state(&self, record: &Record) -> ResourceState {
        if record.state == State::Removing {
            return ResourceState::Changed;
        }
        let waiting = self.seats.get(&record.seat).and_then(|seat| seat.waiting_for.clone());
        let what = waiting.map(|waiting| format!(", waits for {waiting}")).unwrap_or_default();
        ResourceState::Waiting(format!("handover {}{what}", record.state.as_str()))
    }

    fn instances(&self) -> Vec<InstanceReport> {
        let mut all: BTreeMap<InstanceId, InstanceReport> = BTreeMap::new();
        for entry in self.ledger.entries() {
            if let Some(report) = self.instance_report(entry) {
                all.insert(report.instance.clone(), report);
            }
        }
        for record in self.open_records() {
            if matches!(record.state, State::Planned) {
                continue;
            }
            let newcomer = LedgerEntry {
                id: record.new.id.clone(),
                digest: record.new.digest.clone(),
                section: record.new.section.clone(),
                runtime: None,
                instance: record.new.instance.clone(),
                run: record.new.instance.clone(),
                standing: Standing::Declared,
                generation: record.generation,
            };
            for entry in [&newcomer, &record.old] {
                if let Some(report) = self.instance_report(entry) {
                    all.insert(report.instance.clone(), report);
                }
            }
        }
        all.into_values().collect()
    }

    /// An instance that lives.
    fn instance_report(&self, entry: &LedgerEntry) -> Option<InstanceReport> {
        let (seat, run, instance) =
            (entry.section.seat.as_ref()?, entry.run.as_ref()?, entry.instance.as_ref()?);
        if !self.life(entry.into(), Some(run), entry.runtime.as_ref()).is_alive() {
            return None;
        }
        let folder = RunFolder::of(&self.layout, run);
        let order = folder.ordered().ok().flatten().filter(|order| &order.instance == instance);
        let heard = self.probes.heard(instance);
        let version = heard.ready.map_or_else(|| entry.section.version.clone(), |heard| heard.ready.version);
        Some(InstanceReport {
            instance: instance.clone(),
            seat: seat.clone(),
            resource: entry.id.clone(),
            form: if entry.id.kind() == ResourceKind::Process { Form::Process } else { Form::Container },
            role: order.map_or(Role::StandingBy, |order| order.role),
            version,
            since: self.since(entry, run),
        })
    }

    fn since(&self, entry: &LedgerEntry, run: &InstanceId) -> Timestamp {
        let container =
            || self.container_of(entry.into(), run, None).and_then(|container| container.started_at);
        let started = match entry.id.kind() {
            ResourceKind::Container => container(),
            _ => crate::processes::started_at(&self.layout, run),
        };
        started.unwrap_or(self.started)
    }

    /// The sections that something on this node needs, declared, still running, or to be gone back to.
    pub(super) fn sections_needed(&self) -> Vec<ModuleSection> {
        let referring = Referring {
            declaration: self.accepted.declaration.as_ref(),
            ledger: &self.ledger.entries().collect::<Vec<_>>(),
            records: &self.seats.values().map(|seat| &seat.record).collect::<Vec<_>>(),
            steady: &self.steady.values().collect::<Vec<_>>(),
            recoveries: &self.recoveries.values().collect::<Vec<_>>(),
        };
        referring.sections().cloned().collect()
    }

    /// The runs that something on this node refers to.
    pub(super) fn runs_needed(&self) -> BTreeSet<InstanceId> {
        let held = self.ledger.entries().filter_map(|entry| entry.run.clone());
        let records = self.seats.values().filter(|seat| seat.record.is_open()).flat_map(|seat| {
            [seat.record.old.run.clone(), seat.record.new.instance.clone()].into_iter().flatten()
        });
        held.chain(records).collect()
    }
}

fn run_report(id: ResourceId, state: ResourceState, entry: Option<&LedgerEntry>) -> ResourceReport {
    ResourceReport {
        id,
        state,
        digest: entry.map(|entry| entry.digest.clone()),
        adopted: entry.and_then(|entry| (entry.standing == Standing::Adopted).then_some(Adoption::Genesis)),
        runtime: entry.and_then(|entry| entry.runtime.clone()),
    }
}

/// Whether two reports differ in more than their time and number.
fn differs(last: &Report, next: &Report) -> bool {
    let plain = |report: &Report| Report { time: Timestamp::UNIX_EPOCH, number: 0, ..report.clone() };
    plain(last) != plain(next)
}
