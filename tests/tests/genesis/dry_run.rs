//! A dry run changes nothing, and lists what the run that follows does: on real parts, from ten states on the way.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use clap::Parser as _;
use mesh_installer::cli::{Cli, Command};
use mesh_installer::genesis;
use mesh_installer::genesis::parts::real::Real;
use mesh_installer::output::{Event, Form, Printer, Volume};
use mesh_installer::world::World;
use mesh_protocol::subject::CONTROLLER_SEAT;
use mesh_tests::command::Said;
use mesh_tests::events;
use mesh_tests::mesh::{Mesh, environment};
use mesh_tests::parts::{Binary, repository};
use mesh_tests::proxies::{Recorded, record};
use mesh_tests::rounds::figure;
use mesh_tests::until::until;

#[path = "../../../installer/src/genesis/contract.rs"]
#[allow(dead_code, reason = "the same file is held to in the installer's own tests")]
mod contract;

/// Two seconds are aimed at; beside other meshes and a compiler it takes many times that.
const AT_MOST: Duration = Duration::from_secs(30);

const SOON: Duration = Duration::from_secs(60);

/// Step and deed, in their order.
type Deeds = Vec<(String, String)>;

fn deeds(said: &Said) -> (Deeds, Deeds) {
    let (mut would, mut did) = (Vec::new(), Vec::new());
    for line in events::of(said) {
        match line.event {
            Event::WouldDo { step, what } => would.push((step, what)),
            Event::Effect { step, what } => did.push((step, what)),
            _ => {}
        }
    }
    (would, did)
}

/// What is not the host's and the programs' own, and so stands still while nobody changes it.
fn files(folder: &Utf8Path, found: &mut BTreeMap<Utf8PathBuf, (u64, i64, u32)>) {
    let Ok(entries) = folder.read_dir_utf8() else { return };
    for entry in entries.flatten() {
        let facts = entry.path().symlink_metadata().unwrap();
        found.insert(entry.path().to_owned(), (facts.ino(), facts.mtime_nsec(), facts.mode()));
        if facts.is_dir() && !["data", "run", "logs", "host"].contains(&entry.file_name()) {
            files(entry.path(), found);
        }
    }
}

/// The dry run, behind recording proxies: what it lists, and how long it took.
async fn dry_run(mesh: &Mesh, words: &[&str]) -> (Deeds, Duration) {
    let mut before = BTreeMap::new();
    files(mesh.layout().root(), &mut before);
    let ports = mesh.layout().mesh_file().is_file().then(|| {
        let inputs = mesh.file().inputs;
        (inputs.bus_port, inputs.store_port)
    });
    let Recorded { said, changes, bytes } = record(mesh, words, ports).await;
    let said = said.exited(0);
    assert!(changes.is_empty(), "a dry run changes something: {changes:#?}\n{said}");
    REACHED.with_borrow_mut(|reached| (0..3).for_each(|part| reached[part] |= bytes[part] > 0));
    let mut after = BTreeMap::new();
    files(mesh.layout().root(), &mut after);
    assert_eq!(after, before, "{said}");
    assert!(said.took < AT_MOST, "{said}");
    let (would, did) = deeds(&said);
    assert!(did.is_empty(), "{said}");
    (would, said.took)
}

thread_local! {
    /// Whether engine, bus and store were asked by way of a proxy.
    static REACHED: RefCell<[bool; 3]> = RefCell::default();
}

/// Genesis goes on step by step, and meanwhile this and that is lost; each time first as a dry run.
#[tokio::test(flavor = "current_thread")]
async fn it_lists_what_is_done_and_does_nothing_from_ten_states() {
    let mesh = Mesh::new().await;
    let mut slowest = Duration::ZERO;
    let mut states = 0;
    for until in ["identity", "bundles", "images", "host", "pivot", "store", "publish", "verify"] {
        for _ in 0..disturb(&mesh, until).await {
            // The mesh holds its own ports, as the proxies do in their network.
            let skip = "container-image,host-name,bus-port,store-port";
            let more = ["--json", "--dry-run", "--skip", skip];
            let (all, took) = dry_run(&mesh, &mesh.genesis_words(&more)).await;
            let limited = [&more[..], &["--until", until]].concat();
            let (listed, _) = dry_run(&mesh, &mesh.genesis_words(&limited)).await;
            assert_eq!(all[..listed.len()], listed, "what is to be done does not depend on where it ends");
            slowest = slowest.max(took);
            let said = mesh.genesis(&["--json", "--until", until]).await.exited(0);
            let (_, did) = deeds(&said);
            assert_eq!(did, listed, "until {until}: {said}");
            states += 1;
        }
    }
    let (left, _) = dry_run(&mesh, &mesh.genesis_words(&["--json", "--dry-run"])).await;
    assert!(left.is_empty(), "{left:?}");
    figure(
        &format!("a dry run of genesis from {states} states on the way, then the deed"),
        "both list the same; no request that changes anything; under 2 s",
        &format!("the same in {states} of {states}; {:.2} s at most", slowest.as_secs_f64()),
    );
    assert!(states >= 10);
    assert_eq!(
        REACHED.with_borrow(|reached| *reached),
        [true; 3],
        "a part was never asked by way of its proxy"
    );
}

/// What is lost before genesis goes on; how often it then goes on to that step.
async fn disturb(mesh: &Mesh, until_step: &str) -> usize {
    match until_step {
        "images" => std::fs::remove_file(mesh.layout().credential("prober")).unwrap(),
        "host" => {
            let own =
                mesh.file().images.into_iter().find(|image| image.reference.contains("mesh-controller"));
            let _ = mesh.engine().await.remove_image(&own.unwrap().reference).await.unwrap();
        }
        "pivot" => {
            let host = mesh.host().await;
            host.kill();
            until("the host is gone", SOON, || (!host.is_alive()).then_some(()));
        }
        _ => {}
    }
    // Once more where nothing is left to do.
    if ["identity", "host", "store"].contains(&until_step) { 2 } else { 1 }
}

/// A push lists what it does, too: what is published, and what the controller then changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_lists_what_it_does() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    let folder = repository().join("controller");
    let words = ["push", folder.to_str().unwrap(), "--dry-run", "--json"];
    let (listed, _) = dry_run(&mesh, &words).await;
    let said = mesh.push(&folder, &["--json"]).await.exited(0);
    assert_eq!(deeds(&said).1, listed, "{said}");
    assert_eq!(listed.len(), 2, "publish and push: {listed:?}");
    let (listed, _) = dry_run(&mesh, &words).await;
    let said = mesh.push(&folder, &["--json"]).await.exited(0);
    assert_eq!(deeds(&said).1, listed, "{said}");
    assert_eq!(listed.len(), 1, "it is published already: {listed:?}");
}

/// The real parts keep to what the fakes are held to, over a whole genesis.
#[tokio::test(flavor = "current_thread")]
async fn the_real_parts_keep_to_the_contract_of_the_fakes() {
    let mesh = Mesh::new().await;
    let mut words = vec!["mesh".to_owned()];
    words.extend(mesh.genesis_words(&[]).into_iter().map(str::to_owned));
    let Command::Genesis(options) = Cli::parse_from(words).command else { panic!("it is genesis") };
    let mut world = World::of_this_process().unwrap();
    world.program = Utf8PathBuf::try_from(Binary::Mesh.path()).unwrap();
    world.environment = environment().into_iter().collect();
    let printer = Printer::new(&world, Form::Text, Volume::Normal);
    let seat = CONTROLLER_SEAT.parse().unwrap();
    let parts = contract::Held(Real::new(&world, mesh.layout().clone(), seat, &printer));
    genesis::run_with(&world, mesh.layout().clone(), options, &printer, parts).await.unwrap();
    let _ = mesh.raise().await.says(&["nothing was changed"]);
}
