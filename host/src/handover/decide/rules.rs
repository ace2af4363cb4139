//! What several states ask: whether the newcomer lives, is heard and is who it should be; that the old one is
//! kept in its role; what a failure is worth.
//!
//! In: the step's record, memory and sight. Out: what speaks against the handover, or an action. Not here:
//! which state asks what ([`super::states`]).

use std::time::Duration;

use mesh_protocol::handover::{Reason, Role, State};
use mesh_protocol::verb::{Check, PROTOCOL};

use super::{
    AGAIN, Action, Against, Arm, BUS_AWAY, ECHO_WITHIN, FOLLOW_WITHIN, FRESH, Haste, Next, SILENCE, Step,
    TRIES, UNHEARD, WEIGH_AFTER, Which,
};
use crate::handover::record::{Failure, Weighed};
use crate::handover::seen::{Bus, Instance, Life, Wanted};

/// What is right in an answer, or what is not.
pub(super) enum Answer {
    Right,
    /// A part is missing: it may still come.
    Lacks(String),
    /// It is something else: it will not change.
    IsOther {
        what: &'static str,
        expected: String,
        found: String,
    },
}

impl Step<'_> {
    pub(super) fn is_still_wanted(&self) -> Result<(), Against> {
        let Wanted::Other(generation) = self.seen.wanted else { return Ok(()) };
        Err(Against::because(Reason::Superseded { generation }, "a newer declaration"))
    }

    pub(super) fn bus_comes_back(&self) -> Result<(), Against> {
        let away = self.memory.lasting.bus_away;
        if away < BUS_AWAY {
            return Ok(());
        }
        let detail = format!("the bus was away for {} s", away.as_secs());
        Err(Against::because(Reason::Surroundings { detail }, "the bus"))
    }

    pub(super) fn new_lives(&self, during: &str) -> Result<(), Against> {
        let reason = match &self.seen.new.life {
            Life::Starting | Life::Running => return Ok(()),
            Life::NotStarted if self.record.state == State::Trial => return Ok(()),
            Life::NotStarted => Reason::Surroundings { detail: "nothing is known of its run".to_owned() },
            Life::Ended(reason) => reason.clone(),
            Life::Gone(how) => Reason::Surroundings { detail: format!("it is gone: {how}") },
        };
        let during = if self.record.state == State::Trial { self.check_name() } else { during.to_owned() };
        Err(Against::because(reason, during))
    }

    pub(super) fn new_is_heard(&self) -> Result<(), Against> {
        let Some(silent) = self.silence(Which::New) else { return Ok(()) };
        let milliseconds = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let during = match self.record.state {
            State::Trial => self.check_name(),
            state => state.as_str().to_owned(),
        };
        Err(Against::because(Reason::FellSilent { milliseconds }, during))
    }

    /// For how long one of the two has been silent, where that is too long and it could have been heard.
    pub(super) fn silence(&self, which: Which) -> Option<Duration> {
        let Bus::Up { since, .. } = self.seen.bus else { return None };
        let lasting = &self.memory.lasting;
        let (instance, started) = match which {
            Which::Old => (&self.seen.old, lasting.old_started),
            Which::New => (&self.seen.new, None),
        };
        if !instance.life.is_alive() {
            return None;
        }
        let answer =
            instance.ready.as_ref().filter(|answer| Some(&answer.ready.instance) == instance.id.as_ref());
        let (from, limit) = match (answer, started) {
            (Some(answer), _) => (answer.asked, SILENCE),
            (None, Some(started)) => (started, FOLLOW_WITHIN),
            (None, None) => (self.memory.entered, UNHEARD),
        };
        let silent = self.now.running.saturating_sub(from.max(since).max(lasting.looking));
        (silent > limit).then_some(silent)
    }

    pub(super) fn new_answer(&self, role: Role) -> Answer {
        let Some(answered) = &self.seen.new.ready else {
            let error = self.seen.new.ready_error.as_deref();
            return Answer::Lacks(error.unwrap_or("it has not answered yet").to_owned());
        };
        let ready = &answered.ready;
        let other = |what, expected: &str, found: &str| Answer::IsOther {
            what,
            expected: expected.to_owned(),
            found: found.to_owned(),
        };
        if self.record.new.instance.as_ref() != Some(&ready.instance) {
            let expected = self.record.new.instance.as_ref().map_or("", |id| id.as_str());
            return other("instance", expected, ready.instance.as_str());
        }
        if ready.version != self.record.new.section.version {
            return other("version", &self.record.new.section.version, &ready.version);
        }
        if let Some(program) = self.record.new.program.as_ref().filter(|program| **program != ready.program) {
            return other("program", program.as_str(), ready.program.as_str());
        }
        if ready.protocol != PROTOCOL {
            return other("protocol", &PROTOCOL.to_string(), &ready.protocol.to_string());
        }
        if let Check::Failed(error) = &ready.state {
            return Answer::Lacks(format!("it cannot use its state: {error}"));
        }
        if let Check::Failed(error) = &ready.lock {
            return Answer::Lacks(format!("it cannot reach the plan lock: {error}"));
        }
        if ready.role != role {
            return Answer::Lacks(format!("it is {}, not {}", ready.role.as_str(), role.as_str()));
        }
        Answer::Right
    }

    /// Whether the newcomer answered the public subject, asked in this state and since this host looks.
    pub(super) fn new_answered_the_public(&self) -> bool {
        self.seen.new.public.is_some_and(|asked| asked > self.memory.entered)
    }

    pub(super) fn old_serves(&self) -> bool {
        let old = &self.seen.old;
        let says_so = old.ready.as_ref().is_some_and(|answered| {
            answered.ready.role == Role::Serving
                && answered.asked >= self.memory.entered
                && answered.asked + FRESH >= self.now.running
                && old.id.as_ref() == Some(&answered.ready.instance)
        });
        old.life.is_alive() && old.follows(Role::Serving) && says_so
    }

    /// What was ordered is not seen yet. Its clock runs while the bus is there, from when it first was not.
    pub(super) fn wait_for(&mut self, what: &str, failed_at: &str) -> Arm {
        let bus_clock = self.memory.bus_clock;
        let lacking = *self.memory.lacking.get_or_insert(bus_clock);
        if self.seen.bus == Bus::Away || bus_clock <= lacking + FOLLOW_WITHIN {
            return Next::wait(what);
        }
        let detail = format!("within {} s there was not: {what}", FOLLOW_WITHIN.as_secs());
        Err(Against::because(Reason::NeverServed { detail }, failed_at))
    }

    /// The old one is kept in the role that it has in a state.
    pub(super) fn keep_old(&mut self, state: State) {
        match state {
            State::Planned | State::Trial | State::Joined | State::Aborting => {
                self.keep_old_as(Role::Serving);
            }
            State::Alone => self.keep_old_as(Role::StandingBy),
            State::Removing | State::Done | State::Held => {}
        }
    }

    /// The old one has the role, and lives: an old one that dies by itself is started again in its role. That
    /// it cannot be started never blocks the new one. One that is alive and silent is ended, to be started:
    /// it holds requests that nobody answers, unless it is known to have left the queue group.
    pub(super) fn keep_old_as(&mut self, role: Role) {
        let old = &self.seen.old;
        self.order(Which::Old, role);
        if self.seen.busy {
            return;
        }
        if old.life.is_alive() {
            let out_of_the_way = role == Role::StandingBy && old.follows(role);
            if !out_of_the_way && self.silence(Which::Old).is_some() {
                self.actions.push(Action::End(Which::Old, Haste::Now));
            }
        } else if self.is_time(self.memory.lasting.old_started) {
            self.memory.lasting.old_started = Some(self.now.running);
            self.actions.push(Action::StartOld(role));
        }
    }

    pub(super) fn is_time(&self, last: Option<Duration>) -> bool {
        last.is_none_or(|at| self.now.running >= at + AGAIN)
    }

    pub(super) fn order(&mut self, which: Which, role: Role) {
        let instance: &Instance = match which {
            Which::Old => &self.seen.old,
            Which::New => &self.seen.new,
        };
        if instance.id.is_some() && instance.ordered.as_ref().is_none_or(|(ordered, _)| *ordered != role) {
            self.actions.push(Action::Order(which, role));
        }
    }

    /// What a failure is worth, once that can be said. Evidence is what remains when nothing in the
    /// surroundings explains it, and when the old one has what the new one lacked.
    pub(super) fn weigh(&self, failure: &Failure) -> Option<Failure> {
        let mut weighed = Failure { weighed: Weighed::Yes, ..failure.clone() };
        if !failure.reason.is_evidence() {
            return Some(weighed);
        }
        let lasting = &self.memory.lasting;
        let bus_was_lost = lasting.bus_lost.is_some_and(|at| at + SILENCE >= self.memory.entered);
        let against = if self.seen.stopping {
            "the host is being stopped"
        } else if self.record.boot_id != self.now.boot_id {
            "the machine was started again"
        } else if self.now.running < self.memory.entered + WEIGH_AFTER {
            return None;
        } else {
            match self.seen.bus {
                Bus::Away => "the bus is away",
                Bus::Up { .. } if bus_was_lost => "the bus was away",
                Bus::Up { echo: None, .. } => "the host's own echo does not return",
                Bus::Up { echo: Some(echo), .. } if echo > ECHO_WITHIN => "the bus is slow",
                Bus::Up { .. } if !self.old_serves() => {
                    if self.memory.bus_clock < FOLLOW_WITHIN {
                        return None;
                    }
                    "the old one is not seen to serve either"
                }
                Bus::Up { .. } if !self.seen.old.reaches_state() => "the old one lacks the same",
                Bus::Up { .. } if failure.lacked() && !self.seen.new.life.is_alive() => {
                    "it is gone, and cannot be asked once more"
                }
                Bus::Up { .. } if failure.lacked() && self.has_it_now(failure) => {
                    "what it lacked it has a moment later"
                }
                Bus::Up { .. } => return Some(weighed),
            }
        };
        weighed.reason = Reason::Surroundings { detail: format!("{against}; seen was: {}", failure.reason) };
        Some(weighed)
    }

    /// Whether the newcomer, which is alive still, has by now what it failed for.
    fn has_it_now(&self, failure: &Failure) -> bool {
        let new = &self.seen.new;
        let Some(answered) = new.ready.as_ref().filter(|answered| answered.asked >= self.memory.entered)
        else {
            return false;
        };
        let right = |role| matches!(self.new_answer(role), Answer::Right);
        let serves = new.follows(Role::Serving) && right(Role::Serving) && self.new_answered_the_public();
        match failure.state {
            State::Trial => right(Role::StandingBy),
            State::Joined => serves,
            _ => serves && answered.ready.lock_taken,
        }
    }

    /// Handed back. Evidence waits for a person; the surroundings are tried again after a while, a few times; what
    /// a newer declaration ended is tried again whenever it is wanted again.
    pub(super) fn hold(&self, failure: &Failure) -> Arm {
        let mut record = self.enter(State::Held);
        match failure.reason {
            Reason::Superseded { .. } => record.next_try = Some(self.now.wall),
            Reason::Surroundings { .. } => {
                record.surroundings += 1;
                if record.surroundings < TRIES {
                    let wait = Duration::from_secs(2_u64.pow(record.surroundings));
                    record.next_try = self.now.wall.checked_add(wait).ok();
                }
            }
            _ => {}
        }
        Ok(Next::Go(Box::new(record)))
    }

    /// What ran in another boot runs no more: before the old one was ended, it serves, and a new trial follows.
    pub(super) fn is_of_another_boot(&self) -> bool {
        let in_play =
            matches!(self.record.state, State::Trial | State::Joined | State::Alone | State::Removing);
        in_play && !self.record.old_ended && self.record.boot_id != self.now.boot_id
    }

    /// The machine was started again. That is the surroundings', but not for ever: a newcomer may be what ends
    /// the machine.
    pub(super) fn begin_again(&mut self) -> Arm {
        if self.record.surroundings + 1 >= TRIES {
            let detail = "the machine was started again, once too often".to_owned();
            return Err(Against::because(Reason::Surroundings { detail }, "the machine"));
        }
        self.actions.push(Action::RestoreLedger);
        let mut record = self.enter(State::Planned);
        record.new.instance = None;
        record.tries += 1;
        record.surroundings += 1;
        self.memory.checks_passed = 0;
        Ok(Next::Go(Box::new(record)))
    }

    pub(super) fn check_name(&self) -> String {
        match (self.memory.first_right, self.memory.checks_passed) {
            (None, _) => "before its first right answer".to_owned(),
            (Some(_), 0) => "the first check".to_owned(),
            (Some(_), _) => "the second check".to_owned(),
        }
    }
}
