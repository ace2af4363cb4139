//! A disk that is full while the new one's bundle is unpacked: that speaks against the disk and not against the bundle, so it
//! is waited for, and said; and when there is room, the handover goes on by itself.

use std::process::Command;
use std::time::Duration;

use mesh_protocol::handover::State;
use mesh_tests::mesh::Mesh;
use mesh_tests::private::{self, Machine};
use mesh_tests::rounds::figure;
use mesh_tests::until::eventually;
use mesh_tests::versions::Versions;

const LIMIT: Duration = Duration::from_secs(120);

#[test]
fn it_is_full_while_a_bundle_is_unpacked() {
    private::run(concat!(module_path!(), "::it_is_full_while_a_bundle_is_unpacked"), full);
}

async fn full(_machine: Machine) {
    let mesh = Mesh::new().await.checking_every("200ms");
    let _ = mesh.raise().await;
    let bundles = mesh.layout().bundles();
    let aside = mesh.layout().root().parent().unwrap().join("aside");
    let holder = mesh.process("process:mesh-controller").await;
    // A small disk with the bundles that there are, and no room for one more.
    run("cp", &["-a", bundles.as_str(), aside.as_str()]);
    let size = run("du", &["-sk", bundles.as_str()]);
    let size: u64 = size.split_whitespace().next().unwrap().parse().unwrap();
    let option = format!("size={}k,mode=0711", size + 2048);
    run("mount", &["-t", "tmpfs", "-o", &option, "tmpfs", bundles.as_str()]);
    run("cp", &["-a", &format!("{aside}/."), bundles.as_str()]);
    let prober = mesh.probe().await;

    // The fifth is another bundle.
    let mut versions = Versions::default();
    for _ in 0..5 {
        versions = versions.next();
    }
    let folder = versions.source().folder();
    let said = mesh.push(&folder, &["--timeout", "8s"]).await;
    eprintln!("{said}");
    assert_ne!(said.code, Some(0));
    let _ = said.says(&["bytes are needed on the disk", "goes on by itself"]);
    assert_eq!(mesh.process("process:mesh-controller").await, holder);

    run("mount", &["-o", "remount,size=500m", bundles.as_str()]);
    let done = async || {
        let handovers = mesh.observe().await.report.handovers;
        handovers.iter().all(|one| one.state == State::Done).then_some(())
    };
    eventually("the handover is done", LIMIT, done).await;
    assert_ne!(mesh.process("process:mesh-controller").await, holder);
    let figures = prober.stop().await;
    figure(
        "the disk full while the new one's bundle is unpacked",
        "said, the old one serves, no hold for it; it goes on when there is room",
        &format!("so; {} asked, {} failed", figures.asked, figures.failed),
    );
    assert_eq!(figures.failed, 0, "{figures:?}");
    run("umount", &["--lazy", bundles.as_str()]);
}

fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
