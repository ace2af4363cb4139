//! What stands between the host and its processes: the shim killed, the host replaced by a newer one in the middle.

use std::time::Duration;

use mesh_durable::checkpoint::{Blow, Moment};
use mesh_tests::checkpoints::Checkpoints;
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;
use mesh_tests::rounds::figure;
use mesh_tests::until::{eventually, until};
use mesh_tests::versions::Versions;

const CONTROLLER: &str = "process:mesh-controller";
const LIMIT: Duration = Duration::from_secs(60);

/// The shim of a program is the process that started it.
fn shim_of(program: &Process) -> Process {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", program.pid)).unwrap();
    // proc(5): field 4, behind the name in brackets, is the parent.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let parent = fields.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    let shim = Process::of(parent).unwrap();
    assert!(shim.program.ends_with("mesh-host"), "{shim:?}");
    shim
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shim_is_killed_and_its_program_serves_on_and_hands_over() {
    let mesh = Mesh::new().await.checking_every("100ms");
    let _ = mesh.raise().await;
    let controllers = || Process::all_from(mesh.layout().bundles().as_std_path());
    let before = mesh.process(CONTROLLER).await;
    let prober = mesh.probe().await;
    shim_of(&before).kill();
    // Longer than the host takes to notice what ends.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(
        controllers(),
        std::slice::from_ref(&before),
        "no second controller, and the first one untouched"
    );
    let _ = mesh.run(&["status"]).await.exited(0);
    let versions = Versions::default().next();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    mesh.is_handed_over(LIMIT).await;
    until("the old one is gone", LIMIT, || (!before.is_alive()).then_some(()));
    assert_eq!(controllers().len(), 1);
    let figures = prober.stop().await;
    figure(
        "the shim of the controller killed by SIGKILL, then a push",
        "no second controller; nobody without an answer",
        &format!("one controller throughout; {} asked, {} failed", figures.asked, figures.failed),
    );
    assert_eq!(figures.failed, 0, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_is_upgraded_in_the_middle_of_a_handover() {
    let mesh = Mesh::new().await.checking_every("200ms");
    let _ = mesh.raise().await;
    let points = Checkpoints::at(mesh.layout().host().join("checkpoints"));
    let mut versions = Versions::default().next();
    points.list();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    mesh.is_handed_over(LIMIT).await;
    let deeds = points.end();
    let spawned = deeds.iter().find(|deed| deed.name.starts_with("spawn ")).unwrap().number;

    versions = versions.next();
    let prober = mesh.probe().await;
    let (old, host) = (mesh.process(CONTROLLER).await, mesh.host().await);
    points.strike(spawned, Moment::After, Blow::Stop);
    let folder = versions.source().folder();
    let upgrading = async {
        let stopped = async || (points.has_struck() && host.is_stopped()).then_some(());
        eventually("the host stops behind the start of the new one", LIMIT, stopped).await;
        upgrade(&mesh);
        host.kill();
        until("the host is gone", LIMIT, || (!host.is_alive()).then_some(()));
        let _ = mesh.run(&["up"]).await.exited(0);
    };
    let (said, ()) = tokio::join!(mesh.push(&folder, &[]), upgrading);
    let _ = said.exited(0);
    mesh.is_handed_over(LIMIT).await;
    let figures = prober.stop().await;
    assert_ne!(mesh.host().await, host);
    assert!(!old.is_alive());
    assert_eq!(Process::all_from(mesh.layout().bundles().as_std_path()).len(), 1);
    figure(
        "the host upgraded (another binary) in the middle of a handover",
        "no second controller; the handover goes on",
        &format!(
            "{} instances answered, one is left; {} asked, {} failed",
            figures.instances.len(),
            figures.asked,
            figures.failed
        ),
    );
    assert_eq!((figures.failed, figures.instances.len()), (0, 2), "{figures:?}");
}

/// Another binary under the same name, as an upgrade puts it there: beside, renamed.
fn upgrade(mesh: &Mesh) {
    let program = mesh.layout().programs().join("mesh-host");
    let mut bytes = std::fs::read(&program).unwrap();
    bytes.extend(b"another");
    let beside = program.with_extension("new");
    std::fs::write(&beside, bytes).unwrap();
    std::fs::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::rename(beside, program).unwrap();
}
