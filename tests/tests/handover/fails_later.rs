//! A controller that fails after its handover was done: its own seat cannot mend it, the local door can.

use std::time::Duration;

use mesh_protocol::handover::{Form, Role};
use mesh_protocol::verb::StatusAnswer;
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::repository;
use mesh_tests::source::Source;
use mesh_tests::until::{eventually, until};
use mesh_tests::versions::Versions;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_brought_back_by_hand_to_a_bundle_that_serves_and_can_be_pushed_again() {
    let mesh = Mesh::new().await.checking_every("200ms");
    let _ = mesh.raise().await;
    // Long enough for the trial, and then again and again too short to serve.
    let bad = Source::of_a_bad_bundle("exit-after-ready=3000");
    let _ = mesh.push(&bad.folder(), &[]).await.exited(0);
    let holder = mesh.process("process:mesh-controller").await;
    until("it fails", LIMIT, || (!holder.is_alive()).then_some(()));

    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("good.tar.gz");
    let (file, controller) = (file.to_str().unwrap(), repository().join("controller"));
    let _ = mesh.run(&["bundle", "pack", controller.to_str().unwrap(), "--output", file]).await.exited(0);
    let said = mesh.run(&["recover", "--bundle", file]).await.exited(0);
    eprintln!("{said}");
    let serves = async || {
        let said = mesh.run(&["status", "--json"]).await;
        let status: StatusAnswer = (said.code == Some(0)).then(|| said.json())?;
        let [one] = &status.seat.instances[..] else { return None };
        (one.form == Form::Process && one.role == Role::Serving).then_some(())
    };
    eventually("one process serves", LIMIT, serves).await;
    let _ = mesh.run(&["status"]).await.exited(0).says(&["recovered by hand"]);
    // It stays up, longer than what it took the place of ever did.
    let recovered = mesh.process("process:mesh-controller").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(recovered.is_alive());

    let versions = Versions::default().next();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    let said = mesh.run(&["status"]).await.exited(0);
    assert!(!said.stdout.contains("recovered by hand"), "{said}");
}
