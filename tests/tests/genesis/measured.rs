//! How long genesis takes, and how much memory host and controller need. Printed; asserted with a wide factor, for
//! the machine may have other things to do.

use std::time::Duration;

use mesh_engine::State;
use mesh_installer::genesis::step::Step;
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;

/// Beside the handover's three intervals, on two processors, with binaries built and images there.
const BESIDE_THE_INTERVALS: Duration = Duration::from_secs(6);

/// Two checks, and one interval alone.
const INTERVALS: u32 = 3;

const WIDE: u32 = 6;

/// Each of host and controller, at its peak.
const MEMORY: u64 = 30 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn genesis_takes_three_intervals_and_some_seconds() {
    let mesh = Mesh::new().await.checking_every("500ms");
    let said = mesh.raise().await;
    let limit = Duration::from_millis(500) * INTERVALS + BESIDE_THE_INTERVALS;
    eprintln!("genesis took {:?}, at most {limit:?} expected\n{}", said.took, said.stdout);
    let times = said.stdout.lines().find(|line| line.starts_with("time: ")).unwrap();
    for step in Step::ALL {
        assert!(times.contains(&format!("{step} ")), "no time of {step}: {times}");
    }
    assert!(said.took < limit * WIDE, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_and_controller_stay_small() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    let containers = mesh.engine().await.list(&mesh.controller_container()).await.unwrap();
    let State::Running { pid, .. } = containers[0].state else { panic!("{containers:?}") };
    let container = Process::of(pid).unwrap();
    let before = container.peak_memory();
    let prober = mesh.probe().await;
    let _ = mesh.raise().await;
    let figures = prober.stop().await;
    let peaks = [
        ("controller, as a container", before),
        ("controller, as a process", mesh.process("process:mesh-controller").await.peak_memory()),
        ("host", mesh.host().await.peak_memory()),
    ];
    eprintln!("asked {} times", figures.asked);
    for (who, peak) in peaks {
        eprintln!("{who}: {}.{} MB at its peak", peak >> 20, ((peak & 0xf_ffff) * 10) >> 20);
    }
    for (who, peak) in peaks {
        assert!(peak < MEMORY, "{who}: {peak} bytes at its peak, less than {MEMORY} expected");
    }
}
