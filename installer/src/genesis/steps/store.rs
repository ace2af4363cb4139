//! store: the bus and the store are modules of the mesh, and the store answers.
//!
//! In: a controller that answers. Out: two pushed modules; nothing is adopted but the controller's container. Not
//! here: what is put into the store.

use std::time::Duration;

use mesh_protocol::id::{ModuleName, NodeName};
use mesh_protocol::plan::ModuleRecord;
use mesh_protocol::verb::Mode;

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::{HostSeen, Parts, Patience};
use crate::output::{Code, Failure, Result};
use crate::push::{self, Bundles};
use crate::third_party::ThirdParty;

/// A container from an image that is there starts in a second.
const PLAN_LIMIT: Duration = Duration::from_secs(120);

/// A registry opens its port within a second of its start.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(25);

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let mesh = context.mesh()?.clone();
    let mut pushed = Vec::new();
    for third_party in ThirdParty::ALL {
        if is_there(context, third_party).await? {
            continue;
        }
        push_module(context, third_party).await?;
        pushed.push(third_party.name());
    }
    if context.touch == Touch::World {
        wait(context).await?;
    }
    let address = mesh.store();
    Ok(if pushed.is_empty() {
        Reached::Already(format!("the store answers at {address}"))
    } else {
        Reached::Now(format!("pushed {}; the store answers at {address}", pushed.join(" and ")))
    })
}

async fn wait<P: Parts>(context: &mut Context<'_, P>) -> Result<()> {
    let mesh = context.mesh()?.clone();
    let deadline = tokio::time::Instant::now() + ANSWER_LIMIT;
    while !context.parts.store_answers(&mesh).await? {
        if tokio::time::Instant::now() > deadline {
            return Err(Failure::new(Code::StoreUnreachable, "the store does not answer")
                .expected(format!("an answer within {} s", ANSWER_LIMIT.as_secs()))
                .hint("see mesh logs container:mesh-store"));
        }
        context.waits("the store to answer");
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

/// Whether a module was pushed and is on this node. In a dry run nobody may answer: then what the host was told says it.
async fn is_there<P: Parts>(context: &Context<'_, P>, third_party: ThirdParty) -> Result<bool> {
    let (mesh, module) = (context.mesh()?, third_party.module()?);
    let patience = if context.touch == Touch::World { Patience::Patient } else { Patience::Once };
    Ok(match context.parts.modules(mesh, patience).await? {
        Some(records) => is_on(&records, &module, &mesh.inputs.node),
        None => was_told(&context.parts.host().await?, &module),
    })
}

fn is_on(records: &[ModuleRecord], module: &ModuleName, node: &NodeName) -> bool {
    records.iter().any(|record| &record.name == module && record.nodes.contains(node))
}

/// What genesis itself gave the host is of no revision; what was pushed is.
fn was_told(host: &HostSeen, module: &ModuleName) -> bool {
    let section = host.declaration.as_ref().and_then(|declaration| declaration.module(module));
    section.is_some_and(|section| section.revision > 0)
}

async fn push_module<P: Parts>(context: &mut Context<'_, P>, third_party: ThirdParty) -> Result<()> {
    let image = image(context, third_party).await?;
    if !context.shall(format!("push {}", third_party.name()))? {
        return Ok(());
    }
    let manifest = third_party.manifest(&image)?;
    let mesh = context.mesh()?.clone();
    let nodes = vec![mesh.inputs.node.clone()];
    let path = format!("{}/module.toml", third_party.name());
    let request = push::request_for(context.world, &manifest, path, Bundles::new(), nodes, Mode::Do)?;
    let plan = context.parts.push(&mesh, &request).await?;
    context.parts.follow(&mesh, &plan, PLAN_LIMIT).await
}

/// The image that the images step chose, if it is still there; where that step had nothing to do, what it would choose
/// now: first of all the one that the host runs from.
async fn image<P: Parts>(context: &mut Context<'_, P>, third_party: ThirdParty) -> Result<String> {
    if context.images.bus.is_none() || context.images.store.is_none() {
        super::images::reach(context).await?;
    } else {
        super::images::still_there(context).await?;
    }
    let chosen = match third_party {
        ThirdParty::Bus => context.images.bus.clone(),
        ThirdParty::Store => context.images.store.clone(),
    };
    chosen.ok_or_else(|| Failure::new(Code::Internal, "the images step chose no image"))
}
