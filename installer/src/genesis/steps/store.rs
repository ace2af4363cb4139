//! store: the bus and the store are modules of the mesh, and the store answers.
//!
//! In: a controller that answers. Out: two pushed modules; nothing is adopted but the controller's container. Not
//! here: what is put into the store.

use std::time::Duration;

use mesh_protocol::id::ModuleName;
use mesh_protocol::plan::ModuleRecord;
use mesh_protocol::verb::{Mode, ModulesAnswer, Verb};

use super::super::Reached;
use super::super::context::Context;
use crate::follow;
use crate::output::{Code, Failure, Result};
use crate::push::{self, Bundles};
use crate::registry;
use crate::session::{Nothing, Session};
use crate::third_party::ThirdParty;

/// A container from an image that is there starts in a second.
const PLAN_LIMIT: Duration = Duration::from_secs(120);

/// A registry opens its port within a second of its start.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(25);

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let session = context.session().await?;
    let mut pushed = Vec::new();
    for third_party in ThirdParty::ALL {
        let module = third_party.module()?;
        if is_there(&record(&session, &module).await?, context)? {
            continue;
        }
        push_module(context, &session, third_party).await?;
        pushed.push(module.to_string());
    }
    let store = registry::of_mesh(context.mesh()?, None)?;
    let answered = tokio::time::timeout(ANSWER_LIMIT, async {
        while let Err(error) = store.ping().await {
            context.waits("the store to answer");
            if error.trouble() != mesh_bundles::store::Trouble::Surroundings {
                return Err(registry::failure(&error));
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    });
    answered.await.unwrap_or_else(|_| {
        Err(Failure::new(Code::StoreUnreachable, "the store does not answer")
            .expected(format!("an answer within {} s", ANSWER_LIMIT.as_secs()))
            .hint("see mesh logs container:mesh-store"))
    })?;
    let address = store.address().url();
    Ok(if pushed.is_empty() {
        Reached::Already(format!("the store answers at {address}"))
    } else {
        Reached::Now(format!("pushed {}; the store answers at {address}", pushed.join(" and ")))
    })
}

pub(super) async fn record(session: &Session, module: &ModuleName) -> Result<Option<ModuleRecord>> {
    let modules: ModulesAnswer = session.ask(Verb::Modules, &Nothing {}).await?;
    Ok(modules.modules.into_iter().find(|record| &record.name == module))
}

fn is_there(record: &Option<ModuleRecord>, context: &Context<'_>) -> Result<bool> {
    let node = &context.mesh()?.inputs.node;
    Ok(record.as_ref().is_some_and(|record| record.nodes.contains(node)))
}

async fn push_module(context: &mut Context<'_>, session: &Session, third_party: ThirdParty) -> Result<()> {
    let image = image(context, third_party).await?;
    let manifest = third_party.manifest(&image)?;
    let node = context.mesh()?.inputs.node.clone();
    context.effect(format!("push {}", third_party.name()))?;
    let path = format!("{}/module.toml", third_party.name());
    let request = push::request_for(context.world, &manifest, path, Bundles::new(), vec![node], Mode::Do)?;
    let planned = push::ask_in_turn(session, &request, context.printer).await?;
    push::say_plan(&planned.plan, context.printer);
    follow::follow(session, &planned.plan.id, PLAN_LIMIT, context.printer).await.map(drop)
}

/// The image that the images step chose, if it is still there; where that step had nothing to do, what it would choose
/// now: first of all the one that the host runs from.
async fn image(context: &mut Context<'_>, third_party: ThirdParty) -> Result<String> {
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
