//! Events: what happened in the mesh, one line each, for people and for programs that follow along.
//!
//! In and out: documents of the stream `EVENTS`. Not here: genesis's own journal, which begins before there
//! is a bus.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::handover::{HandoverReport, State};
use crate::id::{InstanceId, ModuleName, NodeName, PlanId, ResourceId};
use crate::plan::PlanState;
use crate::report::ResourceState;

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "MeshEvent")]
pub struct Event {
    /// [`FORMAT`].
    pub format: u32,
    /// When, by the clock of whoever says it.
    #[schemars(with = "crate::schema::Time")]
    pub time: Timestamp,
    /// The controller's instance that says it.
    pub by: InstanceId,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum What {
    /// A node's host reported for the first time.
    NodeRegistered {
        /// Which.
        node: NodeName,
    },
    /// A plan was stored, went on, or ended.
    Plan {
        /// Which.
        plan: PlanId,
        /// The module it is about.
        module: ModuleName,
        /// How it stands.
        #[serde(rename = "plan_state")]
        state: PlanState,
    },
    /// A resource stands otherwise than before.
    Resource {
        /// Where.
        node: NodeName,
        /// Which.
        id: ResourceId,
        /// How.
        #[serde(flatten)]
        state: ResourceState,
    },
    /// A handover went on.
    Handover {
        /// Where.
        node: NodeName,
        /// The whole of it.
        handover: Box<HandoverReport>,
    },
    /// The controller took over what a host holds, for its own state was behind.
    Recovered {
        /// The node it was taken over from.
        node: NodeName,
        /// What, in words.
        detail: String,
    },
}

impl What {
    /// The last token of its subject: `plan`, `resource`, `handover`, …
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::NodeRegistered { .. } => "node",
            Self::Plan { .. } => "plan",
            Self::Resource { .. } => "resource",
            Self::Handover { .. } => "handover",
            Self::Recovered { .. } => "recovered",
        }
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        match self {
            Self::NodeRegistered { node } => format!("node {node} registered"),
            Self::Plan { plan, module, state } => {
                let how = match state {
                    PlanState::Stored => "stored".to_owned(),
                    PlanState::Open { waiting_for, .. } => format!("waits for {waiting_for}"),
                    PlanState::Done { .. } => "done".to_owned(),
                    PlanState::Failed { failures, .. } => {
                        let errors: Vec<&str> = failures.iter().map(|f| f.error.as_str()).collect();
                        format!("failed: {}", errors.join("; "))
                    }
                    PlanState::Aborted { .. } => "aborted".to_owned(),
                };
                format!("plan {plan} ({module}): {how}")
            }
            Self::Resource { node, id, state } => match state.parts() {
                (state, Some(detail)) => format!("{node} {id}: {state}: {detail}"),
                (state, None) => format!("{node} {id}: {state}"),
            },
            Self::Handover { node, handover } => {
                let HandoverReport { old, new, state, waiting_for, reason, failed_at, .. } = &**handover;
                let mut line =
                    format!("{node} handover {} -> {}: {}", old.resource, new.resource, state.as_str());
                match (state, reason, waiting_for) {
                    (State::Held | State::Aborting, Some(reason), _) => {
                        let at = failed_at.as_ref().map(|at| format!("{at}: ")).unwrap_or_default();
                        line.push_str(&format!(": {at}{reason}"));
                        if let Some(how) = handover.how_to_go_on() {
                            line.push_str(&format!("; {how}"));
                        }
                    }
                    (_, _, Some(waiting_for)) => {
                        line.push_str(&format!(", waits for {waiting_for}"));
                    }
                    _ => {}
                }
                line
            }
            Self::Recovered { node, detail } => format!("recovered from {node}: {detail}"),
        }
    }
}
