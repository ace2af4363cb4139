//! What genesis refuses before it touches anything: each with the words that say what was found and what to do.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mesh_engine::{ContainerRequest, User};
use mesh_tests::account::Foreign;
use mesh_tests::command::{As, Said};
use mesh_tests::engine::{Corner, connect};
use mesh_tests::images;
use mesh_tests::mesh::{LIMIT, Mesh, environment};
use mesh_tests::source::Source;

/// Nobody's account.
const NOBODY: u32 = 65534;

/// Where an ELF header says for which processor the program is, and what it says for arm64.
const MACHINE: std::ops::Range<usize> = 18..20;
const ARM64: [u8; 2] = 183_u16.to_le_bytes();

/// Genesis from a folder of the controller that is not right.
async fn refuses(source: &Source, texts: &[&str]) {
    let mesh = Mesh::new().await.from(&source.folder());
    nothing_is_done(&mesh, mesh.genesis(&[]).await, texts);
}

fn nothing_is_done(mesh: &Mesh, said: Said, texts: &[&str]) {
    let said = said.exited(1).says(texts);
    assert!(!mesh.layout().root().exists(), "the root was made: {said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_with_an_unknown_key() {
    let source = Source::of_the_controller().change("[module]\n", "[module]\ncolour = \"red\"\n");
    refuses(&source, &["error[manifest-invalid]", "module.toml:4:1: found ", "colour", "expected "]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manifest_with_an_unknown_variable() {
    let source = Source::of_the_controller().change("\"${mesh.bus}\"", "\"${mesh.buss}\"");
    refuses(&source, &["error[manifest-invalid]", "module.toml:", "${mesh.buss}", "${mesh.bus}"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_replaces_nothing() {
    let source = Source::of_the_controller().change("replaces = \"container:mesh-controller\"\n", "");
    refuses(&source, &["replaces-invalid", "process:mesh-controller has no `replaces`", "container:NAME"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_replaces_a_process() {
    let source = Source::of_the_controller().change("container:mesh-controller", "process:older");
    refuses(&source, &["replaces-invalid", "replaces process:older", "container:NAME"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_replaces_the_bus() {
    let source = Source::of_the_controller().change("container:mesh-controller", "container:mesh-bus");
    refuses(&source, &["replaces-invalid", "replaces container:mesh-bus", "expected another name"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_for_another_system() {
    let source = Source::of_the_controller();
    let path = source.binaries().join("mesh-controller");
    let mut bytes = fs::read(&path).unwrap();
    bytes[MACHINE].copy_from_slice(&ARM64);
    fs::write(&path, bytes).unwrap();
    refuses(&source, &["binary-unfit", "for linux/arm64, expected linux/amd64"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_that_is_not_static() {
    let source = Source::of_the_controller();
    fs::copy("/bin/true", source.binaries().join("mesh-controller")).unwrap();
    refuses(&source, &["binary-unfit", "dynamically linked", "libc.so.6", "expected a static binary"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binary_that_is_missing() {
    let source = Source::of_the_controller();
    fs::remove_file(source.binaries().join("mesh-controller")).unwrap();
    refuses(&source, &["binary-missing", "scripts/build linux/amd64"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_in_use() {
    let held = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [bus, store] = held.each_ref().map(|listener| listener.local_addr().unwrap().port().to_string());
    let mesh = Mesh::new().await;
    let said = mesh.genesis(&["--bus-port", &bus, "--store-port", &store]).await;
    let holder = format!("(pid {})", std::process::id());
    let texts = [
        &format!("port-taken: port {bus} cannot be had for the bus"),
        &format!("port-taken: port {store} cannot be had for the store"),
        &holder,
        "--store-port PORT",
    ];
    nothing_is_done(&mesh, said, &texts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_engine() {
    let mesh = Mesh::new().await;
    let mut environment = environment();
    environment.retain(|(name, _)| name != "DOCKER_CONTEXT");
    environment.push(("DOCKER_HOST".to_owned(), "unix:///nowhere/docker.sock".to_owned()));
    let said = mesh.run_as(As::Myself, &environment, LIMIT, &mesh.genesis_words(&[])).await;
    nothing_is_done(&mesh, said, &["engine-unreachable", "/nowhere/docker.sock", "hint: "]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn not_root_and_no_permission_on_the_engines_socket() {
    let mesh = Mesh::new().await;
    let environment: Vec<_> = environment().into_iter().filter(|(name, _)| name != "HOME").collect();
    let said = mesh.run_as(As::User(NOBODY), &environment, LIMIT, &mesh.genesis_words(&[])).await;
    let texts = ["not-root: this user is not root", "found: user 65534", "engine-not-permitted", "hint: "];
    nothing_is_done(&mesh, said, &texts);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_container_that_holds_the_controllers_name() {
    let mesh = Mesh::new().await;
    let corner = Corner::of("mesh.test", &mesh.prefixed("foreign"));
    let name = mesh.prefixed("mesh-controller");
    let engine = connect().await;
    let (label, value) = corner.label();
    let request = ContainerRequest {
        name: name.parse().unwrap(),
        image: images::bus().await,
        command: Vec::new(),
        user: User { uid: NOBODY, gid: NOBODY },
        working_directory: None,
        mounts: Vec::new(),
        labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
    };
    let id = engine.create(&request).await.unwrap();
    let said = mesh.genesis(&[]).await;
    let what = format!("container name {name} is held by another container");
    nothing_is_done(&mesh, said, &["name-taken", &what, id.short(), "--prefix"]);
    assert!(engine.inspect(&id).await.unwrap().is_some(), "it was removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_that_exists() {
    let mesh = Mesh::new().await;
    let account = Foreign::make(&mesh.prefixed("mesh-bus"));
    let said = mesh.genesis(&[]).await;
    let what = format!("account {} is there and not of this mesh", account.account().name);
    nothing_is_done(&mesh, said, &["account-taken", &what, "\"somebody\"", "--prefix"]);
    let after = mesh_tests::account::named(&account.account().name);
    assert_eq!(after.as_ref(), Some(account.account()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_is_somebody_elses_folder() {
    let mesh = Mesh::new().await;
    let root = mesh.layout().root();
    fs::create_dir(root).unwrap();
    fs::write(root.join("notes"), "mine").unwrap();
    let _ = mesh.genesis(&[]).await.exited(1).says(&["root-unusable", "found: notes", "--root"]);
    assert_eq!(entries(root.as_std_path()), ["notes"]);
    fs::remove_dir_all(root).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_root_that_no_account_gets_to() {
    let mesh = Mesh::new().await;
    let above = mesh.layout().root().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o700)).unwrap();
    let hint = format!("chmod o+x {above}");
    nothing_is_done(&mesh, mesh.genesis(&[]).await, &["root-unusable", &hint]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_obstacles_are_told_at_once() {
    let source = Source::of_the_controller();
    fs::copy("/bin/true", source.binaries().join("mesh-controller")).unwrap();
    let mesh = Mesh::new().await.from(&source.folder());
    let account = Foreign::make(&mesh.prefixed("mesh-store"));
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port().to_string();
    let said = mesh.genesis(&["--bus-port", &port]).await;
    let texts = ["error[preflight]", "binary-unfit", "port-taken", "account-taken", &account.account().name];
    nothing_is_done(&mesh, said, &texts);
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
