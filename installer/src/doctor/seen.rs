//! Looks at all that the checks are about, side by side where that helps.
//!
//! In: what is to be raised. Out: [`Seen`]. What is tried for it is taken away before this returns. Not here: what is right.

use std::collections::BTreeMap;

use camino::Utf8PathBuf;
use mesh_bundles::elf::Elf;
use mesh_engine::{Container, Engine, LabelSelector};
use mesh_protocol::chain::chain;
use mesh_protocol::layout::label;

use super::check::Tried;
use super::controller::Source;
use super::intent::Intent;
use super::machine::{self, Init, Origin};
use super::maker::Maker;
use super::meshes::{self, Meshes, Unit};
use super::name::Name;
use super::place::Sweep;
use super::{begun, clocks, container, engine, groups, image, network, place, ports, root};
use crate::config;
use crate::controller_source::ControllerSource;
use crate::door::Door;
use crate::machine::accounts::{self, Account};
use crate::machine::ports::Port;
use crate::machine::{Room, host_name, room};
use crate::output::Failure;
use crate::third_party::ThirdParty;

/// All that was seen.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) lock: Option<u32>,
    pub(super) attempt: begun::Attempt,
    pub(super) host_name: String,
    pub(super) node: Origin,
    pub(super) kernel: Tried,
    pub(super) memory: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) missing_programs: Vec<&'static str>,
    pub(super) host_program: (Utf8PathBuf, Result<Elf, Failure>),
    pub(super) init: Init,
    pub(super) groups: Option<Utf8PathBuf>,
    pub(super) group: Tried,
    pub(super) hosts: String,
    pub(super) ipv4: Tried,
    pub(super) ipv6: Vec<(u16, Option<Port>)>,
    pub(super) own: ports::Own,
    pub(super) ports: [ports::Seen; 2],
    pub(super) folder: root::Folder,
    pub(super) closed: Option<Utf8PathBuf>,
    pub(super) room: Result<Room, String>,
    pub(super) place: place::Trials,
    pub(super) noexec: bool,
    pub(super) controller: Source,
    pub(super) accounts: Result<Vec<Account>, String>,
    pub(super) engine: engine::Seen,
    pub(super) containers: Option<Vec<Container>>,
    pub(super) names: BTreeMap<String, Result<Option<Container>, String>>,
    pub(super) images: [image::Origin; 2],
    pub(super) container: container::Trials,
    pub(super) clocks: [clocks::Asked; 3],
    pub(super) units: Vec<Unit>,
    pub(super) meshes: Meshes,
    pub(super) leftovers: Result<Vec<String>, String>,
    pub(super) sweep: Sweep,
}

impl Seen {
    /// Looks at it all.
    pub(super) async fn look(intent: &Intent<'_>) -> Self {
        let path = intent.world.variable("PATH");
        let maker = Maker::of_this_process();
        let above = place::nearest(intent.layout);
        let controller = controller(intent);
        let (place, (engine, connected), door, bus_clock, store_clock) = tokio::join!(
            exercise(intent, &above, maker.as_ref()),
            engine::look(intent.world),
            async { Door::new(intent.layout.door()).observe_if_there().await.ok().flatten() },
            clocks::of_bus(intent),
            clocks::of_store(intent),
        );
        let engine_clock = clocks::of_engine(engine.facts.as_ref(), (intent.world.clock)());
        let of_engine =
            Box::pin(OfEngine::look(intent, connected.as_ref(), (&place, maker.as_ref(), &controller))).await;
        let groups = groups::root();
        let leftovers = of_engine.leftovers.map(|mut left| {
            let bundles = intent.layout.bundles();
            left.extend(bundles.ancestors().flat_map(|folder| place::sweep(folder, sweep(intent))));
            left.extend(groups::sweep(groups.as_deref(), sweep(intent)));
            left
        });
        let units = meshes::units();
        let containers = of_engine.containers;
        let meshes = Meshes::look(intent.layout.root(), &units, containers.as_deref().unwrap_or_default());
        let own = match door.is_some_and(|observed| observed.declaration.is_some()) {
            true => ports::Own::Runs,
            false => ports::Own::DoesNot,
        };
        let (bus, store) = intent.ports();
        let unit = intent.mesh.map(|mesh| crate::daemon::unit_path(&mesh.mesh));
        let token = maker.as_ref().map(|maker| maker.token().to_owned()).unwrap_or_default();
        let group = match intent.why_not(Name::CgroupGroup) {
            Some(why) => Tried::Not(why),
            None => groups::try_group(groups.as_deref(), &token),
        };
        Self {
            lock: begun::lock_holder(intent.layout),
            attempt: begun::Attempt::of(intent.layout, intent.mesh),
            host_name: host_name(),
            node: begun::origin_of_the_node(intent.layout),
            kernel: machine::kernel_names_processes(),
            memory: std::fs::read_to_string("/proc/meminfo")
                .ok()
                .as_deref()
                .and_then(machine::available_memory),
            open_files: machine::most_open_files(),
            missing_programs: machine::missing_account_programs(path),
            host_program: machine::host_elf(intent.world),
            init: Init::of_this_machine(path, unit.as_deref()),
            groups,
            group,
            hosts: std::fs::read_to_string("/etc/hosts").unwrap_or_default(),
            ipv4: network::try_ipv4(),
            ipv6: [bus, store]
                .into_iter()
                .filter(|port| *port != 0)
                .map(|port| (port, network::look_ipv6(port)))
                .collect(),
            own,
            ports: [bus, store].map(|port| look_at_port(port, containers.as_deref(), &meshes)),
            folder: root::Folder::of(intent.layout),
            closed: root::closed_above(intent.layout.root()),
            room: room(intent.layout.root()).map_err(|error| error.to_string()),
            place,
            noexec: place::is_noexec(&above),
            controller,
            accounts: accounts::read(accounts::PASSWD.into()).map_err(|error| error.to_string()),
            engine,
            containers,
            names: of_engine.names,
            images: of_engine.images,
            container: of_engine.container,
            clocks: [engine_clock, bus_clock, store_clock],
            units,
            meshes,
            leftovers,
            sweep: sweep(intent),
        }
    }
}

/// What becomes of what an earlier look left.
fn sweep(intent: &Intent<'_>) -> Sweep {
    if intent.why_not(Name::LeftoverProbes).is_none() { Sweep::Removed } else { Sweep::Told }
}

fn controller(intent: &Intent<'_>) -> Source {
    if intent.mesh.is_some_and(|mesh| mesh.process_since.is_some()) {
        return Source::NotNeeded;
    }
    let folder = config::controller_folder(intent.world, intent.wanted.controller.as_deref());
    Source::Read(Box::new(folder.and_then(|folder| ControllerSource::load(&folder))))
}

fn look_at_port(number: u16, containers: Option<&[Container]>, meshes: &Meshes) -> ports::Seen {
    let port = if number == 0 { Port::Free } else { crate::machine::ports::look(number) };
    let within = match &port {
        Port::Held(Some(holder)) => ports::within(holder, containers.unwrap_or_default(), meshes),
        _ => String::new(),
    };
    ports::Seen { number, port, within }
}

/// What is tried in the files where the mesh shall lie, on a thread that may wait for the disk.
async fn exercise(
    intent: &Intent<'_>,
    above: &Utf8PathBuf,
    maker: Result<&Maker, &std::io::Error>,
) -> place::Trials {
    let names = [Name::RootWritable, Name::RootOwners, Name::RootSockets, Name::RootExecutable];
    let not = names.map(|name| intent.why_not(name));
    let (above, maker) = match maker {
        Ok(maker) => (above.clone(), maker.clone()),
        Err(error) => return place::Trials::all(&Tried::Failed(error.to_string())),
    };
    let trying = tokio::task::spawn_blocking(move || place::try_all(&above, &maker, not));
    trying.await.unwrap_or_else(|error| place::Trials::all(&Tried::Failed(error.to_string())))
}

/// What is in the engine, and what was tried with it.
struct OfEngine {
    containers: Option<Vec<Container>>,
    names: BTreeMap<String, Result<Option<Container>, String>>,
    images: [image::Origin; 2],
    container: container::Trials,
    leftovers: Result<Vec<String>, String>,
}

impl OfEngine {
    async fn look(
        intent: &Intent<'_>,
        engine: Option<&Engine>,
        (place, maker, controller): (&place::Trials, Result<&Maker, &std::io::Error>, &Source),
    ) -> Self {
        let images = async {
            let [bus, store] = ThirdParty::ALL;
            [image::look(intent, engine, bus).await, image::look(intent, engine, store).await]
        };
        let Some(engine) = engine else {
            return Self {
                containers: None,
                names: BTreeMap::new(),
                images: images.await,
                container: container::Trials::all(&Tried::Not(engine::NO_ENGINE.to_owned())),
                leftovers: Ok(Vec::new()),
            };
        };
        let (containers, names, images, (container, leftovers)) = tokio::join!(
            async { engine.list(&LabelSelector::has(label::MESH)).await.ok() },
            names(intent, engine, controller),
            images,
            async {
                let left = container::sweep(engine, sweep(intent)).await.map_err(|error| chain(&error));
                (Box::pin(try_container(intent, engine, place, maker)).await, left)
            },
        );
        Self { containers, names, images, container, leftovers }
    }
}

async fn try_container(
    intent: &Intent<'_>,
    engine: &Engine,
    place: &place::Trials,
    maker: Result<&Maker, &std::io::Error>,
) -> container::Trials {
    let needed = [Name::ContainerImage, Name::ContainerStart];
    if let Some(why) = needed.into_iter().find_map(|name| intent.why_not(name)) {
        return container::Trials::all(&Tried::Not(why));
    }
    match (&place.place, maker) {
        (Some(place), Ok(maker)) => container::try_all(engine, place, maker).await,
        _ => container::Trials::all(&Tried::without(Name::RootWritable)),
    }
}

/// Who holds the names that the containers shall have.
async fn names(
    intent: &Intent<'_>,
    engine: &Engine,
    controller: &Source,
) -> BTreeMap<String, Result<Option<Container>, String>> {
    let mut holders = BTreeMap::new();
    let third_parties = ThirdParty::ALL.map(|third_party| intent.prefixed(third_party.name()));
    for name in third_parties.into_iter().chain(controller_name(intent, controller)) {
        let holder = match name.parse() {
            Ok(parsed) => engine.find(&parsed).await.map_err(|error| chain(&error)),
            Err(error) => Err(error.to_string()),
        };
        holders.insert(name, holder);
    }
    holders
}

/// The name of the container that genesis raises.
pub(super) fn controller_name(intent: &Intent<'_>, controller: &Source) -> Option<String> {
    let container = controller.get()?.container().ok()?;
    Some(intent.prefixed(container.name()))
}
