//! What is to be looked at: the mesh that is to be raised here, or the one that is here, and how far the look may go.
//!
//! In: options, the mesh's own file where there is one. Out: names, ports and places as they will be. Not here: looking.

use mesh_protocol::layout::Layout;

use super::name::Name;
use crate::cli::Wanted;
use crate::mesh_file::{DEFAULT_BUS_PORT, DEFAULT_STORE_PORT, MeshFile};
use crate::world::World;

/// Whether something may be done to see whether it works: a file written, a container started; all of it is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exercise {
    /// It may.
    Done,
    /// A dry run: it is only looked.
    NotDone,
}

/// Who holds the lock on the mesh's root, if anybody does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Whoever looks.
    Ours,
    /// Nobody, or somebody else.
    NotOurs,
}

/// What is to be looked at.
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// The surroundings.
    pub world: &'a World,
    /// Where the mesh lies, or will.
    pub layout: &'a Layout,
    /// The mesh that is there.
    pub mesh: Option<&'a MeshFile>,
    /// What was asked for.
    pub wanted: &'a Wanted,
    /// What is not to be looked at.
    pub skip: &'a [Name],
    /// How far the look may go.
    pub exercise: Exercise,
    /// Whose the lock is.
    pub lock: Lock,
}

impl Intent<'_> {
    /// A name as engine and system know it.
    pub(super) fn prefixed(&self, name: &str) -> String {
        let asked = self.wanted.prefix.as_ref().map(ToString::to_string);
        let prefix = match self.mesh {
            Some(mesh) => mesh.inputs.prefix.clone(),
            None => asked.unwrap_or_default(),
        };
        if prefix.is_empty() { name.to_owned() } else { format!("{prefix}-{name}") }
    }

    /// The bus's port and the store's; 0 for any.
    pub(super) fn ports(&self) -> (u16, u16) {
        match self.mesh {
            Some(mesh) => (mesh.inputs.bus_port, mesh.inputs.store_port),
            None => (
                self.wanted.bus_port.unwrap_or(DEFAULT_BUS_PORT),
                self.wanted.store_port.unwrap_or(DEFAULT_STORE_PORT),
            ),
        }
    }

    /// Whether a check is to be made.
    pub(super) fn wants(&self, name: Name) -> bool {
        !self.skip.contains(&name)
    }

    /// Why something is not to be done to see whether it works; none where it is.
    pub(super) fn why_not(&self, name: Name) -> Option<String> {
        if self.exercise == Exercise::NotDone {
            return Some("not done in a dry run".to_owned());
        }
        if self.world.user != 0 {
            return Some("needs root".to_owned());
        }
        (!self.wants(name)).then(|| SKIPPED.to_owned())
    }
}

/// What is said of a check that was not to be made.
pub(super) const SKIPPED: &str = "left out, as asked";
