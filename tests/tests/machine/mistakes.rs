//! What new users do wrong, done for real: each time the first line that `mesh doctor` does not pass, or that genesis fails
//! with, says the cause. And nothing of a look at a machine is left on it.

use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use mesh_engine::LabelSelector;
use mesh_tests::command::{As, Said, run};
use mesh_tests::mesh::{LIMIT, Mesh, environment};
use mesh_tests::names;
use mesh_tests::parts::{Binary, repository};
use mesh_tests::private::{self, Machine};
use mesh_tests::until::eventually;

/// Nobody's account.
const NOBODY: u32 = 65534;

/// Five seconds are aimed at, and such a look takes one or two; beside a compiler and other meshes it takes many.
const AT_MOST: Duration = Duration::from_secs(60);

/// The label of the containers that a look starts, and where their images are named.
const LABEL: &str = "mesh.probe";
const IMAGE: &str = "mesh-probe";

/// The words of `mesh doctor` for this repository's controller.
fn doctor<'a>(controller: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut words = vec!["doctor", "--offline", "--controller", controller];
    words.extend(more);
    words
}

fn controller() -> String {
    repository().join("controller").to_str().unwrap().to_owned()
}

/// The first line that is not passed or skipped.
fn first(said: &Said) -> &str {
    let wrong = |line: &&str| line.starts_with("failed ") || line.starts_with("warned ");
    said.stdout.lines().find(wrong).unwrap_or_else(|| panic!("nothing is wrong: {said}"))
}

#[track_caller]
fn says_first(said: &Said, texts: &[&str]) {
    let first = first(said);
    for text in texts {
        assert!(first.contains(text), "the first line should say {text:?}: {first}\n{said}");
    }
}

#[test]
fn each_is_named_by_the_first_line() {
    private::run(concat!(module_path!(), "::each_is_named_by_the_first_line"), mistakes);
}

async fn mistakes(_machine: Machine) {
    // It looks whether the names without a prefix are free.
    let _names = names::without_prefix().await;
    let mesh = Mesh::without_images();
    let controller = controller();
    let quick = doctor(&controller, &["--skip", "container-image,host-name"]);
    let ours = environment();

    // Nothing is wrong with this machine.
    let said = mesh.run(&doctor(&controller, &[])).await.exited(0);
    assert!(said.took < AT_MOST, "{said}");
    assert!(!mesh.layout().root().exists(), "{said}");
    let document: serde_json::Value = mesh.run(&doctor(&controller, &["--json"])).await.exited(0).json();
    let checks = document["checks"].as_array().unwrap();
    assert!(checks.len() >= 30 && document["format"] == 1, "{document}");
    for check in checks {
        for key in ["name", "state", "expected", "found"] {
            assert!(check[key].as_str().is_some_and(|text| !text.is_empty()), "{key}: {check}");
        }
        assert_eq!(
            check["remedy"].is_string(),
            matches!(check["state"].as_str(), Some("failed" | "warned")),
            "{check}"
        );
    }

    no_engine(&mesh, &quick).await;

    // Not in the group whose members may speak to the engine, and not root.
    let said = mesh.run_as(As::User(NOBODY), &ours, LIMIT, &quick).await.exited(1);
    says_first(&said, &["user", "this user is not root"]);
    let _ = said.says(&["engine-permitted", "may not be spoken to by this user"]);

    for (number, what) in [(4222, "bus"), (5000, "store")] {
        let held = TcpListener::bind(("127.0.0.1", number)).unwrap();
        let said = mesh.run(&quick).await.exited(1);
        let holder = format!("(pid {})", std::process::id());
        says_first(&said, &[&format!("port {number} cannot be had for the {what}"), "held by", &holder]);
        drop(held);
    }

    let proxied =
        [ours.clone(), vec![("HTTP_PROXY".to_owned(), "http://proxy.example:3128".to_owned())]].concat();
    let said = mesh.run_as(As::Myself, &proxied, LIMIT, &quick).await.exited(0);
    says_first(&said, &["proxies", "HTTP_PROXY would send what is meant for 127.0.0.1 to a proxy"]);

    file_systems(&mesh, &quick).await;
}

/// Not installed; installed and not started; started and gone.
async fn no_engine(mesh: &Mesh, words: &[&str]) {
    let mut nowhere = environment();
    nowhere.retain(|(name, _)| name != "DOCKER_HOST" && name != "DOCKER_CONTEXT");
    let look = async || mesh.run_as(As::Myself, &nowhere, LIMIT, words).await.exited(1);
    // Where engines listen, there is nothing on this machine.
    sh("mount", &["-t", "tmpfs", "tmpfs", "/run"]);
    says_first(&look().await, &["engine-running", "the container engine is installed and not started"]);
    drop(std::os::unix::net::UnixListener::bind("/run/docker.sock").unwrap());
    says_first(&look().await, &["engine-running", "installed and not started", "nobody answers"]);
    std::fs::remove_file("/run/docker.sock").unwrap();
    let daemon = String::from_utf8(Command::new("which").arg("dockerd").output().unwrap().stdout).unwrap();
    sh("mount", &["--bind", "/dev/null", daemon.trim()]);
    says_first(&look().await, &["engine-installed", "no container engine is installed on this machine"]);
    sh("umount", &[daemon.trim()]);
    sh("umount", &["/run"]);
}

/// A small disk that is nearly full, one without room for files, one that is read-only, one from which nothing is run.
async fn file_systems(mesh: &Mesh, words: &[&str]) {
    let above = mesh.layout().root().parent().unwrap();
    let (image, place) = (above.join("disk"), above.join("mounted"));
    std::fs::create_dir(&place).unwrap();
    let root = place.join("r");
    let words: Vec<&str> = words.iter().copied().chain(["--root", root.as_str()]).collect();
    for (size, files, state, texts) in [
        ("24M", "20000", "rw", ["root-disk", "too little room"]),
        ("900M", "64", "rw", ["root-inodes", "too few files"]),
        ("900M", "20000", "ro", ["root-writable", "ead-only file system"]),
        ("900M", "20000", "noexec", ["root-executable", "its file system is mounted noexec"]),
    ] {
        let _ = std::fs::remove_file(&image);
        sh("mkfs.ext4", &["-q", "-F", "-N", files, "-m", "0", image.as_str(), size]);
        sh("mount", &["-o", &format!("loop,{state}"), image.as_str(), place.as_str()]);
        let said = run(&Binary::Mesh.path(), &words, &environment(), As::Myself, LIMIT).await.exited(1);
        says_first(&said, &texts);
        let left = std::fs::read_dir(&place).unwrap().flatten().map(|entry| entry.file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["lost+found"], "something is left: {said}");
        sh("umount", &[place.as_str()]);
    }
}

#[test]
fn a_mesh_that_is_here_is_told_from_one_that_shall_be() {
    private::run(
        concat!(module_path!(), "::a_mesh_that_is_here_is_told_from_one_that_shall_be"),
        a_second_mesh,
    );
}

async fn a_second_mesh(_machine: Machine) {
    let controller = controller();
    let first_mesh = Mesh::without_prefix().await;
    let ports = ["--bus-port", "4222", "--store-port", "5000"];
    killed_at_first(&first_mesh, &ports).await;
    let _ = first_mesh.genesis(&ports).await.exited(0);
    let said =
        first_mesh.run(&["doctor"]).await.exited(0).says(&["passed   bus-clock", "passed   store-clock"]);
    assert!(said.took < AT_MOST, "{said}");

    let id = first_mesh.id();
    let second = Mesh::without_images();
    let said = second.run(&doctor(&controller, &[])).await.exited(1);
    says_first(&said, &["bus-port", "4222", &format!("of mesh {id} in {}", first_mesh.layout().root())]);
    let said = second.run(&["genesis", "--offline", "--controller", &controller]).await.exited(1);
    let _ = said.says(&[
        "error[preflight]",
        "- port-taken: port 4222",
        &format!("of mesh {id} in"),
        "- name-taken",
    ]);
    assert!(!second.layout().root().exists());

    // The same machine under another name.
    let binary = Binary::Mesh.path();
    let renamed = format!(
        "hostname renamed.example && exec {} doctor --root {}",
        binary.display(),
        first_mesh.layout().root()
    );
    let words = ["--uts", "sh", "-c", &renamed];
    let said = run("unshare".as_ref(), &words, &environment(), As::Myself, LIMIT).await.exited(0);
    says_first(
        &said,
        &["host-name", "this machine is called renamed.example now; the mesh was begun when it was called"],
    );
}

/// Genesis is killed when it has begun, and doctor when its container runs; what they left is said, and is no obstacle.
async fn killed_at_first(mesh: &Mesh, ports: &[&str]) {
    let spawn = |words: &[&str]| {
        let mut command = tokio::process::Command::new(Binary::Mesh.path());
        command.args(words).args(["--root", mesh.layout().root().as_str()]).env_clear().envs(environment());
        command.kill_on_drop(true).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    let words = mesh.genesis_words(ports);
    let mut genesis = spawn(&words);
    let begun = async || mesh.layout().identity().is_dir().then_some(());
    eventually("genesis has begun", LIMIT, begun).await;
    genesis.kill().await.unwrap();

    let engine = mesh.engine().await;
    let mut look = spawn(&["doctor"]);
    let runs = async || {
        let found = engine.list(&LabelSelector::has(LABEL)).await.ok()?;
        (!found.is_empty()).then_some(())
    };
    eventually("a container is there that doctor made", LIMIT, runs).await;
    look.kill().await.unwrap();
    let left = || std::fs::read_dir(mesh.layout().root()).unwrap().flatten();
    assert!(left().any(|entry| entry.file_name().to_string_lossy().starts_with(".mesh-probe-")));

    let controller = controller();
    let began = Instant::now();
    let said = mesh.run(&doctor(&controller, &[])).await.exited(0);
    assert!(began.elapsed() < AT_MOST, "{said}");
    says_first(&said, &["earlier-attempt", "a genesis was begun here and not finished"]);
    let said = said.says(&[
        "passed   leftover-probes      removed ",
        "container mesh-probe-",
        "image mesh.local/mesh-probe:",
        "folder /",
    ]);
    assert!(engine.list(&LabelSelector::has(LABEL)).await.unwrap().is_empty(), "{said}");
    let images =
        engine.list_images(&LabelSelector::is(mesh_bundles::image::PROGRAM_LABEL, IMAGE)).await.unwrap();
    assert!(images.is_empty(), "{images:?}");
    assert!(!left().any(|entry| entry.file_name().to_string_lossy().starts_with(".mesh-probe-")), "{said}");
}

fn sh(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
