//! The host in the simulated world: it connects and asks, sees, decides, and acts; its jobs take time.
//!
//! In: the world as it is. Out: actions done to it, each watched. Not here: what happens from outside.

use std::time::Duration;

use mesh_protocol::handover::{Reason, Role, State};
use mesh_protocol::id::{InstanceId, Token};
use mesh_protocol::verb::Check;

use super::{Cut, STEP, World, wall};
use crate::handover::decide::{Action, Haste, Memory, Now, Which};
use crate::handover::seen::{Answered, Bus, Instance, Life, Seen};
use crate::handover::tests::run::{Kind, Run, program};
use crate::handover::trace::Decided;

const ASK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(1);

/// What of one instance the host has heard.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    pub(super) of: Option<InstanceId>,
    pub(super) ready: Option<Answered>,
    pub(super) public: Option<Duration>,
    pub(super) next: Duration,
}

/// One run of the host.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) started: Duration,
    pub(super) memory: Memory,
    pub(super) connected: Option<Duration>,
    pub(super) old: Heard,
    pub(super) new: Heard,
    pub(super) next_public: Duration,
    pub(super) jobs: Vec<Job>,
}

#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) which: Which,
    pub(super) what: Effect,
    pub(super) lands: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Start,
    End(Reason),
    Remove,
}

impl World {
    pub(super) fn finish_jobs(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        let (done, open): (Vec<Job>, Vec<Job>) = host
            .jobs
            .drain(..)
            .partition(|job| job.lands <= self.now && !(job.which == Which::Old && self.engine_hangs));
        host.jobs = open;
        self.host = Some(host);
        done.iter().for_each(|job| self.land(job));
    }

    pub(super) fn land(&mut self, job: &Job) {
        let can_start = self.old_can_start;
        let run = match job.which {
            Which::Old => Some(&mut self.old),
            Which::New => self.current_mut(),
        };
        let Some(run) = run else { return };
        match &job.what {
            Effect::Start if job.which == Which::Old && !can_start => {
                run.end(Reason::CouldNotStart { detail: "no such image".to_owned() });
            }
            Effect::Start => {}
            Effect::End(reason) => run.end(reason.clone()),
            Effect::Remove => {
                run.end(Reason::Signalled { signal: 9 });
                run.life = Life::Gone("it was removed".to_owned());
            }
        }
    }

    /// Connects and asks.
    pub(super) fn listen(&mut self) {
        let Some(mut host) = self.host.take() else { return };
        let mut watch = std::mem::take(&mut self.watch);
        let running = self.now - host.started;
        if !self.bus {
            host.connected = None;
        } else if host.connected.is_none() {
            host.connected = Some(running);
        } else {
            let check = if self.state_works {
                Check::Passed
            } else {
                Check::Failed("no answer from the store".to_owned())
            };
            let asked = running.saturating_sub(STEP);
            let new = self.current();
            for (heard, run) in [(&mut host.old, Some(&self.old)), (&mut host.new, new)] {
                let Some(run) = run.filter(|_| running >= heard.next) else { continue };
                let answers = run.answers(self.now);
                heard.next = running + if run.frozen { PATIENCE } else { ASK_EVERY };
                if heard.of.as_ref() != Some(&run.id) {
                    *heard = Heard { of: Some(run.id.clone()), next: heard.next, ..Heard::default() };
                }
                if answers {
                    heard.ready = Some(Answered { asked, ready: run.ready(check.clone()) });
                    watch.heard(self.record.state, run, heard.ready.as_ref());
                }
            }
            if running >= host.next_public {
                host.next_public = running + ASK_EVERY;
                let old = self.old.is_routed_to();
                let new_routed = self.current().is_some_and(Run::is_routed_to);
                self.turn = !self.turn;
                let asks_new = new_routed && (self.turn || !old);
                let asked_run = if asks_new { self.current() } else { Some(&self.old).filter(|_| old) };
                if asked_run.is_some_and(|run| run.frozen) {
                    host.next_public = running + PATIENCE;
                }
                if asks_new && self.current().is_some_and(|run| run.serves(self.now)) {
                    host.new.public = Some(asked);
                    watch.heard_publicly();
                }
            }
        }
        self.watch = watch;
        self.host = Some(host);
    }

    fn seen(&self, host: &Host) -> Seen {
        let instance = |run: Option<&Run>, heard: &Heard| Instance {
            id: run.map(|run| run.id.clone()),
            life: run.map_or(Life::NotStarted, |run| run.life.clone()),
            ordered: run.and_then(|run| run.ordered),
            ack: run.and_then(|run| run.ack.clone()),
            ready: heard.ready.clone().filter(|_| heard.of == run.map(|run| run.id.clone())),
            ready_error: None,
            public: heard.public.filter(|_| heard.of == run.map(|run| run.id.clone())),
        };
        let echo = Some(self.echo);
        Seen {
            bus: host.connected.map_or(Bus::Away, |since| Bus::Up { since, echo }),
            needs: self.needs.clone(),
            old: instance(Some(&self.old), &host.old),
            new: instance(self.recorded(), &host.new),
            wanted: self.wanted,
            stopping: self.stopping,
            busy: !host.jobs.is_empty(),
            fresh: format!("p-{}", self.counter).parse().unwrap(),
            program: Some(program(Which::New)),
        }
    }

    /// One pass of the host: see, decide, act.
    pub(super) fn pass(&mut self) {
        let Some(host) = self.host.take() else { return };
        let running = self.now - host.started;
        let seen = self.seen(&host);
        let now = Now { running, wall: wall(self.now), boot_id: self.boot_id() };
        let decision = (self.decide)(&self.record, &host.memory, &seen, &now, self.interval);
        if let Some(trace) = &mut self.trace {
            let (record, memory, interval) = (self.record.clone(), host.memory.clone(), self.interval);
            let (token, decision) = (Token { epoch: 1, revision: 4 }, decision.clone());
            trace.push(Decided { token, record, memory, seen: seen.clone(), now, interval, decision });
        }
        self.host = Some(Host { memory: decision.memory.clone(), ..host });
        self.waiting_for.clone_from(&decision.waiting_for);
        self.watch.decided(&self.record, &seen, &decision);
        for action in &decision.actions {
            if self.cut == Some(Cut::Before(self.acted)) {
                self.acted += 1;
                return self.kill_host();
            }
            for _ in 0..if self.twice { 2 } else { 1 } {
                self.act(action);
            }
            self.acted += 1;
            if self.cut == Some(Cut::After(self.acted - 1)) {
                return self.kill_host();
            }
        }
    }

    pub(super) fn act(&mut self, action: &Action) {
        let mut watch = std::mem::take(&mut self.watch);
        watch.before(action, self);
        self.watch = watch;
        match action {
            Action::Write(record) => {
                if record.state != self.record.state {
                    self.states.push((self.now, record.state));
                }
                self.record = (**record).clone();
                self.counter += 1;
            }
            Action::CommitLedger => self.holder = Which::New,
            Action::RestoreLedger => self.holder = Which::Old,
            Action::Bury => self.tombstone = true,
            Action::SyncBus => {}
            Action::StartNew => self.start_new(),
            Action::StartOld(role) => self.start_old(*role),
            Action::Order(which, role) => self.order(*which, *role),
            Action::End(which, haste) => self.end(*which, *haste),
            Action::RemoveOld => self.begin(Which::Old, Effect::Remove, 2 * STEP),
        }
    }

    fn begin(&mut self, which: Which, what: Effect, takes: Duration) {
        let lands = self.now + takes;
        if let Some(host) = &mut self.host
            && host.jobs.iter().all(|job| job.which != which)
        {
            host.jobs.push(Job { which, what, lands });
        }
    }

    fn start_new(&mut self) {
        let Some(id) = self.record.new.instance.clone() else { return };
        if self.new.iter().any(|run| run.id == id) {
            return;
        }
        let mut run = Run::new(id.as_str(), Which::New, self.kind, self.now);
        self.counter += 1;
        run.ordered = Some((Role::StandingBy, self.counter));
        if self.kind == Kind::CannotStart {
            run.life = Life::Ended(Reason::CouldNotStart { detail: "exec: permission denied".to_owned() });
        }
        self.new.push(run);
        self.begin(Which::New, Effect::Start, 2 * STEP);
    }

    fn start_old(&mut self, role: Role) {
        if self.old.life.is_alive() {
            return;
        }
        self.counter += 1;
        self.old = Run::new(&format!("c-{}", self.counter), Which::Old, Kind::Good, self.now + 3 * STEP);
        self.old.ordered = Some((role, self.counter));
        self.record.old.instance = Some(self.old.id.clone());
        self.begin(Which::Old, Effect::Start, 2 * STEP);
    }

    fn order(&mut self, which: Which, role: Role) {
        self.counter += 1;
        let number = self.counter;
        let run = match which {
            Which::Old => Some(&mut self.old),
            Which::New => self.current_mut(),
        };
        if let Some(run) = run {
            run.ordered = Some((role, number));
        }
    }

    fn end(&mut self, which: Which, haste: Haste) {
        let run = match which {
            Which::Old => Some(&self.old),
            Which::New => self.current(),
        };
        let Some(frozen) = run.filter(|run| run.life.is_alive()).map(|run| run.frozen) else { return };
        let (reason, takes) = match (haste, frozen) {
            (Haste::Grace, false) => (Reason::Exited { code: 0 }, 3 * STEP),
            (Haste::Grace, true) => (Reason::Signalled { signal: 9 }, 20 * STEP),
            (Haste::Now, _) => (Reason::Signalled { signal: 9 }, STEP),
        };
        self.begin(which, Effect::End(reason), takes);
    }

    /// What keeps the holder when no handover is open: not what is tested here.
    pub(super) fn supervise(&mut self) {
        let killed = Reason::Signalled { signal: 9 };
        if !self.host_runs() {
            return;
        }
        match self.state() {
            State::Held if self.old_can_start && !self.engine_hangs => {
                if self.old.frozen {
                    self.old.end(killed);
                }
                self.start_old(Role::Serving);
            }
            State::Removing | State::Done
                if self.record.old_ended
                    && self.current().is_none_or(|run| run.frozen || !run.life.is_alive()) =>
            {
                self.new.iter_mut().for_each(|run| run.end(killed.clone()));
                self.counter += 1;
                let mut run = Run::new(&format!("p-{}", self.counter), Which::New, self.kind, self.now);
                run.ordered = Some((Role::Serving, self.counter));
                self.new.push(run);
            }
            _ => {}
        }
    }
}
