//! How the seat answers while it changes hands: asked 200 times a second, one attempt each, from before the push
//! until after the removal.

mod many;

use std::time::Duration;

use mesh_engine::Signal;
use mesh_installer::prober::Figures;
use mesh_protocol::handover::{Form, State};
use mesh_tests::mesh::{Mesh, unnoticed};
use mesh_tests::parts::repository;
use mesh_tests::pulse::Pulse;
use mesh_tests::until::eventually;
use serde::Deserialize;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_the_handover_of_genesis() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    let (prober, pulse) = (mesh.probe().await, Pulse::begin());
    let _ = mesh.raise().await;
    let (figures, stood_still) = (prober.stop().await, pulse.end());
    show(&figures);
    unnoticed(&figures, stood_still).unwrap();
    both_forms_answered(&figures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_the_first_push_on_a_mesh_that_runs() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    publish_by_hand(&mesh).await;
    let (prober, pulse) = (mesh.probe().await, Pulse::begin());
    let said = mesh.push(&repository().join("controller"), &[]).await.exited(0);
    container_is_gone(&mesh).await;
    let (figures, stood_still) = (prober.stop().await, pulse.end());
    eprintln!("{}", said.stderr);
    show(&figures);
    unnoticed(&figures, stood_still).unwrap();
    both_forms_answered(&figures);

    let status = mesh.status().await;
    let forms: Vec<Form> = status.seat.instances.iter().map(|instance| instance.form).collect();
    assert_eq!(forms, [Form::Process]);
    let _ = mesh.raise().await.says(&["nothing was changed"]);
    let left = mesh.engine().await.list(&mesh.controller_container()).await.unwrap();
    assert!(left.is_empty(), "genesis raised the container again: {left:?}");
}

/// What the two tests above assert is able to fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_that_ends_the_old_one_first_is_noticed() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    let containers = mesh.engine().await.list(&mesh.controller_container()).await.unwrap();
    let (prober, pulse) = (mesh.probe().await, Pulse::begin());
    let node = mesh.file().inputs.node;
    let detached = ["--node", node.as_str(), "--detach"];
    let _ = mesh.push(&repository().join("controller"), &detached).await.exited(0);
    let on_trial = async || {
        let handovers = mesh.observe().await.report.handovers;
        handovers.iter().any(|handover| handover.state == State::Trial).then_some(())
    };
    eventually("the new one is on trial", LIMIT, on_trial).await;
    mesh.engine().await.kill(&containers[0].id, Signal::Kill).await.unwrap();
    container_is_gone(&mesh).await;
    let (figures, stood_still) = (prober.stop().await, pulse.end());
    show(&figures);
    let noticed = unnoticed(&figures, stood_still).unwrap_err();
    eprintln!("noticed, as it should be: {noticed}");
}

fn show(figures: &Figures) {
    eprintln!("{}", figures.lines().join("\n"));
}

fn both_forms_answered(figures: &Figures) {
    for form in [Form::Container, Form::Process] {
        assert!(figures.forms.contains_key(form.as_str()), "no answer of a {}: {figures:?}", form.as_str());
    }
}

/// As somebody does who has the bundle and no build: packs it, publishes it.
async fn publish_by_hand(mesh: &Mesh) {
    #[derive(Deserialize)]
    struct Packed {
        digest: String,
    }
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("bundle.tar.gz");
    let (file, controller) = (file.to_str().unwrap(), repository().join("controller"));
    let packed = ["bundle", "pack", controller.to_str().unwrap(), "--output", file, "--json"];
    let digest = mesh.run(&packed).await.exited(0).json::<Packed>().digest;
    let publish = ["bundle", "publish", file, "--name", "mesh-controller", "--version", "0.1.0"];
    let _ = mesh.run(&publish).await.exited(0).says(&[&digest]);
    let _ = mesh.run(&publish).await.exited(0).says(&["is there already"]);
}

async fn container_is_gone(mesh: &Mesh) {
    let engine = mesh.engine().await;
    let looking = async || engine.list(&mesh.controller_container()).await.unwrap().is_empty().then_some(());
    eventually("the controller's container is gone", LIMIT, looking).await;
}
