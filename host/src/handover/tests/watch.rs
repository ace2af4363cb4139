//! Who looks on, and says what may not be: the rules of a handover, kept apart from the code that decides.
//!
//! In: each decision, each action before it is done, what the host has heard, the world after each step. Out:
//! what was wrong, in words. It knows more than the host does: who is frozen, and who really serves.

use std::time::Duration;

use mesh_protocol::handover::{Role, State};
use mesh_protocol::id::InstanceId;
use mesh_protocol::verb::Check;

use super::run::{Run, VERSION, program};
use super::world::{STEP, World};
use crate::handover::decide::{Action, Decision, Which};
use crate::handover::record::{Record, Weighed};
use crate::handover::seen::{Answered, Instance, Seen};

/// How long nobody may answer the seat while the host runs, hears, and nothing happens to anyone: silence of
/// one that froze before its first answer (10 s), the pause between two starts (1 s), and the start.
const DARK: Duration = Duration::from_secs(12);

/// Who looks on.
#[derive(Debug, Default)]
pub(super) struct Watch {
    pub(super) wrong: Vec<String>,
    /// How long the host has heard the bus, in this run of it.
    bus_time: Duration,
    /// What the host was told in this run of it.
    told: Told,
    synced: bool,
    dark: Option<Duration>,
    disturbed: Duration,
    /// The longest time that nobody served while somebody could have.
    pub(super) longest_dark: Duration,
}

/// What the host was told in this run of it and in this state, by bus time.
#[derive(Debug, Default)]
struct Told {
    by: Option<InstanceId>,
    right_in_trial: Vec<Duration>,
    right_alone: Vec<Duration>,
    public: Vec<Duration>,
}

impl Watch {
    pub(super) fn disturbed(&mut self, now: Duration) {
        self.disturbed = now;
    }

    pub(super) fn host_died(&mut self) {
        self.bus_time = Duration::ZERO;
        self.told = Told::default();
        self.synced = false;
    }

    fn expect(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong.push(what());
        }
    }

    /// An answer on the instance's own subject.
    pub(super) fn heard(&mut self, state: State, run: &Run, answer: Option<&Answered>) {
        let Some(ready) = answer.map(|answer| &answer.ready) else { return };
        if !run.id.as_str().starts_with("p-") {
            return;
        }
        if self.told.by.as_ref() != Some(&run.id) {
            self.told = Told { by: Some(run.id.clone()), ..Told::default() };
        }
        let right = ready.instance == run.id
            && ready.version == VERSION
            && ready.program == program(Which::New)
            && ready.state == Check::Passed
            && ready.lock == Check::Passed;
        match (state, ready.role) {
            (State::Trial, Role::StandingBy) if right => self.told.right_in_trial.push(self.bus_time),
            (State::Alone, Role::Serving) if right && ready.lock_taken => {
                self.told.right_alone.push(self.bus_time);
            }
            (State::Alone, _) => self.told.right_alone.clear(),
            _ => {}
        }
    }

    /// An answer of the newcomer on the public subject.
    pub(super) fn heard_publicly(&mut self) {
        self.told.public.push(self.bus_time);
    }

    /// Who is alive, as the host sees it, and may serve, is told to: in this very decision, if not before.
    pub(super) fn decided(&mut self, record: &Record, seen: &Seen, decision: &Decision) {
        let told = |which: Which, instance: &Instance| {
            let mut role = instance.ordered.map(|(role, _)| role).filter(|_| instance.life.is_alive());
            for action in &decision.actions {
                match action {
                    Action::Order(other, order) if *other == which && instance.life.is_alive() => {
                        role = Some(*order);
                    }
                    Action::StartOld(order) if which == Which::Old => role = Some(*order),
                    _ => {}
                }
            }
            role == Some(Role::Serving)
        };
        let before_joined = |state: State| matches!(state, State::Planned | State::Trial);
        let unproved = before_joined(record.state)
            || record.state == State::Aborting
                && record.failure.as_ref().is_some_and(|failure| before_joined(failure.state));
        let may_serve = seen.old.life.is_alive() || seen.new.life.is_alive() && !unproved;
        let open = record.is_open() && !record.old_ended;
        let served = told(Which::Old, &seen.old) || told(Which::New, &seen.new);
        self.expect(!open || !may_serve || served, || {
            format!("in {} somebody is alive, and nobody is told to serve", record.state.as_str())
        });
    }

    /// What must be so before an action is done.
    pub(super) fn before(&mut self, action: &Action, world: &World) {
        let record = &world.record;
        let state = record.state;
        let new_alive = world.current().is_some_and(|run| run.life.is_alive());
        match action {
            Action::Write(next) => self.write(next, world),
            Action::StartNew => {
                self.expect(state == State::Trial && record.new.instance.is_some(), || {
                    format!("the new one is started in {}, before the record has its run", state.as_str())
                });
            }
            Action::StartOld(_) => {
                self.expect(!world.tombstone, || "what has a tombstone is started again".to_owned());
            }
            Action::Order(Which::New, Role::Serving) => {
                let right = matches!(state, State::Joined | State::Alone | State::Removing);
                self.expect(right, || format!("the new one is told to serve in {}", state.as_str()));
            }
            Action::Order(..) => {}
            Action::End(Which::Old, _) => {
                let proved = state == State::Removing && !self.told.public.is_empty();
                let silent = world.old.was_frozen(world.now) || !world.old.answers(world.now);
                self.expect(proved || silent, || {
                    format!("in {} the old one is ended, which answers, before the proof", state.as_str())
                });
            }
            Action::End(Which::New, _) => {
                let silent =
                    world.current().is_none_or(|run| run.was_frozen(world.now) || !run.answers(world.now));
                let old = &world.old;
                let only = !old.serves(world.now)
                    && !old.just_froze(world.now)
                    && world.current().is_some_and(|r| r.serves(world.now));
                self.expect(state == State::Aborting, || {
                    format!("the new one is ended in {}", state.as_str())
                });
                self.expect(silent || !only, || "the only one that answers is ended".to_owned());
            }
            Action::RemoveOld => {
                let right = record.old_ended && world.tombstone;
                self.expect(right, || format!("the old one is removed in {}", state.as_str()));
            }
            Action::Bury => {
                self.expect(record.old_ended && !world.old.life.is_alive(), || {
                    "a tombstone is set before the record says that the old one was ended".to_owned()
                });
            }
            Action::RestoreLedger => {
                let right = !record.old_ended && !world.tombstone;
                self.expect(right, || "the ledger goes back after the old one was ended".to_owned());
            }
            Action::SyncBus => self.synced = true,
            Action::CommitLedger => {
                let right = state == State::Alone || state == State::Removing;
                self.expect(right && (new_alive || record.old_ended), || {
                    format!("the ledger goes on in {}", state.as_str())
                });
            }
        }
    }

    fn write(&mut self, next: &Record, world: &World) {
        use State::{Aborting, Alone, Done, Held, Joined, Planned, Removing, Trial};
        let (before, after) = (&world.record, next);
        let step = (before.state, after.state);
        let known = match step {
            (Planned, Trial | Aborting) | (Trial, Joined | Aborting | Planned) => true,
            (Joined, Alone | Aborting | Planned) | (Alone, Removing | Aborting | Planned) => true,
            (Removing, Aborting | Planned) => !before.old_ended,
            (Removing, Done) => before.old_ended,
            (Aborting, Held) | (Held, Planned) => true,
            (one, other) => one == other,
        };
        self.expect(known, || format!("{} goes to {}", step.0.as_str(), step.1.as_str()));
        self.expect(after.old_ended || !before.old_ended, || "the old one was ended, and was not".to_owned());
        let (was, is) = (before.failure.as_ref(), after.failure.as_ref());
        let convicts = is.is_some_and(|f| f.weighed == Weighed::Yes && f.reason.is_evidence());
        if convicts && was.is_some_and(|failure| failure.weighed == Weighed::NotYet) {
            let old = &world.old;
            let heard = world.bus && world.echo < Duration::from_secs(1) && !world.stopping;
            let old_serves = old.serves(world.now) || old.just_froze(world.now);
            self.expect(heard && old_serves && after.boot_id == world.boot_id(), || {
                "the surroundings' fault is held against the new one".to_owned()
            });
        }
        if step.0 == step.1 {
            if after.old_ended && !before.old_ended {
                let proved = !self.told.public.is_empty() && world.holder == Which::New;
                self.expect(proved && !world.old.life.is_alive(), || {
                    "the old one counts as ended before the new one answered once more".to_owned()
                });
            }
            return;
        }
        let interval = world.interval;
        match after.state {
            Trial => {
                let id = after.new.instance.as_ref();
                let fresh = id.is_some_and(|id| world.new.iter().all(|run| &run.id != id));
                self.expect(fresh, || "a trial begins without a run of its own".to_owned());
            }
            Joined => {
                let rights = &self.told.right_in_trial;
                let of_this = self.told.by == before.new.instance;
                let first = rights.first().copied().unwrap_or_default();
                let since = |checks: u32| {
                    rights.iter().filter(|right| **right + STEP >= first + interval * checks).count()
                };
                let proved = of_this && since(1) >= 2 && since(2) >= 1 && self.synced;
                self.expect(proved, || {
                    "joined without two checks by this host, or the bus on disk".to_owned()
                });
            }
            Alone => {
                let proved = !self.told.public.is_empty();
                self.expect(proved, || "alone before the new one answered the public subject".to_owned());
            }
            Removing => {
                let alone = &self.told.right_alone;
                let first = alone.first().copied();
                let last = alone.last().copied();
                let long_enough = first.zip(last).is_some_and(|(a, b)| b + 2 * STEP >= a + interval);
                let public = first.is_some_and(|first| {
                    self.told.public.iter().any(|asked| *asked + 2 * STEP >= first + interval)
                });
                let committed = world.holder == Which::New;
                self.expect(long_enough && public && committed, || {
                    "removing before the new one served alone for an interval".to_owned()
                });
            }
            Done => {
                let right = world.tombstone && world.holder == Which::New && !world.old.life.is_alive();
                self.expect(right, || "done before the old one is gone for good".to_owned());
            }
            Held => {
                let right = !world.tombstone && world.holder == Which::Old;
                self.expect(right, || "held, and the ledger does not name the old one".to_owned());
                let gone = world.current().is_none_or(|run| !run.life.is_alive());
                self.expect(gone, || "held, and the new one is alive".to_owned());
            }
            Planned | Aborting => {}
        }
        self.told.public.clear();
        self.told.right_alone.clear();
        self.told.right_in_trial.clear();
    }

    /// What must be so at any time.
    pub(super) fn look(&mut self, world: &World) {
        if world.host_is_connected() {
            self.bus_time += STEP;
        }
        let hears = world.host_hears_since();
        let current = world.current().map(|run| &run.id);
        let stray = world.new.iter().find(|run| run.life.is_alive() && Some(&run.id) != current);
        if let Some(stray) = stray {
            self.wrong.push(format!("{} is alive, and no record knows it", stray.id));
        }
        let both = world.tombstone && world.old.life.is_alive();
        self.expect(!both, || "what has a tombstone is alive".to_owned());
        let now = world.now;
        let served = world.old.serves(now) || world.current().is_some_and(|run| run.serves(now));
        let hope = world.record.is_open() && world.old_can_start && !world.engine_hangs;
        let Some(hears) = hears.filter(|_| hope && !served) else {
            self.dark = None;
            return;
        };
        let since = self.dark.unwrap_or(now).max(hears).max(self.disturbed);
        self.dark = Some(since);
        self.longest_dark = self.longest_dark.max(now.saturating_sub(since));
        self.expect(now <= since + DARK, || {
            format!("in {} nobody has answered for {DARK:?}", world.record.state.as_str())
        });
    }
}
