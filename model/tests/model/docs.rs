//! The documents of the model, each once, and the real code that decides on them: `executor::decide`, `recovery`,
//! `accept`, `open` and the handover's `decide`, each asked once for each input.
//!
//! In: numbers of documents. Out: numbers of documents. A state of the model so is some dozens of bytes, although it
//! is made of whole declarations, plans and records. All functions that are called here are pure; what they
//! answered is remembered.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::rc::Rc;

use jiff::Timestamp;
use mesh_controller::executor::decide::{Step, View, decide as next_step, recovery};
use mesh_controller::known::Known;
use mesh_host::accept::{Source, Verdict, accept};
use mesh_host::handover::decide::{Action, Memory};
use mesh_host::handover::record::Record;
use mesh_protocol::declaration::{Declaration, ModuleSection};
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::id::{Generation, InstanceId, Token};
use mesh_protocol::plan::{Action as Change, ModuleRecord, Plan};
use mesh_protocol::report::Report;
use serde::Serialize;

use super::faults::Fault;
use super::make::{self, Spec};
use super::world::{Entry as Held, Setting};

/// A document.
pub(crate) type Id = u16;

/// Documents of one kind, each once.
pub(crate) struct All<T> {
    all: RefCell<Vec<Rc<T>>>,
    by_text: RefCell<HashMap<String, Id>>,
}

impl<T: Serialize> All<T> {
    fn new() -> Self {
        Self { all: RefCell::default(), by_text: RefCell::default() }
    }

    pub(crate) fn id(&self, value: T) -> Id {
        let text = serde_json::to_string(&value).unwrap();
        let mut all = self.all.borrow_mut();
        *self.by_text.borrow_mut().entry(text).or_insert_with(|| {
            all.push(Rc::new(value));
            Id::try_from(all.len() - 1).unwrap()
        })
    }

    pub(crate) fn of(&self, id: Id) -> Rc<T> {
        self.all.borrow()[usize::from(id)].clone()
    }
}

/// Where one document of the controller lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Doc {
    Declaration(Id),
    Module(Id),
    Plan(Id),
}

/// What the executor is to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Todo {
    Wait,
    Lost(Token),
    Put(Vec<Doc>),
}

/// What the controller's stored state is, in documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stored {
    pub(crate) plan: Option<Id>,
    pub(crate) module: Option<Id>,
    pub(crate) declaration: Option<Id>,
    pub(crate) report: Option<Id>,
}

/// What a decision of the host comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) memory: Id,
    pub(crate) actions: Vec<Action>,
}

struct Memo<K, V>(RefCell<HashMap<K, V>>);

impl<K: Hash + Eq, V: Clone> Memo<K, V> {
    fn new() -> Self {
        Self(RefCell::default())
    }

    fn of(&self, key: K, make: impl FnOnce(&K) -> V) -> V {
        if let Some(value) = self.0.borrow().get(&key) {
            return value.clone();
        }
        let value = make(&key);
        self.0.borrow_mut().insert(key, value.clone());
        value
    }
}

/// What an answer of `accept` depends on.
type Offer = (Option<Id>, Token, Option<Held>, Id);

/// All documents, and all answers.
pub(crate) struct Docs {
    pub(crate) setting: Setting,
    pub(crate) fault: Option<Fault>,
    pub(crate) declarations: All<Declaration>,
    pub(crate) plans: All<Plan>,
    pub(crate) modules: All<ModuleRecord>,
    pub(crate) reports: All<Report>,
    pub(crate) records: All<Record>,
    pub(crate) memories: All<Memory>,
    todo: Memo<(Stored, Token), Todo>,
    recovery: Memo<(Stored, Token), Option<Todo>>,
    epoch: Memo<Stored, u64>,
    verdicts: Memo<Offer, Verdict>,
    aged: Memo<Id, Id>,
    pub(crate) decided: super::seen::Decisions,
    made: Memo<super::seen::ReportKey, Id>,
    sections: BTreeMap<Spec, ModuleSection>,
}

impl Docs {
    pub(crate) fn new(setting: Setting, fault: Option<Fault>) -> Self {
        Self {
            setting,
            fault,
            declarations: All::new(),
            plans: All::new(),
            modules: All::new(),
            reports: All::new(),
            records: All::new(),
            memories: All::new(),
            todo: Memo::new(),
            recovery: Memo::new(),
            epoch: Memo::new(),
            verdicts: Memo::new(),
            aged: Memo::new(),
            decided: super::seen::Decisions::default(),
            made: Memo::new(),
            sections: Spec::ALL.into_iter().map(|spec| (spec, make::section(spec))).collect(),
        }
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(crate) fn known(&self, stored: &Stored) -> Known {
        let mut known = Known::nothing(make::mesh());
        if let Some(module) = stored.module.map(|id| self.modules.of(id)) {
            known.modules.insert(module.name.clone(), (*module).clone());
        }
        if let Some(declaration) = stored.declaration.map(|id| self.declarations.of(id)) {
            known.declarations.insert(make::node(), (*declaration).clone());
        }
        if let Some(report) = stored.report.map(|id| self.reports.of(id)) {
            known.reports.insert(make::node(), (*report).clone());
        }
        known
    }

    /// What the holder of `token` does next for the open plan.
    pub(crate) fn todo(&self, stored: Stored, token: Token) -> Todo {
        self.todo.of((stored, token), |_| {
            let Some(plan) = stored.plan.map(|id| self.plans.of(id)) else { return Todo::Wait };
            let mut plan = (*plan).clone();
            if self.has(Fault::WhoGoesOnDoesNotPutAgain) {
                plan.token = plan.token.map(|_| token);
            }
            let known = self.known(&stored);
            let now = Timestamp::UNIX_EPOCH;
            self.step(next_step(&View { plan: &plan, known: &known, token, now }))
        })
    }

    /// What there is to take over from the host.
    pub(crate) fn recovery(&self, stored: Stored, token: Token) -> Option<Todo> {
        let stored = Stored { plan: None, ..stored };
        self.recovery.of((stored, token), |_| {
            let step = recovery(&self.known(&stored), &make::node(), token, Timestamp::UNIX_EPOCH)?;
            Some(self.step(step))
        })
    }

    pub(crate) fn highest_epoch(&self, stored: Stored) -> u64 {
        let stored = Stored { plan: None, module: None, ..stored };
        self.epoch.of(stored, |_| self.known(&stored).highest_epoch())
    }

    fn step(&self, step: Step) -> Todo {
        match step {
            Step::Wait => Todo::Wait,
            Step::Lost(token) => Todo::Lost(token),
            Step::Store(plan) => Todo::Put(vec![Doc::Plan(self.plans.id(*plan))]),
            Step::Record(record) => Todo::Put(vec![Doc::Module(self.modules.id(*record))]),
            Step::Declare(declaration) => {
                Todo::Put(vec![Doc::Declaration(self.declarations.id(*declaration))])
            }
            Step::PutAgain(all) => {
                Todo::Put(all.into_iter().map(|d| Doc::Declaration(self.declarations.id(d))).collect())
            }
            Step::Recover(taken) => {
                let taken = *taken;
                let records = taken.records.into_values().map(|r| Doc::Module(self.modules.id(r)));
                let declaration = Doc::Declaration(self.declarations.id(taken.declaration));
                Todo::Put(records.chain([declaration]).collect())
            }
        }
    }

    /// What the host makes of an offered declaration.
    pub(crate) fn verdict(
        &self,
        current: Option<Id>,
        token: Token,
        holder: Option<Held>,
        offered: Id,
    ) -> Verdict {
        self.verdicts.of((current, token, holder, offered), |_| {
            let current = current.map(|id| self.declarations.of(id));
            let holder = holder.map(|held| self.ledger_entry(held));
            let holders: Vec<&LedgerEntry> = holder.iter().collect();
            let offered = self.declarations.of(offered);
            let whose = (&make::mesh(), &make::node());
            accept(whose, current.as_deref(), token, &holders, (Source::Bus, &offered))
        })
    }

    pub(crate) fn ledger_entry(&self, held: Held) -> LedgerEntry {
        let section = self.sections[&held.spec].clone();
        let id = section.seat_holder().unwrap();
        LedgerEntry {
            digest: section.spec_digest(&id).unwrap(),
            id,
            section,
            runtime: None,
            instance: Some(instance(held.run)),
            run: Some(instance(held.run)),
            standing: if held.adopted { Standing::Adopted } else { Standing::Declared },
            generation: Generation(held.generation),
        }
    }

    /// A memory of the host, one tick later. Its times are since the host began, by a clock that the model
    /// holds still: what was is that much longer ago.
    pub(crate) fn aged(&self, memory: Id) -> Id {
        self.aged.of(memory, |_| {
            let memory = self.memories.of(memory);
            self.memories.id(super::seen::aged(&memory))
        })
    }

    pub(crate) fn report(&self, key: super::seen::ReportKey) -> Id {
        self.made.of(key, |key| self.reports.id(super::seen::report(self, key)))
    }

    /// The plan of a push.
    pub(crate) fn push(&self, stored: Stored, record: ModuleRecord, number: u8) -> Option<Id> {
        let action = Change::Push { module: record };
        let id = format!("plan-{number}").parse().unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let plan = mesh_controller::draft::draft(&self.known(&stored), action, id, instance(0), now);
        plan.ok().map(|plan| self.plans.id(plan))
    }

    pub(crate) fn plan_is_open(&self, plan: Option<Id>) -> bool {
        plan.is_some_and(|id| !self.plans.of(id).state.is_ended())
    }
}

/// The name of a run.
pub(crate) fn instance(number: u8) -> InstanceId {
    format!("i-{number}").parse().unwrap()
}

/// The run of a name.
pub(crate) fn number(instance: &InstanceId) -> u8 {
    instance.as_str().trim_start_matches("i-").parse().unwrap()
}
