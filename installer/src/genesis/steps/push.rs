//! push: the controller's manifest is pushed. From here on the seat is probed.
//!
//! In: the manifest, the published bundle. Out: a stored plan. A plan that was handed back is tried once more by
//! pushing the same again. Not here: watching it (`handover`).

use mesh_protocol::verb::Mode;

use super::super::Reached;
use super::super::context::Context;
use crate::output::{Code, Failure, Result};
use crate::prober::{self, Prober};
use crate::push;

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let session = context.session().await?;
    let packed = context.packed.clone();
    let packed = packed.ok_or_else(|| Failure::new(Code::Internal, "push before bundles"))?;
    let controller = context.controller()?;
    let node = context.mesh()?.inputs.node.clone();
    probe(context).await?;
    context.effect(format!("push {}", controller.module.manifest.name))?;
    let bundles = push::by_system(&[packed]);
    let request = push::request(context.world, &controller.module, bundles, vec![node], Mode::Do)?;
    let planned = push::ask_in_turn(&session, &request, context.printer).await?;
    push::say_plan(&planned.plan, context.printer);
    context.plan = Some(planned.plan.id.clone());
    Ok(Reached::Now(format!("plan {} is stored", planned.plan.id)))
}

/// Begins to probe the seat, unless that was done.
pub(super) async fn probe(context: &mut Context<'_>) -> Result<()> {
    if context.prober.is_none() {
        let ask = prober::open(&context.layout, context.mesh()?).await?;
        context.prober = Some(Prober::start(ask, prober::EVERY, prober::LIMIT));
    }
    Ok(())
}
