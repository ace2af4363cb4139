//! images: the engine has the controller's image, the bus's and the store's.
//!
//! In: the packed bundle, the archives' folder, the programs of this machine. Out: three references. The controller's
//! is the bundle worn as an image. The other two: present, from an archive, pulled, or assembled from the machine's
//! own program, in this order. Not here: running them.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::image::ImageArchive;
use mesh_bundles::image::export::layer_of;
use mesh_engine::Image;

use super::super::Reached;
use super::super::context::{Context, Images, Touch};
use super::super::parts::Parts;
use crate::config;
use crate::images::{self, OWN_REGISTRY};
use crate::machine;
use crate::mesh_file::LoadedImage;
use crate::output::{Code, Failure, Result};
use crate::third_party::ThirdParty;

/// A registry in reach sends these images, some twenty megabytes, in less; one out of reach is given up by then.
const PULL_LIMIT: Duration = Duration::from_secs(20);

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let before = context.deeds.len();
    let controller = controller(context).await?;
    let bus = third_party(context, ThirdParty::Bus).await?;
    let store = third_party(context, ThirdParty::Store).await?;
    let text = format!("{controller}, {bus}, {store}");
    context.images.controller = Some(controller);
    context.images.bus = Some(bus);
    context.images.store = Some(store);
    let is_same = context.deeds.len() == before;
    Ok(if is_same { Reached::Already(text) } else { Reached::Now(text) })
}

/// The bundle worn as an image, under a reference of this mesh's own: another mesh that goes takes its own reference
/// away, and the image with the last one only.
async fn controller<P: Parts>(context: &mut Context<'_, P>) -> Result<String> {
    let name = context.controller()?.module.manifest.name;
    let what = format!("load the image of {name}, which is its bundle, into the engine");
    let Some(packed) = context.packed.clone() else {
        if context.touch == Touch::World {
            return Err(Failure::new(Code::Internal, "images before bundles"));
        }
        return context.shall(what).map(|_| format!("the image of {name}"));
    };
    let mesh = context.mesh()?.mesh.clone();
    let reference =
        format!("{OWN_REGISTRY}/{mesh}/{}:{}", packed.packed.config.name, packed.packed.digest.short());
    let archive = images::of_bundle(&packed, &reference)?;
    if let Some(image) = context.parts.image(&reference).await?
        && layer_of(&image.labels).as_ref() == Some(&archive.layer)
    {
        // It bears this mesh's id: a kill may have kept it from being written down.
        remember(context, &reference, &image.id)?;
        return Ok(reference);
    }
    if context.shall(what)? {
        load(context, &archive).await?;
    }
    Ok(reference)
}

/// Looks right before they are used whether the images are still there: another mesh of this engine, or a person, may
/// have taken away what they shared.
pub(super) async fn still_there<P: Parts>(context: &mut Context<'_, P>) -> Result<()> {
    if context.touch == Touch::Nothing {
        return Ok(());
    }
    let Images { controller, bus, store } = context.images.clone();
    for reference in [controller, bus, store].into_iter().flatten() {
        if context.parts.image(&reference).await?.is_none() {
            context.say(format!("image {reference} is gone: gets it again"));
            reach(context).await?;
            return Ok(());
        }
    }
    Ok(())
}

async fn third_party<P: Parts>(context: &mut Context<'_, P>, wanted: ThirdParty) -> Result<String> {
    let official = wanted.official_image();
    // What the host runs from already stays: another image would be another container.
    if let Some(reference) = of_generation_one(context, wanted).await?
        && context.parts.image(&reference).await?.is_some()
    {
        return Ok(reference);
    }
    if context.parts.image(official).await?.is_some() {
        return Ok(official.to_owned());
    }
    if let Some(reference) = context.parts.assembled(wanted).await? {
        return Ok(reference);
    }
    if let Some(path) = archives(context, wanted).into_iter().next() {
        if context.shall(format!("load {path} into the engine"))? {
            context.say(format!("loads {path}"));
            return load_file(context, &path, wanted).await;
        }
        return Ok(format!("an image of {path}"));
    }
    let path = context.world.variable("PATH").map(str::to_owned);
    let program = machine::find_program(wanted.program(), path.as_deref());
    let what = match (context.options.wanted.offline, &program) {
        (true, None) => return Err(missing(wanted)),
        (true, Some(program)) => format!("make an image of {program}"),
        (false, None) => format!("pull {official}"),
        (false, Some(program)) => {
            format!("pull {official}, or make an image of {program} where it cannot be had")
        }
    };
    if !context.shall(what)? {
        return Ok(format!("an image of {}", wanted.program()));
    }
    if !context.options.wanted.offline
        && let Some(reference) = pull(context, official).await?
    {
        return Ok(reference);
    }
    assemble(context, &program.ok_or_else(|| missing(wanted))?, wanted).await
}

async fn of_generation_one<P: Parts>(context: &Context<'_, P>, wanted: ThirdParty) -> Result<Option<String>> {
    let module = wanted.module()?;
    let Some(declaration) = context.parts.host().await?.declaration else { return Ok(None) };
    let container = declaration.module(&module).and_then(|section| section.containers.first());
    Ok(container.map(|container| container.image.clone()))
}

fn archives<P: Parts>(context: &Context<'_, P>, wanted: ThirdParty) -> Vec<Utf8PathBuf> {
    let Some(folder) = &context.options.wanted.images else { return Vec::new() };
    images::archives(&config::absolute(context.world, folder), wanted)
}

/// Loads an archive. All that comes with it goes with this mesh, but for what was there before; and that it is ours is
/// written down first, so that a kill leaves nothing that nobody knows.
async fn load_file<P: Parts>(
    context: &mut Context<'_, P>,
    path: &Utf8Path,
    wanted: ThirdParty,
) -> Result<String> {
    let mut there = Vec::new();
    for image in images::listed(path) {
        for reference in image.references {
            if context.parts.image(&reference).await?.is_some() {
                there.push(reference);
            } else {
                remember(context, &reference, image.id.as_str())?;
            }
        }
    }
    let loaded = context.parts.load_file(path).await?;
    for image in &loaded {
        for reference in image.references.iter().filter(|reference| !there.contains(reference)) {
            remember(context, reference, &image.id)?;
        }
    }
    let image = images::choose(&loaded, wanted).ok_or_else(|| {
        Failure::new(Code::ImageMissing, format!("archive {path} has no image of {}", wanted.program()))
            .expected(format!("{} or one that `mesh image export` made", wanted.official_image()))
    })?;
    let reference = reference_of(image);
    if image.references.is_empty() {
        remember(context, &reference, &image.id)?;
    }
    Ok(reference)
}

/// A registry out of reach is no failure: there is one more way.
async fn pull<P: Parts>(context: &mut Context<'_, P>, reference: &str) -> Result<Option<String>> {
    context.say(format!("pulls {reference}"));
    match context.parts.pull(reference, PULL_LIMIT).await {
        Ok(image) => {
            remember(context, reference, &image.id)?;
            Ok(Some(reference.to_owned()))
        }
        Err(failure) => {
            context.say(format!("{}; goes on with this machine's own program", failure.what));
            Ok(None)
        }
    }
}

fn missing(wanted: ThirdParty) -> Failure {
    let archive = format!("{}.tar", wanted.name());
    Failure::new(Code::ImageMissing, format!("there is no image for {}", wanted.name()))
        .expected(format!(
            "image {} in the engine, {archive} in the folder of --images, a registry in reach, or program {} in PATH",
            wanted.official_image(),
            wanted.program()
        ))
        .found("none of them")
        .hint(format!("install the program (on Debian: package {}), or load the image", wanted.program()))
}

async fn assemble<P: Parts>(
    context: &mut Context<'_, P>,
    binary: &Utf8Path,
    wanted: ThirdParty,
) -> Result<String> {
    let made = images::Program { binary, name: wanted.program(), arguments: wanted.entry_arguments() };
    let reference = made.reference()?;
    context.say(format!("assembles {reference} from {binary}"));
    let archive = images::of_program(&made, &reference, &context.work_folder()).await?;
    load(context, &archive).await?;
    Ok(reference)
}

/// That it is ours is written down first: an engine that names images otherwise than by their configuration says its own
/// name afterwards.
async fn load<P: Parts>(context: &mut Context<'_, P>, archive: &ImageArchive) -> Result<()> {
    remember(context, &archive.reference, archive.id.as_str())?;
    let image = context.parts.load(archive).await?;
    remember(context, &archive.reference, &image.id)
}

/// What this mesh put into the engine, or is about to, `down` may take out again.
fn remember<P: Parts>(context: &mut Context<'_, P>, reference: &str, id: &str) -> Result<()> {
    let loaded = LoadedImage { reference: reference.to_owned(), id: id.to_owned() };
    context.change_mesh(|mesh| {
        if !mesh.images.contains(&loaded) {
            mesh.images.push(loaded);
        }
    })
}

fn reference_of(image: &Image) -> String {
    image.references.first().cloned().unwrap_or_else(|| image.id.clone())
}
