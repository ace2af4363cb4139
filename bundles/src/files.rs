//! Files that get their names when they are whole and on the disk, and readers that know what they read.
//!
//! In: names. Out: a whole file of that name, or what was there before. Not here: what is in the files.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mesh_durable::checkpoint;
use mesh_protocol::id::Digest;

use crate::sha256::Hasher;

/// Before a thing has its name, it has one like this.
const PARTIAL: (&str, &str) = (".mesh-", ".partial");

pub(crate) fn partial_name<'a>() -> tempfile::Builder<'a, 'a> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PARTIAL.0).suffix(PARTIAL.1);
    builder
}

/// Whether a thing of this name is what somebody packed, fetched or unpacked, and has not brought to its end.
#[must_use]
pub fn is_partial_name(name: &str) -> bool {
    name.starts_with(PARTIAL.0) && name.ends_with(PARTIAL.1)
}

/// Removes what was packed, fetched or unpacked into this folder by somebody who was killed half-way. Whoever
/// calls knows that nobody is at it now.
///
/// # Errors
/// When the disk fails.
pub fn remove_partials(folder: &Path) -> io::Result<()> {
    for found in std::fs::read_dir(folder)? {
        let found = found?;
        if found.file_name().to_str().is_some_and(is_partial_name) {
            let is_folder = found.file_type()?.is_dir();
            let remove = if is_folder { std::fs::remove_dir_all } else { std::fs::remove_file };
            remove(found.path())?;
        }
    }
    Ok(())
}

/// A file that gets its name when it is whole.
pub(crate) struct Beside {
    file: tempfile::NamedTempFile,
    output: PathBuf,
}

impl Beside {
    pub(crate) fn create(output: &Path) -> io::Result<Self> {
        let file = partial_name().tempfile_in(folder_of(output))?;
        Ok(Self { file, output: output.to_path_buf() })
    }

    pub(crate) fn as_file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }

    /// On the disk, then under its name, then the name on the disk.
    pub(crate) fn commit(self) -> io::Result<()> {
        let file = self.file.as_file();
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.sync_all()?;
        let deed = format!("write {}", self.output.display());
        checkpoint::around(|| deed, || self.file.persist(&self.output))?;
        File::open(folder_of(&self.output))?.sync_all()
    }
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Says before anything is written that a disk has no room for it. Where a file system does not tell, writing does.
pub(crate) fn check_room(folder: &Path, needed: u64) -> io::Result<()> {
    let Ok(facts) = rustix::fs::statvfs(folder) else { return Ok(()) };
    let free = facts.f_bavail.saturating_mul(facts.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let what = format!("{needed} bytes are needed on the disk, and {free} are free");
    Err(io::Error::new(io::ErrorKind::StorageFull, what))
}

/// How much a gzip file says is in it; less than that by 4 GiB, or by several, of one that has so much.
pub(crate) fn claimed_size(gzip: &mut File) -> io::Result<u64> {
    if gzip.metadata()?.len() < 4 {
        return Ok(0);
    }
    let mut size = [0; 4];
    gzip.seek(SeekFrom::End(-4))?;
    gzip.read_exact(&mut size)?;
    gzip.rewind()?;
    Ok(u64::from(u32::from_le_bytes(size)))
}

pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A reader that knows the digest of what went through it.
pub(crate) struct Hashing<R> {
    source: R,
    sha256: Hasher,
    count: u64,
}

impl<R> Hashing<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { source, sha256: Hasher::new(), count: 0 }
    }

    pub(crate) fn finish(self) -> (Digest, u64) {
        (self.sha256.finish(), self.count)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.sha256.update(&buffer[..count]);
        self.count += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_looked_for_and_an_archive_says_how_much_it_needs() {
        let folder = tempfile::tempdir().unwrap();
        check_room(folder.path(), 1).unwrap();
        let error = check_room(folder.path(), u64::MAX / 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("are needed on the disk"), "{error}");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(claimed_size(&mut file).unwrap(), 0);
        let output = std::process::Command::new("sh").args(["-c", "head -c 70000 /dev/zero | gzip"]).output();
        file.write_all(&output.unwrap().stdout).unwrap();
        assert_eq!(claimed_size(&mut file).unwrap(), 70_000);
        let mut begin = [0; 1];
        file.read_exact(&mut begin).unwrap();
        assert_eq!(&begin, b"x", "the file is at its beginning again");
    }

    #[test]
    fn what_was_left_half_way_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // As after a kill: kept, for nobody removes them any more.
        let _file = partial_name().tempfile_in(&folder).unwrap().keep().unwrap();
        std::fs::write(partial_name().tempdir_in(&folder).unwrap().keep().join("f"), "").unwrap();
        std::fs::write(at(".mesh-other"), "").unwrap();
        let mut whole = Beside::create(&at("whole")).unwrap();
        whole.as_file().write_all(b"x").unwrap();
        whole.commit().unwrap();
        remove_partials(folder.path()).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|found| found.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".mesh-other", "whole"]);
    }
}
