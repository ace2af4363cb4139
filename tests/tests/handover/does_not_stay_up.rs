//! A process that does not stay up: the container serves on, untouched, the push says why, and a good manifest
//! afterwards hands over with no clean-up in between.

use std::time::Duration;

use mesh_protocol::handover::Form;
use mesh_tests::command::Said;
use mesh_tests::mesh::Mesh;
use mesh_tests::narrow;
use mesh_tests::parts::repository;
use mesh_tests::source::Source;
use mesh_tests::until::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_exits_at_once() {
    let mesh = Mesh::new().await;
    let texts =
        ["before its first right answer", "it exited with status 7", "faulty on purpose: ends at once"];
    hands_back(&mesh, &Source::of_a_faulty_controller("exit=7"), &texts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_exits_between_the_two_checks() {
    // The first check is at one second, the second at two.
    let mesh = Mesh::new().await.checking_every("1s");
    let texts = [
        "failed at: the second check (1 of 2 checks passed)",
        "it exited with status 9",
        "faulty on purpose: ends after it was ready",
    ];
    hands_back(&mesh, &Source::of_a_faulty_controller("exit-after-ready=1500"), &texts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_runs_and_is_never_ready() {
    let mesh = Mesh::new().await;
    let texts = ["failed at: never ready within 30 s", "nobody answers", "faulty on purpose: never ready"];
    hands_back(&mesh, &Source::of_a_faulty_controller("never-ready"), &texts).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_credential_may_not_join_the_queue_group() {
    let mesh = Mesh::new().await;
    let source = Source::of_the_controller().change("secret  = \"seat.creds\"", "secret  = \"narrow.creds\"");
    let texts = ["joining the seat", "it did not come to serve", "Permissions Violation", "stands by"];
    let _ = mesh.raise_until_store().await;
    let _narrow = narrow::make_credential(&mesh);
    hands_back(&mesh, &source, &texts).await;
}

async fn hands_back(mesh: &Mesh, source: &Source, texts: &[&str]) {
    let _ = mesh.raise_until_store().await;
    let engine = mesh.engine().await;
    let selector = mesh.controller_container();
    let before = engine.list(&selector).await.unwrap();
    let prober = mesh.probe().await;
    let said = push(mesh, source).await.exited(4);
    let said = said.says(&["error[handed-back]", "the last lines of process:mesh-controller:"]).says(texts);
    eprintln!("{}", said.stderr);

    // Same engine id, same start, never started again by the engine; and nobody noticed.
    assert_eq!(engine.list(&selector).await.unwrap(), before);
    let figures = prober.stop().await;
    assert_eq!(figures.failed, 0, "{figures:?}");
    let only_containers = figures.forms.keys().all(|form| form == Form::Container.as_str());
    assert!(only_containers, "{figures:?}");
    let status = mesh.status().await;
    let [instance] = &status.seat.instances[..] else { panic!("{:?}", status.seat) };
    assert_eq!(instance.form, Form::Container);

    let controller = repository().join("controller");
    let said = mesh.push(&controller, &[]).await.exited(0);
    eprintln!("{}", said.stderr);
    let gone = async || engine.list(&selector).await.unwrap().is_empty().then_some(());
    eventually("the container is gone", Duration::from_secs(60), gone).await;
    let status = mesh.status().await;
    let [instance] = &status.seat.instances[..] else { panic!("{:?}", status.seat) };
    assert_eq!(instance.form, Form::Process);
}

/// Pushes once the controller knows of all that the node holds.
async fn push(mesh: &Mesh, source: &Source) -> Said {
    let node = mesh.file().inputs.node;
    let folder = source.folder();
    let planned = async || {
        let said = mesh.push(&folder, &["--node", node.as_str(), "--dry-run"]).await;
        (said.code == Some(0)).then_some(())
    };
    eventually("the push can be planned", Duration::from_secs(60), planned).await;
    mesh.push(&folder, &["--node", node.as_str()]).await
}
