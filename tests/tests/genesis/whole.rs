//! The way from the container to the process, looked at on both sides of the first push.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mesh_bundles::image::BUNDLE_LABEL;
use mesh_engine::State;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::handover::{Form, HandoverReport, Role, State as HandoverState};
use mesh_protocol::id::{Digest, ResourceId};
use mesh_protocol::layout::label;
use mesh_protocol::manifest::Manifest;
use mesh_protocol::report::Runtime;
use mesh_protocol::verb::DeclarationAnswer;
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::repository;
use mesh_tests::source::Source;
use mesh_tests::until::eventually;
use mesh_tests::{account, engine};
use serde::Deserialize;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_container_that_the_manifest_replaces_becomes_a_process() {
    let mesh = Mesh::without_prefix().await;
    let engine = engine::connect().await;
    for name in ["mesh-bus", "mesh-store", "mesh-controller"] {
        let held = engine.find(&name.parse().unwrap()).await.unwrap().is_some();
        if held || account::named(name).is_some() {
            eprintln!("skipped: a mesh with the default names is on this machine, and {name} is its");
            return;
        }
    }
    goes_all_the_way(&mesh, &repository().join("controller"), "mesh-controller").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_container_has_the_name_that_the_manifest_replaces() {
    let source = Source::of_the_controller().change("container:mesh-controller", "container:seat-of-lab-7");
    let mesh = Mesh::new().await.from(&source.folder());
    goes_all_the_way(&mesh, &source.folder(), "seat-of-lab-7").await;
}

async fn goes_all_the_way(mesh: &Mesh, controller: &Path, name: &str) {
    let _ = mesh.raise_until_store().await;
    let replaced = replaces(controller);
    assert_eq!(replaced.to_string(), format!("container:{name}"));
    let container = mesh.held(&format!("container:{name}")).await;
    is_what_is_replaced(mesh, &container, &replaced).await;
    knows_of_no_process(mesh, &replaced).await;
    let layers = layers_of(mesh, &container).await;

    let said = mesh.raise().await.says(&["failed 0, ", "the process holds the seat, the container is gone"]);
    assert!(!said.stdout.contains("asked 0"), "{said}");

    only_the_process_is_left(mesh, &container).await;
    let process = mesh.held("process:mesh-controller").await;
    runs_under_its_account_from_its_bundle(mesh, &process).await;
    let bundle = pull(mesh, &process.section.bundles[0].digest).await;
    assert_eq!(bundle.digest, process.section.bundles[0].digest);
    assert_eq!(layers, (bundle.digest, vec![bundle.diff_id]), "the image's layer is the bundle's own bytes");
}

/// What the process of the manifest replaces.
fn replaces(controller: &Path) -> ResourceId {
    let text = std::fs::read_to_string(controller.join("module.toml")).unwrap();
    let manifest = Manifest::parse("module.toml", &text).unwrap();
    manifest.processes[0].replaces.clone().unwrap()
}

/// What the host holds is the container of that name, with those labels, under that engine id.
async fn is_what_is_replaced(mesh: &Mesh, held: &LedgerEntry, replaced: &ResourceId) {
    assert_eq!(&held.id, replaced);
    assert_eq!(held.standing, Standing::Adopted);
    let Some(Runtime::Container { engine_id, engine_name, started_at }) = &held.runtime else {
        panic!("no container: {held:?}");
    };
    let engine = mesh.engine().await;
    let named = engine.find(&mesh.prefixed(replaced.name()).parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(named.id.as_str(), engine_id);
    assert_eq!(named.name.as_str(), engine_name);
    assert!(matches!(named.state, State::Running { .. }), "{}", named.state);
    assert_eq!(named.started_at.map(|at| at.to_string()), *started_at);
    assert_eq!(named.user, "65534:65534");
    let labels = [
        (label::MESH, mesh.id().to_string()),
        (label::RESOURCE, replaced.to_string()),
        (label::SPEC, held.digest.to_string()),
        (label::INSTANCE, held.run.as_ref().unwrap().to_string()),
    ];
    for (label, value) in labels {
        assert_eq!(named.labels.get(label), Some(&value), "{label}");
    }
    let all = engine.list(&mesh.controller_container()).await.unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
}

/// Before the first push nothing but the container is there of the controller: it serves, adopted.
async fn knows_of_no_process(mesh: &Mesh, replaced: &ResourceId) {
    let declaration = declaration(mesh).await;
    assert!(declaration.module(&"mesh-controller".parse().unwrap()).is_none(), "{:?}", declaration.modules);
    assert!(declaration.adopted.iter().any(|adopted| &adopted.id == replaced), "{:?}", declaration.adopted);
    let status = mesh.status().await;
    let [instance] = &status.seat.instances[..] else { panic!("{:?}", status.seat) };
    assert_eq!((instance.form, instance.role), (Form::Container, Role::Serving));
    assert_eq!(&instance.resource, replaced);
}

async fn declaration(mesh: &Mesh) -> Declaration {
    let answer: DeclarationAnswer = mesh.run(&["declaration", "--json"]).await.exited(0).json();
    answer.declaration.unwrap()
}

/// The digest of the bundle that the container's image says it wears, and the layers that it has.
async fn layers_of(mesh: &Mesh, container: &LedgerEntry) -> (Digest, Vec<Digest>) {
    let Some(Runtime::Container { engine_id, .. }) = &container.runtime else { panic!("{container:?}") };
    let found = mesh.engine().await.inspect(&engine_id.parse().unwrap()).await.unwrap().unwrap();
    let worn = found.labels.get(BUNDLE_LABEL).unwrap().parse().unwrap();
    let words = ["image", "inspect", "--format", "{{json .RootFS.Layers}}", &found.image_id];
    let output = Command::new("docker").args(words).output().unwrap();
    (worn, serde_json::from_slice(&output.stdout).unwrap())
}

async fn only_the_process_is_left(mesh: &Mesh, container: &LedgerEntry) {
    // The container is gone before its host has written that down, and reported it.
    let done = async || {
        let status = mesh.status().await;
        let is_done = |handover: &HandoverReport| handover.state == HandoverState::Done;
        status.seat.handovers.iter().all(is_done).then_some(status)
    };
    let status = eventually("the handover is done", Duration::from_secs(60), done).await;
    let [instance] = &status.seat.instances[..] else { panic!("{:?}", status.seat) };
    assert_eq!((instance.form, instance.role), (Form::Process, Role::Serving));
    assert_eq!(instance.resource.to_string(), "process:mesh-controller");
    let [handover] = &status.seat.handovers[..] else { panic!("{:?}", status.seat) };
    assert_eq!(handover.old.resource, container.id);
    assert_eq!(handover.old.instance, container.instance);
    assert_eq!(handover.new.instance.as_ref(), Some(&instance.instance));

    let engine = mesh.engine().await;
    let left = engine.list(&mesh.controller_container()).await.unwrap();
    assert!(left.is_empty(), "{left:?}");
    let named = engine.find(&mesh.prefixed(container.id.name()).parse().unwrap()).await.unwrap();
    assert_eq!(named, None);
    let Some(Runtime::Container { engine_id, .. }) = &container.runtime else { panic!("{container:?}") };
    let observed = mesh.observe().await;
    assert!(observed.tombstones.iter().any(|stone| stone.engine_id.as_ref() == Some(engine_id)));

    let adopted = |resource: &&mesh_protocol::report::ResourceReport| resource.adopted.is_some();
    let adopted: Vec<_> = status.nodes[0].resources.iter().filter(adopted).collect();
    assert!(adopted.is_empty(), "{adopted:?}");
    assert!(
        observed.ledger.iter().all(|entry| entry.standing == Standing::Declared),
        "{:?}",
        observed.ledger
    );
}

async fn runs_under_its_account_from_its_bundle(mesh: &Mesh, held: &LedgerEntry) {
    let process = mesh.process("process:mesh-controller").await;
    let account = account::named(&mesh.prefixed("mesh-controller")).unwrap();
    assert_eq!(process.user(), account.uid);
    assert_eq!(account.gecos, format!("mesh {}", mesh.id()));
    let digest = &held.section.bundles[0].digest;
    assert_eq!(process.program, mesh.layout().bundle(digest).join("mesh-controller").as_std_path());
    assert_eq!(process.environment(), b"", "nothing of the host's environment is handed on");
    let declared = declaration(mesh).await;
    assert_eq!(&declared.module(&held.section.name).unwrap().bundles[0].digest, digest);
}

/// What the store has under a digest.
#[derive(Debug, Deserialize)]
struct Bundle {
    digest: Digest,
    diff_id: Digest,
}

async fn pull(mesh: &Mesh, digest: &Digest) -> Bundle {
    let temp = tempfile::tempdir().unwrap();
    let file = temp.path().join("bundle.tar.gz");
    let file = file.to_str().unwrap();
    let _ =
        mesh.run(&["bundle", "pull", "mesh-controller", digest.as_str(), "--output", file]).await.exited(0);
    mesh.run(&["bundle", "inspect", file, "--json"]).await.exited(0).json()
}
