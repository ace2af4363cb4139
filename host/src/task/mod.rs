//! The host's loop: observe, decide, do, report, at every change and at least every half second.
//!
//! In: declarations from the bus, requests from the local door, what the machine shows. Out: a machine that is
//! as declared, and the report. Not here: the decisions, which are pure and have rooms of their own
//! (`accept`, `supervise`, `handover`), and the deeds.
//!
//! All state is owned by this one task. What takes longer than some milliseconds is a job beside it, so that
//! an engine that hangs or a store that is slow holds up nothing else.

mod declare;
mod dissolve;
mod keep;
mod needs;
mod pauses;
mod recover;
mod reporting;
mod resources;
mod runs;
mod seats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mesh_engine::Container;
use mesh_protocol::declaration::{Declaration, Issued};
use mesh_protocol::door::{DoorAnswer, DoorRequest};
use mesh_protocol::handover::{Passage, State};
use mesh_protocol::id::{InstanceId, ResourceId, SeatName, Token};
use mesh_protocol::layout::{HostFile, Layout};
use mesh_protocol::report::{Refusal, Report, ResourceState};
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use self::keep::Kept;
use self::needs::{Need, NeedBook};
use self::pauses::Pauses;
use crate::bus::BusEnd;
use crate::clock::Clock;
use crate::containers::watch::EngineWatch;
use crate::fault::Fault;
use crate::handover::decide::Memory;
use crate::handover::record::Record;
use crate::jobs::Jobs;
use crate::ledger::Ledger;
use crate::probe::Probes;
use crate::recovery::Recovery;
use crate::steady::{Steady, Watched};
use crate::supervise;
use mesh_durable::{self as durable, DurableError};

/// How long the loop sleeps when nothing wakes it.
const CALM: Duration = Duration::from_millis(500);
/// How long it sleeps while a handover is open or a job is under way.
const BUSY: Duration = Duration::from_millis(25);
/// How long it sleeps while something is waited for.
const WAITING: Duration = Duration::from_millis(100);
/// How long the last answer may take to leave: the caller reads it at once, or is gone.
const DELIVERY: Duration = Duration::from_secs(2);
/// How often everything is compared with what is declared, also what nobody reports a change of.
const COMPARE: Duration = Duration::from_secs(30);
/// How often the report is sent although nothing changed, so that a silent host can be told from a calm one.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// A request from the local door.
#[derive(Debug)]
pub struct DoorCall {
    /// What is asked.
    pub request: DoorRequest,
    /// Where its answer goes.
    pub answer: oneshot::Sender<DoorAnswer>,
    /// Told when the answer has left this program.
    pub delivered: oneshot::Receiver<()>,
}

/// What was accepted: kept on disk, so that a machine that boots without the bus applies what it had.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Accepted {
    declaration: Option<Declaration>,
    token: Token,
    applied: Option<Issued>,
}

/// One seat's handover: its record, and what begins again with the host.
#[derive(Debug, Clone)]
struct Seat {
    record: Record,
    memory: Memory,
    waiting_for: Option<String>,
    retry: bool,
    /// The states of this try, for whoever follows along: this host's own memory of them.
    passed: Vec<Passage>,
}

impl Seat {
    fn new(record: Record) -> Self {
        let passed = vec![Passage { state: record.state, at: record.since }];
        Self { record, memory: Memory::default(), waiting_for: None, retry: false, passed }
    }
}

/// Work beside the loop, by what it is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Job {
    /// Something that runs need.
    Need(Need),
    /// A run: its container or process is made, started, ended or removed.
    Run(InstanceId),
}

/// What a job came to.
#[derive(Debug)]
enum JobEnd {
    /// Something that runs need: an account's numbers, or nothing more to say.
    Need(Result<Option<(u32, u32)>, Fault>),
    /// A container, as it is after it was started.
    Container(Result<Box<Container>, Fault>),
    /// A run was ended or removed.
    Ended(Result<(), Fault>),
}

/// Why the host stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It was told to; everything goes on without it.
    Asked,
    /// The mesh was dissolved.
    Dissolved,
}

/// The host's state.
#[derive(Debug)]
pub struct Task {
    layout: Layout,
    file: HostFile,
    clock: Clock,
    started: Timestamp,
    wake: Arc<Notify>,
    ledger: Ledger,
    accepted: Accepted,
    diverged: bool,
    refused: Option<Refusal>,
    refused_count: u64,
    seats: BTreeMap<SeatName, Seat>,
    recoveries: BTreeMap<SeatName, Recovery>,
    steady: BTreeMap<SeatName, Steady>,
    watched: BTreeMap<SeatName, Watched>,
    engine: EngineWatch,
    bus: BusEnd,
    probes: Probes,
    needs: NeedBook,
    jobs: Jobs<Job, JobEnd>,
    /// Containers as a job left them, which the snapshot may not show yet.
    fresh: BTreeMap<InstanceId, (Duration, Container)>,
    /// What stood against the last job of a run.
    faults: BTreeMap<InstanceId, Fault>,
    pauses: Pauses,
    states: BTreeMap<ResourceId, ResourceState>,
    compared: Option<Duration>,
    /// When it was last looked.
    looked: Duration,
    /// Since when it has been looked without a gap.
    looking: Duration,
    stopping: bool,
    /// The mesh is dissolved: nothing is made any more.
    dissolved: bool,
    number: u64,
    last_report: Option<(Duration, Report)>,
    /// What the last housekeeping was for.
    kept: Option<Kept>,
}

/// What the task is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where things lie.
    pub layout: Layout,
    /// What the host was told.
    pub file: HostFile,
    /// The clocks.
    pub clock: Clock,
    /// Notified when there is something to look at.
    pub wake: Arc<Notify>,
    /// The engine.
    pub engine: EngineWatch,
    /// The bus.
    pub bus: BusEnd,
}

impl Task {
    /// Takes up what the last host left.
    ///
    /// # Errors
    /// When its records cannot be read: then nothing is known, and nothing may be done.
    pub fn take_up(parts: Parts) -> Result<Self, DurableError> {
        let Parts { layout, file, clock, wake, engine, bus } = parts;
        let ledger = Ledger::open(layout.ledger())?;
        let dissolved = layout.dissolved().exists();
        let accepted: Accepted = durable::read_json(&layout.declaration())?.unwrap_or_default();
        let recoveries: Vec<Recovery> = seats::read_documents(&layout.recoveries())?;
        let steady: Vec<Steady> = seats::read_documents(&layout.steadies())?;
        let seats = seats::read_documents::<Record>(&layout.handovers())?
            .into_iter()
            .map(|record| (record.seat.clone(), Seat::new(record)))
            .collect();
        Ok(Self {
            probes: Probes::new(file.mesh.clone(), clock.clone(), wake.clone()),
            jobs: Jobs::new(wake.clone()),
            started: Timestamp::now(),
            layout,
            file,
            clock,
            wake,
            ledger,
            accepted,
            diverged: false,
            refused: None,
            refused_count: 0,
            seats,
            recoveries: recoveries.into_iter().map(|found| (found.seat.clone(), found)).collect(),
            steady: steady.into_iter().map(|found| (found.seat.clone(), found)).collect(),
            watched: BTreeMap::new(),
            engine,
            bus,
            needs: NeedBook::default(),
            fresh: BTreeMap::new(),
            faults: BTreeMap::new(),
            pauses: Pauses::default(),
            states: BTreeMap::new(),
            compared: None,
            looked: Duration::ZERO,
            looking: Duration::ZERO,
            stopping: false,
            dissolved,
            number: 0,
            last_report: None,
            kept: None,
        })
    }

    /// Runs until it is told to stop, or the mesh is dissolved.
    pub async fn run(
        mut self,
        mut declarations: mpsc::Receiver<Declaration>,
        mut door: mpsc::Receiver<DoorCall>,
        mut stop: watch::Receiver<bool>,
    ) -> Stop {
        let wake = self.wake.clone();
        loop {
            self.stopping = *stop.borrow();
            if self.stopping {
                return Stop::Asked;
            }
            self.pass().await;
            let pause = self.pause();
            // cancel safe: a channel's message that is not received stays in it; a notification is kept
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = wake.notified() => {}
                _ = stop.changed() => {}
                Some(declaration) = declarations.recv() => self.offered(declaration).await,
                Some(call) = door.recv() => {
                    let said = self.answer(call.request).await;
                    let dissolved = matches!(&said, DoorAnswer::Dissolved { .. });
                    // Whoever asked may have gone away; what was done is done.
                    let _ = call.answer.send(said);
                    if dissolved {
                        let _ = tokio::time::timeout(DELIVERY, call.delivered).await;
                        return Stop::Dissolved;
                    }
                }
            }
        }
    }

    async fn pass(&mut self) {
        self.collect_jobs();
        if self.dissolved {
            return;
        }
        let now = self.clock.running();
        self.looking = supervise::looking(self.looking, self.looked, now);
        self.looked = now;
        if self.compared.is_none_or(|at| now >= at + COMPARE) {
            self.compared = Some(now);
            self.recheck_needs();
        }
        self.end_void_recoveries();
        self.drive_seats().await;
        self.supervise().await;
        self.probe();
        self.keep_steady();
        self.settle().await;
        self.sweep_buried();
        self.keep_house();
        self.send_report();
    }

    fn pause(&self) -> Duration {
        let handover = self.seats.values().any(|seat| seat.record.is_open() && !seat.record.old_ended);
        if handover || self.jobs.any() {
            return BUSY;
        }
        let waits = self.states.values().any(|state| matches!(state, ResourceState::Waiting(_)));
        if waits { WAITING } else { CALM }
    }

    fn collect_jobs(&mut self) {
        for (job, end) in self.jobs.finished() {
            match (job, end) {
                (Job::Need(need), JobEnd::Need(result)) => {
                    self.needs.settle(need, result, self.clock.running());
                }
                (Job::Run(run), end) => self.run_ended(&run, end),
                (Job::Need(_), _) => {}
            }
        }
    }

    /// Seats whose handover still has both sides in play.
    fn open_records(&self) -> impl Iterator<Item = &Record> {
        self.seats
            .values()
            .map(|seat| &seat.record)
            .filter(|record| record.is_open() && !(record.state == State::Removing && record.old_ended))
    }
}
