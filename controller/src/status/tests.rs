use mesh_protocol::handover::State;
use mesh_protocol::id::{Digest, Generation};

use super::*;
use crate::testing::{genesis, handover, mesh, node};

fn about() -> About {
    About {
        name: "lab".parse().unwrap(),
        bus: "nats://127.0.0.1:4222".to_owned(),
        seat: controller_seat().unwrap(),
    }
}

#[test]
fn the_status_is_what_the_hosts_report() {
    let mut known = mesh(&["n1", "n2"]);
    let report = known.reports.get_mut(&node("n1")).unwrap();
    genesis(report, "mesh-controller");
    report.handovers.push(handover(
        "container:mesh-controller",
        "process:mesh-controller",
        Digest::of(b"new"),
        Generation(2),
        State::Trial,
    ));
    let mut other = report.instances[0].clone();
    other.seat = "mail".parse().unwrap();
    report.instances.push(other);
    let nobody = PlanLockStatus { holder: None, token: None, plan: None };
    let status = status(&known, &about(), nobody.clone());
    assert_eq!(status.seat.subject, "mesh.m1.seat.mesh-controller");
    assert_eq!(status.seat.instances.len(), 1);
    assert_eq!(status.seat.handovers.len(), 1);
    assert_eq!(status.nodes.len(), 2);
    assert_eq!(status.nodes[0].generation.declared, None);
    assert_eq!(status.nodes[0].generation.applied, Some(Generation(1)));
    assert_eq!(status.plan_lock, nobody);
}
