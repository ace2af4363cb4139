//! How each step reaches its goal.
//!
//! In: the context. Out: that the goal is true, and whether it was before; or why not. Not here: which steps are done.

mod bundles;
mod handover;
mod host;
mod identity;
mod images;
mod pivot;
mod preflight;
mod publish;
mod push;
mod store;
mod verify;

use super::Reached;
use super::context::Context;
use super::step::Step;
use crate::output::Result;

/// Looks, acts where the goal does not hold, and looks again.
pub(super) async fn reach(context: &mut Context<'_>, step: Step) -> Result<Reached> {
    // Boxed: each is large, and only one is under way.
    match step {
        Step::Preflight => Box::pin(preflight::reach(context)).await,
        Step::Identity => identity::reach(context),
        Step::Bundles => Box::pin(bundles::reach(context)).await,
        Step::Images => Box::pin(images::reach(context)).await,
        Step::Host => Box::pin(host::reach(context)).await,
        Step::Pivot => Box::pin(pivot::reach(context)).await,
        Step::Store => Box::pin(store::reach(context)).await,
        Step::Publish => Box::pin(publish::reach(context)).await,
        Step::Push => Box::pin(push::reach(context)).await,
        Step::Handover => Box::pin(handover::reach(context)).await,
        Step::Verify => Box::pin(verify::reach(context)).await,
    }
}

/// What a step would do, for a dry run.
pub(super) fn would(context: &Context<'_>, step: Step) -> Vec<String> {
    let root = context.layout.root();
    let container = context.controller().and_then(|controller| controller.container());
    let container = container.map_or_else(|_| "the controller's container".to_owned(), |id| id.to_string());
    let text = |text: &str| vec![text.to_owned()];
    match step {
        Step::Preflight => Vec::new(),
        Step::Identity => identity::would(context),
        Step::Bundles => vec![format!("pack the controller's bundle into {}", context.work_folder())],
        Step::Images => images::would(context),
        Step::Host => host::would(context),
        Step::Pivot => vec![
            format!("give the host generation 1: the bus, and {container}"),
            "wait until the bus is up, the seat answers and the node is registered".to_owned(),
        ],
        Step::Store => text("push the modules mesh-bus and mesh-store, and wait until the store answers"),
        Step::Publish => text("publish the controller's bundle"),
        Step::Push => text("push the controller's manifest"),
        Step::Handover => {
            vec![format!("watch the handover from {container} to the process, and probe the seat")]
        }
        Step::Verify => vec![format!("look whether one controller is left, a process, in {root}")],
    }
}
