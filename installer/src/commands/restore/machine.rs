//! Whether a machine can take a mesh that a backup has: nothing of it, and nothing of others, is in the way.
//!
//! In: the backup, the machine. Out: nothing, or all that is in the way, each with its remedy. Touches nothing. Not here:
//! the root itself.

use camino::Utf8Path;
use mesh_engine::{ContainerName, Engine, LabelSelector};
use mesh_protocol::declaration::AccountOrigin;
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::layout::{HostFile, Layout, label};
use serde::Deserialize;

use super::{HOST_FILE, Small};
use crate::backup::Opened;
use crate::genesis::engine_failure;
use crate::machine::{self, accounts, ports};
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result, amount};
use crate::world::World;

/// What of a backup is looked into.
pub(super) const LOOKED_INTO: [&str; 3] = ["mesh.json", HOST_FILE, LEDGER];

const LEDGER: &str = "host/ledger.json";

pub(super) async fn check(
    world: &World,
    layout: &Layout,
    opened: &Opened,
    small: &Small,
    engine: &Engine,
) -> Result<()> {
    let mut faults = Vec::new();
    if world.user != 0 {
        let found = format!("user {}", world.user);
        faults
            .push(Failure::new(Code::NotRoot, "this user is not root").found(found).hint("run this as root"));
    }
    let mesh: MeshFile = read(small, "mesh.json")?;
    let host: HostFile = read(small, HOST_FILE)?;
    let ledger: Ledger = read(small, LEDGER)?;
    faults.extend(elsewhere(layout, &mesh));
    faults.extend(room(layout, opened));
    faults.extend(ports_held(&mesh));
    faults.extend(accounts_held(&mesh, &host, &ledger.entries));
    faults.extend(containers_held(engine, &mesh, &host, &ledger.entries).await);
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::all(Code::Preflight, "this machine cannot take the backup yet", faults))
}

#[derive(Debug, Deserialize)]
struct Ledger {
    entries: Vec<LedgerEntry>,
}

fn read<T: serde::de::DeserializeOwned>(small: &Small, name: &str) -> Result<T> {
    let bytes = small.get(Utf8Path::new(name)).map(Vec::as_slice).unwrap_or_default();
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::because(Code::BackupInvalid, &format!("{name} of the backup cannot be read"), &error)
    })
}

/// Paths below the root are in what the mesh was made of: it comes back where it was.
fn elsewhere(layout: &Layout, mesh: &MeshFile) -> Option<Failure> {
    let (wanted, root) = (&mesh.inputs.root, layout.root());
    let what = format!("folder {root} is not the one that the mesh had");
    let failure =
        || Failure::new(Code::RootUnusable, what).expected(wanted.to_string()).found(root.to_string());
    (wanted != root).then(|| failure().hint(format!("restore it there: --root {wanted}")))
}

fn room(layout: &Layout, opened: &Opened) -> Option<Failure> {
    // The images lie in the root until the engine has them.
    let needed: u64 = opened.manifest.files.iter().map(|file| file.size).sum::<u64>()
        + opened.manifest.images.iter().map(|image| image.size).sum::<u64>();
    match machine::room(layout.root()) {
        Ok(machine::Room { bytes: free, .. }) if free < needed => Some(
            Failure::new(Code::DiskFull, format!("there is too little room for {}", layout.root()))
                .expected(amount::bytes(needed))
                .found(amount::bytes(free))
                .hint("free some, or choose another --root"),
        ),
        _ => None,
    }
}

fn ports_held(mesh: &MeshFile) -> Vec<Failure> {
    let wanted = [("bus", mesh.inputs.bus_port), ("store", mesh.inputs.store_port)];
    let held = |(what, port): (&str, u16)| {
        let failure = Failure::new(Code::PortTaken, format!("port {port} cannot be had for the {what}"))
            .expected(format!("127.0.0.1:{port} to be free"))
            .hint("end what holds it: a mesh that comes back has the ports that it had");
        match ports::look(port) {
            ports::Port::Free => None,
            ports::Port::Held(holder) => {
                Some(failure.found(format!("held by {}", ports::holder_text(holder.as_ref()))))
            }
            ports::Port::NotGiven(why) => Some(failure.found(why)),
        }
    };
    wanted.into_iter().filter_map(held).collect()
}

fn accounts_held(mesh: &MeshFile, host: &HostFile, ledger: &[LedgerEntry]) -> Vec<Failure> {
    let there = match accounts::read(Utf8Path::new(accounts::PASSWD)) {
        Ok(there) => there,
        Err(error) => {
            return vec![Failure::because(Code::Io, "the machine's accounts cannot be read", &error)];
        }
    };
    let made = ledger.iter().flat_map(|entry| &entry.section.accounts);
    let made = made.filter(|account| account.origin == AccountOrigin::Made);
    let mut names: Vec<String> = made.map(|account| host.prefixed(account.name.as_str())).collect();
    names.sort();
    names.dedup();
    let foreign =
        there.iter().filter(|account| names.contains(&account.name) && account.gecos != mesh.account_mark());
    let told = foreign.map(|account| {
        Failure::new(Code::AccountTaken, format!("account {} is there and not of this mesh", account.name))
            .found(format!("uid {}, {:?}", account.uid, account.gecos))
            .hint("remove the account if nobody needs it")
    });
    told.collect()
}

/// Neither somebody else's containers under the names that are needed, nor the mesh itself.
async fn containers_held(
    engine: &Engine,
    mesh: &MeshFile,
    host: &HostFile,
    ledger: &[LedgerEntry],
) -> Vec<Failure> {
    let mut faults = Vec::new();
    match engine.list(&LabelSelector::is(label::MESH, mesh.mesh.as_str())).await {
        Ok(own) => faults.extend(own.iter().map(|container| {
            let what = format!(
                "mesh {} is on this machine: its container {} is there",
                mesh.inputs.name, container.name
            );
            Failure::new(Code::NameTaken, what)
                .found(format!("{} ({})", container.id.short(), container.state))
                .hint(format!("if its folder is lost: docker rm -f {}", container.name))
        })),
        Err(error) => return vec![engine_failure(&error)],
    }
    let containers = ledger.iter().flat_map(|entry| &entry.section.containers);
    let mut names: Vec<String> = containers.map(|container| host.prefixed(container.name.as_str())).collect();
    names.sort();
    names.dedup();
    for name in names {
        let Ok(parsed) = name.parse::<ContainerName>() else { continue };
        match engine.find(&parsed).await {
            Ok(Some(container))
                if container.labels.get(label::MESH).map(String::as_str) != Some(mesh.mesh.as_str()) =>
            {
                faults.push(
                    Failure::new(
                        Code::NameTaken,
                        format!("container name {name} is held by another container"),
                    )
                    .found(format!(
                        "{} ({}, image {})",
                        container.id.short(),
                        container.state,
                        container.image_reference
                    ))
                    .hint(format!("if nobody needs it: docker rm -f {name}")),
                );
            }
            Ok(_) => {}
            Err(error) => faults.push(engine_failure(&error)),
        }
    }
    faults
}
