//! One run of an instance in the simulated world: what it does with its role file, when it answers, how it ends.

use std::time::Duration;

use mesh_protocol::handover::{Reason, Role, RoleAck, State};
use mesh_protocol::id::{Digest, InstanceId};
use mesh_protocol::verb::{Check, PROTOCOL, Ready};

use super::world::{INTERVAL, STEP};
use crate::handover::decide::Which;
use crate::handover::seen::Life;

/// What is the matter with the newcomer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Good,
    CannotStart,
    ExitsAtOnce,
    ExitsBetweenChecks,
    /// In this state, as soon as it is written.
    ExitsIn(State),
    FreezesIn(State),
    NeverAnswers,
    NeverReachesItsState,
    WrongVersion,
    WrongProgram,
    AnswersAsAnother,
    MayNotJoin,
    NeverTakesTheLock,
    /// Of an old one: it serves on whatever it is told.
    NeverLeaves,
}

impl Kind {
    /// All that are bad, each for ever.
    pub(super) const BAD: [Self; 16] = [
        Self::CannotStart,
        Self::ExitsAtOnce,
        Self::ExitsBetweenChecks,
        Self::ExitsIn(State::Joined),
        Self::ExitsIn(State::Alone),
        Self::ExitsIn(State::Removing),
        Self::FreezesIn(State::Joined),
        Self::FreezesIn(State::Alone),
        Self::FreezesIn(State::Removing),
        Self::NeverAnswers,
        Self::NeverReachesItsState,
        Self::WrongVersion,
        Self::WrongProgram,
        Self::AnswersAsAnother,
        Self::MayNotJoin,
        Self::NeverTakesTheLock,
    ];
}

pub(super) const VERSION: &str = "2.0.0";

pub(super) fn program(which: Which) -> Digest {
    Digest::of(match which {
        Which::Old => b"old",
        Which::New => b"new",
    })
}

/// From its start to its end.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) id: InstanceId,
    which: Which,
    pub(super) kind: Kind,
    pub(super) life: Life,
    pub(super) frozen: bool,
    froze: Duration,
    /// When it was last frozen.
    pub(super) thawed: Option<Duration>,
    started: Duration,
    /// The file `role`.
    pub(super) ordered: Option<(Role, u64)>,
    /// The file `role.ack`.
    pub(super) ack: Option<RoleAck>,
    /// What it does.
    pub(super) role: Role,
    /// Since when it has read the order that it does not follow yet.
    read: Option<(u64, Duration)>,
    lock_taken: bool,
    alone: Option<Duration>,
}

impl Run {
    pub(super) fn new(id: &str, which: Which, kind: Kind, started: Duration) -> Self {
        Self {
            id: id.parse().unwrap(),
            which,
            kind,
            life: Life::Starting,
            frozen: false,
            froze: Duration::ZERO,
            thawed: None,
            started,
            ordered: None,
            ack: None,
            role: Role::StandingBy,
            read: None,
            lock_taken: false,
            alone: None,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.life == Life::Running
    }

    /// Whether it answers what it is asked.
    pub(super) fn answers(&self, now: Duration) -> bool {
        self.runs() && !self.frozen && now >= self.started + 2 * STEP && self.kind != Kind::NeverAnswers
    }

    /// Whether it answers whoever asks the seat.
    pub(super) fn serves(&self, now: Duration) -> bool {
        self.answers(now) && self.role == Role::Serving
    }

    /// Whether it is in the queue group: what is frozen still is.
    pub(super) fn is_routed_to(&self) -> bool {
        self.runs() && self.role == Role::Serving
    }

    /// Whether it was frozen within the last while, so that a question may have been lost.
    pub(super) fn was_frozen(&self, now: Duration) -> bool {
        self.frozen || self.thawed.is_some_and(|at| now < at + Duration::from_millis(1200))
    }

    pub(super) fn freeze(&mut self, now: Duration) {
        if self.runs() && !self.frozen {
            self.frozen = true;
            self.froze = now;
        }
    }

    /// Whether it froze or ended so lately that nobody can know.
    pub(super) fn just_froze(&self, now: Duration) -> bool {
        self.frozen && now <= self.froze + Duration::from_millis(1100)
    }

    pub(super) fn thaw(&mut self, now: Duration) {
        if self.frozen {
            self.frozen = false;
            self.thawed = Some(now);
        }
    }

    pub(super) fn end(&mut self, reason: Reason) {
        if self.life.is_alive() {
            self.life = Life::Ended(reason);
            self.frozen = false;
            self.role = Role::StandingBy;
        }
    }

    pub(super) fn tick(&mut self, now: Duration, state: State, other_serves: bool) {
        if self.life == Life::Starting && now > self.started {
            self.life = Life::Running;
        }
        if !self.runs() {
            return;
        }
        match self.kind {
            Kind::ExitsAtOnce => self.end(Reason::Exited { code: 1 }),
            Kind::ExitsBetweenChecks if now >= self.started + INTERVAL * 2 + 3 * STEP => {
                self.end(Reason::Exited { code: 3 });
            }
            Kind::ExitsIn(at) if at == state => self.end(Reason::Exited { code: 4 }),
            Kind::FreezesIn(at) if at == state => self.freeze(now),
            _ => {}
        }
        if self.answers(now) {
            self.follow(now);
            if self.role == Role::Serving && !other_serves && self.kind != Kind::NeverTakesTheLock {
                self.lock_taken |= *self.alone.get_or_insert(now) + 2 * STEP <= now;
            } else {
                self.alone = None;
            }
        }
    }

    fn follow(&mut self, now: Duration) {
        let Some((role, number)) = self.ordered else { return };
        if self.ack.as_ref().is_some_and(|ack| ack.number == number) {
            return;
        }
        if self.read.is_none_or(|(read, _)| read != number) {
            self.read = Some((number, now));
        }
        // Leaving takes longer than joining.
        let takes = if role == Role::StandingBy && self.role == Role::Serving { 2 * STEP } else { STEP };
        if self.read.is_some_and(|(_, at)| now < at + takes) {
            return;
        }
        let stays = self.kind == Kind::NeverLeaves && role == Role::StandingBy;
        let refused = self.kind == Kind::MayNotJoin && role == Role::Serving || stays;
        if !refused {
            self.role = role;
        }
        self.ack = Some(RoleAck {
            instance: self.id.clone(),
            role: self.role,
            number,
            trouble: refused.then(|| "permissions violation for subscription".to_owned()),
        });
    }

    pub(super) fn ready(&self, state: Check) -> Ready {
        let wrong_version = self.kind == Kind::WrongVersion;
        let wrong_program = self.kind == Kind::WrongProgram;
        Ready {
            instance: if self.kind == Kind::AnswersAsAnother {
                "p-another".parse().unwrap()
            } else {
                self.id.clone()
            },
            role: self.role,
            version: if wrong_version || self.which == Which::Old { "1.0.0" } else { VERSION }.to_owned(),
            program: if wrong_program { Digest::of(b"other") } else { program(self.which) },
            protocol: PROTOCOL,
            formats: vec![1],
            state: if self.kind == Kind::NeverReachesItsState {
                Check::Failed("no right to write".to_owned())
            } else {
                state
            },
            lock: Check::Passed,
            lock_taken: self.lock_taken,
            open_plan: None,
        }
    }
}
