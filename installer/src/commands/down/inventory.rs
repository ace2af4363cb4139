//! What there is of a mesh on this machine.
//!
//! In: the mesh's folder, the host, the engine, the accounts. Out: an inventory. Touches nothing.

use std::collections::BTreeSet;

use camino::Utf8Path;
use mesh_engine::{Engine, LabelSelector};
use mesh_protocol::layout::{Layout, label};
use serde::Serialize;

use super::own::Own;
use super::remove;
use crate::daemon;
use crate::door::Door;
use crate::machine::accounts::{self, Account};
use crate::mesh_file::MeshFile;
use crate::output::{Failure, Result};
use crate::world::World;

/// What there is of a mesh on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Inventory {
    pub(super) name: String,
    pub(super) mesh: String,
    /// Whether the seat ever answered, or may have.
    pub(super) seat_answered: bool,
    /// What the host holds; none where no host runs.
    pub(super) held: Option<Vec<String>>,
    /// The containers with the mesh's label: name and engine id.
    pub(super) containers: Vec<String>,
    /// Why the containers cannot be told, where they cannot.
    pub(super) containers_unknown: Option<String>,
    /// The accounts with the mesh's mark.
    pub(super) accounts: Vec<String>,
    /// The programs of the mesh that run.
    pub(super) processes: Vec<String>,
    /// The images that this mesh put into the engine.
    pub(super) images: Vec<String>,
    /// The unit of the host.
    pub(super) unit: Option<String>,
    pub(super) root: String,
    /// What is in the root and not the mesh's: it stays.
    pub(super) foreign: Vec<String>,
}

pub(super) async fn look(world: &World, layout: &Layout, mesh: &MeshFile) -> Result<Inventory> {
    // A host that hangs is no reason not to say what else there is.
    let observed = Door::new(layout.door()).observe_if_there().await.ok().flatten();
    // A host that ever took a declaration may have raised a controller that answered.
    let declared = observed.as_ref().is_some_and(|observed| observed.declaration.is_some());
    let seat_answered = mesh.seat_answered.is_some() || declared || layout.declaration().exists();
    let own = Own::of(layout, users(mesh)?, &mesh.foreign);
    let mut inventory = Inventory {
        name: mesh.inputs.name.to_string(),
        mesh: mesh.mesh.to_string(),
        seat_answered,
        held: observed.map(|observed| observed.ledger.iter().map(|entry| entry.id.to_string()).collect()),
        accounts: marked_accounts(mesh)?,
        processes: remove::running_from(layout).into_iter().map(|process| process.to_string()).collect(),
        images: mesh.images.iter().map(|image| image.reference.clone()).collect(),
        unit: Some(daemon::unit_path(&mesh.mesh)).filter(|path| path.exists()).map(String::from),
        root: layout.root().to_string(),
        foreign: own.foreign()?.into_iter().map(String::from).collect(),
        ..Inventory::default()
    };
    match containers(world, mesh).await {
        Ok(containers) => inventory.containers = containers,
        Err(failure) => inventory.containers_unknown = Some(failure.what.clone()),
    }
    Ok(inventory)
}

/// The accounts that this mesh made.
pub(super) fn marked_accounts(mesh: &MeshFile) -> Result<Vec<String>> {
    Ok(marked(mesh)?.into_iter().map(|account| account.name).collect())
}

/// The users that they are.
pub(super) fn users(mesh: &MeshFile) -> Result<BTreeSet<u32>> {
    Ok(marked(mesh)?.into_iter().map(|account| account.uid).collect())
}

fn marked(mesh: &MeshFile) -> Result<Vec<Account>> {
    let mark = mesh.account_mark();
    let there = accounts::read(Utf8Path::new(accounts::PASSWD)).map_err(|error| {
        Failure::because(crate::output::Code::Io, "the machine's accounts cannot be read", &error)
    })?;
    Ok(there.into_iter().filter(|account| account.gecos == mark).collect())
}

async fn containers(world: &World, mesh: &MeshFile) -> Result<Vec<String>> {
    let engine = remove::engine(world).await?;
    let found = list(&engine, mesh).await?;
    Ok(found.into_iter().map(|container| format!("{} ({})", container.name, container.id.short())).collect())
}

/// The containers that carry this mesh's label.
pub(super) async fn list(engine: &Engine, mesh: &MeshFile) -> Result<Vec<mesh_engine::Container>> {
    let selector = LabelSelector::is(label::MESH, mesh.mesh.as_str());
    engine.list(&selector).await.map_err(|error| crate::genesis::engine_failure(&error))
}

impl Inventory {
    /// For people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("mesh {} ({}) on this machine:", self.name, self.mesh)];
        let mut add = |what: &str, things: &[String]| {
            lines.extend(things.iter().map(|thing| format!("  {what} {thing}")));
        };
        match &self.held {
            Some(held) => add("held by the host:", held),
            None => add("no host runs", &[String::new()]),
        }
        add("container", &self.containers);
        add("process", &self.processes);
        add("account", &self.accounts);
        add("image", &self.images);
        add("unit", self.unit.as_slice());
        add("folder", std::slice::from_ref(&self.root));
        add("stays, for it is not the mesh's:", &self.foreign);
        if let Some(why) = &self.containers_unknown {
            lines.push(format!("  containers cannot be told: {why}"));
        }
        lines.iter().map(|line| line.trim_end().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_there_is_said() {
        let inventory = Inventory {
            name: "lab".to_owned(),
            mesh: "m1".to_owned(),
            containers: vec!["mesh-bus (0123456789ab)".to_owned()],
            accounts: vec!["mesh-bus".to_owned()],
            root: "/r".to_owned(),
            foreign: vec!["/r/notes".to_owned()],
            ..Inventory::default()
        };
        insta::assert_snapshot!(inventory.lines().join("\n"), @r"
        mesh lab (m1) on this machine:
          no host runs
          container mesh-bus (0123456789ab)
          account mesh-bus
          folder /r
          stays, for it is not the mesh's: /r/notes
        ");
    }
}
