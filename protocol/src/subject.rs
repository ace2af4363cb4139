//! The names of things on the bus: subjects, buckets, streams.
//!
//! In: ids. Out: subjects. Not here: who may use which (`bus::rights`).

use crate::id::{InstanceId, MeshId, NodeName, SeatName};

/// The seat of every mesh's controller.
pub const CONTROLLER_SEAT: &str = "mesh-controller";

/// The module of the bus: its node syncs the bus's folder before a commitment.
pub const BUS_MODULE: &str = "mesh-bus";

/// The module of the artifact store.
pub const STORE_MODULE: &str = "mesh-store";

/// The buckets, by name. A bucket `x` is the stream `KV_x` with the subjects `$KV.x.>`.
pub mod bucket {
    /// One declaration a node.
    pub const DECLARATIONS: &str = "declarations";
    /// One report a node, written by its host.
    pub const REPORTS: &str = "reports";
    /// The latest record of each module.
    pub const MODULES: &str = "modules";
    /// Every record of each module: `<module>.<revision>`.
    pub const REVISIONS: &str = "revisions";
    /// What the controller knows of each node beyond its report.
    pub const NODES: &str = "nodes";
    /// One plan a request.
    pub const PLANS: &str = "plans";
    /// The plan lock; its max age is the lease.
    pub const LOCK: &str = "lock";
    /// The epoch, and other numbers that outlive the lock's lease.
    pub const NUMBERS: &str = "numbers";
    /// Where `ready` proves that it can write.
    pub const SCRATCH: &str = "scratch";
}

/// The stream of events.
pub const EVENTS: &str = "EVENTS";

/// A verb of a seat, asked of whoever serves: `mesh.<mesh>.seat.<seat>.<verb>`.
#[must_use]
pub fn verb(mesh: &MeshId, seat: &SeatName, verb: &str) -> String {
    format!("mesh.{mesh}.seat.{seat}.{verb}")
}

/// Every verb of a seat: what serving instances subscribe to in the seat's queue group. One token deep, so
/// that it matches neither `fallback` nor `at`.
#[must_use]
pub fn verbs(mesh: &MeshId, seat: &SeatName) -> String {
    format!("mesh.{mesh}.seat.{seat}.*")
}

/// A verb asked of any instance, whatever its role; for a client that was told *no responders*.
#[must_use]
pub fn fallback(mesh: &MeshId, seat: &SeatName, verb: &str) -> String {
    format!("mesh.{mesh}.seat.{seat}.fallback.{verb}")
}

/// An instance's own subject.
#[must_use]
pub fn at(mesh: &MeshId, seat: &SeatName, instance: &InstanceId, verb: &str) -> String {
    format!("mesh.{mesh}.seat.{seat}.at.{instance}.{verb}")
}

/// The hint that a node's declaration changed: headers only.
#[must_use]
pub fn declared(mesh: &MeshId, node: &NodeName) -> String {
    format!("mesh.{mesh}.declared.{node}")
}

/// An event's subject.
#[must_use]
pub fn event(mesh: &MeshId, kind: &str) -> String {
    format!("mesh.{mesh}.event.{kind}")
}

/// All events.
#[must_use]
pub fn events(mesh: &MeshId) -> String {
    format!("mesh.{mesh}.event.>")
}
