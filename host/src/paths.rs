//! Small looks at folders and files that several rooms need.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::id::{Digest, ModuleName};
use mesh_protocol::layout::Layout;
use rustix::fs::{AtFlags, Gid, Uid};
use sha2::Digest as _;

use mesh_durable::{self as durable, DurableError};

/// The files in a folder, by path; none where there is no folder.
///
/// # Errors
/// When it cannot be read.
pub fn files_in(folder: &Utf8Path) -> Result<Vec<Utf8PathBuf>, DurableError> {
    read_files(folder).map_err(|source| DurableError::System {
        path: folder.to_owned(),
        deed: "listed",
        source,
    })
}

fn read_files(folder: &Utf8Path) -> io::Result<Vec<Utf8PathBuf>> {
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.into_path());
        }
    }
    files.sort();
    Ok(files)
}

/// The sha256 of a file's bytes.
///
/// # Errors
/// When it cannot be read.
pub fn file_digest(path: &Utf8Path) -> io::Result<Digest> {
    let mut hasher = sha2::Sha256::new();
    io::copy(&mut File::open(path)?, &mut HashWriter(&mut hasher))?;
    Ok(Digest::from_sha256(hasher.finalize().into()))
}

struct HashWriter<'a>(&'a mut sha2::Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `${data.dir}` of a module, which belongs to what runs from it and to nobody else, with all that is in it: what a backup
/// brought, or an account of another number wrote, is given to the account of today.
///
/// # Errors
/// When it cannot be made.
pub fn data_folder(layout: &Layout, module: &ModuleName, (uid, gid): (u32, u32)) -> Result<(), DurableError> {
    let folder = layout.data(module);
    if let Some(all) = folder.parent() {
        durable::ensure_folder(all, 0o711)?;
    }
    durable::ensure_folder(&folder, 0o700)?;
    give(&folder, (uid, gid)).map_err(|source| DurableError::System {
        path: folder,
        deed: "given to its account",
        source,
    })
}

/// The folder itself comes last: as long as it is another's, what is in it is looked at again.
fn give(folder: &Utf8Path, ids: (u32, u32)) -> io::Result<()> {
    let facts = std::fs::symlink_metadata(folder)?;
    if (facts.uid(), facts.gid()) == ids {
        return Ok(());
    }
    for entry in folder.read_dir_utf8()? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => give(entry.path(), ids)?,
            _ => own(entry.path(), ids)?,
        }
    }
    own(folder, ids)
}

/// A link is given itself, not what it leads to.
fn own(path: &Utf8Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    rustix::fs::chownat(rustix::fs::CWD, path.as_std_path(), uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_lies_in_a_modules_folder_is_given_to_its_account_and_nothing_that_a_link_leads_to() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        let (layout, module) = (Layout::new(root), "m".parse().unwrap());
        let folder = layout.data(&module);
        std::fs::create_dir_all(folder.join("a/b")).unwrap();
        std::fs::write(folder.join("a/b/c"), "x").unwrap();
        std::fs::write(root.join("mine"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("mine"), folder.join("a/link")).unwrap();
        let owner = |path: &Utf8Path| std::fs::symlink_metadata(path).unwrap().uid();
        data_folder(&layout, &module, (65534, 65534)).unwrap();
        for path in ["", "a", "a/b", "a/b/c", "a/link"] {
            assert_eq!(owner(&folder.join(path)), 65534, "{path}");
        }
        assert_eq!(owner(&root.join("mine")), 0);
        data_folder(&layout, &module, (65534, 65534)).unwrap();
    }
}
