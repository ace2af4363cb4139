//! The host killed just before and just after each record and each effect of a handover, none of them listed by hand;
//! the controller killed at any moment of a plan.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mesh_durable::checkpoint::{Blow, Moment};
use mesh_protocol::verb::HistoryAnswer;
use mesh_tests::checkpoints::{Checkpoints, Deed};
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::source::Source;
use mesh_tests::until::{eventually, until};
use mesh_tests::versions::Versions;

const CONTROLLER: &str = "process:mesh-controller";
const LIMIT: Duration = Duration::from_secs(60);

/// A mesh whose controller is a process, with a module beside it.
async fn raise() -> Mesh {
    let mesh = Mesh::new().await.checking_every("100ms");
    let _ = mesh.raise().await;
    let node = mesh.file().inputs.node;
    let _ = mesh.push(&Source::of_a_sleeper().folder(), &["--node", node.as_str()]).await.exited(0);
    mesh
}

/// The deeds of the host in one undisturbed handover.
async fn recorded(mesh: &Mesh, versions: &Versions, points: &Checkpoints) -> Vec<Deed> {
    points.list();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    mesh.is_handed_over(LIMIT).await;
    let deeds = points.end();
    assert!(deeds.len() > 15, "{deeds:#?}");
    deeds
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_is_killed_before_and_after_each_deed() {
    let mesh = raise().await;
    let points = Checkpoints::at(mesh.layout().host().join("checkpoints"));
    let mut versions = Versions::default().next();
    let deeds = recorded(&mesh, &versions, &points).await;
    for deed in &deeds {
        eprintln!("{:3} {}", deed.number, deed.name);
    }
    let all: Vec<(u64, Moment)> =
        deeds.iter().flat_map(|deed| [(deed.number, Moment::Before), (deed.number, Moment::After)]).collect();
    let step = all.len().div_ceil(rounds(6, all.len()));
    let tried: Vec<(u64, Moment)> = all.iter().copied().step_by(step).collect();
    let sleeper = mesh.process("process:sleeper").await;
    let mut slowest = Duration::ZERO;
    let mut struck = 0;
    for (number, moment) in &tried {
        versions = versions.next();
        let old = mesh.process(CONTROLLER).await;
        let prober = mesh.probe().await;
        points.strike(*number, *moment, Blow::Kill);
        let folder = versions.source().folder();
        let (host, is_over) = (mesh.host().await, AtomicBool::new(false));
        let pushing = async {
            let _ = mesh.push(&folder, &[]).await.exited(0);
            mesh.is_handed_over(LIMIT).await;
            is_over.store(true, Ordering::Release);
        };
        let ((), found_again) = tokio::join!(pushing, start_again(&mesh, &points, &host, &is_over));
        let _ = points.end();
        struck += usize::from(found_again.is_some());
        slowest = slowest.max(found_again.unwrap_or_default());
        let figures = prober.stop().await;
        let context = format!("killed {moment:?} deed {number}");
        assert_eq!(figures.failed, 0, "{context}: {figures:?}");
        assert!(figures.instances.len() <= 2, "{context}: something was started twice: {figures:?}");
        let now = mesh.process(CONTROLLER).await;
        assert_ne!(now, old, "{context}");
        assert!(!old.is_alive(), "{context}");
        assert_eq!(mesh.process("process:sleeper").await, sleeper, "{context}");
        let controllers = Process::all_from(mesh.layout().bundles().as_std_path());
        assert_eq!(controllers.len(), 2, "{context}: expected controller and sleeper: {controllers:?}");
    }
    figure(
        &format!(
            "host killed by SIGKILL before and after {} of the {} records and effects of a handover",
            tried.len(),
            all.len()
        ),
        "same end as undisturbed; nothing started twice; no process lost; found again in under 2 s",
        &format!(
            "killed {struck} times, {} ends as undisturbed, 0 requests lost; found again within {:.2} s",
            tried.len(),
            slowest.as_secs_f64()
        ),
    );
    // A handover now and then has a deed less than the one that was recorded: then nothing was killed.
    assert!(struck * 10 >= tried.len() * 8, "killed {struck} times of {}", tried.len());
    assert!(slowest < Duration::from_secs(30), "{slowest:?}");
}

/// Starts the host again once it was killed: how long that took until it knew its processes. None when the handover
/// was over before.
async fn start_again(
    mesh: &Mesh,
    points: &Checkpoints,
    host: &Process,
    is_over: &AtomicBool,
) -> Option<Duration> {
    let looking = async || {
        let killed = points.has_struck() && !host.is_alive();
        (killed || is_over.load(Ordering::Acquire)).then_some(killed)
    };
    if !eventually("the host is killed, or the handover over", LIMIT, looking).await {
        return None;
    }
    let began = Instant::now();
    let _ = mesh.run(&["up"]).await.exited(0);
    let _ = mesh.observe().await;
    Some(began.elapsed())
}

/// Whoever serves next finishes the plan: the other one of the two, or its own next run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_controller_is_killed_at_any_moment_of_a_plan() {
    let count = rounds(4, 60);
    let mesh = raise().await;
    let mut versions = Versions::default();
    let mut slowest = Duration::ZERO;
    for round in 0..count {
        versions = versions.next();
        let controllers = || Process::all_from(mesh.layout().bundles().as_std_path());
        let sleeper = mesh.process("process:sleeper").await;
        let folder = versions.source().folder();
        // From before the plan is stored until after the end of an undisturbed one, in steps that meet no rhythm.
        let after = Duration::from_millis(150 + (round as u64 * 137) % 1400);
        let killing = async {
            tokio::time::sleep(after).await;
            let running = controllers();
            let victim = running.iter().find(|process| **process != sleeper);
            victim.inspect(|process| process.kill());
            Instant::now()
        };
        let (said, killed) = tokio::join!(mesh.push(&folder, &["--timeout", "60s"]), killing);
        eprintln!("killed after {after:?}, the push ended {:?} later", killed.elapsed());
        let _ = said.exited(0);
        slowest = slowest.max(killed.elapsed());
        mesh.is_handed_over(LIMIT).await;
        until("one controller is left", LIMIT, || (controllers().len() == 2).then_some(()));
    }
    let history: HistoryAnswer = mesh.run(&["history", "mesh-controller", "--json"]).await.exited(0).json();
    let newest = history.revisions.iter().map(|record| record.revision).max();
    assert_eq!(newest, Some(count as u64 + 1), "a revision for each push, and genesis's: {history:?}");
    figure(
        &format!("the controller killed by SIGKILL in the middle of a plan, {count} times"),
        "the plan is finished by the other one or by its own next run; no step twice",
        &format!(
            "finished {count} of {count}, a revision each; the longest took {:.1} s from the kill",
            slowest.as_secs_f64()
        ),
    );
}
