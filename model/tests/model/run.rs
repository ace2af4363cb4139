//! One run of the controller, step by step: the real `roles::decide`, the real lock, the real `executor::decide`;
//! what is asked of the bus may be lost on its way, or its answer.

use std::rc::Rc;

use mesh_controller::roles::{Current, Move, decide as follow};
use mesh_protocol::bus::lock::decide::{
    Answer, Ask, Holding, Renewed, Renewing, Returning, Taken, Taking, is_lost_to,
};
use mesh_protocol::handover::{Role, RoleAck, RoleOrder};
use mesh_protocol::id::Token;
use tokio::time::Instant;

use super::bus::Put;
use super::docs::{Doc, Docs, Todo, instance};
use super::faults::Fault;
use super::world::{Held, LEASE_TIME, Life, Lock, NOW, Run, TICK, World};

/// What becomes of a question to the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    /// It never gets there.
    Lost,
    /// It is done, and the answer never comes.
    Unanswered,
    /// Nobody waits for it any more, and it gets there all the same.
    Late,
}

/// What a run does in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStep {
    FindsItsLeaseOver,
    Renews,
    Serves,
    LeavesTheQueueGroup,
    Acknowledges,
    TakesTheLock,
    HasTheLock,
    GivesTheLockBack,
    Stops,
    Decides,
    Puts(Doc),
    DropsTheLock,
    HearsNothing,
}

/// A step, and whether the bus was asked for it.
pub(crate) type Done = Option<(RunStep, bool)>;

pub(crate) const fn role(serves: bool) -> Role {
    if serves { Role::Serving } else { Role::StandingBy }
}

impl World {
    fn ask(&mut self, ask: &Ask, fate: Fate, docs: &Docs) -> Answer {
        if !self.bus() || fate == Fate::Lost {
            return Answer::Failed;
        }
        let answer = self.kept_mut().answer(ask, docs, fate == Fate::Answered);
        if fate == Fate::Answered { answer } else { Answer::Failed }
    }

    /// The next step of a run; none where it has nothing to do.
    pub(crate) fn run_step(&mut self, docs: &Docs, number: u8, fate: Fate) -> Done {
        let run = self.runs.get(&number)?;
        if run.life != Life::Running {
            return None;
        }
        let mut run = (**run).clone();
        if let Some((_, put)) = self.late.filter(|(of, _)| *of == number && self.bus()) {
            self.late = None;
            self.write(docs, &put);
            return Some((RunStep::HearsNothing, false));
        }
        let done = self.step_of(docs, number, &mut run, fate);
        if done.is_some() {
            self.runs.insert(number, Rc::new(run));
        }
        done
    }

    fn step_of(&mut self, docs: &Docs, number: u8, run: &mut Run, fate: Fate) -> Done {
        if let Lock::Held(held) = &mut run.lock {
            let over = held.holding.left(LEASE_TIME, NOW).is_zero();
            if over && !held.lost && !docs.has(Fault::NobodyLooksAtTheLease) {
                held.lost = true;
                return Some((RunStep::FindsItsLeaseOver, false));
            }
            // A renewal that hangs does not hide that the lease is over.
            if !over && !held.lost && !held.asked && held.holding.renewed < NOW && self.bus() {
                self.renew(docs, held, fate);
                return Some((RunStep::Renews, true));
            }
        }
        if run.stepping.is_none()
            && let Some(step) = self.follow(docs, number, run)
        {
            return Some((step, false));
        }
        if run.stepping.is_some() {
            return self.step_down(docs, number, run, fate);
        }
        if !run.works {
            return None;
        }
        self.errand(docs, run, fate).or_else(|| self.turn(docs, number, run, fate))
    }

    fn renew(&mut self, docs: &Docs, held: &mut Held, fate: Fate) {
        let answer = self.ask(&held.holding.renew(&held.renewing), fate, docs);
        let next = held.holding.renewed(held.renewing.clone(), answer, NOW);
        (held.renewing, held.asked) = match next {
            Renewed::GoesOn(next) => (next, false),
            Renewed::Ends => (Renewing::Update, true),
            Renewed::Lost => {
                held.lost = true;
                (Renewing::Update, true)
            }
        };
    }

    fn follow(&self, docs: &Docs, number: u8, run: &mut Run) -> Option<RunStep> {
        let name = instance(number);
        let order = run.order.map(|(serves, number)| RoleOrder {
            instance: name.clone(),
            role: role(serves),
            number: number.into(),
        });
        let ack = |(serves, number): (bool, u8)| RoleAck {
            instance: name.clone(),
            role: role(serves),
            number: number.into(),
            trouble: None,
        };
        let current = Current {
            instance: name.clone(),
            role: role(run.serves),
            acknowledged: run.acked.map(ack),
            failed: None,
        };
        let short = |number: u64| u8::try_from(number).unwrap();
        match follow(order.as_ref(), run.ack.map(ack).as_ref(), &current, Instant::now()) {
            Move::Stay => None,
            // Without the bus there is no queue group to join.
            Move::Serve(_) if !self.bus() => None,
            Move::Serve(number) => {
                (run.serves, run.subscribed, run.works, run.lock_taken) = (true, true, true, false);
                (run.ack, run.acked) = (Some((true, short(number))), Some((true, short(number))));
                Some(RunStep::Serves)
            }
            Move::StandBy(number) => {
                (run.serves, run.subscribed, run.works) = (false, false, false);
                run.stepping = Some(short(number));
                if docs.has(Fault::LeavingIsSaidBeforeItIsDone) {
                    (run.ack, run.acked) = (Some((false, short(number))), Some((false, short(number))));
                }
                Some(RunStep::LeavesTheQueueGroup)
            }
            Move::Acknowledge(due) => {
                let due = (due.role == Role::Serving, short(due.number));
                (run.ack, run.acked) = (Some(due), Some(due));
                Some(RunStep::Acknowledges)
            }
        }
    }

    /// Out of the queue group; the running step ends, the lock goes back, and then that is said.
    fn step_down(&mut self, docs: &Docs, number: u8, run: &mut Run, fate: Fate) -> Done {
        let early = docs.has(Fault::TheLockIsGivenBackBeforeTheHandlersEnded);
        if !run.pending.is_empty() && (!early || matches!(run.lock, Lock::Free)) {
            if early {
                return self.put_next(docs, number, run, fate);
            }
            // A turn that is given up may have sent its write already.
            let first = run.pending.drain(..).next();
            if fate == Fate::Late && self.late.is_none() {
                self.late = first.map(|put| (number, put));
            }
            return Some((RunStep::Stops, true));
        }
        if let Some(done) = self.errand(docs, run, fate) {
            return Some(done);
        }
        if let Lock::Held(held) = &run.lock {
            run.lock = Lock::Returning(held.holding.clone(), Returning::Delete);
            return self.errand(docs, run, fate);
        }
        let number = run.stepping.take()?;
        (run.ack, run.acked) = (Some((false, number)), Some((false, number)));
        Some((RunStep::Acknowledges, false))
    }

    /// Taking and giving back are never given up half-way.
    fn errand(&mut self, docs: &Docs, run: &mut Run, fate: Fate) -> Done {
        match std::mem::replace(&mut run.lock, Lock::Free) {
            Lock::Taking(taking) => {
                let answer = self.ask(&taking.ask(), fate, docs);
                run.lock = Self::taken(run, taking.answered(answer, NOW));
                if let Lock::Held(held) = &run.lock {
                    let above = held.holding.token.epoch > run.knows_of;
                    run.knows_of = 0;
                    self.expect(above, "the plan lock's token goes back behind one that a host has followed");
                }
                let has = matches!(run.lock, Lock::Held(_));
                Some((if has { RunStep::HasTheLock } else { RunStep::TakesTheLock }, true))
            }
            Lock::Returning(holding, returning) => {
                let theirs =
                    self.kept.lock.as_ref().is_some_and(|lock| lock.value.nonce != holding.record.nonce);
                let answer = self.ask(&holding.give_back(&returning), fate, docs);
                let stolen = theirs && answer == Answer::Deleted;
                self.expect(!stolen, "the plan lock is given back by one that does not hold it");
                let answer = match answer {
                    Answer::Lock(Some(mut found)) if docs.has(Fault::WhatIsNotOnesOwnIsGivenBack) => {
                        found.value.nonce.clone_from(&holding.record.nonce);
                        Answer::Lock(Some(found))
                    }
                    answer => answer,
                };
                if let Some(next) = holding.given_back(&returning, &answer) {
                    run.lock = Lock::Returning(holding, next);
                }
                Some((RunStep::GivesTheLockBack, true))
            }
            other => {
                run.lock = other;
                None
            }
        }
    }

    fn taken(run: &mut Run, taken: Taken) -> Lock {
        match taken {
            Taken::GoesOn(next) => Lock::Taking(next),
            Taken::NotOurs | Taken::Failed => Lock::Free,
            Taken::Holds(holding) => {
                run.lock_taken = true;
                Lock::Held(Held { holding, lost: false, renewing: Renewing::Update, asked: false })
            }
        }
    }

    /// One turn of the executor.
    fn turn(&mut self, docs: &Docs, number: u8, run: &mut Run, fate: Fate) -> Done {
        if !run.pending.is_empty() {
            return self.put_next(docs, number, run, fate);
        }
        if !self.bus() {
            return None;
        }
        let stored = self.kept.stored();
        let open = docs.plan_is_open(stored.plan);
        let mends = !docs.has(Fault::NobodyTakesOverWhatAHostHolds);
        match &run.lock {
            Lock::Held(held) if held.lost => {
                run.lock = Lock::Free;
                Some((RunStep::DropsTheLock, false))
            }
            Lock::Held(held) => {
                let holding = held.holding.clone();
                let over = holding.left(LEASE_TIME, NOW).is_zero();
                self.expect(!over, "something is decided under a lock whose lease is over");
                let todo = if open {
                    docs.todo(stored, holding.token)
                } else {
                    docs.recovery(stored, holding.token).filter(|_| mends).unwrap_or(Todo::Wait)
                };
                self.begin(run, &holding, todo, open)
            }
            _ => {
                let wants =
                    open || !run.lock_taken || mends && docs.recovery(stored, Token::default()).is_some();
                if !wants || self.kept.lock.is_some() && !docs.has(Fault::TheLockIsTakenWithoutLooking) {
                    return None;
                }
                run.knows_of = docs.highest_epoch(stored);
                let forgets = docs.has(Fault::TheEpochForgetsWhatHostsSaw);
                let at_least = if forgets { 0 } else { run.knows_of };
                let nonce = format!("{number}-{}", self.kept.lock_number);
                let taking = Taking::new(instance(number), nonce, at_least);
                let answer = match self.ask(&taking.ask(), fate, docs) {
                    Answer::Lock(_) if docs.has(Fault::TheLockIsTakenWithoutLooking) => Answer::Lock(None),
                    answer => answer,
                };
                run.lock = Self::taken(run, taking.answered(answer, NOW));
                Some((RunStep::TakesTheLock, true))
            }
        }
    }

    fn begin(&mut self, run: &mut Run, holding: &Holding, todo: Todo, open: bool) -> Done {
        match todo {
            Todo::Wait if open => None,
            Todo::Wait => {
                run.lock = Lock::Returning(holding.clone(), Returning::Delete);
                Some((RunStep::Decides, false))
            }
            Todo::Lost(token) => {
                if is_lost_to(holding.token, token) {
                    run.lock = Lock::Free;
                }
                Some((RunStep::DropsTheLock, false))
            }
            Todo::Put(docs) => {
                let put = |doc: Doc| Put { doc, over: self.kept.revision(doc), token: holding.token };
                run.pending = docs.into_iter().map(put).collect();
                Some((RunStep::Decides, false))
            }
        }
    }

    fn put_next(&mut self, docs: &Docs, number: u8, run: &mut Run, fate: Fate) -> Done {
        let put = run.pending.remove(0);
        let holds = matches!(run.lock, Lock::Held(_));
        self.expect(holds, "something is written for the plan by one that does not hold the lock");
        let arrives = self.bus() && matches!(fate, Fate::Answered | Fate::Unanswered);
        let written = arrives && self.write(docs, &put);
        if fate == Fate::Late && self.late.is_none() {
            self.late = Some((number, put));
        }
        if !written || fate != Fate::Answered {
            // What was decided is void, and is decided anew.
            run.pending.clear();
        }
        if fate != Fate::Answered
            && !matches!(put.doc, Doc::Plan(_))
            && let Lock::Held(held) = &run.lock
        {
            // It may still get there: only another token tells it from what is written next.
            run.lock = Lock::Returning(held.holding.clone(), Returning::Delete);
        }
        Some((RunStep::Puts(put.doc), true))
    }

    /// A write that gets to the bus, whoever waits for it.
    pub(crate) fn write(&mut self, docs: &Docs, put: &Put) -> bool {
        let before = self.kept.declaration;
        if !self.kept_mut().put(put, docs) {
            return false;
        }
        let Doc::Declaration(next) = put.doc else { return true };
        let next = docs.declarations.of(next);
        if let Some((id, _)) = before {
            let higher = docs.declarations.of(id).token;
            self.expect(next.token >= higher, "a stale holder's declaration takes the place of a later one");
            self.earlier = Some(id);
        }
        if let Some((plan, _)) = self.kept.plan {
            let plan = docs.plans.of(plan);
            let anew = before.is_none_or(|(id, _)| docs.declarations.of(id).generation != next.generation);
            let late = anew && plan.state.is_ended() && next.plan.as_ref() == Some(&plan.id);
            self.expect(!late, "something is declared for a plan that has ended");
        }
        true
    }

    /// One tick of a run's clocks.
    pub(crate) fn age(run: &mut Run) {
        if let Lock::Held(held) = &mut run.lock {
            held.holding.renewed = (held.holding.renewed - TICK).max(NOW - LEASE_TIME);
            held.asked = false;
        }
        if let Lock::Returning(holding, _) = &mut run.lock {
            holding.renewed = NOW - LEASE_TIME;
        }
    }
}
