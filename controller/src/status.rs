//! How the mesh stands, folded from what is known.
//!
//! In: reports, declarations, the lock's record. Out: the answers of the reading verbs. Not here: reading any of
//! it.

use mesh_protocol::id::{MeshName, NodeName, SeatName};
use mesh_protocol::report::Report;
use mesh_protocol::subject;
use mesh_protocol::verb::{
    BusStatus, GenerationStatus, MeshStatus, NodeStatus, PlanLockStatus, SeatStatus, StatusAnswer,
};

use crate::known::Known;

/// What this program knows of itself that the status tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// The mesh's name.
    pub name: MeshName,
    /// The bus as it was connected to.
    pub bus: String,
    /// The seat.
    pub seat: SeatName,
}

/// How the mesh stands.
#[must_use]
pub fn status(known: &Known, about: &About, plan_lock: PlanLockStatus) -> StatusAnswer {
    let reports = || known.reports.values();
    StatusAnswer {
        mesh: MeshStatus { id: known.mesh.clone(), name: about.name.clone() },
        bus: BusStatus { url: about.bus.clone() },
        seat: SeatStatus {
            name: about.seat.clone(),
            subject: format!("mesh.{}.seat.{}", known.mesh, about.seat),
            instances: reports()
                .flat_map(|report| &report.instances)
                .filter(|instance| instance.seat == about.seat)
                .cloned()
                .collect(),
            handovers: reports()
                .flat_map(|report| &report.handovers)
                .filter(|handover| handover.seat == about.seat)
                .cloned()
                .collect(),
        },
        nodes: nodes(known),
        plan_lock,
    }
}

/// How each node stands, by name.
#[must_use]
pub fn nodes(known: &Known) -> Vec<NodeStatus> {
    known.reports.iter().map(|(node, report)| node_status(known, node, report)).collect()
}

fn node_status(known: &Known, node: &NodeName, report: &Report) -> NodeStatus {
    NodeStatus {
        name: node.clone(),
        system: report.system,
        generation: GenerationStatus {
            declared: known.declarations.get(node).map(|declaration| declaration.generation),
            applied: report.applied.as_ref().map(|applied| applied.generation),
        },
        state: report.state,
        reported: report.time,
        check_interval_ms: report.check_interval_ms,
        resources: report.resources.clone(),
    }
}

/// The seat that this program answers.
///
/// # Errors
/// Never: the name is a constant that is right.
pub fn controller_seat() -> Result<SeatName, mesh_protocol::id::InvalidId> {
    subject::CONTROLLER_SEAT.parse()
}

#[cfg(test)]
mod tests;
