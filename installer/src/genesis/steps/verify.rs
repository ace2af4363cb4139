//! verify: one controller, a process; no container of it; the seat answered by it.
//!
//! In: the mesh as it says it is. Out: that it is so, seen at the seat, at the host and in the engine. Not here:
//! mending what is not.

use std::time::Duration;

use mesh_engine::LabelSelector;
use mesh_protocol::handover::Form;
use mesh_protocol::layout::label;
use mesh_protocol::verb::{StatusAnswer, Verb};

use super::super::Reached;
use super::super::context::{Context, engine_failure};
use crate::output::{Code, Failure, Result};
use crate::session::Nothing;

/// A host that was just started brings back bus and controller first.
const LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(50);

const ANSWER: Duration = Duration::from_secs(1);

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let failure = match look(context).await {
            Ok(text) => {
                let now = (context.world.clock)();
                context.change_mesh(|mesh| {
                    mesh.seat_answered.get_or_insert(now);
                    mesh.process_since.get_or_insert(now);
                })?;
                return Ok(Reached::Already(text));
            }
            Err(failure) => failure,
        };
        if tokio::time::Instant::now() > deadline {
            return Err(failure);
        }
        context.waits(&failure.what);
        tokio::time::sleep(POLL).await;
    }
}

async fn look(context: &mut Context<'_>) -> Result<String> {
    let session = context.session().await?;
    let (status, by) = session.ask_once::<_, StatusAnswer>(Verb::Status, &Nothing {}, ANSWER).await?;
    let instances: Vec<String> = status
        .seat
        .instances
        .iter()
        .map(|instance| {
            format!("{} ({}, {})", instance.instance, instance.form.as_str(), instance.role.as_str())
        })
        .collect();
    let wrong = |what: &str| {
        Failure::new(Code::NotReached, what.to_owned())
            .expected("one instance, a process, that answers")
            .found(format!("answered by {}; {}", by.instance, instances.join(", ")))
            .hint("see mesh status and mesh logs host")
    };
    if by.form != Form::Process {
        return Err(wrong("the seat is answered by a container"));
    }
    match &status.seat.instances[..] {
        [one] if one.form == Form::Process && one.instance == by.instance => {}
        _ => return Err(wrong("the seat is not held by one process alone")),
    }
    let mesh = context.mesh()?.clone();
    let selector = LabelSelector::is(label::MESH, mesh.mesh.as_str())
        .and_is(label::RESOURCE, &mesh.inputs.replaces.to_string());
    let engine = context.engine().await?;
    let left = engine.list(&selector).await.map_err(|error| engine_failure(&error))?;
    if let Some(container) = left.first() {
        let what = format!(
            "container {} ({}) of the controller is still in the engine",
            container.name,
            container.id.short()
        );
        return Err(wrong(&what));
    }
    Ok(format!("one controller, {} (a process, version {}), answers the seat", by.instance, by.version))
}
