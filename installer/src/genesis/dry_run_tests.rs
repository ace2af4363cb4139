//! A dry run lists what the run that follows does, from whatever state: held over a thousand states on fakes, which keep
//! to the contract of the real parts.
//!
//! In: what may happen to a mesh before it is whole. Out: that the dry run touched nothing, that both lists are the same, and
//! that the run came to its end. Not here: the real parts; an end-to-end test has them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::layout::Layout;
use proptest::prelude::*;

use super::context::{Context, Deed};
use super::contract::Held;
use super::fakes::{Fakes, Kill};
use super::raise;
use crate::cli;
use crate::output::{Failure, Form, Printer, Volume};
use crate::world::World;

/// A thousand states.
const CASES: u32 = 1000;

/// What may happen before.
#[derive(Debug, Clone)]
enum Happening {
    /// Genesis is run, and killed before its deed of this number.
    KilledBefore(usize),
    /// And behind it.
    KilledBehind(usize),
    /// It is told to stop after a step.
    Until(usize),
    /// The engine loses an image.
    ImageGone(usize),
    /// The host is killed.
    HostKilled,
    /// The store loses what it has.
    StoreEmptied,
    /// A file that genesis wrote is removed.
    FileGone(usize),
    /// A file that genesis wrote has other bytes; not what says which mesh this is.
    FileChanged(usize),
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0..12_usize).prop_map(Happening::KilledBefore),
        3 => (0..12_usize).prop_map(Happening::KilledBehind),
        2 => (0..11_usize).prop_map(Happening::Until),
        2 => (0..3_usize).prop_map(Happening::ImageGone),
        1 => Just(Happening::HostKilled),
        1 => Just(Happening::StoreEmptied),
        2 => (0..16_usize).prop_map(Happening::FileGone),
        2 => (0..16_usize).prop_map(Happening::FileChanged),
    ]
}

/// A machine with the programs that genesis needs, in memory where there is such a place.
struct Machine {
    folder: tempfile::TempDir,
    world: World,
    fakes: Fakes,
}

/// The smallest program: a header without segments, static, of this system.
fn program() -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x00");
    bytes[16] = 2;
    bytes[18] = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    bytes[54] = 56;
    bytes
}

impl Machine {
    fn new() -> Self {
        let memory = Utf8Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.unwrap();
        let at = |name: &str| Utf8Path::from_path(folder.path()).unwrap().join(name);
        for name in ["mesh", "mesh-host", "mesh-controller", "nats-server", "docker-registry"] {
            std::fs::create_dir_all(at("bin")).unwrap();
            std::fs::write(at("bin").join(name), program()).unwrap();
            std::fs::set_permissions(at("bin").join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::fs::create_dir_all(at("controller")).unwrap();
        let own = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller");
        let text = std::fs::read_to_string(own.join("module.toml")).unwrap();
        let text = text.replace("target/mesh/linux-amd64/mesh-controller", "bin/mesh-controller");
        std::fs::write(at("controller/module.toml"), text).unwrap();
        std::fs::copy(own.join("genesis.toml"), at("controller/genesis.toml")).unwrap();
        let mut world = World::of_this_process().unwrap();
        world.environment = BTreeMap::from([
            ("PATH".to_owned(), at("bin").into_string()),
            ("DOCKER_HOST".to_owned(), "unix:///nowhere".to_owned()),
        ]);
        world.program = at("bin/mesh");
        world.user = 0;
        Self { world, fakes: Fakes::default(), folder }
    }

    fn at(&self, name: &str) -> Utf8PathBuf {
        Utf8Path::from_path(self.folder.path()).unwrap().join(name)
    }

    /// One run, and what it did or would do.
    fn genesis(&self, dry_run: bool, until: Option<super::step::Step>) -> (Vec<Deed>, Result<(), Failure>) {
        let wanted = cli::Wanted {
            controller: Some(self.at("controller")),
            node: Some("n1".parse().unwrap()),
            ..cli::Wanted::default()
        };
        let options = cli::Genesis { wanted, dry_run, until, ..cli::Genesis::default() };
        let printer = Printer::new(&self.world, Form::Text, Volume::Quiet);
        let parts = Held(self.fakes.clone());
        let layout = Layout::new(self.at("root"));
        let mut context = Context::new(&self.world, layout, options, &printer, parts).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let done = runtime.block_on(raise(&mut context));
        (context.deeds, done)
    }

    fn happens(&self, happening: &Happening) {
        match happening {
            Happening::KilledBefore(deed) => self.killed(Kill::Before(*deed)),
            Happening::KilledBehind(deed) => self.killed(Kill::Behind(*deed)),
            Happening::Until(step) => {
                let _ = self.genesis(false, Some(super::step::Step::ALL[*step]));
            }
            Happening::ImageGone(number) => {
                let mut outside = self.fakes.outside.borrow_mut();
                let reference = outside.images.keys().nth(*number).cloned();
                reference.map(|reference| outside.images.remove(&reference));
            }
            Happening::HostKilled => self.fakes.outside.borrow_mut().host = None,
            Happening::StoreEmptied => self.fakes.outside.borrow_mut().published.clear(),
            Happening::FileGone(number) => {
                if let Some(path) = self.written().get(*number) {
                    std::fs::remove_file(path).unwrap();
                }
            }
            Happening::FileChanged(number) => {
                if let Some(path) = self.written().get(*number) {
                    std::fs::write(path, "other").unwrap();
                }
            }
        }
    }

    fn killed(&self, kill: Kill) {
        *self.fakes.kill.borrow_mut() = Some(kill);
        let _ = self.genesis(false, None);
        *self.fakes.kill.borrow_mut() = None;
    }

    /// What genesis wrote of which another may be written: not which mesh this is, nor its keys, for without these it
    /// is another mesh's folder.
    fn written(&self) -> Vec<Utf8PathBuf> {
        let root = self.at("root");
        let mut files: Vec<_> = files(&root).into_keys().collect();
        files.retain(|path| {
            let name = path.strip_prefix(&root).unwrap().as_str();
            !["mesh.json", "identity", "installer.lock", "journal"].iter().any(|kept| name.starts_with(kept))
        });
        files
    }

    /// All that a run could have changed.
    fn state(&self) -> (BTreeMap<Utf8PathBuf, Vec<u8>>, usize) {
        (files(&self.at(".")), self.fakes.outside.borrow().deeds)
    }
}

fn files(folder: &Utf8Path) -> BTreeMap<Utf8PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(entries) = folder.read_dir_utf8() else { return found };
    for entry in entries.flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(entry.path()));
        } else {
            found.insert(entry.path().to_owned(), std::fs::read(entry.path()).unwrap());
        }
    }
    found
}

fn lists_what_is_done(happenings: &[Happening]) {
    let machine = Machine::new();
    happenings.iter().for_each(|happening| machine.happens(happening));
    let before = machine.state();
    let (listed, said) = machine.genesis(true, None);
    assert_eq!(machine.state(), before, "a dry run touched something");
    let (done, ended) = machine.genesis(false, None);
    SEEN.with_borrow_mut(|seen| *seen.entry(done.len()).or_default() += 1);
    assert_eq!(listed, done);
    assert_eq!(
        said.map_err(|failure| failure.code),
        ended.as_ref().map(drop).map_err(|failure| failure.code)
    );
    ended.unwrap();
    // It is whole now: nothing is left to do, and both say so.
    let before = machine.state();
    let (listed, said) = machine.genesis(true, None);
    said.unwrap();
    assert!(listed.iter().all(|deed| deed.what == "start the host"), "{listed:?}");
    assert_eq!(machine.state(), before);
}

thread_local! {
    /// How many states had how much left to do.
    static SEEN: RefCell<BTreeMap<usize, usize>> = RefCell::default();
}

#[test]
fn it_lists_what_the_run_does_from_a_thousand_states() {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(happenings in prop::collection::vec(happening(), 0..5))| {
        lists_what_is_done(&happenings);
    });
    let seen = SEEN.with_borrow(Clone::clone);
    eprintln!("states by how many deeds were left: {seen:?}");
    // Nothing, everything, and much in between.
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn from_an_empty_machine_it_lists_all() {
    let machine = Machine::new();
    let (listed, said) = machine.genesis(true, None);
    said.unwrap();
    let lines: Vec<String> = listed.iter().map(|deed| format!("{}: {}", deed.step, deed.what)).collect();
    let text = lines.join("\n").replace(machine.folder.path().to_str().unwrap(), "[machine]");
    insta::assert_snapshot!(text, @r"
    identity: begin mesh mesh in [machine]/root
    identity: make the mesh's keys
    identity: write [machine]/root/credentials/host.creds
    identity: write [machine]/root/credentials/operator.creds
    identity: write [machine]/root/credentials/prober.creds
    identity: write [machine]/root/secrets/mesh-controller/seat.creds
    identity: write [machine]/root/secrets/mesh-controller/state.creds
    identity: write [machine]/root/secrets/mesh-bus/nats.conf
    identity: write [machine]/root/secrets/mesh-store/config.yml
    bundles: pack bundle mesh-controller
    images: load the image of mesh-controller, which is its bundle, into the engine
    images: pull docker.io/library/nats:2.10, or make an image of [machine]/bin/nats-server where it cannot be had
    images: pull docker.io/library/registry:2.8.3, or make an image of [machine]/bin/docker-registry where it cannot be had
    host: write [machine]/root/bin/mesh-host
    host: write [machine]/root/host/host.json
    host: start the host
    pivot: give the host generation 1
    store: push mesh-bus
    store: push mesh-store
    publish: publish the bundle of mesh-controller
    push: push mesh-controller
    handover: hand the seat over from container:mesh-controller to the process
    ");
}
