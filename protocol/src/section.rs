//! What a manifest becomes on one node: a section of the node's declaration.
//!
//! In: a manifest, and what is known of the node: its system, the bundles that are published, the secrets that
//! it holds. Out: the section, the same for the same input whatever the order of anything; or all that the node
//! lacks. Not here: which modules a node has, and whether they get on with each other.

use std::collections::BTreeMap;

use crate::declaration::{BundleSpec, FileSource, FileSpec, ModuleSection, Owner};
use crate::id::{Digest, ModuleName, ResourceName, System};
use crate::manifest::{File, FileBytes, Manifest};
use crate::plan::Published;
use crate::report::SecretHeld;

/// What composing must know of a node.
#[derive(Debug, Clone, Copy)]
pub struct NodeContext<'a> {
    /// Its operating system and processor.
    pub system: System,
    /// The bundles in the artifact store, by name and system.
    pub bundles: &'a BTreeMap<ResourceName, BTreeMap<System, Published>>,
    /// The secrets that it holds, as its host reports them.
    pub secrets: &'a [SecretHeld],
    /// The module's revision in the controller's state.
    pub revision: u64,
}

/// Something that stands in the way of a module on a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Missing {
    /// A bundle is not published for the node's system.
    #[error(
        "bundle {name} is not published for {system}: expected it in the artifact store; `mesh bundle publish` or `mesh push` puts it there"
    )]
    Bundle {
        /// Which.
        name: ResourceName,
        /// For which system.
        system: System,
    },
    /// The manifest has the bundle for other systems only.
    #[error(
        "bundle {name} is not declared for {system}: expected a [[bundle]] with system = \"{system}\" in the manifest of {module}, or the module on nodes of another system"
    )]
    Declaration {
        /// Whose.
        module: ModuleName,
        /// Which.
        name: ResourceName,
        /// For which system.
        system: System,
    },
    /// What is published is not what the manifest pins.
    #[error(
        "bundle {name} for {system} is published as {published}: expected {pinned}, which its `digest` in the manifest pins"
    )]
    Pin {
        /// Which.
        name: ResourceName,
        /// For which system.
        system: System,
        /// As the manifest says.
        pinned: Digest,
        /// As it is.
        published: Digest,
    },
    /// The node does not hold a secret.
    #[error(
        "secret {name} of module {module} is not on the node: expected its host to hold it, in the folder secrets/{module} of the mesh's root"
    )]
    Secret {
        /// Whose.
        module: ModuleName,
        /// Which.
        name: String,
    },
}

/// What `manifest` becomes on the node.
///
/// # Errors
/// All that the node lacks for it, in order, each once.
pub fn compose(manifest: &Manifest, node: &NodeContext<'_>) -> Result<ModuleSection, Vec<Missing>> {
    let mut missing = Vec::new();
    let mut bundles = Vec::new();
    for name in manifest.bundle_names() {
        match bundle(manifest, name, node) {
            Ok(bundle) => bundles.push(bundle),
            Err(lack) => missing.push(lack),
        }
    }
    let mut files = Vec::new();
    for declared in &manifest.files {
        match file(manifest, declared, node) {
            Ok(file) => files.push(file),
            Err(lack) => missing.push(lack),
        }
    }
    if !missing.is_empty() {
        missing.sort();
        missing.dedup();
        return Err(missing);
    }
    let mut section = ModuleSection {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        revision: node.revision,
        seat: manifest.seat.clone(),
        manifest: manifest.text.clone(),
        accounts: manifest.accounts.clone(),
        bundles,
        files,
        processes: manifest.processes.clone(),
        containers: manifest.containers.clone(),
    };
    sort(&mut section);
    Ok(section)
}

fn bundle(manifest: &Manifest, name: &ResourceName, node: &NodeContext<'_>) -> Result<BundleSpec, Missing> {
    let system = node.system;
    let Some(declared) = manifest.bundle(name, system) else {
        return Err(Missing::Declaration { module: manifest.name.clone(), name: name.clone(), system });
    };
    let Some(published) = node.bundles.get(name).and_then(|systems| systems.get(&system)) else {
        return Err(Missing::Bundle { name: name.clone(), system });
    };
    match &declared.pin {
        Some(pin) if pin != &published.digest => Err(Missing::Pin {
            name: name.clone(),
            system,
            pinned: pin.clone(),
            published: published.digest.clone(),
        }),
        _ => Ok(BundleSpec { name: name.clone(), digest: published.digest.clone(), size: published.size }),
    }
}

fn file(manifest: &Manifest, file: &File, node: &NodeContext<'_>) -> Result<FileSpec, Missing> {
    let source = match &file.bytes {
        FileBytes::Content(content) => FileSource::Content(content.clone()),
        FileBytes::Secret(name) => secret(&manifest.name, name, node.secrets)?,
    };
    let owner = Owner::Account(file.account.clone());
    Ok(FileSpec { name: file.name.clone(), source, mode: file.mode, owner })
}

/// A secret of a module, as a node holds it.
pub(crate) fn secret(module: &ModuleName, name: &str, held: &[SecretHeld]) -> Result<FileSource, Missing> {
    match held.iter().find(|secret| &secret.module == module && secret.name == name) {
        Some(secret) => Ok(FileSource::Secret { name: name.to_owned(), digest: secret.digest.clone() }),
        None => Err(Missing::Secret { module: module.clone(), name: name.to_owned() }),
    }
}

/// The one order, so that a manifest whose sections were moved about means the same.
pub(crate) fn sort(section: &mut ModuleSection) {
    section.accounts.sort_by(|a, b| a.name.cmp(&b.name));
    section.bundles.sort_by(|a, b| a.name.cmp(&b.name));
    section.files.sort_by(|a, b| a.name.cmp(&b.name));
    section.processes.sort_by(|a, b| a.name.cmp(&b.name));
    section.containers.sort_by(|a, b| a.name.cmp(&b.name));
    for container in &mut section.containers {
        container.mounts.sort_by(|a, b| a.target.cmp(&b.target));
    }
}

#[cfg(test)]
mod tests;
