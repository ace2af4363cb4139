//! handover: the seat goes from the container to the process, watched to its end.
//!
//! In: the controller's open plan. Out: a process that serves alone, and no container. The seat is probed throughout.
//! Not here: the handover itself, which is the host's.

use std::time::Duration;

use mesh_protocol::handover::State;

use super::super::Reached;
use super::super::context::Context;
use super::super::plan::{Controller, controller_of};
use super::push::probe;
use crate::follow;
use crate::output::{Code, Failure, Result};

/// A trial that never gets ready takes 30 s, and waiting for its surroundings ten minutes at most.
const PLAN_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Stopping a container has its grace, and a hung engine holds up nothing.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(25);

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let session = context.session().await?;
    probe(context).await?;
    let plan = match &context.plan {
        Some(plan) => plan.clone(),
        None => super::super::observe::open_plan(context, &session).await.ok_or_else(|| {
            Failure::new(Code::NotReached, "no plan for the controller is open").hint("run this again")
        })?,
    };
    context.plan = Some(plan.clone());
    follow::follow(&session, &plan, PLAN_LIMIT, context.printer).await?;
    let pending = removal(context).await?;
    context.end_probe().await;
    let now = (context.world.clock)();
    context.change_mesh(|mesh| {
        mesh.process_since.get_or_insert(now);
    })?;
    let mut text = "the process holds the seat, the container is gone".to_owned();
    if let Some(pending) = pending {
        text = format!("the process holds the seat; left to do: {pending}");
    }
    Ok(Reached::Now(text))
}

/// Waits until the container is gone, or the host says that it goes on without.
async fn removal(context: &Context<'_>) -> Result<Option<String>> {
    let container = context.mesh()?.inputs.replaces.clone();
    let deadline = tokio::time::Instant::now() + REMOVAL_LIMIT;
    loop {
        let observed = context.door.observe().await?;
        let report = observed.report.handovers.iter().find(|report| report.seat == context.seat);
        if let Some(pending) = report.and_then(|report| report.cleanup_pending.clone()) {
            return Ok(Some(pending));
        }
        let held = observed.ledger.iter().any(|entry| entry.id == container);
        let is_done = report.is_none_or(|report| report.state == State::Done);
        if controller_of(&observed, &container, &context.seat) == Controller::Process && !held && is_done {
            return Ok(None);
        }
        if tokio::time::Instant::now() > deadline {
            return Err(Failure::new(Code::NotReached, format!("{container} is still there"))
                .expected(format!("it to be removed within {} s", REMOVAL_LIMIT.as_secs()))
                .hint("see mesh logs host"));
        }
        tokio::time::sleep(POLL).await;
    }
}
