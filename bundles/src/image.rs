//! Images assembled in-process: one layer, one configuration, nothing built and nothing pulled.
//!
//! In: a bundle's archive, or (see [`program`]) a program of this machine. Out: a docker-archive that an engine
//! loads, whose id depends on the content alone. Not here: the engine.
//!
//! An image names no command, no account and no environment: who runs it says all of that. The layer of a
//! bundle's image is the bundle's own archive, byte for byte, so that the container and the process that
//! replaces it provably run the same program.

pub mod export;
pub mod program;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use mesh_protocol::id::{Digest, System};
use serde::Serialize;
use tokio::io::AsyncRead;

use self::export::{Export, Form};
use crate::manifest::canonical;
use crate::path::PathFault;

/// The label that names the bundle which an image's layer is.
pub const BUNDLE_LABEL: &str = "mesh.bundle.digest";
/// The label that names the program which an image was assembled around.
pub const PROGRAM_LABEL: &str = "mesh.program.name";

/// The label that names the layer of an image which was assembled around a program: what tells a rebuilt one from
/// another, whatever an engine makes its ids of.
pub const LAYER_LABEL: &str = "mesh.layer.digest";

/// An archive that an image's layer is made of.
#[derive(Debug, Clone, Copy)]
pub struct LayerFile<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// Its digest.
    pub digest: &'a Digest,
    /// Its length.
    pub size: u64,
    /// The digest of the tar in it.
    pub diff_id: &'a Digest,
    /// The length of the tar.
    pub unpacked_size: u64,
}

/// An image that can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageArchive {
    /// The digest of the configuration: the image's id, in an engine that stores images by it.
    pub id: Digest,
    /// `repository:tag`
    pub reference: String,
    /// The digest of the layer's archive.
    pub layer: Digest,
    /// The digest of the tar in it.
    pub diff_id: Digest,
    config: Vec<u8>,
    layer_path: PathBuf,
    layer_size: u64,
    unpacked_size: u64,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No engine would take the name.
    #[error("image reference {found:?} is not valid: expected repository:tag in lower case")]
    Reference {
        /// The name.
        found: String,
    },
    /// The archive could not be read or written.
    #[error("cannot use {path}", path = .path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The archive is not the one that it should be.
    #[error("{path} has {found} bytes: expected {expected}", path = .path.display())]
    LayerChanged {
        /// Which file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// The length that it should have.
        expected: u64,
    },
    /// An archive of images that is none.
    #[error("{path} is no archive of images: {what}", path = .path.display())]
    Archive {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A name in the image is not valid.
    #[error(transparent)]
    Path(#[from] PathFault),
}

/// An image's configuration (image-spec 1.1), its fields in alphabetical order.
#[derive(Serialize)]
struct ImageConfig<'a> {
    architecture: &'a str,
    config: Runtime<'a>,
    os: &'a str,
    rootfs: RootFs<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Runtime<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    entrypoint: &'a [&'a str],
    labels: BTreeMap<&'a str, &'a str>,
    working_dir: &'a str,
}

#[derive(Serialize)]
struct RootFs<'a> {
    diff_ids: [&'a Digest; 1],
    r#type: &'a str,
}

/// A bundle worn as an image.
///
/// # Errors
/// When the reference is not valid, or the archive is not there or has another length.
pub fn worn(layer: LayerFile<'_>, system: System, reference: &str) -> Result<ImageArchive, ImageError> {
    assemble(layer, system, reference, (&[], BTreeMap::from([(BUNDLE_LABEL, layer.digest.as_str())])))
}

fn assemble(
    layer: LayerFile<'_>,
    system: System,
    reference: &str,
    (entrypoint, labels): (&[&str], BTreeMap<&str, &str>),
) -> Result<ImageArchive, ImageError> {
    check_reference(reference)?;
    let found = layer.path.metadata();
    let found = found.map_err(|source| ImageError::File { path: layer.path.to_path_buf(), source })?.len();
    if found != layer.size {
        return Err(ImageError::LayerChanged { path: layer.path.to_path_buf(), found, expected: layer.size });
    }
    let config = canonical(&ImageConfig {
        architecture: system.architecture(),
        config: Runtime { entrypoint, labels, working_dir: "/" },
        os: system.os(),
        rootfs: RootFs { diff_ids: [layer.diff_id], r#type: "layers" },
    });
    Ok(ImageArchive {
        id: Digest::of(&config),
        reference: reference.to_owned(),
        layer: layer.digest.clone(),
        diff_id: layer.diff_id.clone(),
        config,
        layer_path: layer.path.to_path_buf(),
        layer_size: layer.size,
        unpacked_size: layer.unpacked_size,
    })
}

fn check_reference(reference: &str) -> Result<(), ImageError> {
    let right = reference.rsplit_once(':').is_some_and(|(repository, tag)| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-/:".contains(&b);
        let tagged = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        let ends = |text: &str| text.starts_with(['.', '-', '/', ':']) || text.ends_with(['/', ':']);
        let (repository_right, tag_right) = (repository.bytes().all(inner), tag.bytes().all(tagged));
        !repository.is_empty() && !tag.is_empty() && repository_right && tag_right && !ends(repository)
    });
    if right { Ok(()) } else { Err(ImageError::Reference { found: reference.to_owned() }) }
}

impl ImageArchive {
    /// The configuration, whose digest is the image's id.
    #[must_use]
    pub fn config_bytes(&self) -> &[u8] {
        &self.config
    }

    /// The docker-archive for an engine on this machine, as a stream that nobody waits in; its layer is the tar that is in
    /// the layer's file. An engine makes the same image of either. To be called within a tokio runtime.
    ///
    /// # Errors
    /// When the layer's file cannot be opened, or has another length.
    pub fn stream(&self) -> Result<impl AsyncRead + Send + use<>, ImageError> {
        Export::with([self], Form::Plain)?.stream()
    }

    /// The docker-archive, as a file: whole, or not there.
    ///
    /// # Errors
    /// When the layer cannot be read, or the file not written.
    pub fn write_to(&self, output: &Path) -> Result<(), ImageError> {
        Export::new([self])?.write_to(output)
    }
}

#[cfg(test)]
mod tests;
