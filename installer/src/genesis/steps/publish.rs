//! publish: the controller's bundle is in the store, verified by digest.
//!
//! In: the packed bundle, a store that answers. Out: the bundle in it. Not here: naming it in a manifest.

use super::super::Reached;
use super::super::context::Context;
use crate::output::{Code, Failure, Result};
use crate::push::{self, PublishedNow};
use crate::registry;

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let packed = context.packed.clone();
    let packed = packed.ok_or_else(|| Failure::new(Code::Internal, "publish before bundles"))?;
    let store = registry::of_mesh(context.mesh()?, None)?;
    context.effect(format!("publish {}", packed.packed.digest))?;
    let text = format!("{} is in {}", packed.packed.digest, store.address().url());
    match push::publish(&store, &packed, context.printer).await? {
        PublishedNow::WasThere => Ok(Reached::Already(text)),
        PublishedNow::Sent => Ok(Reached::Now(text)),
    }
}
