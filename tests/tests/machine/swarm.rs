//! What one would use instead, on the same machine, at the same rate of requests, in one run: a Swarm service of a container of
//! the same controller, updated with `--update-order start-first`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mesh_protocol::bus::Policy;
use mesh_tests::load::{Load, ONE_ATTEMPT, Sample, failures, longest_gap};
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::Binary;
use mesh_tests::private::{self, Machine};
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::source::Source;
use mesh_tests::until::{eventually, until};
use mesh_tests::versions::Versions;

use super::engine::docker;

const RATE: u32 = 1000;
const LIMIT: Duration = Duration::from_secs(120);
const SERVICE: &str = "controller";

#[test]
fn beside_start_first_of_swarm() {
    private::run(concat!(module_path!(), "::beside_start_first_of_swarm"), compare);
}

/// What a few updates came to.
struct Outcome {
    asked: usize,
    lost: usize,
    gap: Duration,
    took: Duration,
}

impl Outcome {
    fn of(samples: &[Sample], took: Duration) -> Self {
        Self { asked: samples.len(), lost: failures(samples).len(), gap: longest_gap(samples), took }
    }

    fn text(&self) -> String {
        format!(
            "{} asked, {} lost, longest gap {} ms, {:.1} s each",
            self.asked,
            self.lost,
            self.gap.as_millis(),
            self.took.as_secs_f64()
        )
    }
}

async fn compare(_machine: Machine) {
    let mesh = Mesh::new().await.checking_every("1s");
    let _ = mesh.raise().await;
    let count = u32::try_from(rounds(1, 20)).unwrap();

    let mut versions = Versions::default();
    let (load, began) = (begin(&mesh).await, Instant::now());
    for _ in 0..count {
        versions = versions.next();
        let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    }
    let took = began.elapsed() / count;
    let ours = Outcome::of(&load.end().await, took);
    let (load, began) = (begin(&mesh).await, Instant::now());
    let bad = Source::of_a_faulty_controller("exit-after-ready=1500");
    let _ = mesh.push(&bad.folder(), &[]).await.exited(4);
    let took = began.elapsed();
    let ours_bad = Outcome::of(&load.end().await, took);

    hand_over_to_swarm(&mesh).await;
    let (load, began) = (begin(&mesh).await, Instant::now());
    for number in 0..count {
        update(&mesh, &["--env-add", &format!("NUMBER={number}")], "by-itself");
    }
    let took = began.elapsed() / count;
    let swarms = Outcome::of(&load.end().await, took);
    let (load, began) = (begin(&mesh).await, Instant::now());
    update(&mesh, &["--update-failure-action", "rollback"], "by-itself=1500");
    let took = began.elapsed();
    // What is decided later than the command ends is seen, too.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let swarms_bad = Outcome::of(&load.end().await, took);
    let said = docker(&["service", "inspect", "--format", "{{.UpdateStatus.State}}", SERVICE]);

    let aim = format!(
        "{RATE} requests a second, one attempt each; checks a second apart, Swarm's monitor the same three"
    );
    figure(&format!("{count} updates, ours"), &aim, &ours.text());
    figure(&format!("{count} updates, Swarm's start-first"), &aim, &swarms.text());
    figure(
        "a version that ends 1.5 s after it was ready, ours",
        &aim,
        &format!("{}; handed back, exit status 4", ours_bad.text()),
    );
    figure("the same, Swarm's start-first", &aim, &format!("{}; its update is {said}", swarms_bad.text()));
    assert_eq!((ours.lost, ours_bad.lost), (0, 0));
    docker(&["service", "rm", SERVICE]);
    until("the service's containers are gone", LIMIT, || {
        docker(&["ps", "-q", "--filter", "name=controller."]).is_empty().then_some(())
    });
}

async fn begin(mesh: &Mesh) -> Load {
    Load::begin(mesh, RATE, ONE_ATTEMPT).await
}

/// The mesh's own controller goes, with the host that would start it again; bus and store stay; a service of the same
/// controller takes its place.
async fn hand_over_to_swarm(mesh: &Mesh) {
    let host = mesh.host().await;
    host.kill();
    until("the host is gone", LIMIT, || (!host.is_alive()).then_some(()));
    for process in Process::all_from(mesh.layout().bundles().as_std_path()) {
        process.kill();
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    std::fs::copy(Binary::FaultyController.path(), &program).unwrap();
    let tar = folder.path().join("image.tar");
    run("tar", &["-C", folder.path().to_str().unwrap(), "-cf", tar.to_str().unwrap(), "program"]);
    docker(&["import", "--change", "ENTRYPOINT [\"/program\"]", tar.to_str().unwrap(), "controller:1"]);
    docker(&["swarm", "init", "--advertise-addr", "127.0.0.1", "--listen-addr", "127.0.0.1"]);
    let secrets = mesh.layout().secrets(&"mesh-controller".parse().unwrap());
    let secrets = format!("type=bind,source={secrets},target=/secrets,readonly");
    let mut words = vec!["service", "create", "--quiet", "--name", SERVICE, "--network", "host"];
    words.extend([
        "--mount",
        &secrets,
        "--mount",
        "type=tmpfs,target=/run-dir",
        "--update-order",
        "start-first",
    ]);
    words.extend(["--update-monitor", "3s", "--no-resolve-image", "controller:1"]);
    let controller = words_of(mesh, "by-itself");
    words.extend(controller.iter().map(String::as_str));
    docker(&words);
    let answers = async || {
        let samples = {
            let load = Load::begin(mesh, 20, Policy::Once(Duration::from_secs(1))).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
            load.end().await
        };
        failures(&samples).is_empty().then_some(())
    };
    eventually("the service answers the seat", LIMIT, answers).await;
}

fn words_of(mesh: &Mesh, fault: &str) -> Vec<String> {
    let file = mesh.file();
    let words = [
        ("--fault", fault.to_owned()),
        ("--mesh", file.mesh.to_string()),
        ("--name", file.inputs.name.to_string()),
        ("--bus", file.bus()),
        ("--seat-credential", "/secrets/seat.creds".to_owned()),
        ("--state-credential", "/secrets/state.creds".to_owned()),
        ("--run-dir", "/run-dir".to_owned()),
    ];
    words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Updates the service, and waits for what Swarm waits for. A bad version makes the command fail, or not.
fn update(mesh: &Mesh, more: &[&str], fault: &str) {
    let arguments = words_of(mesh, fault).join(" ");
    let mut words = vec!["service", "update", "--quiet", "--no-resolve-image", "--args", &arguments];
    words.extend(more);
    words.push(SERVICE);
    let output = Command::new("docker").args(&words).output().unwrap();
    eprintln!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).current_dir(Path::new("/")).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
