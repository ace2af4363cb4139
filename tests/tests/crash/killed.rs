//! The host, the controller, both.

use std::time::{Duration, Instant};

use mesh_protocol::handover::Form;
use mesh_protocol::report::NodeState;
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;
use mesh_tests::rounds::figure;
use mesh_tests::source::Source;
use mesh_tests::until::{eventually, until};

const CONTROLLER: &str = "process:mesh-controller";

/// Back-offs are a second at first; the rest is room for a machine that does something else: that puts on its disk, before
/// the few bytes that are synced here, the gigabytes that a compiler wrote.
const LIMIT: Duration = Duration::from_secs(80);

/// A mesh with a module of its own beside the controller.
async fn raise() -> Mesh {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let node = mesh.file().inputs.node;
    let sleeper = Source::of_a_sleeper();
    let _ = mesh.push(&sleeper.folder(), &["--node", node.as_str()]).await.exited(0);
    mesh
}

async fn kill_the_host(mesh: &Mesh) {
    let host = mesh.host().await;
    host.kill();
    until("the host is gone", LIMIT, || (!host.is_alive()).then_some(()));
    let _ = mesh.run(&["status"]).await;
}

/// The containers, by what tells that they were not started again.
async fn containers(mesh: &Mesh) -> String {
    let containers = mesh.containers().await;
    let told: Vec<String> = containers.iter().map(|one| format!("{} {:?}", one.id, one.started_at)).collect();
    assert_eq!(told.len(), 2, "{containers:?}");
    told.join("\n")
}

/// Another run of the controller than `before`, which serves.
async fn started_again(mesh: &Mesh, before: &Process) {
    let serves = async || {
        let said = mesh.run(&["status", "--json"]).await;
        if said.code != Some(0) {
            return None;
        }
        let status: mesh_protocol::verb::StatusAnswer = said.json();
        let [instance] = &status.seat.instances[..] else { return None };
        (instance.form == Form::Process && Process::of(before.pid).as_ref() != Some(before)).then_some(())
    };
    eventually("the controller serves again", LIMIT, serves).await;
    let now = mesh.process(CONTROLLER).await;
    assert_ne!(&now, before);
    assert!(!before.is_alive());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_killed_and_started_again_holds_the_same_processes() {
    let mesh = raise().await;
    let processes = [mesh.process(CONTROLLER).await, mesh.process("process:sleeper").await];
    let before = containers(&mesh).await;
    let prober = mesh.probe().await;
    kill_the_host(&mesh).await;
    mesh.answered_within(LIMIT).await;
    let _ = mesh.run(&["up"]).await.exited(0).says(&["the host of mesh lab is started"]);
    let _ = mesh.run(&["up"]).await.exited(0).says(&["runs already"]);
    let after = [mesh.process(CONTROLLER).await, mesh.process("process:sleeper").await];
    assert_eq!(after, processes);
    assert_eq!(containers(&mesh).await, before);
    is_right_again(&mesh).await;
    let figures = prober.stop().await;
    eprintln!("{}", figures.lines().join("\n"));
    assert_eq!(figures.failed, 0, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_killed_is_started_again() {
    let mesh = raise().await;
    let (controller, sleeper) = (mesh.process(CONTROLLER).await, mesh.process("process:sleeper").await);
    let (host, before) = (mesh.host().await, containers(&mesh).await);
    controller.kill();
    started_again(&mesh, &controller).await;
    is_right_again(&mesh).await;
    assert_eq!(mesh.process("process:sleeper").await, sleeper);
    assert_eq!(mesh.host().await, host);
    assert_eq!(containers(&mesh).await, before);
}

/// Alive and silent: only its silence tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_freezes_is_found_and_started_again() {
    let mesh = raise().await;
    let controller = mesh.process(CONTROLLER).await;
    // It has answered its host since it serves.
    is_right_again(&mesh).await;
    controller.freeze();
    let frozen = Instant::now();
    until("the frozen one is ended", LIMIT, || (!controller.is_alive()).then_some(()));
    let found = frozen.elapsed();
    started_again(&mesh, &controller).await;
    is_right_again(&mesh).await;
    figure(
        "the only controller frozen (SIGSTOP) after its handover",
        "found by the host in under 3 s",
        &format!("ended {:.2} s after it froze, and started again", found.as_secs_f64()),
    );
    assert!(found < Duration::from_secs(30), "{found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_and_controller_that_are_both_killed_are_both_there_again() {
    let mesh = raise().await;
    let (controller, sleeper) = (mesh.process(CONTROLLER).await, mesh.process("process:sleeper").await);
    let before = containers(&mesh).await;
    kill_the_host(&mesh).await;
    controller.kill();
    until("the controller is gone", LIMIT, || (!controller.is_alive()).then_some(()));
    let _ = mesh.run(&["up"]).await.exited(0);
    started_again(&mesh, &controller).await;
    is_right_again(&mesh).await;
    assert_eq!(mesh.process("process:sleeper").await, sleeper);
    assert_eq!(containers(&mesh).await, before);
}

/// The node is as declared, and says so.
async fn is_right_again(mesh: &Mesh) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let report = mesh.observe().await.report;
        if report.state == NodeState::Converged {
            return;
        }
        let wrong = report.resources.iter().filter(|resource| !resource.state.is_right());
        let last = format!("{:?}: {:#?}", report.state, wrong.collect::<Vec<_>>());
        assert!(Instant::now() < deadline, "the node is not as declared after {LIMIT:?}: {last}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
