//! Each check by its name: which judgement it is, of what that was seen.
//!
//! In: [`Seen`]. Out: findings. Sees nothing but what was seen.

use super::begun;
use super::check::{Finding, Report, expect, wrong};
use super::engine::NO_ENGINE;
use super::intent::{Intent, SKIPPED};
use super::name::Name;
use super::place::Sweep;
use super::root::For;
use super::seen::{Seen, controller_name};
use super::{
    accounts, clocks, container, controller, engine, groups, image, machine, meshes, network, place, ports,
    root,
};
use crate::output::Code;
use crate::third_party::ThirdParty;

/// Every check, in the order of the names.
pub(super) fn all(intent: &Intent<'_>, seen: &Seen) -> Report {
    let one = |name: Name| {
        let finding = judge(name, intent, seen);
        if intent.wants(name) { finding } else { expect(finding.expected).skipped(SKIPPED) }
    };
    Report::new(Name::ALL.iter().map(|name| (*name, one(*name))).collect())
}

fn judge(name: Name, intent: &Intent<'_>, seen: &Seen) -> Finding {
    let root = intent.layout.root();
    match name {
        Name::User => machine::user(intent.world.user),
        Name::Inputs => begun::inputs(intent),
        Name::Lock => begun::lock(intent.lock, seen.lock),
        Name::EarlierAttempt => begun::attempt(intent.lock, &seen.attempt),
        Name::HostName => {
            machine::host_name(&seen.host_name, intent.mesh.map(|mesh| (&mesh.inputs.node, seen.node)))
        }
        Name::Kernel => machine::kernel(&seen.kernel),
        Name::Memory => machine::memory(seen.memory),
        Name::OpenFiles => machine::open_files(seen.open_files),
        Name::Clock => machine::clock((intent.world.clock)(), intent.mesh.map(|mesh| mesh.created)),
        Name::AccountPrograms => machine::account_programs(&seen.missing_programs),
        Name::HostProgram => machine::host_program(&seen.host_program.0, &seen.host_program.1),
        Name::HostUnit => machine::host_unit(&seen.init),
        Name::CgroupVersion => groups::version(seen.groups.as_deref()),
        Name::CgroupGroup => groups::group(&seen.group),
        Name::Proxies => network::proxies(&intent.world.environment),
        Name::Localhost => network::localhost(&seen.hosts),
        Name::LoopbackIpv4 => network::ipv4(&seen.ipv4),
        Name::LoopbackIpv6 => network::ipv6(&seen.ipv6),
        Name::BusPort => ports::port(ports::Whose::Bus, &seen.ports[0], seen.own),
        Name::StorePort => {
            ports::port(ports::Whose::Store { bus: seen.ports[0].number }, &seen.ports[1], seen.own)
        }
        Name::RootPath => root::path(intent.layout),
        Name::RootFolder => root::folder(root, &seen.folder, intent.mesh.is_some()),
        Name::RootPassage => root::passage(root, seen.closed.as_deref()),
        Name::RootDisk => root::disk(For::Root(root), &seen.room),
        Name::RootInodes => root::inodes(For::Root(root), &seen.room),
        Name::RootWritable => place::writable(&seen.place.write),
        Name::RootOwners => place::owners(&seen.place.owner),
        Name::RootSockets => place::sockets(&seen.place.socket),
        Name::RootExecutable => place::executable(&seen.place.execute, seen.noexec),
        Name::ControllerManifest => controller::manifest(&seen.controller),
        Name::ControllerForm => controller::form(&seen.controller),
        Name::ControllerBinary => controller::binary(&seen.controller),
        Name::BusAccount | Name::StoreAccount => {
            let name = intent.prefixed(third_party(name).name());
            accounts::free(Some(&[name]), &seen.accounts, intent.mesh)
        }
        Name::ControllerAccount if matches!(seen.controller, controller::Source::NotNeeded) => {
            accounts::free(Some(&[]), &seen.accounts, intent.mesh)
        }
        Name::ControllerAccount => {
            let names = accounts::of_controller(intent, &seen.controller);
            accounts::free(names.as_deref(), &seen.accounts, intent.mesh)
        }
        other => judge_engine(other, intent, seen),
    }
}

fn judge_engine(name: Name, intent: &Intent<'_>, seen: &Seen) -> Finding {
    let (engine, facts) = (&seen.engine, seen.engine.facts.as_ref());
    let folder = facts.map(|facts| facts.root_folder.as_str()).unwrap_or_default();
    match name {
        Name::EngineEndpoint => engine::endpoint(engine),
        Name::EngineInstalled => engine::installed(engine),
        Name::EngineRunning => engine::running(engine),
        Name::EnginePermitted => engine::permitted(engine),
        Name::EngineVersion => engine::version(engine),
        Name::EnginePlatform => engine::platform(engine),
        Name::EngineRootful => engine::rootful(engine),
        Name::EngineSwarm => engine::swarm(engine),
        Name::CgroupControllers => match facts {
            Some(facts) => groups::controllers(&facts.cgroup_driver, &facts.unlimited),
            None => expect("an engine that can limit what a container takes").skipped(NO_ENGINE),
        },
        Name::EngineDisk if facts.is_none() => expect("room for images").skipped(NO_ENGINE),
        Name::EngineDisk => root::disk(For::Engine(folder), &engine.room),
        Name::EngineInodes if facts.is_none() => expect("room for files of images").skipped(NO_ENGINE),
        Name::EngineInodes => root::inodes(For::Engine(folder), &engine.room),
        Name::BusName | Name::StoreName => {
            let name = intent.prefixed(third_party(name).name());
            meshes::name(Some(&name), seen.names.get(&name), (intent.mesh, &seen.meshes))
        }
        Name::ControllerName => {
            let name = controller_name(intent, &seen.controller);
            let holder = name.as_ref().and_then(|name| seen.names.get(name));
            meshes::name(name.as_deref(), holder, (intent.mesh, &seen.meshes))
        }
        Name::BusImage => image::image(ThirdParty::Bus, &seen.images[0]),
        Name::StoreImage => image::image(ThirdParty::Store, &seen.images[1]),
        Name::ContainerImage => container::image(&seen.container.image),
        Name::ContainerStart => container::start(&seen.container.start),
        Name::ContainerNetwork => container::network(&seen.container.network),
        Name::ContainerMount => container::mount(&seen.container.mount),
        Name::ContainerStop => container::stop(&seen.container.stop),
        Name::ContainerRemove => container::removal(&seen.container.remove),
        Name::EngineClock => clocks::agree(&seen.clocks[0], clocks::May::Not),
        Name::BusClock => clocks::agree(&seen.clocks[1], clocks::May::BeEarlier),
        Name::StoreClock => clocks::agree(&seen.clocks[2], clocks::May::Not),
        Name::LeftoverContainers => meshes::leftover_containers(seen.containers.as_deref(), &seen.meshes),
        Name::LeftoverAccounts => accounts::leftovers(&seen.accounts, &seen.meshes.ids()),
        Name::LeftoverUnits => meshes::leftover_units(&seen.units, &seen.meshes),
        _ => leftover_probes(&seen.leftovers, seen.sweep),
    }
}

fn third_party(name: Name) -> ThirdParty {
    match name {
        Name::StoreAccount | Name::StoreName | Name::StoreImage => ThirdParty::Store,
        _ => ThirdParty::Bus,
    }
}

/// What an earlier look left is removed by this one, where it may do something.
pub(super) fn leftover_probes(left: &Result<Vec<String>, String>, sweep: Sweep) -> Finding {
    let check = expect("nothing of an earlier look at this machine");
    match (left, sweep) {
        (Ok(left), _) if left.is_empty() => check.met("none"),
        (Ok(left), Sweep::Removed) => check.met(format!("removed {}", left.join(", "))),
        (Ok(left), Sweep::Told) => check.warned(wrong(
            Code::LeftBehind,
            "an earlier look at this machine was killed, and left something",
            left.join(", "),
            "run mesh doctor as root: it removes that",
        )),
        (Err(why), _) => check.warned(wrong(
            Code::LeftBehind,
            format!("what an earlier look left in the engine cannot be removed: {why}"),
            why.clone(),
            "see what the engine's log says (journalctl -u docker)",
        )),
    }
}
