//! A module on nodes of two systems: each needs its own bundle, and a push packs and publishes both under one name.
//!
//! The second node is a report on the bus and no more: a machine of another system cannot be had here.

use std::fs;

use mesh_installer::session;
use mesh_protocol::bus::identity::{MeshKeys, User, credential};
use mesh_protocol::bus::{Connection, HostBus, Settings};
use mesh_protocol::id::{NodeName, System, Token};
use mesh_protocol::verb::{DeclarationAnswer, PlansAnswer};
use mesh_tests::mesh::Mesh;
use mesh_tests::source::Source;

const OTHER_BUNDLE: &str = r#"
[[bundle]]
name = "sleeper"
system = "linux/arm64"
binary = "target/mesh/linux-arm64/faulty-controller"

[[process]]"#;

/// Reports as the host of a node of another system that has nothing yet.
async fn report_as(mesh: &Mesh, node: &NodeName) {
    let (layout, file) = (mesh.layout(), mesh.file());
    let keys = MeshKeys::load(&layout.identity()).unwrap().unwrap();
    let user = User::Host(node.clone());
    let path = layout.root().parent().unwrap().join("other.creds");
    fs::write(&path, credential(&keys, &file.mesh, &user, jiff::Timestamp::now()).unwrap()).unwrap();
    let settings = Settings { credential: path, ..session::settings(layout, &file, "host", &user) };
    let bus = HostBus::new(Connection::open(&settings).await.unwrap(), file.mesh.clone(), node.clone());
    let mut report = mesh.observe().await.report;
    report.node = node.clone();
    report.system = System::LinuxArm64;
    (report.accepted, report.applied, report.token) = (None, None, Token::default());
    (report.resources, report.instances, report.handovers) = (Vec::new(), Vec::new(), Vec::new());
    report.secrets = Vec::new();
    bus.report(&report).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_node_is_declared_the_bundle_of_its_own_system() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let (own, other) = (mesh.file().inputs.node, "other".parse().unwrap());
    report_as(&mesh, &other).await;
    let source = Source::of_a_sleeper().change("\n[[process]]", OTHER_BUNDLE);
    let folder = source.folder();
    let nodes = ["--node", own.as_str(), "--node", other.as_str(), "--timeout", "3s"];

    // What nobody can have is said with the node that needs it, and nothing is pushed.
    let said = mesh.push(&folder, &nodes).await.exited(1);
    let _ = said.says(&["sleeper for linux/arm64", "node other needs it"]);

    let there = folder.parent().unwrap().join("target/mesh/linux-arm64");
    fs::create_dir_all(&there).unwrap();
    let mut program = fs::read(source.binaries().join("faulty-controller")).unwrap();
    // ELF's e_machine (System V ABI, chapter 4) is two bytes at 18; 183 is AArch64.
    program[18..20].copy_from_slice(&183_u16.to_le_bytes());
    fs::write(there.join("faulty-controller"), program).unwrap();

    // The other node's host is nobody, so that its part stays open.
    let _ =
        mesh.push(&folder, &nodes).await.says(&["plan-still-open", "other: its host to take generation 1"]);
    let declared = async |node: &NodeName| {
        let said = mesh.run(&["declaration", node.as_str(), "--json"]).await.exited(0);
        let answer: DeclarationAnswer = said.json();
        let declaration = answer.declaration.unwrap();
        let section = declaration.modules.iter().find(|module| module.name.as_str() == "sleeper").unwrap();
        section.bundles.iter().map(|bundle| bundle.digest.to_string()).collect::<Vec<_>>()
    };
    let (mine, theirs) = (declared(&own).await, declared(&other).await);
    assert_eq!((mine.len(), theirs.len()), (1, 1));
    assert_ne!(mine, theirs);
    // One name has both.
    for (system, digest) in [("linux/amd64", &mine[0]), ("linux/arm64", &theirs[0])] {
        let said = mesh.run(&["bundle", "inspect", "sleeper:1", "--system", system]).await.exited(0);
        let _ = said.says(&[&format!("sleeper 1 for {system}"), digest]);
    }
    let plans: PlansAnswer = mesh.run(&["plans", "--json"]).await.exited(0).json();
    let open = plans.plans.iter().find(|plan| !plan.state.is_ended()).unwrap();
    let _ = mesh.run(&["plans", open.id.as_str(), "--abort"]).await.exited(0);
}
