//! publish: the controller's bundle is in the store, verified by digest.
//!
//! In: the packed bundle, a store that answers. Out: the bundle in it. Not here: naming it in a manifest.

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::output::{Code, Failure, Result};
use crate::push::PublishedNow;

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let name = context.controller()?.module.manifest.name;
    let what = format!("publish the bundle of {name}");
    let Some(packed) = context.packed.clone() else {
        if context.touch == Touch::World {
            return Err(Failure::new(Code::Internal, "publish before bundles"));
        }
        let _ = context.shall(what)?;
        return Ok(Reached::Now(String::new()));
    };
    let mesh = context.mesh()?.clone();
    let text = format!("{} is in {}", packed.packed.digest, mesh.store());
    // A store that does not answer yet has nothing of it, as far as anybody knows; one that should, says why it does not.
    if context.parts.is_published(&mesh, &packed).await? == Some(true) {
        return Ok(Reached::Already(text));
    }
    if context.shall(what)? && context.parts.publish(&mesh, &packed).await? == PublishedNow::WasThere {
        // Somebody else published the same in this moment.
        return Ok(Reached::Already(text));
    }
    Ok(Reached::Now(text))
}
