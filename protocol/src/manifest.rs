//! A module's manifest, `module.toml`: what its author says the module is made of.
//!
//! In: the text. Out: a [`Manifest`] in which every name, path and mode is right by construction and all that
//! one part says of another is true; or everything that is wrong with it, each with its place, what was found
//! and what would be right. Not here: what it becomes on a node ([`crate::section`]), and whatever only the
//! mesh knows: whether a seat or a resource is another module's already.

mod check;
pub(crate) mod fault;
pub(crate) mod form;
mod gate;
mod paths;
pub(crate) mod read;
pub(crate) mod value;

use std::collections::BTreeMap;

use camino::{Utf8Path, Utf8PathBuf};

use crate::declaration::{AccountSpec, ContainerSpec, ProcessSpec};
use crate::id::{AccountName, Digest, ModuleName, ResourceId, ResourceName, SeatName, System};

pub use fault::{Code, ManifestError, ManifestErrors};
pub use form::schema;
pub(crate) use paths::{MODULE_DIR, ModulePath, module_paths};

/// The manifest's file name in a module's folder.
pub const FILE_NAME: &str = "module.toml";

/// A module, as its manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The manifest, word for word.
    pub text: String,
    /// The module's name.
    pub name: ModuleName,
    /// Its version.
    pub version: String,
    /// The seat that its one process or container holds.
    pub seat: Option<SeatName>,
    /// What the paths of binaries and files for bundles are relative to, itself relative to the manifest's
    /// folder: see [`Manifest::source_folder`].
    pub source: Utf8PathBuf,
    /// The accounts.
    pub accounts: Vec<AccountSpec>,
    /// The bundles: one entry a name and system.
    pub bundles: Vec<Bundle>,
    /// The files.
    pub files: Vec<File>,
    /// The processes.
    pub processes: Vec<ProcessSpec>,
    /// The containers.
    pub containers: Vec<ContainerSpec>,
}

/// A bundle for one system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// Its name.
    pub name: ResourceName,
    /// The system.
    pub system: System,
    /// The program, relative to the source folder; in the bundle it lies at the top, under its file name.
    pub binary: Utf8PathBuf,
    /// What makes the program, run in the source folder; empty: nothing does.
    pub build: Vec<String>,
    /// What the packed bundle must be, where the manifest pins it.
    pub pin: Option<Digest>,
    /// More files: the path in the bundle, and where it is taken from, relative to the source folder.
    pub files: BTreeMap<Utf8PathBuf, Utf8PathBuf>,
}

impl Bundle {
    /// The program's name, at the top of the bundle.
    #[must_use]
    pub fn program(&self) -> &str {
        self.binary.file_name().unwrap_or_default()
    }
}

/// A file in the module's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What stands behind `${module.dir}/` in its path.
    pub name: String,
    /// Where its bytes come from.
    pub bytes: FileBytes,
    /// Permission bits, e.g. 0o400.
    pub mode: u32,
    /// Whom it belongs to.
    pub account: AccountName,
}

impl File {
    /// Its path as manifests write it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{MODULE_DIR}/{}", self.name)
    }
}

/// Where a file's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileBytes {
    /// Held by the node under this name, among the module's secrets.
    Secret(String),
    /// In the manifest, word for word: variables in it are not filled in.
    Content(String),
}

impl Manifest {
    /// Reads a manifest. `path` is for messages, as the user gave it.
    ///
    /// # Errors
    /// All that is wrong with it, in the order of its lines.
    pub fn parse(path: &str, text: &str) -> Result<Self, ManifestErrors> {
        let mut faults = fault::Faults::new(path, text);
        let read = read::read(text, &mut faults);
        if let Some(forms) = read.whole() {
            check::check(forms, &mut faults);
        }
        let manifest = value::values(text, &read.forms, &mut faults);
        faults.into_result(manifest)
    }

    /// The folder that binaries and files for bundles are relative to, and in which `build` runs: the
    /// manifest's own, or what `source` in `[module]` says from there. So a module is built and packed alike
    /// from whatever folder the user stands in.
    #[must_use]
    pub fn source_folder(&self, manifest_folder: &Utf8Path) -> Utf8PathBuf {
        if self.source == "." { manifest_folder.to_owned() } else { manifest_folder.join(&self.source) }
    }

    /// The bundles' names, each once, in their order.
    #[must_use]
    pub fn bundle_names(&self) -> Vec<&ResourceName> {
        let mut names: Vec<&ResourceName> = self.bundles.iter().map(|bundle| &bundle.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The entry of a bundle for a system.
    #[must_use]
    pub fn bundle(&self, name: &ResourceName, system: System) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| &bundle.name == name && bundle.system == system)
    }

    /// The names of the secrets that a node must hold for this module, each once, in their order.
    #[must_use]
    pub fn secrets(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .files
            .iter()
            .filter_map(|file| match &file.bytes {
                FileBytes::Secret(name) => Some(name.as_str()),
                FileBytes::Content(_) => None,
            })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The process or container that holds the seat, where the module has one.
    #[must_use]
    pub fn seat_holder(&self) -> Option<ResourceId> {
        self.seat.as_ref()?;
        let process = self.processes.first().map(|process| ResourceId::process(&process.name));
        process.or_else(|| self.containers.first().map(|container| ResourceId::container(&container.name)))
    }
}

#[cfg(test)]
mod tests;
