//! Plans: what a change of the mesh's state means, node by node and resource by resource, stored before
//! anything is done and carried to its end by whoever holds the plan lock.
//!
//! In and out: documents of the `plans` bucket. Not here: composing and carrying out, which are the
//! controller's.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{
    Digest, Generation, InstanceId, ModuleName, NodeName, PlanId, ResourceId, ResourceName, System, Token,
};

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// A change, stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// [`FORMAT`].
    pub format: u32,
    /// The id of the request that asked for it.
    pub id: PlanId,
    /// What was asked.
    pub action: Action,
    /// When.
    pub created: Timestamp,
    /// Who planned it.
    pub by: InstanceId,
    /// What it changes, as it was planned.
    pub changes: Vec<NodeChanges>,
    /// What to say that changes nothing: "replaces container:x, which is on no node: nothing is replaced".
    pub remarks: Vec<String>,
    /// How it stands.
    pub state: PlanState,
    /// The generation that each node was given for it; filled in as it is carried out.
    pub targets: BTreeMap<NodeName, Generation>,
    /// Somebody asked to give it up; the lock's holder ends it.
    pub abort_asked: bool,
    /// Under which token of the plan lock it was written last; none before anybody began it. Whoever goes on with it
    /// writes it under its own first, so that one which held the lock before finds its revision gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Token>,
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Action {
    /// A module's manifest, new or again.
    Push {
        /// The module's record as it shall be.
        module: ModuleRecord,
    },
    /// A module on one node more.
    Assign {
        /// Which.
        module: ModuleName,
        /// Where.
        node: NodeName,
    },
    /// A module on one node less.
    Unassign {
        /// Which.
        module: ModuleName,
        /// Where.
        node: NodeName,
    },
}

impl Action {
    /// The module it is about.
    #[must_use]
    pub fn module(&self) -> &ModuleName {
        match self {
            Self::Push { module } => &module.name,
            Self::Assign { module, .. } | Self::Unassign { module, .. } => module,
        }
    }
}

/// A module as the controller keeps it: the `modules` bucket has the latest, `revisions` each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleRecord {
    /// Which.
    pub name: ModuleName,
    /// Raised with each push.
    pub revision: u64,
    /// The manifest's version.
    pub version: String,
    /// The manifest, word for word.
    pub manifest: String,
    /// Its bundles as they were published.
    pub bundles: BTreeMap<ResourceName, BTreeMap<System, Published>>,
    /// The nodes it is assigned to.
    pub nodes: Vec<NodeName>,
    /// The plan that made this revision.
    pub plan: Option<PlanId>,
    /// When.
    pub time: Timestamp,
    /// The earlier revision that this one is once more, where a rollback made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again: Option<u64>,
}

impl ModuleRecord {
    /// The revision that first had what this one has.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.again.unwrap_or(self.revision)
    }
}

/// A bundle in the artifact store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Of the tar.gz.
    pub digest: Digest,
    /// Of the tar.gz, in bytes.
    pub size: u64,
}

/// What a plan changes on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeChanges {
    /// Which.
    pub node: NodeName,
    /// What, in the order in which the host does it.
    pub resources: Vec<ResourceChange>,
}

/// What a plan changes of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// Which.
    pub id: ResourceId,
    /// How.
    #[serde(flatten)]
    pub change: Change,
}

/// How a resource changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// It is made.
    Create,
    /// It is made anew, for what it is made of changes.
    Update,
    /// It goes.
    Remove,
    /// It is there, raised by genesis, equal to what is declared now: it stays untouched.
    TakeOver,
    /// It takes the seat from another, which goes when it proved itself.
    HandOver {
        /// The one that goes; for a new version of the same process, its own id.
        from: ResourceId,
    },
    /// The same as it is, tried once more because it was held or failed.
    Retry,
}

/// How a plan stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum PlanState {
    /// Stored, and not begun.
    Stored,
    /// Being carried out.
    Open {
        /// What is done or waited for, in words.
        waiting_for: String,
        /// Since when.
        #[schemars(with = "crate::schema::Time")]
        since: Timestamp,
    },
    /// All that it changes is true.
    Done {
        /// When.
        #[schemars(with = "crate::schema::Time")]
        at: Timestamp,
    },
    /// Something that it changes did not come true.
    Failed {
        /// When.
        #[schemars(with = "crate::schema::Time")]
        at: Timestamp,
        /// What.
        failures: Vec<PlanFailure>,
    },
    /// Given up on request.
    Aborted {
        /// When.
        #[schemars(with = "crate::schema::Time")]
        at: Timestamp,
    },
}

impl PlanState {
    /// Whether nothing more comes.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Failed { .. } | Self::Aborted { .. })
    }
}

/// What did not come true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanFailure {
    /// Where.
    pub node: NodeName,
    /// Which resource; none where the node did not take the declaration.
    pub resource: Option<ResourceId>,
    /// Whether the seat's old holder serves on.
    pub outcome: FailureOutcome,
    /// Why, in words.
    pub error: String,
}

/// What became of the thing that was to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureOutcome {
    /// It is not as declared.
    Failed,
    /// The seat was handed back: the old one serves on.
    HandedBack,
}
