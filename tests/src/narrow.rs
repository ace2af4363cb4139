//! A credential that is too narrow for a controller: it may do all but join the seat's queue group.
//!
//! In: a mesh. Out: one secret more of its controller's module, `narrow.creds`. Not here: who uses it.

use camino::Utf8PathBuf;
use jiff::Timestamp;
use mesh_protocol::bus::identity::{self, MeshKeys, User};

use crate::mesh::Mesh;

/// A credential that may do all that the controller's may, but for joining the seat's queue group: one secret more
/// of the module, held by the node. It is there until what is answered goes: what was put by hand, `mesh down` leaves.
///
/// # Panics
/// When the mesh has no keys.
#[must_use]
pub fn make_credential(mesh: &Mesh) -> Narrow {
    let keys = MeshKeys::load(&mesh.layout().identity()).unwrap().unwrap();
    let user = User::ControllerSeat;
    let mut rights = user.rights(&mesh.id());
    let before = rights.subscribe.len();
    rights.subscribe.retain(|subject| !subject.contains(' '));
    assert_eq!(rights.subscribe.len(), before - 1, "one subject is of a queue group");
    let text =
        identity::credential_with(&keys, user.account(), &user.name(), &rights, Timestamp::now()).unwrap();
    let secrets = mesh.layout().secrets(&"mesh-controller".parse().unwrap());
    let path = secrets.join("narrow.creds");
    std::fs::write(&path, text).unwrap();
    Narrow { path }
}

/// The credential.
#[derive(Debug)]
pub struct Narrow {
    path: Utf8PathBuf,
}

impl Drop for Narrow {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
