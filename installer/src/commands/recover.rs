//! `mesh recover`: brings a seat back to a version that serves, through the local door, where its holder fails and so
//! cannot be mended through the seat itself.
//!
//! In: a bundle, or nothing: then the host's own record of what served for long. Out: the handover to it, followed to its
//! end. Not here: the handover, and what is gone back to; both are the host's.

use std::time::Duration;

use camino::Utf8Path;
use mesh_protocol::door::{DoorAnswer, DoorRequest, Observed, RecoverTo};
use mesh_protocol::handover::{HandoverReport, State};
use mesh_protocol::id::{Digest, ResourceId, SeatName};
use mesh_protocol::layout::Layout;
use tokio::time::Instant;

use super::bundle;
use crate::cli;
use crate::config;
use crate::door::{self, Door, unexpected};
use crate::follow::watch::{Watch, stands};
use crate::interrupt::{Interrupts, interrupted};
use crate::mesh_file::MeshFile;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::prober::{self, Prober};
use crate::recording::{self, Occasion};
use crate::world::World;

/// How often the host is looked at.
const POLL: Duration = Duration::from_millis(100);

/// What the host has begun.
struct Begun {
    resource: ResourceId,
    to: Digest,
    version: String,
}

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    options: cli::Recover,
    printer: &Printer,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let mesh = MeshFile::must_read(layout)?;
    let door = Door::new(layout.door());
    let asking = Box::pin(ask(world, &door, &options));
    let begun = interrupts.unless(asking).await.unwrap_or_else(|| Err(interrupted()))?;
    let step = options.seat.to_string();
    let text = format!("{} goes back to version {} ({})", begun.resource, begun.version, begun.to.short());
    printer.event(&Event::Note { step, text });
    // A bus or a controller that is not there is what this command is for.
    let prober = prober::open(layout, &mesh).await.ok();
    let prober = prober.map(|ask| Prober::start(ask, prober::EVERY, prober::LIMIT));
    let following = Box::pin(follow(&door, &options.seat, &begun, options.timeout, printer));
    let ended = interrupts.unless(following).await.unwrap_or_else(|| {
        Err(Failure::new(Code::Detached, format!("the recovery of {} goes on by itself", options.seat))
            .hint("see how it goes: mesh status")
            .part_way())
    });
    if let Some(prober) = prober {
        tell(layout, &mesh, &door, &options.seat, prober, printer).await;
    }
    ended?;
    printer.event(&Event::Finished {
        text: format!(
            "{} is version {} ({}); what is declared waits: push another version, or mesh retry {}",
            begun.resource,
            begun.version,
            begun.to.short(),
            begun.resource
        ),
    });
    Ok(())
}

async fn ask(world: &World, door: &Door, options: &cli::Recover) -> Result<Begun> {
    let observed = door.observe().await?;
    let to = match &options.bundle {
        None => RecoverTo::Steady,
        Some(file) => {
            let file = config::absolute(world, file);
            with_bundle(&observed, &options.seat, &file, options.bundle_version.clone()).await?
        }
    };
    let request = DoorRequest::Recover { seat: options.seat.clone(), to };
    match door.ask(&request, door::LONG).await? {
        DoorAnswer::Recovering { resource, to, version, .. } => Ok(Begun { resource, to, version }),
        other => Err(unexpected("recover the seat", &other)),
    }
}

/// The bundle, looked through: the host would find out as well, and later.
async fn with_bundle(
    observed: &Observed,
    seat: &SeatName,
    file: &Utf8Path,
    version: Option<String>,
) -> Result<RecoverTo> {
    let layer = bundle::read(file).await?;
    let sections = observed.declaration.iter().flat_map(|declaration| &declaration.modules);
    let section = sections.into_iter().find(|section| section.seat.as_ref() == Some(seat));
    let program =
        section.and_then(|section| section.processes.first()).and_then(|process| process.run.first());
    if let Some(program) = program.map(|program| program.trim_start_matches("./")) {
        let runs =
            |found: &mesh_bundles::pack::FileFact| found.path.as_str() == program && found.mode == "0755";
        if !layer.files.iter().any(runs) {
            let names: Vec<&str> = layer.files.iter().map(|found| found.path.as_str()).collect();
            return Err(Failure::new(Code::BundleInvalid, format!("bundle {file} is not one of this seat"))
                .expected(format!("a program {program}, as the seat's module runs it"))
                .found(names.join(", ")));
        }
    }
    Ok(RecoverTo::Bundle { archive: file.to_owned(), digest: layer.digest, size: layer.size, version })
}

/// How the recovery stands.
enum Stand {
    /// Under way, or about to be.
    Open(Option<String>),
    Done,
    /// The host does not try it again by itself.
    HandedBack(Box<HandoverReport>),
}

fn stand(observed: &Observed, seat: &SeatName, begun: &Begun) -> Stand {
    let holds = |entry: &mesh_protocol::door::LedgerEntry| {
        entry.section.seat.as_ref() == Some(seat) && entry.digest == begun.to
    };
    let is_it = |report: &&HandoverReport| &report.seat == seat && report.new.spec == begun.to;
    let handover = observed.report.handovers.iter().find(is_it);
    match handover {
        Some(report) if report.state == State::Held && report.next_try.is_none() => {
            Stand::HandedBack(Box::new(report.clone()))
        }
        Some(report) if report.state == State::Done && observed.ledger.iter().any(holds) => Stand::Done,
        None if observed.ledger.iter().any(holds) => Stand::Done,
        Some(report) if report.state == State::Removing && report.cleanup_pending.is_some() => Stand::Done,
        Some(report) => Stand::Open(Some(stands(report))),
        None => Stand::Open(None),
    }
}

async fn follow(
    door: &Door,
    seat: &SeatName,
    begun: &Begun,
    limit: Duration,
    printer: &Printer,
) -> Result<()> {
    let mut watch = Watch::new(printer.now());
    let began = Instant::now();
    loop {
        let observed = door.observe().await?;
        let stand = stand(&observed, seat, begun);
        let waits = match &stand {
            Stand::Open(Some(what)) => Some(what.as_str()),
            Stand::Open(None) => Some("the host to begin"),
            Stand::Done | Stand::HandedBack(_) => None,
        };
        let mut events = Vec::new();
        watch.see_wait(waits, seat.as_str(), began.elapsed(), &mut events);
        events.iter().for_each(|event| printer.event(event));
        match stand {
            Stand::Done => return Ok(()),
            Stand::HandedBack(report) => {
                return Err(Failure::new(
                    Code::HandedBack,
                    format!("the seat {seat} could not be recovered"),
                )
                .details(report.failure_lines())
                .hint(
                    "mend what failed and run this again, or give another bundle: mesh recover --bundle FILE",
                ));
            }
            Stand::Open(_) if began.elapsed() > limit => {
                return Err(Failure::new(
                    Code::NotReached,
                    format!("the recovery of {seat} is still under way"),
                )
                .expected(format!("its end within {} s", limit.as_secs()))
                .hint("it goes on by itself: mesh status")
                .part_way());
            }
            Stand::Open(_) => tokio::time::sleep(POLL).await,
        }
    }
}

async fn tell(
    layout: &Layout,
    mesh: &MeshFile,
    door: &Door,
    seat: &SeatName,
    prober: Prober,
    printer: &Printer,
) {
    let probed = prober.stop_and_tell().await;
    printer.event(&Event::Availability { figures: Some(probed.figures.clone()) });
    let Ok(observed) = door.observe().await else { return };
    if let Some(handover) = observed.report.handovers.iter().find(|report| &report.seat == seat) {
        let occasion = Occasion { command: "recover", plan: None };
        let recording = recording::compose(mesh, occasion, &probed, handover);
        crate::carry::keep(layout, &recording, printer);
    }
}
