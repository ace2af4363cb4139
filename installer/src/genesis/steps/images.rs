//! images: the engine has the controller's image, the bus's and the store's.
//!
//! In: the packed bundle, the archives' folder, the programs of this machine. Out: three references. The controller's
//! is the bundle worn as an image. The other two: present, from an archive, pulled, or assembled from the machine's
//! own program, in this order. Not here: running them.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::image::ImageArchive;
use mesh_engine::{Engine, Image};

use super::super::Reached;
use super::super::context::{Context, Images, engine_failure};
use crate::config;
use crate::images::{self, OWN_REGISTRY};
use crate::machine;
use crate::mesh_file::LoadedImage;
use crate::output::{Code, Failure, Result};
use crate::third_party::ThirdParty;

/// A registry in reach sends these images, some twenty megabytes, in less; one out of reach is given up by then.
const PULL_LIMIT: Duration = Duration::from_secs(20);

pub(super) fn would(context: &Context<'_>) -> Vec<String> {
    let pulled = if context.options.wanted.offline { "" } else { ", pull it" };
    let mut lines = vec!["load the controller's bundle, worn as an image, into the engine".to_owned()];
    for third_party in ThirdParty::ALL {
        let archive =
            archives(context, third_party).first().map(|path| format!(", load {path}")).unwrap_or_default();
        lines.push(format!(
            "for {}: use {} if it is in the engine{archive}{pulled}, or assemble an image from {} of this machine",
            third_party.name(),
            third_party.official_image(),
            third_party.program()
        ));
    }
    lines
}

pub(super) async fn reach(context: &mut Context<'_>) -> Result<Reached> {
    let engine = context.engine().await?;
    let before = context.mesh()?.images.clone();
    let controller = controller(context, &engine).await?;
    let bus = third_party(context, &engine, ThirdParty::Bus).await?;
    let store = third_party(context, &engine, ThirdParty::Store).await?;
    let text = format!("{controller}, {bus}, {store}");
    context.images.controller = Some(controller);
    context.images.bus = Some(bus);
    context.images.store = Some(store);
    let is_same = before == context.mesh()?.images;
    Ok(if is_same { Reached::Already(text) } else { Reached::Now(text) })
}

/// The bundle worn as an image, under a reference of this mesh's own: another mesh that goes takes its own reference
/// away, and the image with the last one only.
async fn controller(context: &mut Context<'_>, engine: &Engine) -> Result<String> {
    let packed = context.packed.clone();
    let packed = packed.ok_or_else(|| Failure::new(Code::Internal, "images before bundles"))?;
    let digest = packed.packed.digest.clone();
    let mesh = context.mesh()?.mesh.clone();
    let reference = format!("{OWN_REGISTRY}/{mesh}/{}:{}", packed.packed.config.name, digest.short());
    let archive = images::of_bundle(&packed, &reference)?;
    if images::is_there(engine, &archive).await? {
        // It bears this mesh's id: a kill may have kept it from being written down.
        if let Some(image) = find(engine, &reference).await? {
            remember(context, &reference, &image)?;
        }
        return Ok(reference);
    }
    load_archive(context, engine, &archive).await?;
    Ok(reference)
}

/// Looks right before they are used whether the images are still there: another mesh of this engine, or a person, may
/// have taken away what they shared.
pub(super) async fn still_there(context: &mut Context<'_>) -> Result<()> {
    let engine = context.engine().await?;
    let Images { controller, bus, store } = context.images.clone();
    for reference in [controller, bus, store].into_iter().flatten() {
        if find(&engine, &reference).await?.is_none() {
            context.say(format!("image {reference} is gone: gets it again"));
            reach(context).await?;
            return Ok(());
        }
    }
    Ok(())
}

async fn third_party(context: &mut Context<'_>, engine: &Engine, wanted: ThirdParty) -> Result<String> {
    let official = wanted.official_image();
    // What the host runs from already stays: another image would be another container.
    if let Some(reference) = of_generation_one(context, wanted).await
        && find(engine, &reference).await?.is_some()
    {
        return Ok(reference);
    }
    if find(engine, official).await?.is_some() {
        return Ok(official.to_owned());
    }
    if let Some(reference) = images::assembled_before(engine, wanted).await? {
        return Ok(reference);
    }
    if let Some(path) = archives(context, wanted).into_iter().next() {
        context.say(format!("loads {path}"));
        return load_file(context, engine, &path, wanted).await;
    }
    let pulled = if context.options.wanted.offline { None } else { pull(context, engine, official).await };
    match pulled {
        Some(reference) => Ok(reference),
        None => assemble(context, engine, wanted).await,
    }
}

async fn of_generation_one(context: &Context<'_>, wanted: ThirdParty) -> Option<String> {
    let observed = context.door.observe_if_there().await.ok()??;
    let module = wanted.module().ok()?;
    let declaration = observed.declaration?;
    declaration.module(&module)?.containers.first().map(|container| container.image.clone())
}

fn archives(context: &Context<'_>, wanted: ThirdParty) -> Vec<Utf8PathBuf> {
    let Some(folder) = &context.options.wanted.images else { return Vec::new() };
    images::archives(&config::absolute(context.world, folder), wanted)
}

async fn load_file(
    context: &mut Context<'_>,
    engine: &Engine,
    path: &Utf8Path,
    wanted: ThirdParty,
) -> Result<String> {
    context.effect(format!("load {path} into the engine"))?;
    let before = images::listed(path);
    let mut there = Vec::new();
    for reference in before.iter().flat_map(|image| &image.references) {
        if find(engine, reference).await?.is_some() {
            there.push(reference.clone());
        }
    }
    let loaded = images::load_file(engine, path).await?;
    // All that came with it goes with this mesh, but for what was there before.
    for image in &loaded {
        for reference in image.references.iter().filter(|reference| !there.contains(reference)) {
            remember(context, reference, image)?;
        }
    }
    let image = images::choose(&loaded, wanted).ok_or_else(|| {
        Failure::new(Code::ImageMissing, format!("archive {path} has no image of {}", wanted.program()))
            .expected(format!("{} or one that `mesh image export` made", wanted.official_image()))
    })?;
    let reference = reference_of(image);
    if image.references.is_empty() {
        remember(context, &reference, image)?;
    }
    Ok(reference)
}

/// A registry out of reach is no failure: there is one more way.
async fn pull(context: &mut Context<'_>, engine: &Engine, reference: &str) -> Option<String> {
    context.say(format!("pulls {reference}"));
    context.effect(format!("pull {reference}")).ok()?;
    match engine.pull_image(reference, PULL_LIMIT).await {
        Ok(image) => {
            remember(context, reference, &image).ok()?;
            Some(reference.to_owned())
        }
        Err(error) => {
            context.say(format!(
                "{}; goes on with this machine's own program",
                mesh_protocol::chain::chain(&error)
            ));
            None
        }
    }
}

async fn assemble(context: &mut Context<'_>, engine: &Engine, wanted: ThirdParty) -> Result<String> {
    let path = context.world.variable("PATH").map(str::to_owned);
    let Some(binary) = machine::find_program(wanted.program(), path.as_deref()) else {
        let archive = format!("{}.tar", wanted.name());
        return Err(Failure::new(Code::ImageMissing, format!("there is no image for {}", wanted.name()))
            .expected(format!(
                "image {} in the engine, {archive} in the folder of --images, a registry in reach, or program {} in PATH",
                wanted.official_image(),
                wanted.program()
            ))
            .found("none of them")
            .hint(format!("install the program (on Debian: package {}), or load the image", wanted.program())));
    };
    let made =
        images::Program { binary: &binary, name: wanted.program(), arguments: wanted.entry_arguments() };
    let reference = made.reference()?;
    context.say(format!("assembles {reference} from {binary}"));
    let archive = images::of_program(&made, &reference, &context.work_folder()).await?;
    load_archive(context, engine, &archive).await?;
    Ok(reference)
}

async fn load_archive(context: &mut Context<'_>, engine: &Engine, archive: &ImageArchive) -> Result<()> {
    let reference = &archive.reference;
    context.effect(format!("load image {reference} into the engine"))?;
    let image = images::load(engine, archive).await?;
    remember(context, reference, &image)
}

/// What this mesh put into the engine, `down` may take out again.
fn remember(context: &mut Context<'_>, reference: &str, image: &Image) -> Result<()> {
    let loaded = LoadedImage { reference: reference.to_owned(), id: image.id.clone() };
    context.change_mesh(|mesh| {
        if !mesh.images.contains(&loaded) {
            mesh.images.push(loaded);
        }
    })
}

async fn find(engine: &Engine, reference: &str) -> Result<Option<Image>> {
    engine.find_image(reference).await.map_err(|error| engine_failure(&error))
}

fn reference_of(image: &Image) -> String {
    image.references.first().cloned().unwrap_or_else(|| image.id.clone())
}
