//! What the host sees in the model, and what it reports: the real `Seen`, `Record` and `Report`, made from the few
//! facts that differ.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use mesh_host::handover::decide::{Action, Memory, Now, decide};
use mesh_host::handover::record::Record;
use mesh_host::handover::seen::{Answered, Bus, Instance, Life as Lives, Needs, Seen, Wanted};
use mesh_protocol::handover::{Form, Reason, RoleAck, State};
use mesh_protocol::id::ResourceKind;
use mesh_protocol::report::{
    Adoption, FORMAT, InstanceReport, NodeState, Refusal, Report, ResourceReport, ResourceState,
};
use mesh_protocol::verb::{Check, PROTOCOL, Ready};

use super::docs::{Decided, Docs, Id, instance};
use super::make::{self, Spec};
use super::run::role;
use super::world::{Entry, INTERVAL, Life, NOW, TICK};

/// No age counts for more than this.
const OLD: u8 = 60;

/// One of the two, as the host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Side {
    pub(crate) run: Option<u8>,
    /// None: it was never started.
    pub(crate) life: Option<Life>,
    pub(crate) spec: Spec,
    pub(crate) order: Option<(bool, u8)>,
    pub(crate) ack: Option<(bool, u8)>,
    pub(crate) ready: Option<(bool, bool, u8)>,
    pub(crate) public: Option<u8>,
}

/// All that the host sees when it decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Sight {
    pub(crate) connected: Option<u8>,
    pub(crate) old: Side,
    pub(crate) new: Side,
    pub(crate) accepted: Option<Id>,
    pub(crate) fresh: u8,
    pub(crate) boot: u8,
    pub(crate) rested: bool,
}

/// What the host decided, by what it saw.
#[derive(Default)]
pub(crate) struct Decisions(RefCell<HashMap<(Id, Id, Sight), Decided>>);

impl Decisions {
    pub(crate) fn of(&self, docs: &Docs, record: Id, memory: Id, sight: Sight) -> Decided {
        let key = (record, memory, sight);
        if let Some(decided) = self.0.borrow().get(&key) {
            return decided.clone();
        }
        let (record, memory) = (docs.records.of(record), docs.memories.of(memory));
        let seen = seen(docs, &record, &sight);
        let now = now(sight.boot, sight.rested);
        let mut decision = decide(&record, &memory, &seen, &now, INTERVAL);
        if let Some(fault) = docs.fault {
            super::faults::change(fault, &mut decision, &record, &seen, &now);
        }
        let decided = Decided { memory: docs.memories.id(decision.memory), actions: decision.actions };
        self.0.borrow_mut().insert(key, decided.clone());
        decided
    }
}

pub(crate) fn now(boot: u8, rested: bool) -> Now {
    let wall = if rested { Timestamp::from_second(3600).unwrap() } else { Timestamp::UNIX_EPOCH };
    Now { running: NOW, wall, boot_id: format!("boot-{boot}") }
}

pub(crate) fn ago(ticks: u8) -> Duration {
    NOW - TICK * u32::from(ticks.min(OLD))
}

fn seen(docs: &Docs, record: &Record, sight: &Sight) -> Seen {
    let echo = Some(Duration::from_millis(1));
    let wanted = sight.accepted.map_or(Wanted::Same { revision: record.revision, retry: false }, |id| {
        let declaration = docs.declarations.of(id);
        let section = declaration.modules.iter().find(|section| section.seat.as_ref() == Some(&record.seat));
        match section {
            None => Wanted::Same { revision: record.revision, retry: false },
            Some(section) if section.spec_digest(&record.new.id).as_ref() == Some(&record.new.digest) => {
                Wanted::Same { revision: section.revision, retry: false }
            }
            Some(_) => Wanted::Other(declaration.generation),
        }
    });
    Seen {
        bus: sight.connected.map_or(Bus::Away, |since| Bus::Up { since: ago(since), echo }),
        needs: Needs::Met,
        old: side(&sight.old),
        new: side(&sight.new),
        wanted,
        stopping: false,
        busy: false,
        fresh: instance(sight.fresh),
        program: Some(sight.new.spec.program()),
    }
}

fn side(side: &Side) -> Instance {
    let name = side.run.map(instance);
    let life = match side.life {
        None => Lives::NotStarted,
        Some(Life::Running | Life::Frozen) => Lives::Running,
        Some(Life::Ended) => Lives::Ended(Reason::Exited { code: 0 }),
        Some(Life::Killed) => {
            Lives::Ended(Reason::Surroundings { detail: "it was killed from outside".to_owned() })
        }
        Some(Life::Gone) => Lives::Gone("it is not there".to_owned()),
    };
    let ack = side.ack.zip(name.clone()).map(|((serves, number), instance)| RoleAck {
        instance,
        role: role(serves),
        number: number.into(),
        trouble: None,
    });
    let ready = side.ready.zip(name.clone()).map(|((serves, lock_taken, age), instance)| Answered {
        asked: ago(age),
        ready: Ready {
            instance,
            role: role(serves),
            version: side.spec.version().to_owned(),
            program: side.spec.program(),
            protocol: PROTOCOL,
            formats: vec![1],
            state: Check::Passed,
            lock: Check::Passed,
            lock_taken,
            open_plan: None,
        },
    });
    Instance {
        id: name,
        life,
        ordered: side.order.map(|(serves, number)| (role(serves), number.into())),
        ack,
        ready,
        ready_error: None,
        public: side.public.map(ago),
    }
}

/// The record as the model keeps it: times are for people, and would tell states apart that are one.
pub(crate) fn timeless(mut record: Record) -> Record {
    record.since = Timestamp::UNIX_EPOCH;
    record.next_try = record.next_try.map(|_| Timestamp::from_second(60).unwrap());
    record
}

/// A memory, one tick later by a clock that stands still: each point in time is that much further back.
pub(crate) fn aged(memory: &Memory) -> Memory {
    let oldest = NOW - TICK * u32::from(OLD);
    let older = |value: &mut serde_json::Value| {
        let Ok(Some(at)) = serde_json::from_value::<Option<Duration>>(value.clone()) else { return };
        if at >= oldest {
            *value = serde_json::to_value((at - TICK).max(oldest)).unwrap();
        }
    };
    let bounded = |value: &mut serde_json::Value| {
        if let Ok(long) = serde_json::from_value::<Duration>(value.clone()) {
            *value = serde_json::to_value(long.min(TICK * u32::from(OLD))).unwrap();
        }
    };
    let mut value = serde_json::to_value(memory).unwrap();
    for point in ["entered", "due"] {
        older(&mut value[point]);
    }
    for point in ["looked", "looking", "bus_since", "bus_lost", "old_started", "removal"] {
        older(&mut value["lasting"][point]);
    }
    bounded(&mut value["bus_clock"]);
    bounded(&mut value["lasting"]["bus_away"]);
    serde_json::from_value(value).unwrap()
}

/// What the host's report depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ReportKey {
    pub(crate) accepted: Option<Id>,
    pub(crate) applied: bool,
    pub(crate) token: mesh_protocol::id::Token,
    pub(crate) refused: Option<Id>,
    pub(crate) diverged: bool,
    pub(crate) process: Option<(Entry, bool)>,
    pub(crate) container: Option<(Entry, bool)>,
    pub(crate) record: Option<Id>,
}

pub(crate) fn report(docs: &Docs, key: &ReportKey) -> Report {
    let accepted = key.accepted.map(|id| docs.declarations.of(id));
    let issued = accepted.as_ref().map(|declaration| declaration.issued());
    let record = key.record.map(|id| docs.records.of(id));
    let mut resources = Vec::new();
    let mut instances = Vec::new();
    for (entry, runs) in [key.process, key.container].into_iter().flatten() {
        let held = docs.ledger_entry(entry);
        let state =
            if runs { ResourceState::Converged } else { ResourceState::Waiting("its start".to_owned()) };
        instances.push(InstanceReport {
            instance: instance(entry.run),
            seat: "mesh-controller".parse().unwrap(),
            resource: held.id.clone(),
            form: if entry.spec == Spec::Container { Form::Container } else { Form::Process },
            role: role(true),
            version: entry.spec.version().to_owned(),
            since: Timestamp::UNIX_EPOCH,
        });
        let adopted = entry.adopted.then_some(Adoption::Genesis);
        resources.push(ResourceReport {
            id: held.id,
            state,
            digest: Some(held.digest),
            adopted,
            runtime: None,
        });
    }
    if let Some(record) = record.as_ref().filter(|record| record.new.id != record.old.id)
        && key.process.is_none()
    {
        let state = match record.state {
            State::Held => ResourceState::Held("handed back".to_owned()),
            state => ResourceState::Waiting(format!("handover {}", state.as_str())),
        };
        let id = record.new.id.clone();
        resources.push(ResourceReport { id, state, digest: None, adopted: None, runtime: None });
    }
    // What it needs is there at once.
    for (id, digest) in accepted.iter().flat_map(|declaration| declaration.resources()) {
        if !matches!(id.kind(), ResourceKind::Process | ResourceKind::Container) {
            let state = ResourceState::Converged;
            resources.push(ResourceReport { id, state, digest: Some(digest), adopted: None, runtime: None });
        }
    }
    Report {
        format: FORMAT,
        mesh: make::mesh(),
        node: make::node(),
        system: mesh_protocol::id::System::LinuxAmd64,
        boot_id: "boot".to_owned(),
        host_version: "0.1.0".to_owned(),
        time: Timestamp::UNIX_EPOCH,
        number: 1,
        host_started: Timestamp::UNIX_EPOCH,
        check_interval_ms: Some(1000),
        accepted: issued.clone(),
        token: key.token,
        applied: issued.filter(|_| key.applied),
        state: NodeState::Working,
        refused: key.refused.map(|id| docs.declarations.of(id)).map(|offered| Refusal {
            offered: offered.issued(),
            token: offered.token,
            why: "it is older".to_owned(),
            time: Timestamp::UNIX_EPOCH,
        }),
        refused_count: u64::from(key.refused.is_some()),
        diverged: accepted.filter(|_| key.diverged).map(|declaration| Box::new((*declaration).clone())),
        secrets: make::secrets(),
        resources,
        instances,
        handovers: record.iter().map(|record| record.report(None, 0, None)).collect(),
    }
}

/// What an action is, in a word or two.
pub(crate) fn named(action: &Action) -> String {
    match action {
        Action::Write(record) if record.old_ended => format!("writes {}, old ended", record.state.as_str()),
        Action::Write(record) => format!("writes {}", record.state.as_str()),
        other => format!("{other:?}"),
    }
}
