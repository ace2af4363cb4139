//! Where everything of a mesh lies on a machine: one root folder, one function a place.
//!
//! In: the root. Out: paths. Not here: making or reading what lies there. Installer and host both know these
//! places, and nobody else does: a program is given its paths as arguments.

use camino::{Utf8Path, Utf8PathBuf};
use serde::{Deserialize, Serialize};

use crate::id::{Digest, InstanceId, MeshId, MeshName, ModuleName, NodeName, ResourceId};

/// Where a mesh lies unless told otherwise.
pub const DEFAULT_ROOT: &str = "/var/lib/mesh";

/// The places below one mesh's root. All of it is root-only (0700) but for what programs under other
/// accounts must pass through: `bundles`, `modules`, `run`, `data` (0711).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: Utf8PathBuf,
}

impl Layout {
    /// The places below `root`.
    #[must_use]
    pub fn new(root: impl Into<Utf8PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root itself; also the mark by which a folder is known to be a mesh's is below it.
    #[must_use]
    pub fn root(&self) -> &Utf8Path {
        &self.root
    }

    /// What cannot be observed: ids, names, ports, the digest of genesis's inputs; the host's part of it is
    /// [`HostFile`].
    #[must_use]
    pub fn mesh_file(&self) -> Utf8PathBuf {
        self.root.join("mesh.json")
    }

    /// Genesis's journal, JSON lines.
    #[must_use]
    pub fn journal(&self) -> Utf8PathBuf {
        self.root.join("journal.jsonl")
    }

    /// How the seat answered while it changed hands: a recording each, the newest few.
    #[must_use]
    pub fn reports(&self) -> Utf8PathBuf {
        self.root.join("reports")
    }

    /// Where genesis packs and assembles; what is in it can be made again.
    #[must_use]
    pub fn genesis_work(&self) -> Utf8PathBuf {
        self.root.join("genesis")
    }

    /// Locked by whoever changes the mesh from outside: genesis, down.
    #[must_use]
    pub fn installer_lock(&self) -> Utf8PathBuf {
        self.root.join("installer.lock")
    }

    /// Keys and credentials that never leave this machine: operator, accounts (seeds).
    #[must_use]
    pub fn identity(&self) -> Utf8PathBuf {
        self.root.join("identity")
    }

    /// A user's credential: `host`, `operator`, `prober`. The controller's are secrets of its module.
    #[must_use]
    pub fn credential(&self, user: &str) -> Utf8PathBuf {
        self.root.join("credentials").join(format!("{user}.creds"))
    }

    /// The secrets of a module that this node holds.
    #[must_use]
    pub fn secrets(&self, module: &ModuleName) -> Utf8PathBuf {
        self.root.join("secrets").join(module.as_str())
    }

    /// The folder of all modules' secrets.
    #[must_use]
    pub fn all_secrets(&self) -> Utf8PathBuf {
        self.root.join("secrets")
    }

    /// The programs this mesh runs itself with: `mesh-host`.
    #[must_use]
    pub fn programs(&self) -> Utf8PathBuf {
        self.root.join("bin")
    }

    /// The host's own folder.
    #[must_use]
    pub fn host(&self) -> Utf8PathBuf {
        self.root.join("host")
    }

    /// What the host is told at its start: [`HostFile`].
    #[must_use]
    pub fn host_file(&self) -> Utf8PathBuf {
        self.host().join("host.json")
    }

    /// Locked by the one host of this root for as long as it lives; its content (pid, start time, boot id)
    /// is for people.
    #[must_use]
    pub fn host_lock(&self) -> Utf8PathBuf {
        self.host().join("lock")
    }

    /// There from the moment in which the host is asked to dissolve the mesh: from then on it makes nothing any more.
    #[must_use]
    pub fn dissolved(&self) -> Utf8PathBuf {
        self.host().join("dissolved")
    }

    /// The local door.
    #[must_use]
    pub fn door(&self) -> Utf8PathBuf {
        self.host().join("door.sock")
    }

    /// What the host holds.
    #[must_use]
    pub fn ledger(&self) -> Utf8PathBuf {
        self.host().join("ledger.json")
    }

    /// The declaration last accepted.
    #[must_use]
    pub fn declaration(&self) -> Utf8PathBuf {
        self.host().join("declaration.json")
    }

    /// The record of a seat's handover.
    #[must_use]
    pub fn handover(&self, seat: &str) -> Utf8PathBuf {
        self.handovers().join(format!("{seat}.json"))
    }

    /// The records of all seats' handovers.
    #[must_use]
    pub fn handovers(&self) -> Utf8PathBuf {
        self.host().join("handover")
    }

    /// The versions that held a seat and served for long.
    #[must_use]
    pub fn steady(&self, seat: &str) -> Utf8PathBuf {
        self.steadies().join(format!("{seat}.json"))
    }

    /// The same of all seats.
    #[must_use]
    pub fn steadies(&self) -> Utf8PathBuf {
        self.host().join("steady")
    }

    /// That a seat was recovered by hand, and to what.
    #[must_use]
    pub fn recovery(&self, seat: &str) -> Utf8PathBuf {
        self.recoveries().join(format!("{seat}.json"))
    }

    /// The same of all seats.
    #[must_use]
    pub fn recoveries(&self) -> Utf8PathBuf {
        self.host().join("recovered")
    }

    /// One run of a process, as the shim keeps it (root-only).
    #[must_use]
    pub fn incarnation(&self, instance: &InstanceId) -> Utf8PathBuf {
        self.incarnations().join(instance.as_str())
    }

    /// All runs of all processes.
    #[must_use]
    pub fn incarnations(&self) -> Utf8PathBuf {
        self.host().join("incarnations")
    }

    /// Unpacked bundles; one lies in a folder named by the hexadecimal digits of its digest.
    #[must_use]
    pub fn bundles(&self) -> Utf8PathBuf {
        self.root.join("bundles")
    }

    /// One unpacked bundle.
    #[must_use]
    pub fn bundle(&self, digest: &Digest) -> Utf8PathBuf {
        self.bundles().join(digest.hex())
    }

    /// `${module.dir}`: one folder for each set of files that a module had
    /// ([`crate::declaration::ModuleSection::files_digest`]).
    #[must_use]
    pub fn module(&self, module: &ModuleName, files: &Digest) -> Utf8PathBuf {
        self.root.join("modules").join(module.as_str()).join(files.short())
    }

    /// The folder of all modules' files.
    #[must_use]
    pub fn modules(&self) -> Utf8PathBuf {
        self.root.join("modules")
    }

    /// `${data.dir}`: one folder a module.
    #[must_use]
    pub fn data(&self, module: &ModuleName) -> Utf8PathBuf {
        self.root.join("data").join(module.as_str())
    }

    /// `${run.dir}` of a process's run, or of a container from its making to its removal: then `key` is
    /// the instance that the container was made for.
    #[must_use]
    pub fn run(&self, key: &InstanceId) -> Utf8PathBuf {
        self.root.join("run").join(key.as_str())
    }

    /// All run folders.
    #[must_use]
    pub fn runs(&self) -> Utf8PathBuf {
        self.root.join("run")
    }

    /// A log by its name: the host's is `host`.
    #[must_use]
    pub fn log(&self, name: &str) -> Utf8PathBuf {
        self.logs().join(format!("{name}.log"))
    }

    /// The log of one run of a process. Each run has its own: in a handover two runs of one process write at
    /// the same time. Of a container the engine keeps the log.
    #[must_use]
    pub fn log_of(&self, id: &ResourceId, run: &InstanceId) -> Utf8PathBuf {
        self.logs().join(format!("{}{run}.log", Self::log_prefix(id)))
    }

    /// What the names of all logs of a process begin with; what follows is the run and `.log`.
    #[must_use]
    pub fn log_prefix(id: &ResourceId) -> String {
        format!("process-{}.", id.name())
    }

    /// The folder of all logs.
    #[must_use]
    pub fn logs(&self) -> Utf8PathBuf {
        self.root.join("logs")
    }
}

/// What the host is told at its start, written by the installer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFile {
    /// The version of this file's form: 1.
    pub format: u32,
    /// The mesh.
    pub mesh: MeshId,
    /// Its name.
    pub name: MeshName,
    /// Put before the names of containers and accounts, with a `-`; empty for none.
    pub prefix: String,
    /// This node.
    pub node: NodeName,
    /// `nats://127.0.0.1:4222`
    pub bus: String,
    /// `http://127.0.0.1:5000`
    pub store: String,
    /// The time between two checks of a handover, in milliseconds.
    pub check_interval_ms: u64,
    /// The container engine's endpoint, e.g. `unix:///var/run/docker.sock`.
    pub engine: String,
    /// For how long a seat's holder must have served without a break to be gone back to, in milliseconds.
    #[serde(default = "ten_minutes")]
    pub steady_after_ms: u64,
}

/// What fails on its first real work fails within this time; what does not is worth going back to.
pub const STEADY_AFTER_MS: u64 = 600_000;

const fn ten_minutes() -> u64 {
    STEADY_AFTER_MS
}

impl HostFile {
    /// A name as the engine or the system knows it: with the prefix.
    #[must_use]
    pub fn prefixed(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}-{name}", self.prefix) }
    }
}

/// The labels that every container of a mesh carries.
pub mod label {
    /// The mesh's id.
    pub const MESH: &str = "mesh.id";
    /// The resource's id.
    pub const RESOURCE: &str = "mesh.resource";
    /// The digest of what it was made from.
    pub const SPEC: &str = "mesh.spec";
    /// The instance that it was made for: the name of its run folder.
    pub const INSTANCE: &str = "mesh.instance";
}
