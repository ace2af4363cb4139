//! What a module's folder holds.
//!
//! In: the folder. Out: each name in it, following no link. Not here: what it should hold.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;

use camino::{Utf8DirEntry, Utf8Path};
use mesh_protocol::id::Digest;

use super::{FilesError, Found};
use crate::accounts::Ids;
use mesh_durable as durable;

/// Looks at a folder; one that is not there holds nothing.
///
/// # Errors
/// When it cannot be read.
pub fn observe(folder: &Utf8Path) -> Result<Vec<Found>, FilesError> {
    let failed = |path: &Utf8Path| {
        let path = path.to_owned();
        move |source| FilesError::Read { path, source }
    };
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(folder)(error)),
    };
    entries
        .map(|entry| {
            let entry = entry.map_err(failed(folder))?;
            look(&entry).map_err(failed(entry.path()))
        })
        .collect()
}

fn look(entry: &Utf8DirEntry) -> io::Result<Found> {
    let name = entry.file_name().to_owned();
    if !entry.file_type()?.is_file() {
        return Ok(Found::Other { name });
    }
    let mut file = durable::open_plain(entry.path())?;
    let metadata = file.metadata()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Found::File {
        name,
        digest: Digest::of(&bytes),
        mode: metadata.mode() & 0o7777,
        ids: Ids { uid: metadata.uid(), gid: metadata.gid() },
    })
}
