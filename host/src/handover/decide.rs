//! What a handover does next: one pure function from (record, memory, seen, now) to what to write and to do.
//!
//! In: what survives a crash ([`Record`]), what begins again with the host ([`Memory`]), what is observed
//! ([`Seen`]), the time. Out: a [`Decision`]. Not here: carrying it out, and opening a handover
//! ([`super::open`]).
//!
//! ```text
//! planned -> trial -> joined -> alone -> removing -> done
//!    |         |        |         |         | (until the old one has been ended)
//!    +---------+--------+---------+---------+--> aborting -> held
//! ```
//!
//! Two rules carry it. *The record precedes the effect*: a state is written first, and what it does follows
//! from the state and from what is seen, again and again until it is seen to be so; a host that was killed
//! in between goes on as if it had not been. *Until the old one has been ended, going back starts nothing*: it
//! is alive, and a role file brings it back.
//!
//! What each state does stands in [`states`]; what is asked in several of them, in [`rules`].

mod rules;
mod states;

use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::handover::{Reason, Role, State};
use serde::{Deserialize, Serialize};

use super::record::{Failure, Record, Weighed};
use super::seen::{Bus, Seen};

/// How long the newcomer may take to be ready for the first time, counted while the bus is there. A
/// controller is ready within a tenth of a second here; a loaded machine gets three hundred times that.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long an instance that answered before may be silent. It is asked at least four times a second with
/// one second's patience, so one lost reply is not silence; with the weighing it stays below three seconds.
const SILENCE: Duration = Duration::from_millis(2000);
/// How old an answer may be on whose strength somebody else is ended.
const FRESH: Duration = Duration::from_secs(1);
/// How long an instance may be silent that ran already when this host began to look, and that it has not heard
/// yet: twice as long, for a host before this one may have started it a moment ago.
const UNHEARD: Duration = Duration::from_millis(4000);
/// How long what was ordered may take to be seen: joining, leaving (bounded at 2 s by the instance itself),
/// taking the lock (at most one lease after a crash of its holder), the first answer of one that was started
/// again.
const FOLLOW_WITHIN: Duration = Duration::from_secs(10);
/// How long the bus may be away before a handover gives up for now.
const BUS_AWAY: Duration = Duration::from_secs(30);
/// How long the newcomer's needs may take.
const NEEDS_WITHIN: Duration = Duration::from_secs(600);
/// How long after a failure it is weighed: what ends a machine ends everything within this time.
const WEIGH_AFTER: Duration = Duration::from_millis(500);
/// An echo slower than this speaks against the surroundings.
const ECHO_WITHIN: Duration = Duration::from_secs(1);
/// How often the surroundings may fail before a person is asked.
const TRIES: u32 = 5;
/// The time between two attempts to start or remove something.
const AGAIN: Duration = Duration::from_secs(1);
/// A host that decided nothing for this long did not look either: it was stopped, or waited for a disk. The
/// gap counts for no clock and is nobody's silence. It is longer than the patience of a question, at whose end
/// a pass is made.
const LOOKED_AWAY: Duration = Duration::from_millis(1500);

/// The time, as every decision is given it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// Since the host started, by a clock that does not jump.
    pub running: Duration,
    /// By the wall clock; for what is written.
    pub wall: Timestamp,
    /// Which boot this is.
    pub boot_id: String,
}

/// What begins again when the host does. The first part of it begins again with each state, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The state that this is about; another one begins anew.
    state: Option<State>,
    /// When it was entered, or found at the host's start.
    entered: Duration,
    /// How long the bus was there since then: the clock of trials.
    bus_clock: Duration,
    /// The first right `ready`, by the bus clock.
    first_right: Option<Duration>,
    /// When the check that is due became due.
    due: Option<Duration>,
    /// Since when the newcomer has served alone and rightly, by the bus clock.
    alone: Option<Duration>,
    /// Since when the newcomer has not been seen to do what it was ordered to, by the bus clock.
    lacking: Option<Duration>,
    /// Since when the old one has not been seen to leave, by the bus clock.
    leaving: Option<Duration>,
    /// What outlives a state.
    lasting: Lasting,
    /// How many checks passed.
    pub checks_passed: u8,
}

/// What outlives a state, and ends with the host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lasting {
    /// When it was last looked.
    looked: Duration,
    /// Since when it has been looked without a gap.
    looking: Duration,
    /// How long the bus has been away.
    bus_away: Duration,
    /// Since when the bus was there when last looked.
    bus_since: Option<Duration>,
    /// When the bus was last seen to go.
    bus_lost: Option<Duration>,
    /// When the old one was last started again.
    old_started: Option<Duration>,
    /// When the end or the removal of the old one was last begun.
    removal: Option<Duration>,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// The holder.
    Old,
    /// The newcomer.
    New,
}

/// How something is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Haste {
    /// It is asked, and has its grace.
    Grace,
    /// It does not answer anyhow.
    Now,
}

/// One thing to do. Each may be done twice.
///
/// While a job is under way no other is begun, with one exception that may not wait for a hung engine: a
/// newcomer that is silent is ended, for it is in the queue group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// The record, durably, before anything that stands behind it in the list.
    Write(Box<Record>),
    /// The ledger: the newcomer, in the run that the record has, holds the seat.
    CommitLedger,
    /// The ledger: the old one holds the seat.
    RestoreLedger,
    /// The ledger: the old one has a tombstone and no entry.
    Bury,
    /// The bus's folder, to the disk.
    SyncBus,
    /// The newcomer, standing by.
    StartNew,
    /// The old one, in a role, as a new run of the same thing. Before anything is started ledger and record
    /// have the new run.
    StartOld(Role),
    /// A role file.
    Order(Which, Role),
    /// The end of one of the two.
    End(Which, Haste),
    /// What is left of the old one.
    RemoveOld,
}

/// What a handover does next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// To be handed in next time.
    pub memory: Memory,
    /// In this order.
    pub actions: Vec<Action>,
    /// What is waited for, in words.
    pub waiting_for: Option<String>,
}

/// What an arm comes to when nothing speaks against the handover.
enum Next {
    /// The state stays: what is waited for.
    Stay(Option<String>),
    /// Another record.
    Go(Box<Record>),
}

/// What speaks against the handover, and where.
struct Against {
    reason: Reason,
    failed_at: String,
}

type Arm = Result<Next, Against>;

struct Step<'a> {
    record: &'a Record,
    memory: Memory,
    seen: &'a Seen,
    now: &'a Now,
    interval: Duration,
    actions: Vec<Action>,
}

/// What a handover does next. `interval` is the time between two checks.
#[must_use]
pub fn decide(record: &Record, memory: &Memory, seen: &Seen, now: &Now, interval: Duration) -> Decision {
    let memory = advance(record, memory, seen, now);
    let mut step = Step { record, memory, seen, now, interval, actions: Vec::new() };
    let arm = if step.is_of_another_boot() {
        step.begin_again()
    } else {
        match record.state {
            State::Planned => step.planned(),
            State::Trial => step.trial(),
            State::Joined => step.joined(),
            State::Alone => step.alone(),
            State::Removing => step.removing(),
            State::Aborting => step.aborting(),
            State::Held => step.held(),
            State::Done => Step::done(),
        }
    };
    let mut waiting_for = None;
    match arm {
        Ok(Next::Stay(what)) => {
            waiting_for = what;
            step.keep_old(record.state);
        }
        Ok(Next::Go(next)) => {
            let state = next.state;
            step.actions.push(Action::Write(next));
            step.keep_old(state);
        }
        Err(against) => step.abort(against),
    }
    Decision { memory: step.memory, actions: step.actions, waiting_for }
}

fn advance(record: &Record, memory: &Memory, seen: &Seen, now: &Now) -> Memory {
    let begins = memory.state.is_none();
    let mut next = if memory.state == Some(record.state) {
        memory.clone()
    } else {
        Memory {
            state: Some(record.state),
            entered: now.running,
            lasting: memory.lasting.clone(),
            checks_passed: memory.checks_passed,
            ..Memory::default()
        }
    };
    let lasting = &mut next.lasting;
    let mut passed = now.running.saturating_sub(lasting.looked);
    if begins || passed > LOOKED_AWAY {
        lasting.looking = now.running;
        passed = Duration::ZERO;
    }
    lasting.looked = now.running;
    let since = match seen.bus {
        Bus::Up { since, .. } => Some(since),
        Bus::Away => None,
    };
    let stayed = lasting.bus_since == since;
    if lasting.bus_since.is_some() && !stayed {
        lasting.bus_lost = Some(now.running);
    }
    lasting.bus_since = since;
    if since.is_some() {
        lasting.bus_away = Duration::ZERO;
        if stayed && memory.state == Some(record.state) {
            next.bus_clock += passed;
        }
    } else {
        lasting.bus_away += passed;
    }
    next
}

impl Step<'_> {
    /// Goes back: the record says why, the ledger names the old one, and the old one is told at once.
    fn abort(&mut self, against: Against) {
        let mut record = self.enter(State::Aborting);
        record.failure = Some(Failure {
            state: self.record.state,
            checks_passed: self.memory.checks_passed,
            failed_at: against.failed_at,
            reason: against.reason,
            weighed: Weighed::NotYet,
            log_tail: Vec::new(),
        });
        self.actions = vec![Action::RestoreLedger, Action::Write(Box::new(record))];
        self.keep_old_as(Role::Serving);
    }

    fn enter(&self, state: State) -> Record {
        Record { state, since: self.now.wall, boot_id: self.now.boot_id.clone(), ..self.record.clone() }
    }

    fn go(&self, state: State) -> Arm {
        Ok(Next::Go(Box::new(self.enter(state))))
    }
}

impl Next {
    fn wait(what: impl Into<String>) -> Arm {
        Ok(Self::Stay(Some(what.into())))
    }
}

impl Against {
    fn because(reason: Reason, failed_at: impl Into<String>) -> Self {
        Self { reason, failed_at: failed_at.into() }
    }
}
