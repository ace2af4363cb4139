//! bundles: the controller's binary becomes a bundle, whose digest is then known.
//!
//! In: the controller's folder. Out: a packed bundle in the mesh's work folder; in a dry run, beside it. It is packed each
//! time: the same binary gives the same bytes, and a file that lies there proves nothing. Not here: publishing it.

use mesh_protocol::id::System;

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::module;
use crate::output::{Code, Failure, Result};
use mesh_durable as durable;

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let controller = context.controller()?;
    let system = System::of_this_program();
    let bundle = controller.module.manifest.bundles.iter().find(|bundle| bundle.system == system);
    let bundle = bundle.cloned().ok_or_else(|| {
        Failure::new(
            Code::UnsupportedSystem,
            format!("{} has no bundle for {system}", controller.module.path),
        )
    })?;
    context.controller = Some(controller.clone());
    let is_built = controller.module.binary(&bundle).is_file();
    if !is_built && !bundle.build.is_empty() {
        if !context.shall(format!("build {} with: {}", bundle.name, bundle.build.join(" ")))? {
            // What it will be, nobody knows before it is built.
            let _ = context.shall(format!("pack bundle {}", bundle.name))?;
            return Ok(Reached::Now(String::new()));
        }
        controller.module.build(&bundle, context.printer).await?;
    }
    controller.module.check(&bundle)?;
    let folder = if context.shall(format!("pack bundle {}", bundle.name))? {
        let folder = context.work_folder();
        durable::ensure_folder(&folder, 0o700).map_err(|error| Failure::of(Code::Io, &error))?;
        folder
    } else {
        context.aside()?
    };
    let archive = folder.join(module::archive_name(&bundle));
    let before = context.touch == Touch::World && archive.is_file();
    let packed = controller.module.pack(&bundle, &archive, context.printer).await?;
    let origin = context.origin()?;
    if context.mesh()?.origin.is_none() {
        context.change_mesh(|mesh| mesh.origin = Some(origin))?;
    } else {
        // What was built just now may be another than what the mesh was begun with.
        context.check_inputs()?;
    }
    let text = format!("{} {} ({} bytes)", bundle.name, packed.packed.digest, packed.packed.size);
    context.packed = Some(packed);
    Ok(if before { Reached::Already(text) } else { Reached::Now(text) })
}
