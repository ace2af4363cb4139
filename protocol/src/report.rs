//! What a host says of its node: what it made true, what it holds, what stands in the way.
//!
//! In and out: one document a node, in the bus's `reports` bucket and through the local door. Not here:
//! how the controller folds the reports of many nodes into a status.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::declaration::{Declaration, Issued};
use crate::handover::{Form, HandoverReport, Role};
use crate::id::{Digest, InstanceId, MeshId, ModuleName, NodeName, ResourceId, SeatName, System, Token};

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// What a host says of its node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The mesh.
    pub mesh: MeshId,
    /// The node.
    pub node: NodeName,
    /// Its operating system and processor.
    pub system: System,
    /// The kernel's boot id.
    pub boot_id: String,
    /// The host's version.
    pub host_version: String,
    /// When this was written, by the node's clock.
    pub time: Timestamp,
    /// Raised with each report of one run of the host; with `host_started` it tells two reports apart.
    pub number: u64,
    /// When this run of the host began.
    pub host_started: Timestamp,
    /// The time between two checks of a handover on this node, in milliseconds: one has three of them, two
    /// checks and one interval alone. None where the host is too old to say.
    #[serde(default)]
    pub check_interval_ms: Option<u64>,
    /// The declaration last accepted.
    pub accepted: Option<Issued>,
    /// Its token, or a higher one that the same content came under.
    pub token: Token,
    /// The declaration last carried out to its end, whatever became of each resource.
    pub applied: Option<Issued>,
    /// The state of the node as a whole.
    pub state: NodeState,
    /// What was refused last, and why.
    pub refused: Option<Refusal>,
    /// How many declarations were refused since the host started.
    pub refused_count: u64,
    /// The whole accepted declaration, when the last one seen did not know of it: what the controller takes
    /// over before it goes on.
    pub diverged: Option<Box<Declaration>>,
    /// Names and digests of the secrets the node holds.
    pub secrets: Vec<SecretHeld>,
    /// Every resource that the node has, shall have or is getting rid of.
    pub resources: Vec<ResourceReport>,
    /// What runs and holds, or tries for, a seat.
    pub instances: Vec<InstanceReport>,
    /// The last handover of each seat.
    pub handovers: Vec<HandoverReport>,
}

/// The state of a node as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// No declaration yet.
    Empty,
    /// Something is being done.
    Working,
    /// All is as declared.
    Converged,
    /// Something waits, is held or failed.
    Troubled,
    /// What it holds is not what the controller knows it to hold.
    Diverged,
}

/// A declaration that was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its number and digest.
    pub offered: Issued,
    /// Its token.
    pub token: Token,
    /// Both numbers, in words.
    pub why: String,
    /// When.
    pub time: Timestamp,
}

/// A secret that the node holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretHeld {
    /// Whose.
    pub module: ModuleName,
    /// Its name.
    pub name: String,
    /// Of its bytes.
    pub digest: Digest,
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceReport {
    /// Which.
    pub id: ResourceId,
    /// How it stands.
    #[serde(flatten)]
    pub state: ResourceState,
    /// The digest of what is there, where something is.
    pub digest: Option<Digest>,
    /// Of what genesis raised and no module declares yet.
    pub adopted: Option<Adoption>,
    /// What is there, as the machine knows it.
    pub runtime: Option<Runtime>,
}

/// How a resource stands. `detail` says why, where there is something to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state", content = "detail")]
pub enum ResourceState {
    /// As declared.
    Converged,
    /// Changed by the last pass.
    Changed,
    /// Not yet: what is waited for.
    Waiting(String),
    /// Not as declared, and not tried again by itself: why, and how to go on.
    Held(String),
    /// Tried, and failed: the error.
    Failed(String),
}

impl ResourceState {
    /// As it is written, and what there is to say.
    #[must_use]
    pub fn parts(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Converged => ("converged", None),
            Self::Changed => ("changed", None),
            Self::Waiting(detail) => ("waiting", Some(detail)),
            Self::Held(detail) => ("held", Some(detail)),
            Self::Failed(detail) => ("failed", Some(detail)),
        }
    }

    /// Whether it is as declared.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        matches!(self, Self::Converged | Self::Changed)
    }
}

/// Of a resource that the node holds and no module declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adoption {
    /// It came with genesis's own declaration.
    Genesis,
}

/// How the machine knows a thing that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "form")]
pub enum Runtime {
    /// In the container engine.
    Container {
        /// The engine's id for it.
        engine_id: String,
        /// Its name in the engine, prefix included.
        engine_name: String,
        /// When it was started, as the engine says.
        started_at: Option<String>,
    },
    /// Under the host's shim.
    Process {
        /// This run of it.
        incarnation: InstanceId,
        /// Its process id.
        pid: Option<u32>,
        /// The kernel's start time of that pid, in clock ticks since boot.
        start_time: Option<u64>,
        /// The boot that pid and start time belong to.
        boot_id: String,
    },
}

/// An instance of a seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReport {
    /// Which.
    pub instance: InstanceId,
    /// The seat.
    pub seat: SeatName,
    /// The resource it is a run of.
    pub resource: ResourceId,
    /// Process or container.
    pub form: Form,
    /// What it does, as its host has given it.
    pub role: Role,
    /// As the instance itself said, or as declared before it spoke.
    pub version: String,
    /// When this run of it began.
    pub since: Timestamp,
}
