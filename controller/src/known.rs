//! What is known of the mesh at one moment: the input of every decision of the controller.
//!
//! In: documents as they lie in the buckets. Out: the same, by name. Not here: reading them
//! ([`crate::store`]) or deciding anything.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::id::{MeshId, ModuleName, NodeName};
use mesh_protocol::plan::{Action, ModuleRecord};
use mesh_protocol::report::Report;
use serde::{Deserialize, Serialize};

/// The version of [`NodeRecord`]'s form.
pub const NODE_FORMAT: u32 = 1;

/// What is known of the mesh at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The mesh.
    pub mesh: MeshId,
    /// The latest record of each module.
    pub modules: BTreeMap<ModuleName, ModuleRecord>,
    /// The declaration that each node was given last.
    pub declarations: BTreeMap<NodeName, Declaration>,
    /// What each node's host said last.
    pub reports: BTreeMap<NodeName, Report>,
}

/// What the controller keeps of a node beyond its report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// [`NODE_FORMAT`].
    pub format: u32,
    /// Which.
    pub node: NodeName,
    /// When its first report was seen.
    pub registered: Timestamp,
}

impl Known {
    /// Of a mesh of which nothing is known yet.
    #[must_use]
    pub const fn nothing(mesh: MeshId) -> Self {
        Self { mesh, modules: BTreeMap::new(), declarations: BTreeMap::new(), reports: BTreeMap::new() }
    }

    /// The records as they are once `action` was done. What cannot be done changes nothing.
    #[must_use]
    pub fn records_after(&self, action: &Action) -> BTreeMap<ModuleName, ModuleRecord> {
        let mut records = self.modules.clone();
        match action {
            Action::Push { module } => {
                records.insert(module.name.clone(), module.clone());
            }
            Action::Assign { module, node } => {
                if let Some(record) = records.get_mut(module)
                    && !record.nodes.contains(node)
                {
                    record.nodes.push(node.clone());
                    record.nodes.sort();
                }
            }
            Action::Unassign { module, node } => {
                if let Some(record) = records.get_mut(module) {
                    record.nodes.retain(|assigned| assigned != node);
                }
            }
        }
        records
    }

    /// The nodes that `action` concerns: those that get a new declaration for it.
    #[must_use]
    pub fn concerned(action: &Action) -> Vec<NodeName> {
        match action {
            Action::Push { module } => module.nodes.clone(),
            Action::Assign { node, .. } | Action::Unassign { node, .. } => vec![node.clone()],
        }
    }

    /// The highest epoch that any host has seen: a store that lost its last minute may not know of it.
    #[must_use]
    pub fn highest_epoch(&self) -> u64 {
        let reported = self.reports.values().map(|report| report.token.epoch);
        let declared = self.declarations.values().map(|declaration| declaration.token.epoch);
        reported.chain(declared).max().unwrap_or_default()
    }
}
