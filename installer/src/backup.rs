//! A backup: one file that has all that a mesh is on its control machine.
//!
//! In: a root, while everything in it runs. Out: a tar of `manifest.json`, its digest, and each content once, named by its
//! digest; and the way back. docs/backup.md says what is in it and why it is consistent. Not here: what is done with a mesh
//! that was put back (`commands::restore`), and the engine.

mod archive;
pub mod begun;
mod gather;

use camino::Utf8PathBuf;
use jiff::Timestamp;
use mesh_protocol::id::{Digest, MeshId, MeshName, NodeName, System};
use serde::{Deserialize, Serialize};

pub use archive::{Opened, write};
pub use gather::{Gathered, Place, StoreContent, gather};

/// The version of the form of a backup.
pub const FORMAT: u32 = 1;

/// What is in a backup: its first entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`].
    pub format: u32,
    /// The mesh.
    pub mesh: MeshId,
    /// Its name.
    pub name: MeshName,
    /// The machine that it was made on.
    pub node: NodeName,
    /// What the programs in it run on.
    pub system: System,
    /// When it was made.
    pub created: Timestamp,
    /// The version of the program that made it.
    pub version: String,
    /// The folders, by their paths below the root, each before what is in it.
    pub folders: Vec<FolderEntry>,
    /// The files, by their paths below the root.
    pub files: Vec<FileEntry>,
    /// The links in bundles, by their paths below the root.
    pub links: Vec<LinkEntry>,
    /// The images that its containers are made from.
    pub images: Vec<ImageEntry>,
}

/// A folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FolderEntry {
    /// Below the root.
    pub path: Utf8PathBuf,
    /// Its permissions.
    pub mode: u32,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileEntry {
    /// Below the root.
    pub path: Utf8PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// Its length.
    pub size: u64,
    /// Of its bytes: the name of its content.
    pub digest: Digest,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkEntry {
    /// Below the root.
    pub path: Utf8PathBuf,
    /// Where it leads to.
    pub target: Utf8PathBuf,
}

/// An image, as an archive that the engine takes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageEntry {
    /// By what a declaration asks for it.
    pub reference: String,
    /// The archive's length.
    pub size: u64,
    /// Of the archive: the name of its content.
    pub digest: Digest,
}

impl Manifest {
    /// All contents with their lengths, each once.
    #[must_use]
    pub fn contents(&self) -> std::collections::BTreeMap<&Digest, u64> {
        let files = self.files.iter().map(|file| (&file.digest, file.size));
        files.chain(self.images.iter().map(|image| (&image.digest, image.size))).collect()
    }
}
