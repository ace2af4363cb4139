//! The local door: what the installer and the host say to each other through the root-only unix socket in
//! the mesh's root, before there is a bus and after it is gone.
//!
//! In: one request, as one line of JSON. Out: one answer, as one line of JSON; the connection then ends. Not
//! here: the socket's two ends, which are the host's and the installer's.

use camino::Utf8PathBuf;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::declaration::{Declaration, ModuleSection};
use crate::id::{Digest, Generation, InstanceId, MeshId, ResourceId, SeatName};
use crate::report::{Report, Runtime};

/// What is asked of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "request")]
pub enum DoorRequest {
    /// All that the host knows.
    Observe,
    /// Generation 1, which only a host that never had another accepts (or has already, word for word).
    Pivot {
        /// Genesis's own declaration.
        declaration: Box<Declaration>,
    },
    /// One more try of what is held or failed.
    Retry {
        /// Which.
        resource: ResourceId,
    },
    /// The seat goes back to a version that serves, although another is declared: for a holder that fails after its
    /// handover was done, and so cannot be mended through its own seat.
    Recover {
        /// Which seat.
        seat: SeatName,
        /// To what.
        to: RecoverTo,
    },
    /// End and remove all that this host made, then exit.
    Dissolve {
        /// The mesh, so that a mistaken root dissolves nothing.
        mesh: MeshId,
    },
}

/// What a seat is brought back to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "to")]
pub enum RecoverTo {
    /// The last version that served for long, other than the one that holds the seat.
    Steady,
    /// What is declared, with this bundle in the place of its own.
    Bundle {
        /// The tar.gz, on this machine.
        archive: Utf8PathBuf,
        /// Its digest.
        digest: Digest,
        /// Its size, in bytes.
        size: u64,
        /// The version that its program says it is, where that is not the declared one.
        version: Option<String>,
    },
}

/// What the host answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum DoorAnswer {
    /// All that the host knows.
    Observed(Box<Observed>),
    /// It is taken, and will be carried out.
    Accepted,
    /// It was so already.
    Already,
    /// The seat is being brought back, in a handover like any other.
    Recovering {
        /// The resource that holds it.
        resource: ResourceId,
        /// The spec that is given up.
        from: Digest,
        /// The one in its place.
        to: Digest,
        /// Its version.
        version: String,
    },
    /// What `dissolve` removed, and what of ours it could not.
    Dissolved {
        /// Gone.
        removed: Vec<ResourceId>,
        /// Still there, and why.
        left: Vec<String>,
    },
    /// It is not done.
    Refused {
        /// Expected and found, in words.
        why: String,
    },
}

/// All that the host knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Its process id.
    pub pid: u32,
    /// When it started.
    pub started: Timestamp,
    /// The report as it would be sent now.
    pub report: Report,
    /// The declaration it holds.
    pub declaration: Option<Box<Declaration>>,
    /// What it holds, as it recognises it.
    pub ledger: Vec<LedgerEntry>,
    /// What it removed, and shall not come back.
    pub tombstones: Vec<Tombstone>,
    /// How it stands with the bus.
    pub bus: BusLink,
}

/// One resource that the host holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Which.
    pub id: ResourceId,
    /// The digest of what was made.
    pub digest: Digest,
    /// The section it was made from, whole: what it needs lies in here, also when the declaration has gone on.
    pub section: ModuleSection,
    /// How the machine knows it; none for what does not run.
    pub runtime: Option<Runtime>,
    /// The instance, of what runs.
    pub instance: Option<InstanceId>,
    /// The name of its run folder: a process's is its instance; a container keeps the folder of the instance
    /// that it was made for, through every later start.
    pub run: Option<InstanceId>,
    /// How it came to be held.
    pub standing: Standing,
    /// The declaration that it came with.
    pub generation: Generation,
}

/// How a resource came to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// A module declares it.
    Declared,
    /// Genesis raised it, and no module declares it yet.
    Adopted,
}

/// Something that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Which.
    pub id: ResourceId,
    /// The digest of what it was.
    pub digest: Digest,
    /// The engine's id, of a container.
    pub engine_id: Option<String>,
    /// The declaration that removed it: an older one does not bring it back.
    pub generation: Generation,
    /// When.
    pub time: Timestamp,
}

/// How the host stands with the bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum BusLink {
    /// Connected.
    Up {
        /// Since when.
        since: Timestamp,
    },
    /// Not connected.
    Down {
        /// Since when.
        since: Timestamp,
        /// The last error.
        error: String,
    },
}
