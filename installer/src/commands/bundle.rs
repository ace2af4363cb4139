//! `mesh bundle`: pack, inspect, publish, pull, list, prune.
//!
//! In: a module's folder, a packed bundle, a store. Out: files, what is in them, bundles in the store. Not here: pushing.

mod house;
mod inspect;
mod transfer;

use camino::Utf8Path;
use mesh_bundles::archive::{ArchiveError, Limits};
use mesh_bundles::config::Config;
use mesh_bundles::pack::{self, Layer, Packed};
use mesh_protocol::id::{Digest, ResourceName, System};
use mesh_protocol::layout::Layout;
use mesh_protocol::manifest::Bundle;
use serde::Serialize;

use crate::cli;
use crate::module::{Build, Module};
use crate::output::{Code, Failure, Printer, Result};
use crate::world::World;

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    command: cli::Bundle,
    printer: &Printer,
) -> Result<()> {
    match command {
        cli::Bundle::Pack(options) => pack(options, printer).await,
        cli::Bundle::Inspect(options) => inspect::run(world, layout, options, printer).await,
        cli::Bundle::Publish(options) => transfer::publish(world, layout, options, printer).await,
        cli::Bundle::Pull(options) => transfer::pull(world, layout, options, printer).await,
        cli::Bundle::List(options) => house::list(world, layout, options, printer).await,
        cli::Bundle::Prune(options) => house::prune(world, layout, &options, printer).await,
    }
}

async fn pack(options: cli::Pack, printer: &Printer) -> Result<()> {
    let cli::Pack { dir, system, output, bundle } = options;
    let module = Module::load(&dir)?;
    let bundle = choose(&module, system, bundle.as_ref())?;
    module.prepare(bundle, Build::WhenMissing, printer).await?;
    let packed = module.pack(bundle, &output, printer).await?;
    #[derive(Serialize)]
    struct Done<'a> {
        file: &'a Utf8Path,
        digest: &'a Digest,
        size: u64,
        config: &'a Config,
    }
    let Packed { digest, size, config, .. } = &packed.packed;
    let document = Done { file: &output, digest, size: *size, config };
    printer.document(&document, || vec![format!("{digest} {size} {output}")]);
    Ok(())
}

/// A module's bundle for a system.
pub(super) fn choose<'a>(
    module: &'a Module,
    system: System,
    wanted: Option<&ResourceName>,
) -> Result<&'a Bundle> {
    let of_system = module.manifest.bundles.iter().filter(|bundle| bundle.system == system);
    let fits: Vec<&Bundle> =
        of_system.filter(|bundle| wanted.is_none_or(|name| &bundle.name == name)).collect();
    match fits[..] {
        [one] => Ok(one),
        [] => Err(Failure::new(Code::NotFound, format!("{} has no such bundle for {system}", module.path))
            .expected("a [[bundle]] of that system")),
        [..] => {
            let names: Vec<&str> = fits.iter().map(|bundle| bundle.name.as_str()).collect();
            Err(Failure::new(
                Code::InvalidRequest,
                format!("{} has more than one bundle for {system}", module.path),
            )
            .found(names.join(", "))
            .hint("say which with --bundle NAME"))
        }
    }
}

/// What is in an archive, all of it read.
pub(super) async fn read(file: &Utf8Path) -> Result<Layer> {
    let path = file.as_std_path().to_owned();
    let inspecting = tokio::task::spawn_blocking(move || pack::inspect(&path, Limits::default())).await;
    let inspected: Result<Layer, ArchiveError> =
        inspecting.map_err(|error| Failure::of(Code::Internal, &error))?;
    inspected.map_err(|error| Failure::because(Code::BundleInvalid, &format!("{file} is no bundle"), &error))
}
