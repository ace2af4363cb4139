//! bundles: the controller's binary becomes a bundle, whose digest is then known.
//!
//! In: the controller's folder. Out: a packed bundle in the mesh's work folder. It is packed each time: the same
//! binary gives the same bytes, and a file that lies there proves nothing. Not here: publishing it.

use mesh_protocol::id::System;

use super::super::Reached;
use super::super::context::Context;
use crate::module::{self, Build};
use crate::output::{Code, Failure, Result};
use mesh_durable as durable;

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let controller = context.controller()?;
    let system = System::of_this_program();
    let bundle = controller.module.manifest.bundles.iter().find(|bundle| bundle.system == system);
    let bundle = bundle.cloned().ok_or_else(|| {
        Failure::new(
            Code::UnsupportedSystem,
            format!("{} has no bundle for {system}", controller.module.path),
        )
    })?;
    controller.module.prepare(&bundle, Build::WhenMissing, context.printer).await?;
    durable::ensure_folder(&context.work_folder(), 0o700).map_err(|error| Failure::of(Code::Io, &error))?;
    let archive = context.work_folder().join(module::archive_name(&bundle));
    let before = std::fs::metadata(&archive).is_ok();
    let packed = controller.module.pack(&bundle, &archive, context.printer).await?;
    let origin = context.origin()?;
    if context.mesh()?.origin.is_none() {
        context.change_mesh(|mesh| mesh.origin = Some(origin))?;
    } else {
        // What was built just now may be another than what the mesh was begun with.
        context.check_inputs()?;
    }
    let text = format!("{} {} ({} bytes)", bundle.name, packed.packed.digest, packed.packed.size);
    context.controller = Some(controller);
    context.packed = Some(packed);
    Ok(if before { Reached::Already(text) } else { Reached::Now(text) })
}
