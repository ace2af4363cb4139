//! What a bundle says of itself in the store: its name, system and program, and every file in it.
//!
//! In: facts that a person or a manifest gave, and an archive's own. Out: a configuration whose bytes depend on
//! nothing else, so that packing again publishes nothing new. Not here: the store's manifest (see `manifest`).

use mesh_protocol::id::{Digest, ResourceName, System};
use serde::{Deserialize, Serialize};

use crate::inputs::BuildInputs;
use crate::pack::{FileFact, Layer, LinkFact};
use crate::path::BundlePath;

/// What wrote it: a reader can tell which rules held.
const TOOL: &str = concat!("mesh-bundles ", env!("CARGO_PKG_VERSION"));

/// What an archive does not say of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The bundle's name.
    pub name: ResourceName,
    /// The version of what is in it.
    pub version: String,
    /// What it runs on.
    pub system: System,
    /// Which of its files is its program.
    pub entrypoint: BundlePath,
}

/// A bundle's configuration, as JSON in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The bundle's name.
    pub name: ResourceName,
    /// The version of what is in it.
    pub version: String,
    /// What it runs on.
    pub system: System,
    /// Which of its files is its program.
    pub entrypoint: BundlePath,
    /// Its files, in the archive's order.
    pub files: Vec<FileFact>,
    /// Its symbolic links, in the archive's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<LinkFact>,
    /// The digest of the tar: tells a changed compressor from changed content.
    pub diff_id: Digest,
    /// What it was built from, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildInputs>,
    /// What packed it.
    pub tool: String,
}

/// Why facts do not fit an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// There is no such program.
    #[error("the bundle has no file {entrypoint} to be its program")]
    NoEntrypoint {
        /// What should be there.
        entrypoint: BundlePath,
    },
    /// It may not be run.
    #[error("{entrypoint} has mode {found}: expected 0755, for it is the bundle's program")]
    NotExecutable {
        /// The program.
        entrypoint: BundlePath,
        /// Its mode.
        found: String,
    },
    /// It would not do as a tag, nor in a file name.
    #[error(
        "version {found:?} is not valid: expected 1 to 64 of a-z, A-Z, 0-9, '.', '_', '-' and '+', the first no sign"
    )]
    Version {
        /// The version.
        found: String,
    },
    /// Its tag would be that of another version's bundle for that system.
    #[error("version {found:?} is not valid: expected one that does not end with a system")]
    VersionNamesSystem {
        /// The version.
        found: String,
    },
}

impl Config {
    /// The configuration of an archive of which this is known.
    ///
    /// # Errors
    /// When the facts do not fit the archive.
    pub fn new(facts: Facts, layer: &Layer) -> Result<Self, ConfigError> {
        let Facts { name, version, system, entrypoint } = facts;
        let right = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+');
        let first = version.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        if !first || version.len() > 64 || !version.bytes().all(right) {
            return Err(ConfigError::Version { found: version });
        }
        if System::ALL.iter().any(|system| version.ends_with(&format!("-{}", system.dashed()))) {
            return Err(ConfigError::VersionNamesSystem { found: version });
        }
        match layer.files.iter().find(|file| file.path == entrypoint) {
            None => return Err(ConfigError::NoEntrypoint { entrypoint }),
            Some(file) if file.mode != "0755" => {
                return Err(ConfigError::NotExecutable { entrypoint, found: file.mode.clone() });
            }
            Some(_) => {}
        }
        Ok(Self {
            name,
            version,
            system,
            entrypoint,
            files: layer.files.clone(),
            links: layer.links.clone(),
            diff_id: layer.diff_id.clone(),
            build: None,
            tool: TOOL.to_owned(),
        })
    }

    /// The same, with what it was built from.
    #[must_use]
    pub fn with_build(self, build: BuildInputs) -> Self {
        Self { build: Some(build), ..self }
    }

    /// Its bytes in the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        crate::manifest::canonical(self)
    }
}
