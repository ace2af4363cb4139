//! The verbs of the controller's seat: what is asked, what is answered.
//!
//! In and out: JSON bodies of NATS requests and replies. Not here: how they travel and to whom
//! (`bus::seat`).
//!
//! Every answer says which instance gave it. A changing verb carries its request's id in its body: the same
//! id again finds its own plan.

mod ready;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::declaration::Declaration;
use crate::handover::{Form, HandoverReport, Role};
use crate::id::{
    Digest, Generation, InstanceId, MeshId, MeshName, ModuleName, NodeName, PlanId, ResourceId, ResourceName,
    SeatName, System, Token,
};
use crate::plan::{ModuleRecord, Plan, Published};
use crate::report::{InstanceReport, NodeState, ResourceReport};

pub use ready::{Check, PROTOCOL, Ready};

/// A verb's name: the last token of its subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// [`StatusAnswer`]; asked with `{}`.
    Status,
    /// [`NodesAnswer`]; asked with `{}`.
    Nodes,
    /// [`ModulesAnswer`]; asked with `{}`.
    Modules,
    /// [`DeclarationRequest`] to [`DeclarationAnswer`].
    Declaration,
    /// [`PushRequest`] to [`PlannedAnswer`]. Changes.
    Push,
    /// [`RollbackRequest`] to [`PlannedAnswer`]. Changes.
    Rollback,
    /// [`AssignRequest`] to [`PlannedAnswer`]. Changes.
    Assign,
    /// [`AssignRequest`] to [`PlannedAnswer`]. Changes.
    Unassign,
    /// [`PlanRequest`] to [`Plan`].
    Plan,
    /// [`PlansAnswer`]; asked with `{}`.
    Plans,
    /// [`PlanRequest`] to [`Plan`]. Changes.
    Abort,
    /// [`HistoryRequest`] to [`HistoryAnswer`].
    History,
    /// [`Ready`]; asked with `{}`, of an instance itself only.
    Ready,
    /// Nothing, and never answered: what fills the slack when an instance leaves the queue group.
    Noop,
}

impl Verb {
    /// Every verb.
    pub const ALL: [Self; 14] = [
        Self::Status,
        Self::Nodes,
        Self::Modules,
        Self::Declaration,
        Self::Push,
        Self::Rollback,
        Self::Assign,
        Self::Unassign,
        Self::Plan,
        Self::Plans,
        Self::Abort,
        Self::History,
        Self::Ready,
        Self::Noop,
    ];

    /// The last token of its subject.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Nodes => "nodes",
            Self::Modules => "modules",
            Self::Declaration => "declaration",
            Self::Push => "push",
            Self::Rollback => "rollback",
            Self::Assign => "assign",
            Self::Unassign => "unassign",
            Self::Plan => "plan",
            Self::Plans => "plans",
            Self::Abort => "abort",
            Self::History => "history",
            Self::Ready => "ready",
            Self::Noop => "noop",
        }
    }

    /// The verb of a subject's last token.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == name)
    }

    /// Whether it changes the mesh's state: only a serving instance does it, and only the same request may
    /// be sent again after a timeout.
    #[must_use]
    pub const fn changes(self) -> bool {
        matches!(self, Self::Push | Self::Rollback | Self::Assign | Self::Unassign | Self::Abort)
    }
}

/// Every answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer<T> {
    /// Who gives it.
    pub by: By,
    /// What was asked for, or why not.
    #[serde(flatten)]
    pub outcome: Outcome<T>,
}

/// What was asked for, or why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome<T> {
    /// It.
    Answer(T),
    /// Why not.
    Refused(VerbRefusal),
}

/// Who gives an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// The instance.
    pub instance: InstanceId,
    /// What it runs as.
    pub form: Form,
    /// What it does.
    pub role: Role,
    /// Its version, built in.
    pub version: String,
}

/// Why a verb was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct VerbRefusal {
    /// Stable, for programs.
    pub code: RefusalCode,
    /// What was expected and found.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

/// Why a verb was not done, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalCode {
    /// A changing verb was asked of an instance that stands by: ask again.
    StandingBy,
    /// No such verb.
    UnknownVerb,
    /// The body is not as the verb has it.
    InvalidRequest,
    /// The manifest is not right; the message has file, line, found and expected.
    InvalidManifest,
    /// No such module, node or plan.
    NotFound,
    /// It contradicts what there is: a seat with two holders, a resource of another module, ...
    Conflict,
    /// Something it needs is not there: a bundle for a node's system, a secret on a node.
    Missing,
    /// Another plan is open; its id is in the message.
    PlanOpen,
    /// The controller's state cannot be read or written now: ask again.
    Unavailable,
}

/// Asks for a node's declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclarationRequest {
    /// Which node.
    pub node: NodeName,
}

/// A node's declaration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclarationAnswer {
    /// None before its first.
    pub declaration: Option<Declaration>,
}

/// How the mesh stands. `mesh status --json` prints at least this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusAnswer {
    /// The mesh.
    pub mesh: MeshStatus,
    /// The bus.
    pub bus: BusStatus,
    /// The controller's seat.
    pub seat: SeatStatus,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// Who holds the plan lock.
    pub plan_lock: PlanLockStatus,
}

/// Which mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshStatus {
    /// Its id.
    pub id: MeshId,
    /// Its name.
    pub name: MeshName,
}

/// Which bus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusStatus {
    /// As the controller connected to it.
    pub url: String,
}

/// A seat and who sits on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeatStatus {
    /// Its name.
    pub name: SeatName,
    /// Where it is asked: `mesh.<mesh>.seat.<seat>`.
    pub subject: String,
    /// Who holds it, or tries for it, as the hosts report.
    pub instances: Vec<InstanceReport>,
    /// The last handover, as the hosts report.
    pub handovers: Vec<HandoverReport>,
}

/// How one node stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Which.
    pub name: NodeName,
    /// Its system.
    pub system: System,
    /// What it was given and what it carried out.
    pub generation: GenerationStatus,
    /// As its host says.
    pub state: NodeState,
    /// When its host last reported.
    pub reported: Timestamp,
    /// The time between two checks of a handover there, in milliseconds, as its host says.
    #[serde(default)]
    pub check_interval_ms: Option<u64>,
    /// Its resources.
    pub resources: Vec<ResourceReport>,
}

/// What a node was given and what it carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// The latest one declared; none before the controller's first.
    pub declared: Option<Generation>,
    /// The latest one applied.
    pub applied: Option<Generation>,
}

/// Who holds the plan lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLockStatus {
    /// None when nobody does.
    pub holder: Option<InstanceId>,
    /// The holder's token.
    pub token: Option<Token>,
    /// The plan being carried out.
    pub plan: Option<PlanId>,
}

/// The nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesAnswer {
    /// By name.
    pub nodes: Vec<NodeStatus>,
}

/// The modules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModulesAnswer {
    /// By name.
    pub modules: Vec<ModuleRecord>,
}

/// Asks for a module to be as its manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushRequest {
    /// The request's id, which becomes the plan's.
    pub request: PlanId,
    /// The manifest's path as the user gave it, for messages.
    pub path: String,
    /// The manifest, word for word.
    pub manifest: String,
    /// The bundles that are published, by name and system. In a dry run: those that are known.
    pub bundles: BTreeMap<ResourceName, BTreeMap<System, Published>>,
    /// Nodes to assign it to, beside those it is assigned to.
    pub assign: Vec<NodeName>,
    /// Whether to do it.
    pub mode: Mode,
}

/// Whether to do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Store the plan and carry it out.
    Do,
    /// Return the plan only.
    DryRun,
}

/// Asks for a module to be as an earlier revision of it was: its manifest and its bundles, on the nodes that it is
/// on now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RollbackRequest {
    /// The request's id, which becomes the plan's.
    pub request: PlanId,
    /// Which module.
    pub module: ModuleName,
    /// Which revision; none: the last one before what is recorded now.
    pub to: Option<u64>,
    /// Whether to do it.
    pub mode: Mode,
}

/// Asks for a module on one node more, or less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignRequest {
    /// The request's id, which becomes the plan's.
    pub request: PlanId,
    /// Which module.
    pub module: ModuleName,
    /// Where.
    pub node: NodeName,
    /// Whether to do it.
    pub mode: Mode,
}

/// A plan, stored (or in a dry run: only made), and what it needs that was not given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedAnswer {
    /// The plan. In a dry run it was not stored.
    pub plan: Plan,
    /// Which bundles the assigned nodes need.
    pub needs: Vec<BundleNeed>,
    /// The handovers that it takes.
    #[serde(default)]
    pub handovers: Vec<PlannedHandover>,
}

/// A handover that a plan takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedHandover {
    /// Where.
    pub node: NodeName,
    /// The seat.
    pub seat: SeatName,
    /// The one that holds it.
    pub from: ResourceId,
    /// The one that shall.
    pub to: ResourceId,
    /// The time between two checks, in milliseconds, where the node's host has said it.
    pub check_interval_ms: Option<u64>,
}

impl PlannedHandover {
    /// How long its checks take at the least, in milliseconds: two checks, and one interval alone.
    #[must_use]
    pub fn checks_ms(&self) -> Option<u64> {
        self.check_interval_ms.map(|interval| interval.saturating_mul(3))
    }
}

/// A bundle for a system, and who needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleNeed {
    /// Which.
    pub bundle: ResourceName,
    /// For which system.
    pub system: System,
    /// Where.
    pub nodes: Vec<NodeName>,
    /// As it is known to the controller from this request or the last push; none: to be published.
    pub published: Option<Digest>,
}

/// Asks for a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanRequest {
    /// Which.
    pub plan: PlanId,
}

/// The plans, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlansAnswer {
    /// At most the last 100.
    pub plans: Vec<Plan>,
}

/// Asks for a module's revisions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRequest {
    /// Which module.
    pub module: ModuleName,
}

/// A module's revisions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryAnswer {
    /// Each as it was recorded.
    pub revisions: Vec<ModuleRecord>,
    /// The one that is in force.
    #[serde(default)]
    pub current: Option<u64>,
}
