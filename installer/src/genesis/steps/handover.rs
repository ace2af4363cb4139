//! handover: the seat goes from the container to the process, watched to its end.
//!
//! In: the controller's open plan. Out: a process that serves alone, and no container. The seat is probed throughout.
//! Not here: the handover itself, which is the host's.

use std::time::Duration;

use super::super::Reached;
use super::super::context::Context;
use super::super::parts::{Parts, Removal};
use super::push::probe;
use crate::output::{Code, Failure, Result};

/// A trial that never gets ready takes 30 s, and waiting for its surroundings ten minutes at most.
const PLAN_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Stopping a container has its grace, and a hung engine holds up nothing.
const REMOVAL_LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(25);

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let replaces = context.controller()?.container()?;
    if !context.shall(format!("hand the seat over from {replaces} to the process"))? {
        return Ok(Reached::Now(String::new()));
    }
    probe(context).await?;
    let mesh = context.mesh()?.clone();
    let plan = match &context.plan {
        Some(plan) => plan.clone(),
        None => {
            let module = context.controller()?.module.manifest.name;
            let seat = context.parts.seat(&mesh, &module).await;
            seat.and_then(|seat| seat.open_plan).ok_or_else(|| {
                Failure::new(Code::NotReached, "no plan for the controller is open").hint("run this again")
            })?
        }
    };
    context.plan = Some(plan.clone());
    context.parts.follow(&mesh, &plan, PLAN_LIMIT).await?;
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
async fn removal<P: Parts>(context: &Context<'_, P>) -> Result<Option<String>> {
    let mesh = context.mesh()?;
    let deadline = tokio::time::Instant::now() + REMOVAL_LIMIT;
    loop {
        match context.parts.removal(mesh).await? {
            Removal::Done => return Ok(None),
            Removal::Pending(pending) => return Ok(Some(pending)),
            Removal::Waits => {}
        }
        if tokio::time::Instant::now() > deadline {
            let container = &mesh.inputs.replaces;
            return Err(Failure::new(Code::NotReached, format!("{container} is still there"))
                .expected(format!("it to be removed within {} s", REMOVAL_LIMIT.as_secs()))
                .hint("see mesh logs host"));
        }
        tokio::time::sleep(POLL).await;
    }
}
