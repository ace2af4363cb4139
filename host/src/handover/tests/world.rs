//! A machine with a host, an old holder and a newcomer, in simulated time.
//!
//! In: what happens to it ([`Event`]), and the decisions. Out: what becomes of both; [`super::watch`] looks on and
//! says what may not be. The host's effects take time, may be done twice, and the host may be killed before
//! and after each.

mod host;

use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::declaration::ModuleSection;
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::handover::{Reason, Role, State};
use mesh_protocol::id::{Digest, Generation};

use self::host::{Heard, Host};
use super::run::{Kind, Run, VERSION};
use super::watch::Watch;
use crate::handover::decide::{Decision, Memory, Now, Which, decide};
use crate::handover::record::{FORMAT, Newcomer, Record};
use crate::handover::seen::{Life, Needs, Seen, Wanted};
use crate::handover::trace::Decided;

pub(super) const STEP: Duration = Duration::from_millis(25);
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

const HOST_DOWN: Duration = Duration::from_millis(150);

pub(super) type Decide = fn(&Record, &Memory, &Seen, &Now, Duration) -> Decision;

/// What happens to the world from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    KillHost,
    KillOld,
    KillNew,
    FreezeOld,
    FreezeNew,
    ThawOld,
    ThawNew,
    BusGoes,
    BusComes,
    Reboot,
    NewerDeclaration,
    DeclaredAgain,
    Push,
    EngineHangs,
    EngineGoesOn,
    EchoSlow,
    EchoFast,
    StateFails,
    StateWorks,
    OldCannotStart,
    OldCanStart,
    HostStopped,
    HostContinues,
}

/// Where the host is killed, by the number of the action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Before(usize),
    After(usize),
}

/// All of it.
pub(super) struct World {
    pub(super) decide: Decide,
    pub(super) now: Duration,
    boot: u32,
    host: Option<Host>,
    host_stopped: bool,
    starts_at: Duration,
    /// On disk.
    pub(super) record: Record,
    /// On disk: who holds the seat.
    pub(super) holder: Which,
    /// On disk: whether the old one has a tombstone.
    pub(super) tombstone: bool,
    pub(super) old: Run,
    /// The newcomer's runs; the last is the latest.
    pub(super) new: Vec<Run>,
    kind: Kind,
    pub(super) bus: bool,
    turn: bool,
    pub(super) echo: Duration,
    pub(super) state_works: bool,
    pub(super) engine_hangs: bool,
    pub(super) old_can_start: bool,
    pub(super) needs: Needs,
    pub(super) wanted: Wanted,
    pub(super) stopping: bool,
    pub(super) interval: Duration,
    counter: u64,
    /// How many actions were done.
    pub(super) acted: usize,
    pub(super) cut: Option<Cut>,
    /// Each action is done twice.
    pub(super) twice: bool,
    /// A planted fault: what should be forgotten is kept.
    pub(super) memory_is_kept: bool,
    kept: Memory,
    pub(super) watch: Watch,
    pub(super) waiting_for: Option<String>,
    /// Where a test wants it: each decision, as the host writes it down.
    pub(super) trace: Option<Vec<Decided>>,
    /// The states that were written, with the time.
    pub(super) states: Vec<(Duration, State)>,
}

impl World {
    pub(super) fn new(kind: Kind) -> Self {
        let mut old = Run::new("c-1", Which::Old, Kind::Good, Duration::ZERO);
        old.life = Life::Running;
        old.ordered = Some((Role::Serving, 1));
        let now = Duration::from_secs(10);
        for _ in 0..4 {
            old.tick(now, State::Planned, false);
        }
        Self {
            decide,
            now,
            boot: 1,
            host: None,
            host_stopped: false,
            starts_at: now,
            record: record(),
            holder: Which::Old,
            tombstone: false,
            old,
            new: Vec::new(),
            kind,
            bus: true,
            turn: false,
            echo: Duration::from_millis(1),
            state_works: true,
            engine_hangs: false,
            old_can_start: true,
            needs: Needs::Met,
            wanted: Wanted::Same { revision: 5, retry: false },
            stopping: false,
            interval: INTERVAL,
            counter: 100,
            acted: 0,
            cut: None,
            twice: false,
            memory_is_kept: false,
            kept: Memory::default(),
            watch: Watch::default(),
            waiting_for: None,
            trace: None,
            states: Vec::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.record.state
    }

    pub(super) fn boot_id(&self) -> String {
        format!("boot-{}", self.boot)
    }

    pub(super) fn host_runs(&self) -> bool {
        self.host.is_some() && !self.host_stopped
    }

    pub(super) fn host_is_connected(&self) -> bool {
        self.bus && self.host.as_ref().is_some_and(|host| host.connected.is_some())
    }

    /// Since when the host is connected, by the world's clock.
    pub(super) fn host_hears_since(&self) -> Option<Duration> {
        let host = self.host.as_ref().filter(|_| self.bus && !self.host_stopped)?;
        host.connected.map(|at| at + host.started)
    }

    /// The newcomer's run that counts: the one that the record names, and once the old one was ended the latest.
    pub(super) fn current(&self) -> Option<&Run> {
        if self.record.old_ended { self.new.last() } else { self.recorded() }
    }

    fn recorded(&self) -> Option<&Run> {
        let id = self.record.new.instance.as_ref()?;
        self.new.iter().find(|run| &run.id == id)
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Run> {
        let id = self.record.new.instance.as_ref()?;
        self.new.iter_mut().find(|run| &run.id == id)
    }

    pub(super) fn happen(&mut self, event: Event) {
        let killed = Reason::Surroundings { detail: "it was killed from outside (SIGKILL)".to_owned() };
        self.watch.disturbed(self.now);
        match event {
            Event::KillHost => self.kill_host(),
            Event::KillOld => self.old.end(killed),
            Event::KillNew => self.new.iter_mut().for_each(|run| run.end(killed.clone())),
            Event::FreezeOld => self.old.freeze(self.now),
            Event::FreezeNew => self.new.iter_mut().for_each(|run| run.freeze(self.now)),
            Event::ThawOld => self.old.thaw(self.now),
            Event::ThawNew => self.new.iter_mut().for_each(|run| run.thaw(self.now)),
            Event::BusGoes => {
                self.bus = false;
                if let Some(host) = &mut self.host {
                    host.connected = None;
                }
            }
            Event::BusComes => self.bus = true,
            Event::Reboot => self.reboot(),
            Event::NewerDeclaration => self.wanted = Wanted::Other(Generation(9)),
            Event::DeclaredAgain => self.wanted = Wanted::Same { revision: 5, retry: false },
            Event::Push => self.wanted = Wanted::Same { revision: 6, retry: false },
            Event::EngineHangs => self.engine_hangs = true,
            Event::EngineGoesOn => self.engine_hangs = false,
            Event::EchoSlow => self.echo = Duration::from_secs(2),
            Event::EchoFast => self.echo = Duration::from_millis(1),
            Event::StateFails => self.state_works = false,
            Event::StateWorks => self.state_works = true,
            Event::OldCannotStart => self.old_can_start = false,
            Event::OldCanStart => self.old_can_start = true,
            Event::HostStopped => self.host_stopped = true,
            Event::HostContinues => self.host_stopped = false,
        }
    }

    /// Nothing more happens, and nothing is in the way any more. What is frozen stays so.
    pub(super) fn calm(&mut self) {
        for event in [
            Event::BusComes,
            Event::EngineGoesOn,
            Event::EchoFast,
            Event::StateWorks,
            Event::OldCanStart,
            Event::HostContinues,
        ] {
            self.happen(event);
        }
    }

    fn kill_host(&mut self) {
        if let Some(host) = self.host.take() {
            self.kept = host.memory;
            // What an engine was asked for it does; a process is started or ended by then, or it is not.
            let hangs = self.engine_hangs;
            for job in host.jobs.iter().filter(|job| job.which == Which::Old && !hangs) {
                self.land(job);
            }
        }
        self.host_stopped = false;
        self.starts_at = self.now + HOST_DOWN;
        self.watch.host_died();
    }

    fn reboot(&mut self) {
        self.kill_host();
        self.boot += 1;
        for run in self.new.iter_mut().chain([&mut self.old]) {
            if run.life.is_alive() {
                run.end(Reason::Exited { code: 0 });
                run.life = Life::Gone("it ran in another boot".to_owned());
            }
        }
        self.kept = Memory::default();
    }

    pub(super) fn step(&mut self) {
        self.now += STEP;
        let (now, state) = (self.now, self.record.state);
        let new_serves = self.new.iter().any(Run::is_routed_to);
        self.old.tick(now, state, new_serves);
        let old_serves = self.old.is_routed_to();
        self.new.iter_mut().for_each(|run| run.tick(now, state, old_serves));
        if self.host.is_none() && now >= self.starts_at {
            let memory = if self.memory_is_kept { self.kept.clone() } else { Memory::default() };
            self.host = Some(Host {
                started: now,
                memory,
                connected: None,
                old: Heard::default(),
                new: Heard::default(),
                next_public: Duration::ZERO,
                jobs: Vec::new(),
            });
        }
        self.finish_jobs();
        if self.host_runs() {
            self.listen();
            self.pass();
        }
        self.supervise();
        let mut watch = std::mem::take(&mut self.watch);
        watch.look(self);
        self.watch = watch;
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    /// Runs until the condition holds; says whether it did within the time.
    pub(super) fn run_until(&mut self, limit: Duration, condition: impl Fn(&Self) -> bool) -> bool {
        let until = self.now + limit;
        while !condition(self) {
            if self.now >= until {
                return false;
            }
            self.step();
        }
        true
    }
}

pub(super) fn wall(now: Duration) -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap().checked_add(now).unwrap()
}

fn section() -> ModuleSection {
    ModuleSection {
        name: "mesh-controller".parse().unwrap(),
        version: VERSION.to_owned(),
        revision: 5,
        seat: Some("mesh-controller".parse().unwrap()),
        manifest: String::new(),
        accounts: vec![],
        bundles: vec![],
        files: vec![],
        processes: vec![],
        containers: vec![],
    }
}

pub(super) fn record() -> Record {
    Record {
        format: FORMAT,
        seat: "mesh-controller".parse().unwrap(),
        state: State::Planned,
        since: wall(Duration::ZERO),
        boot_id: "boot-1".to_owned(),
        generation: Generation(4),
        revision: 5,
        old: LedgerEntry {
            id: "container:mesh-controller".parse().unwrap(),
            digest: Digest::of(b"old spec"),
            section: section(),
            runtime: None,
            instance: Some("c-1".parse().unwrap()),
            run: Some("c-1".parse().unwrap()),
            standing: Standing::Adopted,
            generation: Generation(1),
        },
        new: Newcomer {
            id: "process:mesh-controller".parse().unwrap(),
            digest: Digest::of(b"new spec"),
            section: section(),
            instance: None,
            program: None,
        },
        tries: 1,
        surroundings: 0,
        failure: None,
        next_try: None,
        old_ended: false,
    }
}
