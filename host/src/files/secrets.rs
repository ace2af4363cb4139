//! The secrets that this node holds, root-only, one file each.
//!
//! In: `secrets/<module>/<name>`. Out: names and digests for the report; the bytes of one for the file that is
//! made of it. Not here: writing them; genesis does.

use std::io::{self, Read as _};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::id::{Digest, ModuleName, is_file_name};
use mesh_protocol::layout::Layout;
use mesh_protocol::report::SecretHeld;

use super::{FilesError, folders};
use mesh_durable as durable;

/// All secrets on this node, by module and name. What has no proper name is none.
///
/// # Errors
/// When they cannot be read.
pub fn secrets_held(layout: &Layout) -> Result<Vec<SecretHeld>, FilesError> {
    let mut held = Vec::new();
    for folder in folders(&layout.all_secrets())? {
        let Some(module) = folder.file_name().and_then(|name| name.parse::<ModuleName>().ok()) else {
            continue;
        };
        for path in files(&folder).map_err(failed(&folder))? {
            if let Some(name) = path.file_name().filter(|name| is_file_name(name)) {
                held.push(SecretHeld {
                    module: module.clone(),
                    name: name.to_owned(),
                    digest: Digest::of(&content(&path).map_err(failed(&path))?),
                });
            }
        }
    }
    held.sort();
    Ok(held)
}

/// The bytes of a secret, which are those that were declared.
pub(super) fn read(
    layout: &Layout,
    module: &ModuleName,
    file: &str,
    name: &str,
    expected: &Digest,
) -> Result<Vec<u8>, FilesError> {
    let path = layout.secrets(module).join(name);
    let missing = || FilesError::SecretMissing {
        module: module.clone(),
        file: file.to_owned(),
        secret: name.to_owned(),
        path: path.clone(),
    };
    // A name that leads elsewhere names no secret.
    if !is_file_name(name) {
        return Err(missing());
    }
    let bytes = match content(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
        Err(error) => return Err(failed(&path)(error)),
    };
    let found = Digest::of(&bytes);
    if &found != expected {
        return Err(FilesError::SecretDiffers {
            module: module.clone(),
            secret: name.to_owned(),
            expected: expected.clone(),
            found,
        });
    }
    Ok(bytes)
}

fn content(path: &Utf8Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    durable::open_plain(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn files(folder: &Utf8Path) -> io::Result<Vec<Utf8PathBuf>> {
    let mut found = Vec::new();
    for entry in folder.read_dir_utf8()? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

fn failed(path: &Utf8Path) -> impl FnOnce(io::Error) -> FilesError + use<> {
    let path = path.to_owned();
    move |source| FilesError::Read { path, source }
}
