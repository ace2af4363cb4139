//! Handover after handover, from process to process, while the seat is asked 2,000 times a second: undisturbed; with
//! the old one killed while it leaves; with the new one frozen while it joins.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::bus::Policy;
use mesh_protocol::handover::{HandoverReport, Reason, Role, RoleAck, RoleOrder, State};
use mesh_protocol::id::InstanceId;
use mesh_protocol::verb::HistoryAnswer;
use mesh_tests::load::{Load, ONE_ATTEMPT, Sample, failures, longest_gap, percentile};
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::until::until;
use mesh_tests::versions::Versions;

const RATE: u32 = 2000;

/// How long the seat is asked before anything goes on at it, for comparison.
const STEADY: Duration = Duration::from_secs(6);

/// How long after the change answers are compared.
const AFTER: Duration = Duration::from_secs(2);

const LIMIT: Duration = Duration::from_secs(30);

/// A mesh whose controller is a process, and one version of it after the other.
struct Rounds {
    mesh: Mesh,
    versions: Versions,
}

impl Rounds {
    async fn begin() -> Self {
        let mesh = Mesh::new().await.checking_every("200ms");
        let _ = mesh.raise().await;
        Self { mesh, versions: Versions::default() }
    }

    fn next(self) -> Self {
        Self { versions: self.versions.next(), ..self }
    }

    async fn push(&self, exit: i32) -> HandoverReport {
        let _ = self.mesh.push(&self.versions.source().folder(), &[]).await.exited(exit);
        let mut handovers = self.mesh.observe().await.report.handovers;
        handovers.remove(0)
    }

    /// Each push has made one revision of the module, and no more.
    async fn is_pushed_once_each(&self, pushes: usize) {
        let history: HistoryAnswer =
            self.mesh.run(&["history", "mesh-controller", "--json"]).await.exited(0).json();
        let revisions: Vec<u64> = history.revisions.iter().map(|record| record.revision).collect();
        // Genesis made the first.
        let expected: Vec<u64> = (1..=pushes as u64 + 1).rev().collect();
        assert!(expected.starts_with(&revisions) && !revisions.is_empty(), "{revisions:?}");
    }
}

fn entered(handover: &HandoverReport, state: State) -> Timestamp {
    let passage = handover.passed.iter().find(|passage| passage.state == state);
    passage.unwrap_or_else(|| panic!("never {}: {handover:?}", state.as_str())).at
}

/// The attempts of a time.
fn between(samples: &[Sample], from: Timestamp, to: Timestamp) -> impl Iterator<Item = &Sample> {
    samples.iter().filter(move |sample| sample.due >= from && sample.due <= to)
}

fn microseconds(duration: Duration) -> String {
    format!("{:.2} ms", duration.as_secs_f64() * 1000.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_process_to_process_under_load() {
    let count = rounds(4, 100);
    let mut rounds = Rounds::begin().await;
    let load = Load::begin(&rounds.mesh, RATE, ONE_ATTEMPT).await;
    let calm = (Timestamp::now() + Duration::from_secs(1), Timestamp::now() + STEADY);
    tokio::time::sleep(STEADY).await;
    let mut handovers = Vec::new();
    for _ in 0..count {
        rounds = rounds.next();
        handovers.push(rounds.push(0).await);
        tokio::time::sleep(AFTER).await;
    }
    let samples = load.end().await;
    let lost = failures(&samples);
    let steady = percentile(between(&samples, calm.0, calm.1), 99);
    let changing = percentile(
        handovers.iter().flat_map(|handover| {
            let joined = entered(handover, State::Joined);
            between(&samples, joined, joined + AFTER)
        }),
        99,
    );
    let beyond = handovers.iter().map(|handover| {
        let took = entered(handover, State::Removing).duration_since(entered(handover, State::Trial));
        took.unsigned_abs().saturating_sub(Duration::from_millis(600))
    });
    figure(
        &format!("{count} handovers from process to process, {RATE} requests a second, one attempt each"),
        "0 failed; p99 within 2 s of the change at most 1.5 times the steady p99, or 2 ms more",
        &format!(
            "{} asked, {} failed; p99 {}, steady {}; longest gap {}",
            samples.len(),
            lost.len(),
            microseconds(changing),
            microseconds(steady),
            microseconds(longest_gap(&samples))
        ),
    );
    figure(
        "time of a handover beyond its three intervals (two checks, one alone), the longest of them",
        "at most 2 s",
        &format!("{:.2} s", beyond.max().unwrap().as_secs_f64()),
    );
    assert!(lost.is_empty(), "{lost:#?}");
    // The aim is printed; this is what no machine that is merely busy exceeds.
    assert!(changing < steady * 10 + Duration::from_millis(250), "{changing:?}, steady {steady:?}");
    rounds.is_pushed_once_each(count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_one_is_killed_while_it_leaves() {
    let count = rounds(2, 100);
    let mut rounds = Rounds::begin().await;
    let (once, retrying) = (
        Load::begin(&rounds.mesh, RATE, ONE_ATTEMPT).await,
        Load::begin(&rounds.mesh, 200, Policy::Read).await,
    );
    for _ in 0..count {
        rounds = rounds.next();
        let old = rounds.mesh.process("process:mesh-controller").await;
        let instance = rounds.mesh.only_instance().await;
        let killing = kill_when_it_is_told_to_stand_by(&rounds.mesh, instance, old);
        let (handover, ()) = tokio::join!(rounds.push(0), killing);
        assert!(matches!(handover.state, State::Removing | State::Done), "{handover:?}");
    }
    let (once, retrying) = (once.end().await, retrying.end().await);
    let lost = failures(&retrying);
    figure(
        &format!("the same, {count} times, with the old one killed by SIGKILL while it leaves"),
        "0 failed for a client that retries reads; 0 effects twice",
        &format!(
            "{} asked with retries, {} failed; {} asked once, {} lost; a revision for each push",
            retrying.len(),
            lost.len(),
            once.len(),
            failures(&once).len()
        ),
    );
    assert!(lost.is_empty(), "{lost:#?}");
    rounds.is_pushed_once_each(count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_new_one_freezes_while_it_joins() {
    let count = rounds(2, 20);
    let mut rounds = Rounds::begin().await;
    let (once, retrying) = (
        Load::begin(&rounds.mesh, RATE, ONE_ATTEMPT).await,
        Load::begin(&rounds.mesh, 200, Policy::Read).await,
    );
    let mut slowest = Duration::ZERO;
    for _ in 0..count {
        rounds = rounds.next();
        let old = rounds.mesh.process("process:mesh-controller").await;
        let freezing = freeze_when_it_serves(&rounds.mesh, old.clone());
        let (handover, frozen) = tokio::join!(rounds.push(4), freezing);
        let noticed = entered(&handover, State::Aborting).duration_since(frozen).unsigned_abs();
        slowest = slowest.max(noticed);
        let reason = handover.reason.clone();
        assert!(
            matches!(reason, Some(Reason::FellSilent { .. } | Reason::NeverServed { .. })),
            "{handover:?}"
        );
        assert_eq!(rounds.mesh.process("process:mesh-controller").await, old, "the old one serves on");
    }
    let (once, retrying) = (once.end().await, retrying.end().await);
    let lost = failures(&retrying);
    figure(
        &format!("the new one frozen (SIGSTOP) after `joined`, {count} times"),
        "noticed within 3 s, the old one serves; 0 failed for a client that retries reads",
        &format!(
            "noticed within {:.2} s at most; {} asked with retries, {} failed; {} asked once, {} lost",
            slowest.as_secs_f64(),
            retrying.len(),
            lost.len(),
            once.len(),
            failures(&once).len()
        ),
    );
    assert!(lost.is_empty(), "{lost:#?}");
    assert!(slowest < Duration::from_secs(30), "{slowest:?}");
}

async fn kill_when_it_is_told_to_stand_by(mesh: &Mesh, instance: InstanceId, old: Process) {
    let order = mesh.layout().run(&instance).join("role");
    let killing = tokio::task::spawn_blocking(move || {
        until("the old one is told to stand by", LIMIT, || {
            let text = std::fs::read(&order).ok()?;
            let order: RoleOrder = serde_json::from_slice(&text).ok()?;
            (order.role == Role::StandingBy).then_some(())
        });
        old.kill();
    });
    killing.await.unwrap();
}

/// Freezes the controller that is not `old` when it has begun to serve, and answers when that was.
async fn freeze_when_it_serves(mesh: &Mesh, old: Process) -> Timestamp {
    let (runs, bundles) = (mesh.layout().runs(), PathBuf::from(mesh.layout().bundles()));
    let known: Vec<InstanceId> = serving(&runs);
    let freezing = tokio::task::spawn_blocking(move || {
        until("the new one serves", LIMIT, || {
            serving(&runs).into_iter().find(|instance| !known.contains(instance))
        });
        let all = Process::all_from(&bundles);
        let new: Vec<&Process> = all.iter().filter(|process| **process != old).collect();
        let [new] = &new[..] else { panic!("expected one newcomer: {all:?}") };
        new.freeze();
        Timestamp::now()
    });
    freezing.await.unwrap()
}

/// The instances that say in their run folders that they serve.
fn serving(runs: &camino::Utf8Path) -> Vec<InstanceId> {
    let Ok(entries) = std::fs::read_dir(runs) else { return Vec::new() };
    let read = |path: PathBuf| -> Option<RoleAck> {
        let text = std::fs::read_to_string(path).ok()?;
        serde_json::from_str(text.lines().next()?).ok()
    };
    let acknowledged = entries.flatten().filter_map(|entry| read(entry.path().join("role.ack")));
    acknowledged.filter(|ack| ack.role == Role::Serving).map(|ack| ack.instance).collect()
}
