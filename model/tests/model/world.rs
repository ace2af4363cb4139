//! A state of the model: a bus, a host with its disk, the controller's runs, an operator, and who looks on.
//!
//! In: nothing. Out: values that can be compared and hashed. Not here: what happens to them ([`super::run`],
//! [`super::host`], [`super::next`]).
//!
//! Time goes by in ticks of one second, and only when nobody has anything to do. The clock stands still: a tick
//! makes everything older instead, so that two states that differ in nothing but the hour are one.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use mesh_protocol::bus::lock::decide::{Holding, Renewing, Returning, Taking};
use mesh_protocol::id::Token;

use super::bus::{Kept, Put};
use super::docs::{Docs, Id};
use super::make::{self, Spec};

pub(crate) const TICK: Duration = Duration::from_secs(1);
/// The time between two checks.
pub(crate) const INTERVAL: Duration = TICK;
/// How long the plan lock outlives a holder that is gone, in ticks and as the holder counts it.
/// Shorter than it takes the host to find a frozen one: so there can be two that are alive and believe to hold it.
pub(crate) const LEASE: u8 = 2;
pub(crate) const LEASE_TIME: Duration = Duration::from_secs(2);
/// What every clock shows.
pub(crate) const NOW: Duration = Duration::from_secs(100_000);

/// Who holds the seat when the model begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    /// Genesis's container.
    Container,
    /// A process that an earlier plan declared.
    Process,
}

/// What the ledger holds of the seat under one resource id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    pub(crate) spec: Spec,
    pub(crate) run: u8,
    pub(crate) adopted: bool,
    pub(crate) generation: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Running,
    /// Alive, and does nothing.
    Frozen,
    /// It ended in order.
    Ended,
    /// Somebody killed it.
    Killed,
    /// It is not there: another boot, or it was removed.
    Gone,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) holding: Holding,
    pub(crate) lost: bool,
    pub(crate) renewing: Renewing,
    /// Whether it was tried to renew it in this tick.
    pub(crate) asked: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Lock {
    Free,
    Taking(Taking),
    Held(Held),
    Returning(Holding, Returning),
}

/// One run of the controller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Run {
    pub(crate) spec: Spec,
    pub(crate) life: Life,
    /// Its role file: whether it shall serve, under which number.
    pub(crate) order: Option<(bool, u8)>,
    /// Its acknowledgement file.
    pub(crate) ack: Option<(bool, u8)>,
    pub(crate) serves: bool,
    pub(crate) acked: Option<(bool, u8)>,
    /// In the seat's queue group.
    pub(crate) subscribed: bool,
    pub(crate) lock_taken: bool,
    /// Its executor works.
    pub(crate) works: bool,
    pub(crate) pending: Vec<Put>,
    pub(crate) lock: Lock,
    /// The highest epoch that it knew any host to have followed when it began to take the lock.
    pub(crate) knows_of: u64,
    /// It steps down, by the order of this number.
    pub(crate) stepping: Option<u8>,
}

impl Run {
    pub(crate) fn new(spec: Spec, serves: bool) -> Self {
        Self {
            spec,
            life: Life::Running,
            order: Some((serves, 1)),
            ack: None,
            serves: false,
            acked: None,
            subscribed: false,
            lock_taken: false,
            works: false,
            pending: Vec::new(),
            lock: Lock::Free,
            knows_of: 0,
            stepping: None,
        }
    }

    pub(crate) const fn lives(&self) -> bool {
        matches!(self.life, Life::Running | Life::Frozen)
    }

    pub(crate) fn answers(&self) -> bool {
        self.life == Life::Running
    }

    pub(crate) fn ends(&mut self, life: Life) {
        let (spec, order, ack) = (self.spec, self.order, self.ack);
        *self = Self { life, order, ack, ..Self::new(spec, false) };
    }
}

/// What the host has heard of one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Heard {
    pub(crate) of: Option<u8>,
    /// Whether it serves, whether it has taken the lock, and how many ticks ago it said so.
    pub(crate) ready: Option<(bool, bool, u8)>,
    pub(crate) public: Option<u8>,
}

/// What begins again with the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    pub(crate) memory: Id,
    /// For how many ticks it has been connected.
    pub(crate) connected: Option<u8>,
    pub(crate) old: Heard,
    pub(crate) new: Heard,
    pub(crate) offered: Option<Id>,
    pub(crate) refused: Option<Id>,
    pub(crate) diverged: bool,
    /// Whether the pause before another try is over.
    pub(crate) rested: bool,
    /// What it started and has not heard yet, and how many ticks ago.
    pub(crate) began: BTreeMap<u8, u8>,
    /// For how many ticks it has been looking without a gap, and how many ago it looked.
    pub(crate) looking: u8,
    pub(crate) looked: u8,
    /// For how many ticks it has been stopped.
    pub(crate) frozen: Option<u8>,
}

/// What the host has written, each write on the disk before anything follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Disk {
    pub(crate) record: Option<Id>,
    pub(crate) process: Option<Entry>,
    pub(crate) container: Option<Entry>,
    pub(crate) buried: BTreeSet<(Spec, u8)>,
    pub(crate) accepted: Option<Id>,
    pub(crate) applied: bool,
    pub(crate) token: Token,
}

impl Disk {
    /// The ledger's first entry that has the seat.
    pub(crate) fn holder(&self) -> Option<Entry> {
        self.process.or(self.container)
    }
}

/// What the operator does besides the push that the model begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Newer {
    NotYet,
    /// The open plan's end was asked for, the push of something newer follows.
    Asked,
    Pushed,
}

/// In which order those take their steps who have something to do at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    /// In every order.
    Every,
    /// The host first, then the runs as they were started. That one of them is slow, and comes after all others
    /// until the next tick, is one of the things that go wrong.
    One,
}

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Misfortunes {
    All,
    /// Hosts and runs die, or the power goes.
    Deaths,
}

/// What is explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Setting {
    pub(crate) start: Start,
    pub(crate) order: Order,
    pub(crate) misfortunes: Misfortunes,
    /// How many of them.
    pub(crate) left: u8,
    /// Whether the bus is on another machine: the host then syncs nothing of it.
    pub(crate) bus_is_far: bool,
}

/// Who takes steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Who {
    Host,
    Run(u8),
    Operator,
}

/// What is known to whoever looks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// How many ticks ago something was killed, frozen or cut off.
    pub(crate) hurt: u8,
    /// For how many ticks nobody has answered, with a host that could do something about it.
    pub(crate) dark: u8,
    /// Ticks in which the new one stood by and was heard, by this host in this trial.
    pub(crate) trial: u8,
    /// Ticks in which the new one served alone and was heard, by this host.
    pub(crate) alone: u8,
    /// The highest token that the host ever followed.
    pub(crate) highest: Token,
    /// Whether somebody removed the container from outside.
    pub(crate) pruned: bool,
}

pub(crate) const NEVER: u8 = 20;

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) kept: Rc<Kept>,
    /// What a power cut leaves of it.
    pub(crate) on_disk: Rc<Kept>,
    /// For how many ticks the bus has been away; none while it is there.
    pub(crate) away: Option<u8>,
    pub(crate) host: Option<Host>,
    pub(crate) disk: Disk,
    pub(crate) runs: BTreeMap<u8, Rc<Run>>,
    pub(crate) counter: u8,
    /// A write under way that nobody waits for any more, and whose it is: it gets there before anything else that
    /// the same run says, for both go through one connection.
    pub(crate) late: Option<(u8, Put)>,
    /// The declaration before the present one: it may be read once more.
    pub(crate) earlier: Option<Id>,
    pub(crate) newer: Newer,
    pub(crate) boot: u8,
    /// Who is slow, until the next tick.
    pub(crate) slow: Option<Who>,
    /// How much may still go wrong.
    pub(crate) left: u8,
    pub(crate) ghost: Ghost,
    pub(crate) wrong: Option<String>,
}

impl World {
    /// The old one serves, and a plan that replaces it was just stored.
    pub(crate) fn new(docs: &Docs) -> Self {
        let (old, next, revision) = match docs.setting.start {
            Start::Container => (Spec::Container, Spec::One, 1),
            Start::Process => (Spec::One, Spec::Two, 2),
        };
        let declaration = docs.declarations.id(make::first_declaration(old));
        let entry = Entry { spec: old, run: 1, adopted: old == Spec::Container, generation: 1 };
        let (process, container) =
            if old == Spec::Container { (None, Some(entry)) } else { (Some(entry), None) };
        let disk = Disk {
            record: None,
            process,
            container,
            buried: BTreeSet::new(),
            accepted: Some(declaration),
            applied: true,
            token: Token::default(),
        };
        let mut kept = Kept { number: 2, ..Kept::default() };
        if old != Spec::Container {
            kept.module = Some((docs.modules.id(make::module(old, 1)), 1));
            kept.declaration = Some((declaration, 2));
        }
        let mut run = Run::new(old, true);
        (run.serves, run.subscribed, run.works, run.lock_taken) = (true, true, true, true);
        (run.ack, run.acked) = (Some((true, 1)), Some((true, 1)));
        let kept = Rc::new(kept);
        let mut world = Self {
            on_disk: kept.clone(),
            kept,
            away: None,
            host: None,
            disk,
            runs: BTreeMap::from([(1, Rc::new(run))]),
            counter: 1,
            late: None,
            earlier: None,
            newer: Newer::NotYet,
            boot: 1,
            slow: None,
            left: docs.setting.left,
            ghost: Ghost {
                hurt: NEVER,
                dark: 0,
                trial: 0,
                alone: 0,
                highest: Token::default(),
                pruned: false,
            },
            wrong: None,
        };
        world.start_host(docs);
        world.kept_mut().report = Some(docs.report(world.report_key(docs)));
        world.on_disk = world.kept.clone();
        let plan = docs.push(world.kept.stored(), make::module(next, revision), 1).unwrap();
        world.put_plan(plan);
        world
    }

    pub(crate) fn kept_mut(&mut self) -> &mut Kept {
        Rc::make_mut(&mut self.kept)
    }

    pub(crate) fn run_mut(&mut self, number: u8) -> Option<&mut Run> {
        self.runs.get_mut(&number).map(Rc::make_mut)
    }

    /// A plan that a verb stored.
    pub(crate) fn put_plan(&mut self, plan: Id) {
        let kept = self.kept_mut();
        kept.number += 1;
        kept.plan = Some((plan, kept.number));
    }

    pub(crate) fn bus(&self) -> bool {
        self.away.is_none()
    }

    pub(crate) fn served(&self) -> bool {
        self.runs.values().any(|run| run.subscribed && run.answers())
    }

    pub(crate) fn expect(&mut self, right: bool, what: &str) {
        if !right && self.wrong.is_none() {
            self.wrong = Some(what.to_owned());
        }
    }

    /// What must be so in every state.
    pub(crate) fn look(&mut self, docs: &Docs) {
        let believe = self.runs.values().filter(|run| run.answers()).filter(|run| {
            matches!(&run.lock, Lock::Held(held)
                if !held.lost && !held.holding.left(LEASE_TIME, NOW).is_zero())
        });
        let holders = believe.count();
        self.expect(holders <= 1, "two hold the plan lock at once");
        let early = self.runs.values().any(|run| {
            run.stepping.is_some_and(|number| run.ack == Some((false, number)))
                && (run.lock != Lock::Free || !run.pending.is_empty())
        });
        self.expect(!early, "one says that it stands by, and holds the plan lock still");
        let record = self.disk.record.map(|id| docs.records.of(id));
        let known = |number: u8| {
            let is = |entry: Option<Entry>| entry.is_some_and(|entry| entry.run == number);
            let name = Some(super::docs::instance(number));
            is(self.disk.process)
                || is(self.disk.container)
                || record.as_ref().is_some_and(|r| r.old.instance == name || r.new.instance == name)
        };
        let stray = self.runs.iter().any(|(number, run)| run.lives() && !known(*number));
        let back =
            self.runs.iter().any(|(number, run)| {
                run.lives()
                    && self.disk.buried.iter().any(|(spec, of)| {
                        of == number || *spec == Spec::Container && run.spec == Spec::Container
                    })
            });
        let keep: Vec<u8> = self
            .runs
            .iter()
            .filter(|(number, run)| run.lives() || known(**number))
            .map(|(n, _)| *n)
            .collect();
        self.runs.retain(|number, _| keep.contains(number));
        self.expect(!stray, "a run is alive that no record knows");
        self.expect(!back, "what was removed is back");
    }
}
