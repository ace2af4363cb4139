//! That a restore was begun in a root and has not ended: the mark that says so, and who is refused by it.
//!
//! In: a root. Out: the mark; a refusal by name of a restore where a genesis is under way, and the other way round, for the
//! two make the same files. Not here: going on with either.

use camino::Utf8PathBuf;
use mesh_durable as durable;
use mesh_protocol::id::Digest;
use mesh_protocol::layout::Layout;
use serde::{Deserialize, Serialize};

use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};

/// The mark's name, where genesis works.
pub const MARK: &str = "restore.json";

/// That a restore was begun in a root, and of what.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The digest of the backup's manifest.
    pub manifest: Digest,
}

/// Where the mark lies from before a restore's first file until its seat is answered.
#[must_use]
pub fn mark_of(layout: &Layout) -> Utf8PathBuf {
    layout.genesis_work().join(MARK)
}

/// Whether a restore was begun and has not ended.
#[must_use]
pub fn is_there(layout: &Layout) -> bool {
    mark_of(layout).exists()
}

impl Mark {
    /// The mark in a root; none where no restore is under way.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn read(layout: &Layout) -> Result<Option<Self>> {
        durable::read_json(&mark_of(layout)).map_err(|error| Failure::of(Code::RootUnusable, &error))
    }
}

/// Genesis would go on with the files of a restore as if they were its own.
///
/// # Errors
/// When a restore was begun and has not ended.
pub fn no_restore(layout: &Layout) -> Result<()> {
    if !is_there(layout) {
        return Ok(());
    }
    let root = layout.root();
    Err(Failure::new(Code::RestoreBegun, format!("a restore was begun in {root}, and has not ended"))
        .expected("a root in which nothing was begun, or what a genesis began")
        .found(mark_of(layout).to_string())
        .hint(format!(
            "go on with it: mesh restore FILE --root {root}, with the same file; or remove what was begun: mesh down --root {root}"
        )))
}

/// Restore would put its files over those of a genesis that goes on with them.
///
/// # Errors
/// When a genesis was begun and has not ended.
pub fn no_genesis(layout: &Layout) -> Result<()> {
    let Some(mesh) = MeshFile::read(layout)?.filter(|mesh| mesh.process_since.is_none()) else {
        return Ok(());
    };
    let root = layout.root();
    Err(Failure::new(
        Code::GenesisBegun,
        format!("the genesis of mesh {} was begun in {root}, and has not ended", mesh.inputs.name),
    )
    .expected("no folder, or an empty one")
    .found(layout.mesh_file().to_string())
    .hint(format!(
        "go on with it: mesh genesis --root {root}; or remove what was begun: mesh down --root {root}"
    )))
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;
    use jiff::Timestamp;

    use super::*;
    use crate::mesh_file::tests::inputs;

    #[test]
    fn what_one_began_is_refused_to_the_other_by_name() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap());
        no_restore(&layout).unwrap();
        no_genesis(&layout).unwrap();
        durable::ensure_folder(&layout.genesis_work(), 0o700).unwrap();
        durable::write_json(&mark_of(&layout), &Mark { manifest: Digest::of(b"1") }, 0o600).unwrap();
        let refused = no_restore(&layout).unwrap_err();
        assert_eq!(refused.code, Code::RestoreBegun);
        assert!(refused.hint.as_deref().unwrap().contains("mesh restore FILE --root"));

        let mut mesh = MeshFile::new("m1".parse().unwrap(), Timestamp::UNIX_EPOCH, inputs());
        mesh.write(&layout).unwrap();
        let refused = no_genesis(&layout).unwrap_err();
        assert_eq!(refused.code, Code::GenesisBegun);
        assert!(refused.hint.as_deref().unwrap().contains("mesh genesis --root"));
        // One that came to its end is a mesh, and no genesis is under way.
        mesh.process_since = Some(Timestamp::UNIX_EPOCH);
        mesh.write(&layout).unwrap();
        no_genesis(&layout).unwrap();
    }
}
