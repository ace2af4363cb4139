//! What one node shall have, complete: composed by the controller, made true by the host.
//!
//! In: module sections composed from manifests. Out: the document that travels, and the digests by which
//! two programs can tell whether they mean the same thing. Not here: how it is composed
//! ([`crate::section`]) or carried out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{
    AccountName, Digest, Generation, MeshId, ModuleName, NodeName, PlanId, ResourceId, ResourceKind,
    ResourceName, SeatName, Token,
};

/// The version of this document's form. A program refuses a form that it does not know.
pub const FORMAT: u32 = 1;

/// Everything that one node shall have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declaration {
    /// [`FORMAT`].
    pub format: u32,
    /// The mesh it belongs to.
    pub mesh: MeshId,
    /// The node it is for.
    pub node: NodeName,
    /// Its number; a host refuses a lower one than it has.
    pub generation: Generation,
    /// What it was written under; a host refuses a lower one than it has seen.
    pub token: Token,
    /// What was issued to this node since the last that it reported, that one and this one included. A
    /// host whose own pair is not here keeps what it has, and reports that it diverged.
    pub issued: Vec<Issued>,
    /// The plan that brought it, where one did.
    pub plan: Option<PlanId>,
    /// The modules, by name.
    pub modules: Vec<ModuleSection>,
    /// What the node holds that no module declares, and that stays until it is replaced or released.
    pub adopted: Vec<Adopted>,
}

/// One declaration that a node was given.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Issued {
    /// Its number.
    pub generation: Generation,
    /// [`Declaration::digest`].
    pub digest: Digest,
}

/// A resource that a node holds and no module declares: one of genesis's containers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Adopted {
    /// Which.
    pub id: ResourceId,
    /// Its [`ModuleSection::spec_digest`] as it was made.
    pub digest: Digest,
}

/// One module's part of a declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSection {
    /// The module.
    pub name: ModuleName,
    /// The manifest's version.
    pub version: String,
    /// The revision of the module in the controller's state; 0 for what genesis raised.
    pub revision: u64,
    /// The seat that its one process or container holds.
    pub seat: Option<SeatName>,
    /// The manifest it was composed from, word for word: what a controller that lost its state takes over.
    pub manifest: String,
    /// The accounts.
    pub accounts: Vec<AccountSpec>,
    /// The bundles, for this node's system.
    pub bundles: Vec<BundleSpec>,
    /// The files.
    pub files: Vec<FileSpec>,
    /// The processes.
    pub processes: Vec<ProcessSpec>,
    /// The containers.
    pub containers: Vec<ContainerSpec>,
}

/// A system account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountSpec {
    /// Its name; the host puts the mesh's prefix before it.
    pub name: AccountName,
    /// Whether one that is there already, and was not made by this mesh, may be used.
    pub origin: AccountOrigin,
}

/// Where an account comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AccountOrigin {
    /// The host makes it, and removes it with the module.
    Made,
    /// It is there already (`existing = true`), and is left alone.
    Existing,
}

/// A bundle, fetched from the artifact store by its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleSpec {
    /// Its name, which is its repository in the store.
    pub name: ResourceName,
    /// Of the tar.gz.
    pub digest: Digest,
    /// Of the tar.gz, in bytes.
    pub size: u64,
}

/// A file in the module's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSpec {
    /// What stands behind `${module.dir}/` in its path.
    pub name: String,
    /// Where its bytes come from.
    pub source: FileSource,
    /// Permission bits, e.g. 0o400.
    pub mode: u32,
    /// Whom it belongs to.
    pub owner: Owner,
}

/// Where a file's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSource {
    /// Held by the node, root-only, under this name; never in a declaration.
    Secret {
        /// Its name among the module's secrets on the node.
        name: String,
        /// Of its bytes, as the node reported it.
        digest: Digest,
    },
    /// In the manifest itself.
    Content(
        /// The whole file.
        String,
    ),
}

/// Whom a file belongs to, or a program runs as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// An account of the module.
    Account(AccountName),
    /// A number without an account: 65534 for what genesis raises.
    User(u32),
}

/// A program from a bundle, run by the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// Its name.
    pub name: ResourceName,
    /// Which of the module's bundles it runs from; the unpacked bundle is its working directory.
    pub bundle: ResourceName,
    /// The program, relative to the bundle, and its arguments; `${variables}` as in [`crate::variable`].
    pub run: Vec<String>,
    /// Whom it runs as.
    pub account: AccountName,
    /// What it takes the place of.
    pub replaces: Option<ResourceId>,
}

/// A program from an image, run by the container engine with host network and without restart policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Its name; the host puts the mesh's prefix before it.
    pub name: ResourceName,
    /// The image's reference.
    pub image: String,
    /// The program and its arguments; empty: as the image says.
    pub run: Vec<String>,
    /// Whom it runs as.
    pub owner: Owner,
    /// What is mounted.
    pub mounts: Vec<MountSpec>,
    /// What it takes the place of.
    pub replaces: Option<ResourceId>,
}

/// A file or folder of the node, seen by a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// On the node; begins with `${module.dir}`, `${data.dir}` or `${run.dir}`.
    pub source: String,
    /// In the container: a path, or the same variable.
    pub target: String,
    /// Whether the container may write.
    pub access: Access,
}

/// Whether something mounted may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

impl Declaration {
    /// The digest of what is declared. The token, the plan and the list of what was issued are left out:
    /// the same content under a higher token is the same declaration.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_json(&(self.format, &self.mesh, &self.node, self.generation, &self.modules, &self.adopted))
    }

    /// Its number and digest.
    #[must_use]
    pub fn issued(&self) -> Issued {
        Issued { generation: self.generation, digest: self.digest() }
    }

    /// The section of a module.
    #[must_use]
    pub fn module(&self, name: &ModuleName) -> Option<&ModuleSection> {
        self.modules.iter().find(|module| &module.name == name)
    }

    /// The section that declares a resource.
    #[must_use]
    pub fn section_of(&self, id: &ResourceId) -> Option<&ModuleSection> {
        self.modules.iter().find(|module| module.resource_ids().contains(id))
    }

    /// Every resource that a module declares, with its digest. What is adopted is not here.
    #[must_use]
    pub fn resources(&self) -> BTreeMap<ResourceId, Digest> {
        let digest = |module: &ModuleSection, id: ResourceId| {
            let digest = module.spec_digest(&id)?;
            Some((id, digest))
        };
        self.modules
            .iter()
            .flat_map(|module| module.resource_ids().into_iter().filter_map(move |id| digest(module, id)))
            .collect()
    }
}

impl ModuleSection {
    /// The ids of all that it declares, in the order in which the host makes them.
    #[must_use]
    pub fn resource_ids(&self) -> Vec<ResourceId> {
        let mut ids: Vec<ResourceId> = Vec::new();
        ids.extend(self.accounts.iter().map(|a| ResourceId::account(&a.name)));
        ids.extend(self.bundles.iter().map(|b| ResourceId::new(ResourceKind::Bundle, &b.name)));
        ids.extend(self.files.iter().map(|f| ResourceId::file(&self.name, &f.name)));
        ids.extend(self.processes.iter().map(|p| ResourceId::process(&p.name)));
        ids.extend(self.containers.iter().map(|c| ResourceId::container(&c.name)));
        ids
    }

    /// The process or container that holds the seat, where the module has one.
    #[must_use]
    pub fn seat_holder(&self) -> Option<ResourceId> {
        self.seat.as_ref()?;
        let process = self.processes.first().map(|p| ResourceId::process(&p.name));
        process.or_else(|| self.containers.first().map(|c| ResourceId::container(&c.name)))
    }

    /// What the process or container replaces.
    #[must_use]
    pub fn replaces(&self, id: &ResourceId) -> Option<&ResourceId> {
        let process = self.processes.iter().find(|p| &ResourceId::process(&p.name) == id);
        let container = self.containers.iter().find(|c| &ResourceId::container(&c.name) == id);
        process.and_then(|p| p.replaces.as_ref()).or_else(|| container.and_then(|c| c.replaces.as_ref()))
    }

    /// The digest of the module's files with their owners: the name of the folder in which they lie, so
    /// that another set of files never touches the ones that something runs from.
    #[must_use]
    pub fn files_digest(&self) -> Digest {
        Digest::of_json(&(&self.name, &self.files))
    }

    /// The digest by which one resource is recognised. That of a process or container covers all that it
    /// needs: its files, its account and its bundle. Neither the version nor the revision counts: the same
    /// thing declared again is the same thing.
    ///
    /// `replaces` does not count either: once the old one is gone the words are history.
    #[must_use]
    pub fn spec_digest(&self, id: &ResourceId) -> Option<Digest> {
        match id.kind() {
            ResourceKind::Account => {
                self.accounts.iter().find(|a| &ResourceId::account(&a.name) == id).map(Digest::of_json)
            }
            ResourceKind::Bundle => self
                .bundles
                .iter()
                .find(|b| &ResourceId::new(ResourceKind::Bundle, &b.name) == id)
                .map(Digest::of_json),
            ResourceKind::File => {
                self.files.iter().find(|f| &ResourceId::file(&self.name, &f.name) == id).map(Digest::of_json)
            }
            ResourceKind::Process => {
                let process = self.processes.iter().find(|p| &ResourceId::process(&p.name) == id)?;
                let account = self.accounts.iter().find(|a| a.name == process.account);
                let bundle = self.bundles.iter().find(|b| b.name == process.bundle);
                let words = (&process.name, &process.bundle, &process.run, &process.account);
                Some(Digest::of_json(&(
                    "process",
                    &self.name,
                    &self.seat,
                    words,
                    account,
                    bundle,
                    &self.files,
                )))
            }
            ResourceKind::Container => {
                let container = self.containers.iter().find(|c| &ResourceId::container(&c.name) == id)?;
                let words =
                    (&container.name, &container.image, &container.run, &container.owner, &container.mounts);
                let needs = (&self.accounts, &self.files);
                Some(Digest::of_json(&("container", &self.name, &self.seat, words, needs)))
            }
        }
    }
}
