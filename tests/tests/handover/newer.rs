//! What an operator does in the middle of a handover: a newer push, a rollback, an unassignment, in every state that the
//! host writes down. It comes to the right end, and nobody who asks is without an answer.

use std::time::Duration;

use mesh_durable::checkpoint::{Blow, Moment};
use mesh_installer::door::Door;
use mesh_protocol::handover::State;
use mesh_protocol::report::NodeState;
use mesh_protocol::verb::{PlansAnswer, StatusAnswer};
use mesh_tests::checkpoints::Checkpoints;
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::until::eventually;
use mesh_tests::versions::Versions;

const LIMIT: Duration = Duration::from_secs(60);
const MODULE: &str = "mesh-controller";

/// What is done in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Push,
    Rollback,
    Unassign,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_push_a_rollback_and_an_unassignment_in_every_state() {
    let mesh = Mesh::new().await.checking_every("100ms");
    let _ = mesh.raise().await;
    let points = Checkpoints::at(mesh.layout().host().join("checkpoints"));
    let mut versions = Versions::default().next();
    points.list();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    is_calm(&mesh).await;
    let deeds = points.end();
    let records: Vec<u64> = deeds
        .iter()
        .filter(|deed| deed.name.starts_with("write ") && deed.name.contains("handover"))
        .map(|deed| deed.number)
        .collect();
    assert!(records.len() >= 6, "the record is written in each state: {deeds:#?}");
    let prober = mesh.probe().await;
    let acts = [Act::Push, Act::Rollback, Act::Unassign];
    let all: Vec<(Act, u64)> =
        acts.iter().flat_map(|act| records.iter().map(|number| (*act, *number))).collect();
    let step = all.len().div_ceil(rounds(4, all.len()));
    let mut tried = 0;
    for (act, number) in all.iter().copied().step_by(step) {
        versions = versions.next();
        points.strike(number, Moment::After, Blow::Stop);
        let host = mesh.host().await;
        let _ = mesh.push(&versions.source().folder(), &["--detach"]).await.exited(0);
        let stopped = async || (points.has_struck() && host.is_stopped()).then_some(());
        eventually(&format!("the host stops at deed {number}"), LIMIT, stopped).await;
        let open = open_plan(&mesh).await;
        if let Some(open) = &open {
            let _ = mesh.run(&["plans", open, "--abort"]).await.exited(0);
            let ended = async || open_plan(&mesh).await.is_none().then_some(());
            eventually("the plan is given up", LIMIT, ended).await;
        }
        let said = match act {
            Act::Push => {
                versions = versions.next();
                mesh.push(&versions.source().folder(), &["--detach"]).await
            }
            Act::Rollback => mesh.run(&["rollback", MODULE, "--detach"]).await,
            Act::Unassign => {
                let node = mesh.file().inputs.node;
                mesh.run(&["unassign", MODULE, node.as_str(), "--detach"]).await
            }
        };
        host.thaw();
        let _ = points.end();
        is_calm(&mesh).await;
        let context = format!("{act:?} at deed {number}: {said}");
        match act {
            Act::Push | Act::Rollback => assert_eq!(said.code, Some(0), "{context}"),
            // A seat's holder does not go by not being declared.
            Act::Unassign => assert_ne!(said.code, Some(0), "{context}"),
        }
        let controllers = Process::all_from(mesh.layout().bundles().as_std_path());
        assert_eq!(controllers.len(), 1, "{context}: {controllers:?}");
        tried += 1;
    }
    let figures = prober.stop().await;
    figure(
        &format!("a newer push, a rollback, an unassignment in every state of a handover, {tried} times"),
        "right end, nobody without an answer",
        &format!(
            "right in {tried} of {tried}; {} asked, {} failed, longest gap {} ms",
            figures.asked,
            figures.failed,
            figures.longest_gap_us / 1000
        ),
    );
    assert_eq!(figures.failed, 0, "{figures:?}");
}

async fn open_plan(mesh: &Mesh) -> Option<String> {
    let plans: PlansAnswer = mesh.run(&["plans", "--json"]).await.exited(0).json();
    plans.plans.iter().find(|plan| !plan.state.is_ended()).map(|plan| plan.id.to_string())
}

/// No plan is open, no handover under way, all is as declared, and one instance serves.
async fn is_calm(mesh: &Mesh) {
    let looking = async || {
        let report = Door::new(mesh.layout().door()).observe().await.ok()?.report;
        let ended = |state: State| matches!(state, State::Done | State::Held);
        if report.state != NodeState::Converged || !report.handovers.iter().all(|one| ended(one.state)) {
            return None;
        }
        if open_plan(mesh).await.is_some() {
            return None;
        }
        let status: StatusAnswer = mesh.status().await;
        (status.seat.instances.len() == 1).then_some(())
    };
    eventually("all is calm", LIMIT, looking).await;
}
