//! The host of the model: the real `accept`, `open`, handover `decide` and `supervise::decide` on a disk that
//! keeps what was written; it may be killed between any two of its effects.

use std::collections::BTreeMap;
use std::rc::Rc;

use mesh_host::accept::Verdict;
use mesh_host::handover::decide::{Action, Memory, Which};
use mesh_host::handover::open::{Opening, open};
use mesh_host::handover::record::Record;
use mesh_host::supervise::{Step, looking};
use mesh_protocol::door::Standing;
use mesh_protocol::handover::{Role, State};
use mesh_protocol::id::Token;

use super::docs::{Docs, Id, instance, number};
use super::faults::Fault;
use super::make::Spec;
use super::seen::{ReportKey, Side, Sight, ago, now, timeless};
use super::world::{Entry, Heard, Host, Life, NOW, Run, World};

/// What the host does in one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostStep {
    Starts,
    IsOffered(Verdict),
    Opens,
    Forgets,
    Acts(Vec<Action>),
    Supervises(Step),
    Applies,
    Reports,
}

impl World {
    pub(crate) fn start_host(&mut self, docs: &Docs) {
        let kept = self.host.as_ref().map(|host| host.memory);
        let memory = kept.unwrap_or_else(|| docs.memories.id(Memory::default()));
        self.host = Some(Host {
            memory,
            connected: None,
            old: Heard::default(),
            new: Heard::default(),
            offered: None,
            refused: None,
            diverged: false,
            rested: false,
            began: BTreeMap::new(),
            looking: 0,
            looked: 0,
            frozen: None,
        });
    }

    pub(crate) fn record(&self, docs: &Docs) -> Option<Rc<Record>> {
        self.disk.record.map(|id| docs.records.of(id))
    }

    /// The next step of the host; none where it has nothing to do. It dies after so many of its actions, if told.
    pub(crate) fn host_step(&mut self, docs: &Docs, dies_after: Option<usize>) -> Option<HostStep> {
        if self.host.is_none() {
            self.start_host(docs);
            return Some(HostStep::Starts);
        }
        if self.host.as_ref().is_some_and(|host| host.frozen.is_some()) {
            return None;
        }
        self.hear(docs);
        if let Some(step) = self.offered(docs) {
            return Some(step);
        }
        if let Some(step) = self.opens(docs).or_else(|| self.handover(docs, dies_after)) {
            return Some(step);
        }
        if let Some(step) = self.supervises(docs) {
            return Some(step);
        }
        if !self.disk.applied && self.rests(docs) {
            self.disk.applied = true;
            return Some(HostStep::Applies);
        }
        let report = docs.report(self.report_key(docs));
        if self.bus() && self.kept.report != Some(report) {
            self.kept_mut().report = Some(report);
            return Some(HostStep::Reports);
        }
        None
    }

    pub(crate) fn hear(&mut self, docs: &Docs) {
        let record = self.record(docs).filter(|record| record.is_open());
        let (old, new) = match &record {
            Some(record) => {
                (record.old.instance.as_ref().map(number), record.new.instance.as_ref().map(number))
            }
            None => (self.disk.holder().map(|entry| entry.run), None),
        };
        let bus = self.bus();
        let Some(mut host) = self.host.take() else { return };
        host.connected = if bus { Some(host.connected.unwrap_or(0)) } else { None };
        let since = looking(ago(host.looking), ago(host.looked), NOW);
        host.looking = if since == NOW { 0 } else { host.looking };
        host.looked = 0;
        for (heard, run) in [(&mut host.old, old), (&mut host.new, new)] {
            if heard.of != run {
                *heard = Heard { of: run, ..Heard::default() };
            }
            let Some(run) = run.and_then(|run| self.runs.get(&run)).filter(|run| bus && run.answers()) else {
                continue;
            };
            heard.ready = Some((run.serves, run.lock_taken, 0));
            if let Some(of) = heard.of {
                host.began.remove(&of);
            }
            if run.subscribed {
                heard.public = Some(0);
            }
        }
        self.host = Some(host);
    }

    /// The host looks at its key.
    fn offered(&mut self, docs: &Docs) -> Option<HostStep> {
        let (id, _) = self.kept.declaration?;
        let host = self.host.as_ref()?;
        host.connected?;
        (host.offered != Some(id)).then(|| self.offer(docs, id))
    }

    pub(crate) fn offer(&mut self, docs: &Docs, id: Id) -> HostStep {
        let token =
            if docs.has(Fault::TheHostForgetsTheHighestToken) { Token::default() } else { self.disk.token };
        let verdict = docs.verdict(self.disk.accepted, token, self.disk.holder(), id);
        let same = matches!(verdict, Verdict::TakeToken);
        match &verdict {
            Verdict::Take | Verdict::TakeToken => {
                self.sync(docs);
                let token = docs.declarations.of(id).token;
                self.disk.applied &= same;
                (self.disk.accepted, self.disk.token) = (Some(id), token);
                self.expect(token >= self.ghost.highest, "a host follows a stale token");
                self.ghost.highest = self.ghost.highest.max(token);
            }
            Verdict::Already | Verdict::Diverged | Verdict::Refuse(_) => {}
        }
        if let Some(host) = &mut self.host {
            host.offered = Some(id);
            host.diverged = matches!(verdict, Verdict::Diverged);
            host.refused = matches!(verdict, Verdict::Refuse(_)).then_some(id);
        }
        HostStep::IsOffered(verdict)
    }

    fn sync(&mut self, docs: &Docs) {
        if !docs.setting.bus_is_far {
            self.on_disk = self.kept.clone();
        }
    }

    pub(crate) fn opening(&self, docs: &Docs) -> Option<Opening> {
        let declaration = docs.declarations.of(self.disk.accepted?);
        let section = declaration.modules.iter().find(|section| section.seat.is_some())?;
        let holder = self.disk.holder().map(|entry| docs.ledger_entry(entry));
        let record = self.record(docs);
        let now = now(self.boot, false);
        Some(open(holder.as_ref(), section, declaration.generation, record.as_deref(), &now))
    }

    fn opens(&mut self, docs: &Docs) -> Option<HostStep> {
        let held = self.record(docs).is_some_and(|record| record.state == State::Held);
        match self.opening(docs)? {
            Opening::Begin(record) => {
                self.note(docs, *record);
                Some(HostStep::Opens)
            }
            Opening::Nothing if held => {
                self.disk.record = None;
                Some(HostStep::Forgets)
            }
            _ => None,
        }
    }

    fn side(&self, run: Option<u8>, heard: &Heard, spec: Spec) -> Side {
        let found = run.and_then(|run| self.runs.get(&run));
        let heard = Some(heard).filter(|heard| heard.of == run);
        Side {
            run,
            life: found.map(|run| run.life),
            spec,
            order: found.and_then(|run| run.order),
            ack: found.and_then(|run| run.ack),
            ready: heard.and_then(|heard| heard.ready),
            public: heard.and_then(|heard| heard.public),
        }
    }

    fn handover(&mut self, docs: &Docs, dies_after: Option<usize>) -> Option<HostStep> {
        let record = self.record(docs).filter(|record| record.state != State::Done)?;
        let host = self.host.clone()?;
        let holder = self.disk.holder().map(|entry| docs.ledger_entry(entry));
        let (record, id) = match (record.state, self.disk.record?) {
            (State::Held, _) => {
                let record = timeless((*record).clone().with_holder(holder.as_ref()));
                (Rc::new(record.clone()), docs.records.id(record))
            }
            (_, id) => (record, id),
        };
        let old = record.old.instance.as_ref().map(number);
        let new = record.new.instance.as_ref().map(number);
        let sight = Sight {
            connected: host.connected,
            old: self.side(old, &host.old, Spec::of_version(&record.old.section.version)),
            new: self.side(new, &host.new, Spec::of_version(&record.new.section.version)),
            accepted: self.disk.accepted,
            fresh: self.counter + 1,
            boot: self.boot,
            rested: host.rested,
        };
        let decided = docs.decided.of(docs, id, host.memory, sight);
        if let Some(host) = &mut self.host {
            host.memory = decided.memory;
        }
        if decided.actions.is_empty() && decided.memory == host.memory {
            return None;
        }
        for (done, action) in decided.actions.iter().enumerate() {
            if dies_after == Some(done) {
                self.host_dies(docs);
                break;
            }
            self.act(docs, action);
        }
        Some(HostStep::Acts(decided.actions))
    }

    pub(crate) fn host_dies(&mut self, docs: &Docs) {
        if docs.has(Fault::ARestartVoidsNoCheck) {
            // The clocks go on as if nothing had been.
            let memory = self.host.take().map(|host| host.memory);
            self.start_host(docs);
            if let (Some(host), Some(memory)) = (&mut self.host, memory) {
                host.memory = memory;
            }
        } else {
            self.host = None;
        }
        (self.ghost.trial, self.ghost.alone) = (0, 0);
    }

    fn note(&mut self, docs: &Docs, record: Record) {
        let record = timeless(record);
        let before = self.record(docs);
        let is_new = |name: Option<&mesh_protocol::id::InstanceId>| name.map_or(0, number);
        self.counter = self.counter.max(is_new(record.new.instance.as_ref()));
        if before.as_ref().map(|before| before.state) != Some(record.state) {
            let (trial, alone) = (self.ghost.trial, self.ghost.alone);
            match record.state {
                State::Joined => {
                    self.expect(trial >= 2, "joined without two checks by this host");
                    let synced = docs.setting.bus_is_far || self.on_disk == self.kept;
                    self.expect(synced, "joined without the bus on disk");
                }
                State::Removing => {
                    self.expect(alone >= 1, "removing before the new one served alone for an interval");
                }
                State::Planned => {
                    if let Some(host) = &mut self.host {
                        host.memory = docs.memories.id(Memory::default());
                    }
                }
                _ => {}
            }
            (self.ghost.trial, self.ghost.alone) = (0, 0);
        }
        if let Some(host) = &mut self.host {
            host.rested = false;
        }
        self.disk.record = Some(docs.records.id(record));
    }

    pub(crate) fn entry(&mut self, spec: Spec) -> &mut Option<Entry> {
        if spec == Spec::Container { &mut self.disk.container } else { &mut self.disk.process }
    }

    pub(crate) fn new_run(&mut self, spec: Spec, serves: bool) -> u8 {
        self.counter += 1;
        self.runs.insert(self.counter, Rc::new(Run::new(spec, serves)));
        if let Some(host) = &mut self.host {
            host.began.insert(self.counter, 0);
        }
        self.counter
    }

    fn act(&mut self, docs: &Docs, action: &Action) {
        let Some(record) = self.record(docs) else { return };
        let (old, new) = (record.old.instance.as_ref().map(number), record.new.instance.as_ref().map(number));
        let old_spec = Spec::of_version(&record.old.section.version);
        let new_spec = Spec::of_version(&record.new.section.version);
        let which = |which: Which| if which == Which::Old { old } else { new };
        match action {
            Action::Write(next) => self.note(docs, (**next).clone()),
            Action::CommitLedger => {
                if let Some(run) = new {
                    let generation = record.generation.0;
                    *self.entry(new_spec) = Some(Entry { spec: new_spec, run, adopted: false, generation });
                }
            }
            Action::RestoreLedger => {
                *self.entry(new_spec) = None;
                let adopted = record.old.standing == Standing::Adopted;
                let generation = record.old.generation.0;
                let entry = old.map(|run| Entry { spec: old_spec, run, adopted, generation });
                *self.entry(old_spec) = entry;
            }
            Action::Bury => {
                self.expect(record.old_ended, "a tombstone comes before the record that the old one ended");
                self.disk.buried.insert((old_spec, old.unwrap_or(0)));
                if self.entry(old_spec).is_some_and(|entry| Some(entry.run) == old) {
                    *self.entry(old_spec) = None;
                }
            }
            Action::SyncBus => self.sync(docs),
            Action::StartNew => match new {
                Some(run) => {
                    self.runs.entry(run).or_insert_with(|| Rc::new(Run::new(new_spec, false)));
                }
                None => {
                    self.new_run(new_spec, false);
                }
            },
            Action::StartOld(role) => self.start_old(docs, &record, *role),
            Action::Order(side, role) => {
                if let Some(run) = which(*side).and_then(|run| self.run_mut(run)) {
                    run.order = Some((*role == Role::Serving, run.order.map_or(1, |(_, number)| number + 1)));
                }
            }
            Action::End(Which::Old, _) => {
                let answers = old.and_then(|run| self.runs.get(&run)).is_some_and(|run| run.answers());
                let proved = record.state == State::Removing;
                let heard =
                    self.host.as_ref().and_then(|host| host.old.ready).is_none_or(|(.., age)| age > 1);
                self.expect(
                    !answers || proved || heard,
                    "the old one is ended, which answers, before the proof",
                );
                self.end(old);
            }
            Action::End(Which::New, _) => {
                let others = |number: &u8| Some(*number) != new;
                let alone = new
                    .and_then(|run| self.runs.get(&run))
                    .is_some_and(|run| run.subscribed && run.answers())
                    && !self
                        .runs
                        .iter()
                        .any(|(number, run)| others(number) && run.subscribed && run.answers());
                let heard =
                    self.host.as_ref().and_then(|host| host.new.ready).is_none_or(|(.., age)| age > 1);
                self.expect(!alone || heard, "the only one that answers is ended");
                self.end(new);
            }
            Action::RemoveOld => {
                if let Some(run) = old.and_then(|run| self.run_mut(run)) {
                    run.ends(Life::Gone);
                }
            }
        }
    }

    pub(crate) fn end(&mut self, run: Option<u8>) {
        if let Some(run) = run.and_then(|run| self.run_mut(run)).filter(|run| run.lives()) {
            run.ends(Life::Ended);
        }
    }

    fn start_old(&mut self, docs: &Docs, record: &Record, role: Role) {
        let spec = Spec::of_version(&record.old.section.version);
        let old = record.old.instance.as_ref().map(number);
        let life = old.and_then(|run| self.runs.get(&run)).map(|run| run.life);
        if life.is_some_and(|life| matches!(life, Life::Running | Life::Frozen)) {
            return;
        }
        let gone = spec == Spec::Container && self.ghost.pruned;
        if gone && !docs.has(Fault::WhatIsAdoptedIsMadeAgain) {
            return;
        }
        self.expect(!gone, "what is adopted is made again, after somebody removed it");
        let run = self.new_run(spec, role == Role::Serving);
        let mut next = record.clone();
        (next.old.instance, next.old.run) = (Some(instance(run)), Some(instance(run)));
        if let Some(entry) = self.entry(spec).as_mut().filter(|entry| Some(entry.run) == old) {
            entry.run = run;
        }
        self.disk.record = Some(docs.records.id(timeless(next)));
    }

    /// Whether the accepted declaration was carried out to its end.
    fn rests(&self, docs: &Docs) -> bool {
        let rests = self
            .record(docs)
            .is_none_or(|record| matches!(record.state, State::Removing | State::Done | State::Held));
        rests
            && self
                .disk
                .holder()
                .is_some_and(|entry| self.runs.get(&entry.run).is_some_and(|run| run.lives()))
    }

    pub(crate) fn report_key(&self, _: &Docs) -> ReportKey {
        let runs = |entry: Option<Entry>| {
            entry.map(|entry| (entry, self.runs.get(&entry.run).is_some_and(|run| run.lives())))
        };
        let host = self.host.as_ref();
        ReportKey {
            accepted: self.disk.accepted,
            applied: self.disk.applied,
            token: self.disk.token,
            refused: host.and_then(|host| host.refused),
            diverged: host.is_some_and(|host| host.diverged),
            process: runs(self.disk.process),
            container: runs(self.disk.container),
            record: self.disk.record,
        }
    }
}
