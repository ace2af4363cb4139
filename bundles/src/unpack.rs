//! Unpacking: an archive that must be this one, into a folder that is whole or not there.
//!
//! In: an archive's file, its digest, a name for the folder. Out: the folder, its files owned by root where root
//! unpacks, 0755 or 0644, on the disk before it has its name. Not here: the rules for archives (see
//! `archive`), and which bundles a machine keeps (see `depot`).
//!
//! The digest is checked before a byte is decompressed, and once more on the bytes that were unpacked, for
//! somebody may write to the file in between.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use mesh_protocol::id::Digest;
use rustix::fs::{FallocateFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

use crate::archive::{Archive, ArchiveError, FileMode, Limits, What};
use crate::entries::STAY_INSIDE;
use crate::files::{Hashing, check_room, claimed_size, folder_of, partial_name};
use crate::pack::{FileFact, Layer, LinkFact};
use crate::path::BundlePath;
use crate::sha256::Hasher;

/// Why nothing was unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The file could not be read.
    #[error("cannot read {path}", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is larger than a bundle may be.
    #[error("{path} has {found} bytes: expected at most {limit}", path = .path.display())]
    FileTooLarge {
        /// Which.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// The file is another.
    #[error("{path} has the digest {found}: expected {expected}", path = .path.display())]
    Digest {
        /// Which.
        path: PathBuf,
        /// Its digest.
        found: Digest,
        /// The one it should have.
        expected: Digest,
    },
    /// The archive breaks a rule.
    #[error("{path} is not a bundle", path = .path.display())]
    Archive {
        /// Which.
        path: PathBuf,
        /// The rule.
        source: ArchiveError,
    },
    /// The folder could not be written.
    #[error("cannot write {path}", path = .path.display())]
    Write {
        /// What was being written.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is something under the folder's name.
    #[error("{path} is there already: expected nothing, or an empty folder", path = .path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },
}

/// What lies in a folder that was unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unpacked {
    pub(crate) layer: Layer,
    pub(crate) folders: Vec<BundlePath>,
}

/// Unpacks an archive into a folder that is not there yet, or is empty. With a digest, only that archive.
///
/// # Errors
/// When the archive is another or breaks a rule, or the folder cannot be written; then it is as it was.
pub fn unpack(
    archive: &Path,
    expected: Option<&Digest>,
    target: &Path,
    limits: Limits,
) -> Result<Layer, UnpackError> {
    let write = |source| UnpackError::Write { path: target.to_path_buf(), source };
    let file = verified(archive, expected, limits)?;
    let beside = partial_name().tempdir_in(folder_of(target)).map_err(write)?;
    let unpacked = fill(beside.path(), archive, file, expected, limits)?;
    let rename = |flags| {
        let cwd = rustix::fs::CWD;
        rustix::fs::renameat_with(cwd, beside.path(), cwd, target, flags)
    };
    match rename(RenameFlags::NOREPLACE) {
        // Without the flag a folder replaces an empty folder, and nothing else.
        Err(Errno::EXIST) => match rename(RenameFlags::empty()) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {
                return Err(UnpackError::Exists { path: target.to_path_buf() });
            }
            other => other.map_err(|errno| write(errno.into()))?,
        },
        other => other.map_err(|errno| write(errno.into()))?,
    }
    // What had that name until now is not to be removed under its new one.
    let _gone = beside.keep();
    File::open(folder_of(target)).and_then(|folder| folder.sync_all()).map_err(write)?;
    Ok(unpacked.layer)
}

/// The open file, at its beginning, if it is the one that it should be.
pub(crate) fn verified(
    archive: &Path,
    expected: Option<&Digest>,
    limits: Limits,
) -> Result<File, UnpackError> {
    let read = |source| UnpackError::Read { path: archive.to_path_buf(), source };
    let mut file = File::open(archive).map_err(read)?;
    let found = file.metadata().map_err(read)?.len();
    if found > limits.compressed {
        return Err(UnpackError::FileTooLarge {
            path: archive.to_path_buf(),
            found,
            limit: limits.compressed,
        });
    }
    if let Some(expected) = expected {
        let mut hashing = Hashing::new(&mut file);
        io::copy(&mut hashing, &mut io::sink()).map_err(read)?;
        same_digest(archive, hashing.finish().0, expected)?;
        file.rewind().map_err(read)?;
    }
    Ok(file)
}

fn same_digest(archive: &Path, found: Digest, expected: &Digest) -> Result<(), UnpackError> {
    if found == *expected {
        return Ok(());
    }
    Err(UnpackError::Digest { path: archive.to_path_buf(), found, expected: expected.clone() })
}

/// Unpacks into an empty folder of our own, and has it all on the disk at the end.
pub(crate) fn fill(
    folder: &Path,
    archive_path: &Path,
    mut file: File,
    expected: Option<&Digest>,
    limits: Limits,
) -> Result<Unpacked, UnpackError> {
    let read = |source| UnpackError::Read { path: archive_path.to_path_buf(), source };
    let needed = claimed_size(&mut file).map_err(read)?;
    check_room(folder, needed).map_err(|source| UnpackError::Write { path: folder.to_path_buf(), source })?;
    let refused = |source| UnpackError::Archive { path: archive_path.to_path_buf(), source };
    let root = Root::open(folder)?;
    let mut archive = Archive::new(Hashing::new(file), limits);
    let (mut files, mut links, mut folders) = (Vec::new(), Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    while let Some(member) = archive.next_member().map_err(refused)? {
        let path = member.path;
        match member.what {
            What::Folder => {
                root.make_folder(&path)?;
                folders.push(path);
            }
            // Made last, so that nothing is ever written through one.
            What::Link { target } => links.push(LinkFact { path, target }),
            What::File { size, mode } => {
                let mut file = root.make_file(&path, size)?;
                let mut sha256 = Hasher::new();
                while let Some(bytes) = archive.content(&mut buffer).map_err(refused)? {
                    sha256.update(bytes);
                    file.write_all(bytes).map_err(|source| root.failed(&path, source))?;
                }
                root.settle(&path, &file, mode.bits())?;
                files.push(FileFact::new(path, mode, size, sha256.finish()));
            }
        }
    }
    let unpacked_size = archive.unpacked();
    let (source, diff_id) = archive.into_parts();
    let (digest, size) = source.finish();
    if let Some(expected) = expected {
        same_digest(archive_path, digest.clone(), expected)?;
    }
    for link in &links {
        root.make_link(link)?;
    }
    for path in folders.iter().rev() {
        root.settle(path, root.open_folder(Some(path))?, FileMode::Program.bits())?;
    }
    root.settle_itself()?;
    Ok(Unpacked { layer: Layer { digest, size, diff_id, unpacked_size, files, links }, folders })
}

/// The folder that is unpacked into, by its descriptor.
struct Root<'a> {
    path: &'a Path,
    folder: OwnedFd,
    /// Only root may give files away, and only root has to.
    owner: Option<(Uid, Gid)>,
}

impl<'a> Root<'a> {
    fn open(path: &'a Path) -> Result<Self, UnpackError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| UnpackError::Write { path: path.to_path_buf(), source: errno.into() })?;
        let owner = rustix::process::geteuid().is_root().then_some((Uid::ROOT, Gid::ROOT));
        Ok(Self { path, folder, owner })
    }

    fn failed(&self, path: &BundlePath, source: impl Into<io::Error>) -> UnpackError {
        UnpackError::Write { path: self.path.join(path), source: source.into() }
    }

    fn open_folder(&self, path: Option<&BundlePath>) -> Result<File, UnpackError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let name = path.map_or(".", BundlePath::as_str);
        let opened = rustix::fs::openat2(&self.folder, name, flags, Mode::empty(), STAY_INSIDE);
        opened
            .map(File::from)
            .map_err(|errno| UnpackError::Write { path: self.path.join(name), source: errno.into() })
    }

    fn make_folder(&self, path: &BundlePath) -> Result<(), UnpackError> {
        let parent = self.open_folder(path.parent().as_ref())?;
        rustix::fs::mkdirat(parent, path.name(), Mode::RWXU).map_err(|errno| self.failed(path, errno))
    }

    fn make_file(&self, path: &BundlePath, size: u64) -> Result<File, UnpackError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made =
            rustix::fs::openat2(&self.folder, path.as_ref(), flags, Mode::RUSR | Mode::WUSR, STAY_INSIDE);
        let file = made.map_err(|errno| self.failed(path, errno))?;
        if size > 0 {
            // A full disk is found out now, not half-way.
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(self.failed(path, errno)),
            }
        }
        Ok(file.into())
    }

    fn make_link(&self, link: &LinkFact) -> Result<(), UnpackError> {
        let parent = self.open_folder(link.path.parent().as_ref())?;
        rustix::fs::symlinkat(&link.target, parent, link.path.name())
            .map_err(|errno| self.failed(&link.path, errno))
    }

    /// Owner and mode as they are to be, whatever the umask; then on the disk.
    fn settle(&self, path: &BundlePath, made: impl AsFd, mode: u32) -> Result<(), UnpackError> {
        self.settled(made.as_fd(), mode).map_err(|errno| self.failed(path, errno))
    }

    fn settle_itself(&self) -> Result<(), UnpackError> {
        let failed =
            |errno: Errno| UnpackError::Write { path: self.path.to_path_buf(), source: errno.into() };
        self.settled(self.folder.as_fd(), FileMode::Program.bits()).map_err(failed)
    }

    fn settled(&self, made: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
        if let Some((user, group)) = self.owner {
            rustix::fs::fchown(made, Some(user), Some(group))?;
        }
        rustix::fs::fchmod(made, Mode::from_raw_mode(mode))?;
        rustix::fs::fsync(made)
    }
}

#[cfg(test)]
mod tests;
