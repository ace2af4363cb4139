//! Who uses which bundle: what the host keeps unpacked, what the store has, what may go and what stays.

use std::fs;
use std::path::Path;
use std::time::Duration;

use mesh_protocol::id::Digest;
use mesh_tests::mesh::Mesh;
use mesh_tests::source::Source;
use mesh_tests::until::eventually;
use serde::Deserialize;

/// The host looks at least every half second.
const SOON: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
struct Listed {
    bundles: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    repository: String,
    bundle: Digest,
    uses: Option<Vec<serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
struct Pruned {
    remove: Vec<serde_json::Value>,
    keep: usize,
    bytes: u64,
    dry_run: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_uses_stays_and_what_nobody_does_goes() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let controller = bundle_of(&mesh, "process:mesh-controller").await;
    let source = Source::of_a_sleeper();
    let node = mesh.file().inputs.node.to_string();
    let push = async |source: &Source| mesh.push(&source.folder(), &["--node", &node]).await.exited(0);
    let _ = push(&source).await;
    let first = bundle_of(&mesh, "process:sleeper").await;
    let source = source.change("version = \"1\"", "version = \"2\"");
    append(&source.binaries().join("faulty-controller"));
    let _ = push(&source).await;
    let second = bundle_of(&mesh, "process:sleeper").await;
    assert_ne!(first, second);

    // The host collects the one that nothing refers to, and keeps what runs.
    let folder = |digest: &Digest| mesh.layout().bundle(digest);
    let gone = async || (!folder(&first).exists()).then_some(());
    eventually("the first bundle is collected", SOON, gone).await;
    assert!(folder(&second).join("faulty-controller").is_file());
    assert!(folder(&controller).join("mesh-controller").is_file());
    let _ = mesh.process("process:sleeper").await;

    // In the store it stays, for a rollback may go back to it.
    let listed = list(&mesh).await;
    let users = |listed: &Listed, digest: &Digest| {
        let row = listed.bundles.iter().find(|row| row.bundle == *digest);
        row.unwrap_or_else(|| panic!("{digest} is not listed: {listed:?}")).uses.as_ref().unwrap().len()
    };
    assert_eq!(users(&listed, &first), 1, "one revision: {listed:?}");
    assert!(users(&listed, &second) >= 3, "a revision, a declaration, the host: {listed:?}");
    assert!(users(&listed, &controller) >= 3, "{listed:?}");
    let said = mesh.run(&["bundle", "prune"]).await.exited(0);
    let _ = said.says(&["nothing to remove"]);

    // What somebody published by hand and nobody uses.
    let archive = source.folder().join("stray.tar.gz");
    let stray = source.change("version = \"2\"", "version = \"3\"");
    append(&stray.binaries().join("faulty-controller"));
    let (dir, archive) = (stray.folder(), archive.to_str().unwrap());
    let _ = mesh.run(&["bundle", "pack", dir.to_str().unwrap(), "-o", archive]).await.exited(0);
    let _ = mesh
        .run(&["bundle", "publish", archive, "--name", "stray", "--version", "9", "--json"])
        .await
        .exited(0);
    let said = mesh.run(&["bundle", "list"]).await.exited(0);
    let line = said.stdout.lines().find(|line| line.starts_with("stray")).expect("it is listed").to_owned();
    assert!(line.contains(" 9 ") && line.ends_with("nobody"), "{line}");

    let dry: Pruned = mesh.run(&["bundle", "prune", "--dry-run", "--json"]).await.exited(0).json();
    assert!(dry.dry_run && dry.remove.len() == 1 && dry.bytes > 100_000, "{dry:?}");
    assert_eq!(dry.keep, listed.bundles.len());
    let _ = mesh.run(&["bundle", "prune"]).await.exited(1).says(&["not-confirmed", "--yes"]);
    assert!(list(&mesh).await.bundles.iter().any(|row| row.repository == "stray"));
    let _ = mesh.run(&["bundle", "prune", "--yes"]).await.exited(0).says(&["removed 1 of"]);
    assert!(list(&mesh).await.bundles.iter().all(|row| row.repository != "stray"));

    // And what was kept is good to go back to.
    let _ = mesh.run(&["rollback", "sleeper"]).await.exited(0);
    assert_eq!(bundle_of(&mesh, "process:sleeper").await, first);
    assert!(folder(&first).is_dir());
}

async fn list(mesh: &Mesh) -> Listed {
    mesh.run(&["bundle", "list", "--json"]).await.exited(0).json()
}

/// The bundle that the host runs something from.
async fn bundle_of(mesh: &Mesh, id: &str) -> Digest {
    mesh.held(id).await.section.bundles[0].digest.clone()
}

/// Makes a program another that does the same.
fn append(program: &Path) {
    let mut bytes = fs::read(program).unwrap();
    bytes.push(b'\n');
    fs::write(program, bytes).unwrap();
}
