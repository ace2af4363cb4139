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
use super::parts::Parts;
use super::step::Step;
use crate::output::Result;

/// Looks, acts where the goal does not hold, and looks again. In a dry run it looks, and says what it would do.
pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>, step: Step) -> Result<Reached> {
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
