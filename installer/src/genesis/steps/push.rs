//! push: the controller's manifest is pushed. From here on the seat is probed.
//!
//! In: the manifest, the published bundle. Out: a stored plan. A plan that was handed back is tried once more by
//! pushing the same again. Not here: watching it (`handover`).

use mesh_protocol::verb::Mode;

use super::super::Reached;
use super::super::context::Context;
use super::super::parts::Parts;
use crate::output::{Code, Failure, Result};
use crate::push;

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let controller = context.controller()?;
    if !context.shall(format!("push {}", controller.module.manifest.name))? {
        return Ok(Reached::Now(String::new()));
    }
    let packed = context.packed.clone();
    let packed = packed.ok_or_else(|| Failure::new(Code::Internal, "push before bundles"))?;
    let mesh = context.mesh()?.clone();
    probe(context).await?;
    let bundles = push::by_system(&[packed]);
    let nodes = vec![mesh.inputs.node.clone()];
    let request = push::request(context.world, &controller.module, bundles, nodes, Mode::Do)?;
    let plan = context.parts.push(&mesh, &request).await?;
    context.plan = Some(plan.clone());
    Ok(Reached::Now(format!("plan {plan} is stored")))
}

/// Begins to probe the seat, unless that was done.
pub(super) async fn probe<P: Parts>(context: &mut Context<'_, P>) -> Result<()> {
    if context.prober.is_none() {
        let mesh = context.mesh()?.clone();
        context.prober = context.parts.probe(&mesh).await?;
    }
    Ok(())
}
