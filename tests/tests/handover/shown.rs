//! What a push shows: that there will be a handover and how long its checks take; each thing that is waited for, and the
//! handover's states, as lines for programs; how the seat answered meanwhile; and that it goes on when nobody looks any more.

use std::process::Stdio;
use std::time::Duration;

use mesh_protocol::handover::State;
use mesh_protocol::plan::PlanState;
use mesh_protocol::verb::PlansAnswer;
use mesh_tests::events;
use mesh_tests::mesh::{Mesh, environment};
use mesh_tests::parts::Binary;
use mesh_tests::process::Process;
use mesh_tests::until::eventually;
use mesh_tests::versions::Versions;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_planned_what_happens_and_that_it_goes_on_without_anybody() {
    let mesh = Mesh::new().await.checking_every("300ms");
    let _ = mesh.raise().await;
    let versions = Versions::default().next();
    let folder = versions.source().folder();

    let said = mesh.push(&folder, &["--dry-run"]).await.exited(0);
    let _ = said.says(&[
        "the seat mesh-controller goes from process:mesh-controller to process:mesh-controller in a handover",
        "its checks take 0.90 s at the least: three intervals of 300 ms (two checks, one alone)",
    ]);

    let said = mesh.push(&folder, &["--json"]).await.exited(0);
    assert_eq!(events::of(&said).len(), said.stdout.lines().count(), "every line is an event: {said}");
    let events: Vec<serde_json::Value> =
        said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| -> Vec<&serde_json::Value> {
        events.iter().filter(|event| event["event"] == kind).collect()
    };
    let states: Vec<&str> =
        of("handover").iter().filter_map(|event| event["handover"]["state"].as_str()).collect();
    for state in [State::Trial, State::Joined, State::Alone] {
        assert!(states.contains(&state.as_str()), "{} is not shown: {states:?}", state.as_str());
    }
    let waits = of("waiting");
    let over: Vec<_> = waits.iter().filter(|wait| wait["stage"] == "over").collect();
    assert!(!over.is_empty() && over.iter().all(|wait| wait["milliseconds"].is_u64()), "{waits:?}");
    let [availability] = of("availability")[..] else { panic!("{said}") };
    assert_eq!(availability["figures"]["failed"], 0, "{availability}");
    assert!(availability["figures"]["asked"].as_u64().unwrap() > 100, "{availability}");

    interrupted(&mesh, versions.next()).await;
}

/// Ctrl-C in the middle of the trial.
async fn interrupted(mesh: &Mesh, versions: Versions) {
    let folder = versions.source().folder();
    let mut child = Command::new(Binary::Mesh.path())
        .args(["push", folder.to_str().unwrap(), "--root", mesh.layout().root().as_str()])
        .env_clear()
        .envs(environment())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pushing = Process::of(child.id().unwrap()).unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        said.push(line);
        if said.last().unwrap().ends_with(" stored") {
            pushing.interrupt();
        }
    }
    let status = child.wait().await.unwrap();
    let said = said.join("\n");
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("detached: plan ") && said.contains("goes on by itself"), "{said}");
    let done = async || {
        let plans: PlansAnswer = mesh.run(&["plans", "--json"]).await.exited(0).json();
        matches!(plans.plans[0].state, PlanState::Done { .. }).then_some(())
    };
    eventually("the plan is done, with nobody looking", LIMIT, done).await;
}
