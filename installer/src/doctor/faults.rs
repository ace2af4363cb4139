//! For every check a fault that it sees: no name is without one, for the compiler wants an arm for each.
//!
//! In: a name. Out: what the check says of a machine that has its fault. Faults that can be real in a test of this size are
//! (a port that is held, a name in /etc/hosts, a socket at which nobody answers); those of a whole machine (a file system
//! without room or without programs, an engine that is not started) are in the end-to-end tests, too.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, TcpListener};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use jiff::{SignedDuration, Timestamp};
use mesh_engine::probe::Swarm;
use mesh_engine::{Address, Container, Endpoint, Error, Facts, FoundBy, Silence};
use mesh_protocol::id::System;
use mesh_protocol::layout::{Layout, label};

use super::check::{Finding, State, Tried};
use super::controller::Source;
use super::intent::{Exercise, Intent, Lock};
use super::machine::{Init, Origin};
use super::meshes::Meshes;
use super::name::Name;
use super::root::For;
use super::{
    accounts, begun, clocks, container, controller, engine, groups, image, judge, machine, meshes, network,
};
use super::{place, ports, root};
use crate::cli::Wanted;
use crate::controller_source::ControllerSource;
use crate::machine::Room;
use crate::machine::accounts::Account;
use crate::machine::ports::{Holder, Port};
use crate::mesh_file::{MeshFile, tests::inputs};
use crate::output::{Code, Failure};
use crate::third_party::ThirdParty;
use crate::world::World;

fn failed(why: &str) -> Tried {
    Tried::Failed(why.to_owned())
}

fn facts() -> Facts {
    Facts {
        version: "20.10.24".to_owned(),
        api: "1.41".parse().unwrap(),
        os: "linux".to_owned(),
        architecture: System::of_this_program().architecture().to_owned(),
        cgroup: None,
        cgroup_driver: "cgroupfs".to_owned(),
        unlimited: Vec::new(),
        root_folder: "/var/lib/docker".to_owned(),
        security: Vec::new(),
        swarm: Swarm::Apart,
        time: Some(Timestamp::UNIX_EPOCH),
    }
}

fn address() -> Address {
    "unix:///var/run/docker.sock".parse().unwrap()
}

fn engine(silent: Option<Error>, facts: Option<Facts>, daemon: Option<&str>) -> engine::Seen {
    engine::Seen {
        endpoint: Ok(Endpoint { address: address(), found_by: FoundBy::Default }),
        silent,
        daemon: daemon.map(str::to_owned),
        group: Some("docker".to_owned()),
        facts,
        room: Err("there is no such folder".to_owned()),
    }
}

fn unreachable() -> Error {
    Error::Unreachable {
        address: address(),
        silence: Silence::NoSocket,
        source: std::io::ErrorKind::NotFound.into(),
    }
}

fn of_another_mesh(name: &str) -> Container {
    Container {
        id: "0123456789abcdef".repeat(4).parse().unwrap(),
        name: name.parse().unwrap(),
        image_id: String::new(),
        image_reference: "nats:2.10".to_owned(),
        state: mesh_engine::State::Created,
        started_at: None,
        restart_count: 0,
        restart_policy: "always".to_owned(),
        user: String::new(),
        labels: BTreeMap::from([(label::MESH.to_owned(), "gone1".to_owned())]),
        mounts: Vec::new(),
    }
}

fn account(name: &str, gecos: &str) -> Vec<Account> {
    vec![Account { name: name.to_owned(), uid: 999, gecos: gecos.to_owned() }]
}

fn mesh_file() -> MeshFile {
    MeshFile::new("m1".parse().unwrap(), Timestamp::now(), inputs())
}

/// The controller's folder with something changed in a file.
fn controller(change: Option<(&str, &str, &str)>) -> Source {
    let temp = tempfile::tempdir().unwrap();
    let folder = Utf8Path::from_path(temp.path()).unwrap().join("controller");
    std::fs::create_dir(&folder).unwrap();
    let from = Utf8Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller");
    for file in ["module.toml", "genesis.toml"] {
        let mut text = std::fs::read_to_string(from.join(file)).unwrap();
        if let Some((changed, old, new)) = change
            && changed == file
        {
            assert!(text.contains(old), "{file} has no {old:?}");
            text = text.replace(old, new);
        }
        std::fs::write(folder.join(file), text).unwrap();
    }
    Source::Read(Box::new(ControllerSource::load(&folder)))
}

fn inputs_that_differ() -> Finding {
    let (world, mesh) = (World::of_this_process().unwrap(), mesh_file());
    let wanted = Wanted { bus_port: Some(4223), ..Wanted::default() };
    begun::inputs(&Intent {
        world: &world,
        layout: &Layout::new("/r"),
        mesh: Some(&mesh),
        wanted: &wanted,
        skip: &[],
        exercise: Exercise::NotDone,
        lock: Lock::NotOurs,
    })
}

fn held_port(number: u16) -> ports::Seen {
    let holder = Holder { program: "nats-server".to_owned(), pid: 7 };
    ports::Seen {
        number,
        port: Port::Held(Some(holder)),
        within: " in container mesh-bus, of mesh a7 in /r".to_owned(),
    }
}

fn no_room() -> Result<Room, String> {
    Ok(Room { bytes: 1 << 20, files: Some(3) })
}

fn clocks_apart() -> clocks::Asked {
    let here = Timestamp::UNIX_EPOCH;
    Ok(clocks::Told { by: "x".to_owned(), time: here + SignedDuration::from_hours(1), here })
}

/// What a check says of a machine with its fault.
fn fault(name: Name) -> Finding {
    let root = Utf8Path::new("/var/lib/mesh");
    let none = Meshes::default();
    match name {
        Name::User => machine::user(1000),
        Name::Inputs => inputs_that_differ(),
        Name::Lock => begun::lock(Lock::NotOurs, Some(7)),
        Name::EarlierAttempt => begun::attempt(Lock::NotOurs, &begun::Attempt::Begun { last: None }),
        Name::HostName => machine::host_name("renamed", Some((&"n1".parse().unwrap(), Origin::HostName))),
        Name::Kernel => machine::kernel(&failed("Linux 4.19: not implemented")),
        Name::Memory => machine::memory(Some(1 << 20)),
        Name::OpenFiles => machine::open_files(Some(64)),
        Name::Clock => machine::clock(Timestamp::UNIX_EPOCH, None),
        Name::AccountPrograms => machine::account_programs(&machine::ACCOUNT_PROGRAMS),
        Name::HostProgram => {
            let mut world = World::of_this_process().unwrap();
            world.program = "/no/such/folder/mesh".into();
            let (program, elf) = machine::host_elf(&world);
            machine::host_program(&program, &elf)
        }
        Name::HostUnit => machine::host_unit(&Init::Systemd {
            systemctl: true,
            overridden: Some("/etc/systemd/x.conf".into()),
        }),
        Name::CgroupVersion => groups::version(None),
        Name::CgroupGroup => groups::group(&failed("read-only file system")),
        Name::CgroupControllers => groups::controllers("cgroupfs", &["memory"]),
        Name::Proxies => {
            network::proxies(&[("HTTP_PROXY".to_owned(), "http://proxy:3128".to_owned())].into())
        }
        Name::Localhost => network::localhost("10.1.2.3 localhost\n"),
        Name::LoopbackIpv4 => network::ipv4(&failed("no route to host")),
        Name::LoopbackIpv6 => {
            let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            network::ipv6(&[(port, network::look_ipv6(port))])
        }
        Name::BusPort => ports::port(ports::Whose::Bus, &held_port(4222), ports::Own::DoesNot),
        Name::StorePort => {
            let free = ports::Seen { number: 4222, port: Port::Free, within: String::new() };
            ports::port(ports::Whose::Store { bus: 4222 }, &free, ports::Own::DoesNot)
        }
        Name::RootPath => root::path(&Layout::new(format!("/{}", "a".repeat(120)))),
        Name::RootFolder => {
            root::folder(root, &root::Folder::There { foreign: vec!["notes".to_owned()] }, false)
        }
        Name::RootPassage => root::passage(root, Some(Utf8Path::new("/var/lib"))),
        Name::RootDisk => root::disk(For::Root(root), &no_room()),
        Name::RootInodes => root::inodes(For::Root(root), &no_room()),
        Name::RootWritable => place::writable(&failed("read-only file system")),
        Name::RootOwners => place::owners(&failed("operation not permitted")),
        Name::RootSockets => place::sockets(&failed("operation not supported")),
        Name::RootExecutable => place::executable(&failed("permission denied"), true),
        Name::ControllerManifest => {
            let change = ("module.toml", "replaces = \"container:mesh-controller\"", "");
            controller::manifest(&controller(Some(change)))
        }
        Name::ControllerForm => {
            let change = (
                "module.toml",
                "secret  = \"state.creds\"\nmode    = \"0400\"",
                "secret  = \"state.creds\"\nmode    = \"0440\"",
            );
            controller::form(&controller(Some(change)))
        }
        Name::ControllerBinary => controller::binary(&controller(None)),
        Name::BusAccount => {
            accounts::free(Some(&["mesh-bus".to_owned()]), &Ok(account("mesh-bus", "somebody")), None)
        }
        Name::StoreAccount => accounts::free(Some(&["m".repeat(33)]), &Ok(Vec::new()), None),
        Name::ControllerAccount => {
            let two = ["a".to_owned(), "b".to_owned()];
            let there = [account("a", "mesh other"), account("b", "")].concat();
            accounts::free(Some(&two), &Ok(there), Some(&mesh_file()))
        }
        Name::EngineEndpoint => {
            let failure =
                Failure::new(Code::EngineEndpoint, "docker context \"x\" does not exist").hint("mend it");
            engine::endpoint(&engine::Seen { endpoint: Err(failure), ..engine(None, None, None) })
        }
        Name::EngineInstalled => engine::installed(&engine(Some(unreachable()), None, None)),
        Name::EngineRunning => engine::running(&engine(Some(unreachable()), None, Some("/usr/sbin/dockerd"))),
        Name::EnginePermitted => {
            let error = Error::NotPermitted {
                address: address(),
                source: std::io::ErrorKind::PermissionDenied.into(),
            };
            engine::permitted(&engine(Some(error), None, None))
        }
        Name::EngineVersion => {
            let error = Error::TooNew { address: address(), found: "1.99".parse().unwrap() };
            engine::version(&engine(Some(error), None, None))
        }
        Name::EnginePlatform => {
            let facts = Facts { architecture: "riscv64".to_owned(), ..facts() };
            engine::platform(&engine(None, Some(facts), None))
        }
        Name::EngineRootful => {
            let facts = Facts { security: vec!["name=rootless".to_owned()], ..facts() };
            engine::rootful(&engine(None, Some(facts), None))
        }
        Name::EngineSwarm => {
            engine::swarm(&engine(None, Some(Facts { swarm: Swarm::Member, ..facts() }), None))
        }
        Name::EngineDisk => root::disk(For::Engine("/var/lib/docker"), &no_room()),
        Name::EngineInodes => root::inodes(For::Engine("/var/lib/docker"), &no_room()),
        Name::BusName | Name::StoreName => {
            let holder = Ok(Some(of_another_mesh("mesh-bus")));
            meshes::name(Some("mesh-bus"), Some(&holder), (Some(&mesh_file()), &none))
        }
        Name::ControllerName => {
            let holder = Err("the engine hangs".to_owned());
            meshes::name(Some("mesh-controller"), Some(&holder), (None, &none))
        }
        Name::BusImage => image::image(ThirdParty::Bus, &image::Origin::Nowhere),
        Name::StoreImage => image::image(ThirdParty::Store, &image::Origin::Registry),
        Name::ContainerImage => container::image(&failed("no space left on device")),
        Name::ContainerStart => container::start(&failed("runc: permission denied")),
        Name::ContainerNetwork => container::network(&failed("process 7 is no process of this machine")),
        Name::ContainerMount => container::mount(&failed("bind source path does not exist")),
        Name::ContainerStop => container::stop(&failed("exited with 137, and not because it was asked to")),
        Name::ContainerRemove => container::removal(&failed("device or resource busy")),
        Name::EngineClock | Name::StoreClock => clocks::agree(&clocks_apart(), clocks::May::Not),
        Name::BusClock => clocks::agree(&clocks_apart(), clocks::May::BeEarlier),
        Name::LeftoverContainers => meshes::leftover_containers(Some(&[of_another_mesh("mesh-bus")]), &none),
        Name::LeftoverAccounts => accounts::leftovers(&Ok(account("mesh-bus", "mesh gone1")), &none.ids()),
        Name::LeftoverUnits => {
            let temp = tempfile::tempdir().unwrap();
            let folder = Utf8PathBuf::try_from(temp.path().to_owned()).unwrap();
            let text = "[Service]\nExecStart=/r/bin/mesh-host serve --root /r\n";
            std::fs::write(folder.join("mesh-gone1.service"), text).unwrap();
            meshes::leftover_units(&meshes::units_in(&folder), &none)
        }
        Name::LeftoverProbes => judge::leftover_probes(&Err("refused".to_owned()), place::Sweep::Removed),
    }
}

#[test]
fn every_check_sees_its_fault_and_says_what_to_do() {
    for name in Name::ALL {
        let finding = fault(*name);
        assert!(matches!(finding.state, State::Failed | State::Warned), "{name}: {finding:?}");
        let problem = finding.problem.as_ref().unwrap();
        let remedy = problem.hint.as_deref().unwrap_or_default();
        for text in [&finding.expected, &finding.found, &problem.what, remedy] {
            assert!(!text.trim().is_empty(), "{name}: {finding:?}");
        }
        assert_ne!(finding.expected, finding.found, "{name}");
    }
}

#[test]
fn what_each_fault_is_told_as() {
    let lines = Name::ALL.iter().filter(|name| !matches!(name, Name::LoopbackIpv6 | Name::ControllerBinary));
    let told: Vec<String> = lines
        .map(|name| {
            let finding = fault(*name);
            let problem = finding.problem.unwrap();
            format!(
                "{} {name} [{}]\n  {}\n  expected: {}\n  found: {}\n  remedy: {}",
                finding.state.as_str(),
                problem.code.as_str(),
                problem.what,
                finding.expected,
                finding.found,
                problem.hint.as_deref().unwrap_or_default()
            )
        })
        .collect();
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(r"/tmp/\.tmp\w+", "[folder]");
    settings.add_filter(r"amd64|arm64", "[system]");
    settings.bind(|| insta::assert_snapshot!(told.join("\n")));
}

#[test]
fn a_step_that_could_not_be_done_is_no_further_fault() {
    let without = Tried::without(Name::RootWritable);
    let trials = container::Trials::all(&without);
    for finding in [
        place::executable(&without, false),
        container::start(&trials.start),
        container::stop(&trials.stop),
        clocks::agree(&Err("no bus runs here yet".to_owned()), clocks::May::Not),
        accounts::free(None, &Ok(Vec::new()), None),
        meshes::name(None, None, (None, &Meshes::default())),
        meshes::leftover_containers(None, &Meshes::default()),
        image::image(ThirdParty::Bus, &image::Origin::Unknown),
        groups::group(&groups::try_group(None, "x")),
    ] {
        assert_eq!(finding.state, State::Skipped, "{finding:?}");
    }
}

/// An engine that takes a connection and says nothing is given up long before a person would.
#[tokio::test(start_paused = true)]
async fn an_engine_that_hangs_is_said_to() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("hung.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let mut world = World::of_this_process().unwrap();
    world.environment = [("DOCKER_HOST".to_owned(), format!("unix://{}", path.display()))].into();
    let began = tokio::time::Instant::now();
    let (seen, connected) = engine::look(&world).await;
    assert!(connected.is_none() && began.elapsed() < Duration::from_secs(5));
    let finding = engine::running(&seen);
    assert_eq!(finding.state, State::Failed);
    assert!(finding.problem.unwrap().what.contains("hangs"));
}
