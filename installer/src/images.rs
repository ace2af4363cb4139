//! Images that are made here: a bundle worn as one, a program of this machine with what it needs; and archives of them.
//!
//! In: packed bundles, programs, archives, an engine. Out: images in the engine, found again by what they are made of and
//! not by an engine's ids. Not here: who runs them; and what genesis needs, beyond telling it apart in an archive.

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::image::export::{self, ListedImage, layer_of};
use mesh_bundles::image::{self, ImageArchive, PROGRAM_LABEL, program};
use mesh_engine::{Endpoint, Engine, Error, Image, LabelSelector, endpoint};
use mesh_protocol::id::Digest;

use crate::genesis::engine_failure;
use crate::module::PackedBundle;
use crate::output::{Code, Failure, Result};
use crate::third_party::ThirdParty;
use crate::world::World;

/// Where images that were made here are named; nothing is ever pulled from it, for it is no host's name.
pub const OWN_REGISTRY: &str = "mesh.local";

/// A third-party program to make an image of.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// It.
    pub binary: &'a Utf8Path,
    /// Its name in the image, and the image's.
    pub name: &'a str,
    /// What it is given before whatever a container is made with.
    pub arguments: &'a [&'a str],
}

impl Program<'_> {
    /// The image's name: by the program's own digest, so that another version has another.
    ///
    /// # Errors
    /// When the program cannot be read.
    pub fn reference(&self) -> Result<String> {
        let Self { binary, name, .. } = self;
        let bytes = std::fs::read(binary).map_err(|error| {
            Failure::because(Code::ImageMissing, &format!("{binary} cannot be read"), &error)
        })?;
        Ok(format!("{OWN_REGISTRY}/{name}:{}", Digest::of(&bytes).short()))
    }
}

/// The engine, as the ecosystem finds it.
///
/// # Errors
/// When it cannot be found, or does not answer.
pub async fn engine(world: &World) -> Result<Engine> {
    Engine::connect(&endpoint(world)?).await.map_err(|error| engine_failure(&error))
}

/// Where the engine is, as the ecosystem finds it.
///
/// # Errors
/// When it cannot be told.
pub fn endpoint(world: &World) -> Result<Endpoint> {
    endpoint::resolve(None, &world.engine_environment()).map_err(|error| {
        Failure::of(Code::EngineEndpoint, &error)
            .hint("mend DOCKER_HOST, DOCKER_CONTEXT or docker's current context")
    })
}

/// A bundle worn as an image: its archive is the one layer, byte for byte.
///
/// # Errors
/// When the name is not valid, or the archive is not there.
pub fn of_bundle(bundle: &PackedBundle, reference: &str) -> Result<ImageArchive> {
    let layer = bundle.packed.at(bundle.archive.as_std_path());
    image::worn(layer, bundle.packed.config.system, reference).map_err(|error| {
        Failure::because(Code::ImageMissing, "the bundle cannot be worn as an image", &error)
    })
}

/// A program with exactly the shared libraries that it needs; the layer is packed into a file in `work`, from which the
/// image is read later.
///
/// # Errors
/// When it is no program, or a library is missing.
pub async fn of_program(made: &Program<'_>, reference: &str, work: &Utf8Path) -> Result<ImageArchive> {
    let layer = work.join(format!("{}.layer.tar.gz", made.name));
    let (binary, name, reference) = (made.binary.to_owned(), made.name.to_owned(), reference.to_owned());
    let arguments: Vec<String> = made.arguments.iter().map(|argument| (*argument).to_owned()).collect();
    let making = move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (path, name, arguments) = (binary.as_std_path(), name.as_str(), arguments.as_slice());
        let described = program::Program { path, name, arguments, folders: &[], reference: &reference };
        program::program(&described, layer.as_std_path(), 1).map_err(|error| {
            Failure::because(Code::ImageMissing, &format!("{binary} cannot be made an image"), &error)
        })
    };
    tokio::task::spawn_blocking(making).await.map_err(|error| Failure::of(Code::Internal, &error))?
}

/// Whether the engine has an image under its name, made of the same layer.
///
/// # Errors
/// When the engine does not answer.
pub async fn is_there(engine: &Engine, archive: &ImageArchive) -> Result<bool> {
    has_layer(engine, &archive.reference, &archive.layer).await
}

/// Whether the engine has an image under this name that is made of this layer.
///
/// # Errors
/// When the engine does not answer.
pub async fn has_layer(engine: &Engine, reference: &str, layer: &Digest) -> Result<bool> {
    let found = engine.find_image(reference).await.map_err(|error| engine_failure(&error))?;
    Ok(found.and_then(|image| layer_of(&image.labels)).as_ref() == Some(layer))
}

/// Puts an image into the engine, as a stream of what is in its layer's file.
///
/// # Errors
/// When the layer cannot be read, or the engine does not take it.
pub async fn load(engine: &Engine, archive: &ImageArchive) -> Result<Image> {
    let reference = &archive.reference;
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::because(Code::ImageMissing, &format!("image {reference} cannot be loaded"), error)
    };
    let open = || async { archive.stream().map_err(std::io::Error::other) };
    let images = engine.load_image(open).await.map_err(|error| failed(&error))?;
    images.into_iter().next().ok_or_else(|| {
        Failure::new(Code::ImageMissing, format!("image {reference} was loaded and is not there"))
    })
}

/// Puts all images of an archive into the engine.
///
/// # Errors
/// When it cannot be read, or the engine does not take it.
pub async fn load_file(engine: &Engine, path: &Utf8Path) -> Result<Vec<Image>> {
    let failed = |what: &str, error: &(dyn std::error::Error + 'static)| {
        Failure::because(Code::ImageMissing, &format!("archive {path} {what}"), error)
            .expected("an archive of `mesh image export` or `docker save`")
    };
    engine.load_image(|| tokio::fs::File::open(path)).await.map_err(|error| match error {
        Error::Archive { source } => failed("cannot be read", &source),
        error => failed("cannot be loaded", &error),
    })
}

/// The images of an archive; none where only an engine can tell.
#[must_use]
pub fn listed(path: &Utf8Path) -> Vec<ListedImage> {
    export::list(path.as_std_path()).unwrap_or_default()
}

/// Whether an archive has an image of a program that genesis needs.
#[must_use]
pub fn has(path: &Utf8Path, wanted: ThirdParty) -> bool {
    listed(path).iter().any(|image| {
        image.program.as_deref() == Some(wanted.program())
            || image.references.iter().any(|reference| is_official(reference, wanted))
    })
}

/// The archives of a folder that have a program's image: by its module's name or its own, then whatever other archive
/// has one, as `mesh image export` writes it.
#[must_use]
pub fn archives(folder: &Utf8Path, wanted: ThirdParty) -> Vec<Utf8PathBuf> {
    let names = [wanted.name(), wanted.program()];
    let endings = ["tar", "tar.gz"];
    let named = names.iter().flat_map(|name| endings.map(|ending| folder.join(format!("{name}.{ending}"))));
    let mut paths: Vec<Utf8PathBuf> = named.filter(|path| path.is_file()).collect();
    let mut others: Vec<Utf8PathBuf> = folder
        .read_dir_utf8()
        .map(|found| found.flatten().map(camino::Utf8DirEntry::into_path).collect())
        .unwrap_or_default();
    others.retain(|path| path.extension() == Some("tar") && has(path, wanted));
    others.sort();
    paths.extend(others);
    paths
}

/// An image that a genesis assembled from this program before. Only under the name that genesis gives: what is named
/// otherwise is somebody's own, and may go when they like.
///
/// # Errors
/// When the engine does not answer.
pub async fn assembled_before(engine: &Engine, wanted: ThirdParty) -> Result<Option<String>> {
    let selector = LabelSelector::is(PROGRAM_LABEL, wanted.program());
    let images = engine.list_images(&selector).await.map_err(|error| engine_failure(&error))?;
    let own = format!("{OWN_REGISTRY}/{}:", wanted.program());
    let references = images.into_iter().flat_map(|image| image.references);
    Ok(references.filter(|reference| reference.starts_with(&own)).min())
}

/// The image of a program that genesis needs, of several; one that is alone is it.
#[must_use]
pub fn choose(images: &[Image], wanted: ThirdParty) -> Option<&Image> {
    let of_program =
        |image: &&Image| image.labels.get(PROGRAM_LABEL).map(String::as_str) == Some(wanted.program());
    let official = |image: &&Image| image.references.iter().any(|reference| is_official(reference, wanted));
    let found = images.iter().find(of_program).or_else(|| images.iter().find(official));
    match images {
        [one] => found.or(Some(one)),
        _ => found,
    }
}

/// Engines leave out `docker.io/library/`.
fn is_official(reference: &str, wanted: ThirdParty) -> bool {
    let official = wanted.official_image();
    reference == official || Some(reference) == official.strip_prefix("docker.io/library/")
}

/// Where layers and archives lie while they are made.
///
/// # Errors
/// When there is no room.
pub fn work_folder() -> Result<(tempfile::TempDir, Utf8PathBuf)> {
    let folder = tempfile::tempdir()
        .map_err(|error| Failure::because(Code::Io, "no room to make an image in", &error))?;
    let path =
        Utf8PathBuf::try_from(folder.path().to_owned()).map_err(|error| Failure::of(Code::Io, &error))?;
    Ok((folder, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn image(references: &[&str], program: Option<&str>) -> Image {
        let label = |program: &str| (PROGRAM_LABEL.to_owned(), program.to_owned());
        Image {
            id: format!("sha256:{}", references.concat()),
            references: references.iter().map(|reference| (*reference).to_owned()).collect(),
            labels: program.map(label).into_iter().collect::<BTreeMap<_, _>>(),
            size: 1,
        }
    }

    #[test]
    fn of_an_archive_of_several_the_right_one_is_chosen() {
        let bus = image(&["mesh.local/nats-server:1"], Some("nats-server"));
        let store = image(&["registry:2.8.3"], None);
        let other = image(&["mesh.local/mesh-controller:1"], None);
        let all = [other.clone(), store.clone(), bus.clone()];
        assert_eq!(choose(&all, ThirdParty::Bus), Some(&bus));
        assert_eq!(choose(&all, ThirdParty::Store), Some(&store));
        assert_eq!(choose(&all[..1], ThirdParty::Store), Some(&other), "one that is alone was meant");
        let two = [other, bus];
        assert_eq!(choose(&two, ThirdParty::Store), None);
    }
}
