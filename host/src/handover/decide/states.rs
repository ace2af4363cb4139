//! The states: what each does, what a crash in it leaves, what the operator sees, and where it goes.
//!
//! In: the step. Out: the next record, what is waited for, or what speaks against the handover; and actions,
//! which are carried out before the next record is written. Not here: the old one's role in each state
//! ([`Step::keep_old`]), and going back ([`Step::abort`]).

use mesh_protocol::handover::{Reason, Role, State};

use super::rules::Answer;
use super::{
    Action, Against, Arm, FOLLOW_WITHIN, Haste, NEEDS_WITHIN, Next, READY_WITHIN, SILENCE, Step, Which,
};
use crate::handover::record::Weighed;
use crate::handover::seen::{Bus, Life, Needs, Wanted};

impl Step<'_> {
    /// `planned`: the old one serves; what the new one needs is being made. A crash here leaves a record and
    /// perhaps a bundle, which are found again. The operator sees what is waited for: "bundle
    /// mesh-controller". Goes to `trial`, `aborting`; waits ten minutes at most.
    pub(super) fn planned(&mut self) -> Arm {
        self.is_still_wanted()?;
        self.bus_comes_back()?;
        match &self.seen.needs {
            Needs::Failed(reason) => Err(Against::because(reason.clone(), "what it needs")),
            Needs::Waiting(what) if self.now.running > self.memory.entered + NEEDS_WITHIN => {
                let minutes = NEEDS_WITHIN.as_secs() / 60;
                let detail = format!("{what} did not come within {minutes} minutes");
                Err(Against::because(Reason::Surroundings { detail }, "what it needs"))
            }
            Needs::Waiting(what) => Next::wait(what.clone()),
            Needs::Met if self.seen.bus == Bus::Away => Next::wait("the bus"),
            Needs::Met => {
                let mut record = self.enter(State::Trial);
                record.new.instance = Some(self.seen.fresh.clone());
                record.new.program.clone_from(&self.seen.program);
                if let Wanted::Same { revision, .. } = self.seen.wanted {
                    record.revision = revision;
                }
                Ok(Next::Go(Box::new(record)))
            }
        }
    }

    /// `trial`: the old one serves; the new one runs and stands by. Two checks of one run that never restarted:
    /// its first right `ready` is t0, the checks are at t0 + one and two intervals. A crash here leaves the
    /// new one running or not yet started; it is found by its run, and its clock starts again. The operator
    /// sees "check 1 of 2". Goes to `joined`, `aborting`.
    pub(super) fn trial(&mut self) -> Arm {
        self.is_still_wanted()?;
        self.bus_comes_back()?;
        self.new_lives("the trial")?;
        let late = self.memory.bus_clock > READY_WITHIN;
        if matches!(self.seen.new.life, Life::NotStarted | Life::Starting) {
            if late {
                let detail = format!("it was not started within {} s", READY_WITHIN.as_secs());
                return Err(Against::because(Reason::Surroundings { detail }, "its start"));
            }
            if self.seen.new.life == Life::NotStarted && !self.seen.busy {
                self.actions.push(Action::StartNew);
            }
            return Next::wait("its start");
        }
        if self.seen.bus == Bus::Away {
            return Next::wait("the bus");
        }
        let lacks = match self.new_answer(Role::StandingBy) {
            Answer::Right => None,
            Answer::Lacks(part) => Some(part),
            Answer::IsOther { what, expected, found } => {
                let reason = Reason::WrongAnswer { what: what.to_owned(), expected, found };
                return Err(Against::because(reason, self.check_name()));
            }
        };
        match (self.memory.first_right, lacks) {
            (None, None) => {
                self.memory.first_right = Some(self.memory.bus_clock);
                Next::wait("check 1 of 2")
            }
            (None, Some(part)) if late => {
                let failed_at = format!("never ready within {} s", READY_WITHIN.as_secs());
                Err(Against::because(Reason::NeverReady { part }, failed_at))
            }
            (None, Some(part)) => Next::wait(format!("its first right answer ({part})")),
            (Some(first_right), lacks) => {
                self.new_is_heard()?;
                self.check(first_right, lacks)
            }
        }
    }

    fn check(&mut self, first_right: std::time::Duration, lacks: Option<String>) -> Arm {
        let check = self.memory.checks_passed + 1;
        if self.memory.bus_clock < first_right + self.interval * u32::from(check) {
            return Next::wait(format!("check {check} of 2"));
        }
        let due = *self.memory.due.get_or_insert(self.now.running);
        let asked_since = self.seen.new.ready.as_ref().is_some_and(|answered| answered.asked >= due);
        match lacks {
            None if asked_since && check == 1 => {
                self.memory.due = None;
                self.memory.checks_passed = 1;
                Next::wait("check 2 of 2")
            }
            None if asked_since => {
                self.memory.checks_passed = 2;
                self.actions.push(Action::SyncBus);
                self.go(State::Joined)
            }
            Some(part) if asked_since && self.now.running > due + SILENCE => {
                Err(Against::because(Reason::NeverReady { part }, self.check_name()))
            }
            _ => Next::wait(format!("the answer to check {check} of 2")),
        }
    }

    /// `joined`: both serve. This is the commitment: from here on a newer declaration waits until this one is
    /// through. A crash here leaves both serving; the role is ordered again. The operator sees what the new one
    /// has yet to show. Goes to `alone`, `aborting`.
    pub(super) fn joined(&mut self) -> Arm {
        self.bus_comes_back()?;
        self.new_lives("serving together")?;
        self.new_is_heard()?;
        self.order(Which::New, Role::Serving);
        if let Some(trouble) = self.seen.new.trouble() {
            let detail = format!("told to serve, it says: {trouble}");
            return Err(Against::because(Reason::NeverServed { detail }, "joining the seat"));
        }
        if !self.seen.new.follows(Role::Serving) {
            return self.wait_for("its word that it serves", "joining the seat");
        }
        if !self.new_answered_the_public() {
            return self.wait_for("its answer on the public subject", "joining the seat");
        }
        self.go(State::Alone)
    }

    /// `alone`: the new one serves; the old one has left the queue group and given the lock back, and is alive.
    /// A crash here leaves that; the host asks again. The operator sees what is not yet proved: that the old one
    /// left, that the new one took the plan lock, one more interval of answers. Goes to `removing`, `aborting`.
    pub(super) fn alone(&mut self) -> Arm {
        self.bus_comes_back()?;
        self.new_lives("serving alone")?;
        self.new_is_heard()?;
        self.order(Which::New, Role::Serving);
        let old = &self.seen.old;
        if old.life.is_alive() && !old.follows(Role::StandingBy) {
            return self.wait_for_the_old_to_leave();
        }
        self.memory.leaving = None;
        let lacks = match self.new_answer(Role::Serving) {
            Answer::Lacks(part) => Some(part),
            Answer::IsOther { what, .. } => Some(format!("another {what}")),
            Answer::Right => {
                let ready = self.seen.new.ready.as_ref();
                let since = ready.filter(|answered| answered.asked >= self.memory.entered);
                let taken = since.is_some_and(|answered| answered.ready.lock_taken);
                (!taken).then(|| "its word that it has taken the plan lock".to_owned())
            }
        };
        if let Some(lacks) = lacks {
            self.memory.alone = None;
            self.memory.due = None;
            return self.wait_for(&lacks, "serving alone");
        }
        let alone = *self.memory.alone.get_or_insert(self.memory.bus_clock);
        if self.memory.bus_clock < alone + self.interval {
            self.memory.lacking = None;
            return Next::wait("one more interval of its answers");
        }
        let due = *self.memory.due.get_or_insert(self.now.running);
        let ready = self.seen.new.ready.as_ref().map(|answered| answered.asked);
        if [ready, self.seen.new.public].into_iter().any(|asked| asked.is_none_or(|asked| asked < due)) {
            return self.wait_for("its answer on the public subject", "serving alone");
        }
        self.actions.push(Action::CommitLedger);
        self.go(State::Removing)
    }

    /// One that is silent is ended ([`Step::keep_old_as`]); one that answers and stays in the queue group all
    /// the same is no reason to end it, nor does it speak against the new one.
    fn wait_for_the_old_to_leave(&mut self) -> Arm {
        let what = "the old one to leave the queue group and give the plan lock back";
        let bus_clock = self.memory.bus_clock;
        let late = bus_clock > *self.memory.leaving.get_or_insert(bus_clock) + FOLLOW_WITHIN;
        let heard =
            self.seen.old.ready.as_ref().is_some_and(|answered| answered.asked >= self.memory.entered);
        if late && heard && self.seen.bus != Bus::Away && self.silence(Which::Old).is_none() {
            let detail = format!("within {} s there was not: {what}", FOLLOW_WITHIN.as_secs());
            return Err(Against::because(Reason::Surroundings { detail }, "serving alone"));
        }
        Next::wait(what)
    }

    /// `removing`: the new one holds the seat. After one more answer of it the old one is ended. That this is
    /// done is written before the tombstone, for what has a tombstone is never started again; then what is left
    /// is removed by its engine id, and the new one is kept like whatever the ledger holds. A crash here leaves
    /// the old one ended or not, and the world says which. The operator sees what is waited for: "the end of
    /// container:mesh-controller", and `cleanup pending` where an engine hangs; it holds up nothing, and the
    /// plan has ended. Goes to `done`; to `aborting` until the old one was ended.
    pub(super) fn removing(&mut self) -> Arm {
        if self.record.old_ended {
            return self.clean_up();
        }
        self.new_lives("its last check")?;
        self.new_is_heard()?;
        self.order(Which::New, Role::Serving);
        let old = &self.record.old.id;
        if !self.new_answered_the_public() {
            return Next::wait(format!("one more answer before the end of {old}"));
        }
        if self.seen.busy {
            return Next::wait(format!("the end of {old}"));
        }
        if !self.seen.old.life.is_alive() {
            self.actions.push(Action::CommitLedger);
            let mut record = self.record.clone();
            record.old_ended = true;
            // Its end is done; its removal need not wait for the pause after that.
            self.memory.lasting.removal = None;
            return Ok(Next::Go(Box::new(record)));
        }
        let waiting = Next::wait(format!("the end of {old}"));
        if self.is_time(self.memory.lasting.removal) {
            self.memory.lasting.removal = Some(self.now.running);
            self.actions.extend([Action::CommitLedger, Action::End(Which::Old, Haste::Grace)]);
        }
        waiting
    }

    fn clean_up(&mut self) -> Arm {
        if matches!(self.seen.old.life, Life::Gone(_) | Life::NotStarted) {
            self.actions.push(Action::Bury);
            return self.go(State::Done);
        }
        if !self.seen.busy && self.is_time(self.memory.lasting.removal) {
            self.memory.lasting.removal = Some(self.now.running);
            self.actions.extend([Action::Bury, Action::RemoveOld]);
        }
        Next::wait(format!("the removal of {}", self.record.old.id))
    }

    /// `aborting`: the old one is told to serve (and started, if it died); when it is seen to serve, the new
    /// one is ended; at once if it is silent. First the failure is weighed: what may be the surroundings' fault is
    /// not held against the new one, which is asked once more if it is alive. A crash here leaves both in some
    /// role; each is ordered again, and what was not weighed yet is weighed by the next host. The operator sees
    /// what failed, at which check, and "the old one to serve" or "the end of the new one" as what is waited
    /// for. Goes to `held`: when the old one serves and the new one is gone, or when the new one is gone and the
    /// old one cannot be started, for then trying the new one again is all that can help.
    pub(super) fn aborting(&mut self) -> Arm {
        let Some(failure) = &self.record.failure else {
            // Written together with the state, always; a record without it was made by nobody.
            let detail = "the record of the handover lost its reason".to_owned();
            return Err(Against::because(Reason::Surroundings { detail }, "the record"));
        };
        let serves = self.old_serves();
        let new_alive = self.seen.new.life.is_alive();
        if new_alive && self.silence(Which::New).is_some() {
            self.actions.push(Action::End(Which::New, Haste::Now));
        }
        if failure.weighed == Weighed::NotYet {
            let Some(weighed) = self.weigh(failure) else { return Next::wait("the old one to serve") };
            let mut record = self.record.clone();
            record.failure = Some(weighed);
            return Ok(Next::Go(Box::new(record)));
        }
        if new_alive && serves && !self.seen.busy {
            self.actions.push(Action::End(Which::New, Haste::Grace));
        }
        let given_up = self.memory.bus_clock > READY_WITHIN;
        match (new_alive, serves) {
            (false, true) => self.hold(failure),
            (false, false) if given_up => self.hold(failure),
            (true, true) => Next::wait("the end of the new one"),
            (_, false) => Next::wait("the old one to serve"),
        }
    }

    /// `held`: the old one serves on, kept like whatever the ledger holds, and the new one is gone. Evidence is held
    /// until a person asks for one more try (a push, `mesh retry`) or declares something else; the
    /// surroundings are tried again by themselves, five times. A crash here leaves nothing to do: the record
    /// is all there is to it. The operator sees the reason, the last lines of the log, and how it goes on: when
    /// it is tried again by itself, or with which command; the push ends with exit code 4. Goes to `planned`,
    /// with the old one that serves by then.
    pub(super) fn held(&mut self) -> Arm {
        let Wanted::Same { revision, retry } = self.seen.wanted else { return Ok(Next::Stay(None)) };
        let asked = retry || revision > self.record.revision;
        let due = self.record.next_try.is_some_and(|at| at <= self.now.wall);
        if !asked && !due {
            return Ok(Next::Stay(None));
        }
        let mut record = self.enter(State::Planned);
        record.revision = revision;
        record.tries += 1;
        record.surroundings = if asked { 0 } else { record.surroundings };
        record.failure = None;
        record.next_try = None;
        record.new.instance = None;
        self.memory.checks_passed = 0;
        Ok(Next::Go(Box::new(record)))
    }

    /// `done`: the new one holds the seat, and nothing is left of the old one but its tombstone. A crash here
    /// leaves nothing to do. The operator sees when each state was passed. Goes nowhere: the next handover has
    /// a record of its own.
    pub(super) fn done() -> Arm {
        Ok(Next::Stay(None))
    }
}
