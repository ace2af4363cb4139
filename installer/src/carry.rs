//! Carries a change of the mesh through: asked for, followed to its end, the seat probed where it changes hands.
//!
//! In: a request that makes a plan. Out: the plan, at its end; how the seat answered meanwhile, said and recorded. Not
//! here: what is asked for, and carrying the plan out, which is the controller's: it goes on also when nobody follows.

use mesh_protocol::id::{PlanId, SeatName};
use mesh_protocol::layout::{HostFile, Layout};
use mesh_protocol::plan::Plan;
use mesh_protocol::verb::{PlannedAnswer, PlannedHandover, Verb};
use serde::Serialize;

use crate::follow::{self, Wait};
use crate::interrupt::Interrupts;
use crate::mesh_file::MeshFile;
use crate::output::lines::seconds;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::prober::{self, Prober};
use crate::push;
use crate::recording::{self, Occasion};
use crate::session::Session;

/// How long the seat is probed after all is done.
const AFTER: std::time::Duration = std::time::Duration::from_millis(300);

/// With what a change is carried through.
#[derive(Debug, Clone, Copy)]
pub struct Means<'a> {
    /// Where the mesh lies.
    pub layout: &'a Layout,
    /// The mesh.
    pub mesh: &'a MeshFile,
    /// The mesh over its bus.
    pub session: &'a Session,
    /// The mouth.
    pub printer: &'a Printer,
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a, Q> {
    /// The command, for people.
    pub command: &'a str,
    /// The verb.
    pub verb: Verb,
    /// Its body.
    pub body: &'a Q,
    /// The request's id in it, which becomes the plan's.
    pub request: &'a PlanId,
    /// The seat of the module that is changed, where it has one.
    pub seat: Option<&'a SeatName>,
}

/// How far a change was carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// To its end.
    Done,
    /// Its plan is stored, and nobody waits for it, as asked.
    Stored,
}

/// Asks for a change, and sees it to its end.
///
/// # Errors
/// When it is refused or fails; when it is still open at the limit; when whoever waits does not want to any more.
pub async fn carry<Q: Serialize + Sync>(
    means: Means<'_>,
    asked: Asked<'_, Q>,
    wait: Wait,
    interrupts: &mut Interrupts,
) -> Result<Carried> {
    let printer = means.printer;
    let prober = match wait {
        Wait::AtMost(_) => begin_to_probe(means, asked.seat).await,
        Wait::Detached => None,
    };
    let asking = means.session.ask(asked.verb, asked.body);
    let planned: PlannedAnswer = match interrupts.unless(Box::pin(asking)).await {
        Some(planned) => planned?,
        None => return Err(interrupted_while_asking(asked.request)),
    };
    push::say_plan(&planned.plan, printer);
    for handover in &planned.handovers {
        let text = handover_line(handover, interval(means, handover));
        printer.event(&Event::Note { step: planned.plan.action.module().to_string(), text });
    }
    let limit = match wait {
        Wait::Detached => {
            follow::show(&planned.plan, printer);
            let text = format!("plan {} is stored, and goes on by itself", planned.plan.id);
            printer.event(&Event::Finished { text });
            let text = follow::how_to_follow(&planned.plan.id);
            printer.event(&Event::Note { step: planned.plan.action.module().to_string(), text });
            return Ok(Carried::Stored);
        }
        Wait::AtMost(limit) => limit,
    };
    let prober = prober.filter(|_| follow::changes_hands(&planned.plan));
    let following = Box::pin(follow_to_the_end(means, &planned.plan, limit));
    let ended = match interrupts.unless(following).await {
        Some(ended) => ended,
        None => Err(detached(&planned.plan.id)),
    };
    if let Some(prober) = prober {
        if ended.is_ok() {
            // For the picture: that it goes on as it should belongs to it.
            tokio::time::sleep(AFTER).await;
        }
        tell(means, prober, Occasion { command: asked.command, plan: Some(asked.request) }, &planned.plan)
            .await;
    }
    ended.map(|()| Carried::Done)
}

/// To the end of the plan, and of what is left of the old one.
async fn follow_to_the_end(means: Means<'_>, plan: &Plan, limit: std::time::Duration) -> Result<()> {
    let ended = follow::follow(means.session, &plan.id, limit, means.printer).await?;
    if follow::changes_hands(&ended) {
        let left = follow::removal(means.session, &ended, means.printer).await;
        if let Some(pending) = left.and_then(|handover| handover.cleanup_pending) {
            means
                .printer
                .event(&Event::Warning { text: format!("left to do, and it holds up nothing: {pending}") });
        }
    }
    Ok(())
}

/// A prober at the controller's seat, where that is the seat that may change hands. That it cannot be asked is no
/// reason not to change it.
async fn begin_to_probe(means: Means<'_>, seat: Option<&SeatName>) -> Option<Prober> {
    seat.filter(|seat| seat.as_str() == mesh_protocol::subject::CONTROLLER_SEAT)?;
    match prober::open(means.layout, means.mesh).await {
        Ok(ask) => Some(Prober::start(ask, prober::EVERY, prober::LIMIT)),
        Err(failure) => {
            let text = format!("the seat cannot be probed meanwhile: {}", failure.what);
            means.printer.event(&Event::Warning { text });
            None
        }
    }
}

/// Says how the seat answered, and keeps the recording of its handover.
async fn tell(means: Means<'_>, prober: Prober, occasion: Occasion<'_>, plan: &Plan) {
    let probed = prober.stop_and_tell().await;
    means.printer.event(&Event::Availability { figures: Some(probed.figures.clone()) });
    // As it stands now: the plan as it was stored names no targets yet.
    let request = mesh_protocol::verb::PlanRequest { plan: plan.id.clone() };
    let Ok(plan) = means.session.ask::<_, Plan>(Verb::Plan, &request).await else { return };
    let Some(handover) = follow::handover_of(means.session, &plan).await else { return };
    let recording = recording::compose(means.mesh, occasion, &probed, &handover);
    keep(means.layout, &recording, means.printer);
}

/// Keeps a recording. One that cannot be kept is no more than a picture less.
pub(crate) fn keep(layout: &Layout, recording: &recording::Recording, printer: &Printer) {
    if let Err(failure) = recording::keep(layout, recording) {
        printer.event(&Event::Warning { text: format!("the handover is not recorded: {}", failure.what) });
    }
}

fn interrupted_while_asking(request: &PlanId) -> Failure {
    Failure::new(Code::Interrupted, "interrupted while the change was asked for")
        .hint(format!(
            "whether its plan was stored says: mesh plans {request}; one that is stored goes on by itself"
        ))
        .part_way()
}

fn detached(plan: &PlanId) -> Failure {
    Failure::new(Code::Detached, format!("plan {plan} goes on by itself"))
        .hint(follow::how_to_follow(plan))
        .part_way()
}

/// The time between two checks of a handover: as its node's host reported it; of this machine, as its host is told.
#[must_use]
pub fn interval(means: Means<'_>, handover: &PlannedHandover) -> Option<u64> {
    handover.check_interval_ms.or_else(|| {
        let here = handover.node == means.mesh.inputs.node;
        let bytes = here.then(|| std::fs::read(means.layout.host_file()).ok())??;
        Some(serde_json::from_slice::<HostFile>(&bytes).ok()?.check_interval_ms)
    })
}

/// A handover that a plan takes, and how long its checks do.
#[must_use]
pub fn handover_line(handover: &PlannedHandover, interval_ms: Option<u64>) -> String {
    let PlannedHandover { node, seat, from, to, .. } = handover;
    let checks = match interval_ms {
        Some(interval) => format!(
            "its checks take {} at the least: three intervals of {interval} ms (two checks, one alone)",
            seconds(interval.saturating_mul(3))
        ),
        None => {
            "its checks take three intervals (two checks, one alone), which the host of the node has not told"
                .to_owned()
        }
    };
    format!("{node}: the seat {seat} goes from {from} to {to} in a handover; {checks}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planned_handover_says_how_long_its_checks_take() {
        let handover = PlannedHandover {
            node: "n1".parse().unwrap(),
            seat: "mesh-controller".parse().unwrap(),
            from: "container:mesh-controller".parse().unwrap(),
            to: "process:mesh-controller".parse().unwrap(),
            check_interval_ms: Some(2000),
        };
        assert_eq!(handover.checks_ms(), Some(6000));
        insta::assert_snapshot!(handover_line(&handover, handover.check_interval_ms), @"n1: the seat mesh-controller goes from container:mesh-controller to process:mesh-controller in a handover; its checks take 6.00 s at the least: three intervals of 2000 ms (two checks, one alone)");
        assert!(handover_line(&handover, None).contains("has not told"));
    }

    #[test]
    fn who_detaches_is_told_that_it_goes_on_and_how_to_follow_it() {
        let failure = detached(&"p1".parse().unwrap());
        assert_eq!(failure.exit() as i32, 130);
        insta::assert_snapshot!(failure.lines().join("\n"), @r"
        detached: plan p1 goes on by itself
          hint: see how it goes: mesh plans p1, mesh events --follow; to give it up: mesh plans p1 --abort
        ");
    }
}
