//! What a push refuses or fails at, on a mesh whose controller is still the container: it changes nothing, and the
//! container serves on.

use std::fs;
use std::path::{Path, PathBuf};

use mesh_protocol::door::LedgerEntry;
use mesh_protocol::handover::Form;
use mesh_protocol::verb::PlansAnswer;
use mesh_tests::command::Said;
use mesh_tests::mesh::Mesh;
use mesh_tests::source::Source;
use serde::Deserialize;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_that_is_not_right_changes_nothing() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    let before = picture(&mesh).await;

    let wrong = format!("sha256:{}", "0".repeat(64));
    let pinned = format!("system = \"linux/amd64\"\ndigest = \"{wrong}\"\n");
    let cases: [(Source, &[&str]); 6] = [
        (
            Source::of_the_controller().change("[module]\n", "[module]\ncolour = \"red\"\n"),
            &["manifest-invalid", "module.toml:4:1: found ", "colour"],
        ),
        (
            Source::of_the_controller().change("\"${mesh.bus}\"", "\"${mesh.buss}\""),
            &["manifest-invalid", "${mesh.buss}"],
        ),
        (
            Source::of_the_controller().change("system = \"linux/amd64\"\n", &pinned),
            &["bundle-invalid", "is not what the manifest pins", &wrong],
        ),
        (
            Source::of_the_controller().change("secret  = \"seat.creds\"", "secret  = \"nowhere.creds\""),
            &["missing", "nowhere.creds"],
        ),
        (
            Source::of_the_controller()
                .append("[[container]]\nname = \"own\"\nimage = \"own:1\"\nbuild = [\"make\"]"),
            &["manifest-invalid", "bundle", "process"],
        ),
        (
            Source::of_the_controller().change("container:mesh-controller", "container:another"),
            &["conflict", "neither is nor replaces"],
        ),
    ];
    for (source, texts) in cases {
        let _ = push(&mesh, &source).await.exited(1).says(texts);
        assert_eq!(picture(&mesh).await, before);
    }
    serves_on(&mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_corrupted_blob_in_the_store_is_not_run() {
    let mesh = Mesh::new().await;
    let _ = mesh.genesis(&["--until", "publish"]).await.exited(0);
    let container = mesh.held("container:mesh-controller").await;
    let digest = published(&mesh).await;
    let blob = blob(&mesh, &digest);
    flip(&blob);

    let source = Source::of_the_controller();
    let file = source.folder().join("pulled.tar.gz");
    let words = ["bundle", "pull", "mesh-controller", &digest, "--output", file.to_str().unwrap()];
    let _ = mesh.run(&words).await.exited(1).says(&["error[store]", &digest]);
    assert!(!file.exists(), "what is corrupted was kept");

    let said = push(&mesh, &source).await.exited(4);
    let _ = said.says(&["mesh-controller was handed back", "cannot be fetched"]);
    let held = mesh.held("container:mesh-controller").await;
    assert_eq!(same(&held), same(&container));
    serves_on(&mesh).await;

    // Whoever mends the store needs to do nothing else.
    flip(&blob);
    let _ = push(&mesh, &source).await.exited(0);
    let status = mesh.status().await;
    assert!(status.seat.instances.iter().any(|instance| instance.form == Form::Process), "{:?}", status.seat);
}

async fn push(mesh: &Mesh, source: &Source) -> Said {
    mesh.push(&source.folder(), &["--node", mesh.file().inputs.node.as_str()]).await
}

async fn serves_on(mesh: &Mesh) {
    let status = mesh.status().await;
    let forms: Vec<Form> = status.seat.instances.iter().map(|instance| instance.form).collect();
    assert_eq!(forms, [Form::Container], "{:?}", status.seat);
}

/// What a push could have changed.
async fn picture(mesh: &Mesh) -> String {
    let observed = mesh.observe().await;
    let plans: PlansAnswer = mesh.run(&["plans", "--json"]).await.exited(0).json();
    let modules = mesh.run(&["modules", "--json"]).await.exited(0).stdout;
    format!("{:#?} {:?} {} {modules}", observed.ledger, observed.report.accepted, plans.plans.len())
}

/// By what a container is known to be the same, and not to have been started again.
fn same(entry: &LedgerEntry) -> String {
    format!("{:?} {:?}", entry.runtime, entry.instance)
}

/// The digest of the controller's bundle, as genesis packed it.
async fn published(mesh: &Mesh) -> String {
    #[derive(Deserialize)]
    struct Inspected {
        digest: String,
    }
    let archive = mesh.layout().root().join("genesis/mesh-controller-linux-amd64.tar.gz");
    let said = mesh.run(&["bundle", "inspect", archive.as_str(), "--json"]).await.exited(0);
    said.json::<Inspected>().digest
}

/// Where the store keeps it.
fn blob(mesh: &Mesh, digest: &str) -> PathBuf {
    let hex = digest.trim_start_matches("sha256:");
    let data = mesh.layout().data(&"mesh-store".parse().unwrap());
    let path = data.join("docker/registry/v2/blobs/sha256").join(&hex[..2]).join(hex).join("data");
    assert!(path.is_file(), "the store does not keep {digest} in {path}");
    path.into_std_path_buf()
}

/// Makes a byte in the middle of a file another, and the second time the same again.
fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(path, bytes).unwrap();
}
