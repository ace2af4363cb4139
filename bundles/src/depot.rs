//! The bundles that a machine has unpacked, each in a folder that is named by its digest.
//!
//! In: digests, and archives that must have them. Out: folders to run programs from, whole or not there. Not here:
//! which bundles are needed, and where archives come from.
//!
//! ```text
//! <depot>/<hex digest>/        the bundle
//! <depot>/<hex digest>.json    what lies in it, written before the folder gets its name
//! <depot>/.lock                held by whoever changes the depot
//! <depot>/.new-*  .gone-*      work in hand; left over by a crash, it is removed by the next who holds the lock
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mesh_durable::checkpoint;
use mesh_protocol::id::Digest;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::archive::Limits;
use crate::entries::{self, Source};
use crate::files::{Beside, is_partial_name};
use crate::pack::{FileFact, LinkFact};
use crate::path::BundlePath;
use crate::unpack::{self, UnpackError, Unpacked};

const NEW: &str = ".new-";
const GONE: &str = ".gone-";

/// A folder of unpacked bundles.
#[derive(Debug, Clone)]
pub struct Depot {
    root: PathBuf,
}

/// What came of unpacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The bundle is there now.
    Unpacked,
    /// It was there before, and is as it should be.
    AlreadyThere,
    /// It was there, not as it should be, and has been replaced.
    Replaced,
}

/// Why the depot could not do it.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    /// The archive.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// The depot's own folder.
    #[error("the bundle depot cannot use {path}", path = .path.display())]
    Disk {
        /// What it could not use.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What lies in a bundle's folder.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    diff_id: Digest,
    folders: Vec<BundlePath>,
    files: Vec<FileFact>,
    links: Vec<LinkFact>,
}

impl Depot {
    /// The depot at `root`, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn open(root: &Path) -> Result<Self, DepotError> {
        let failed = |source| DepotError::Disk { path: root.to_path_buf(), source };
        fs::DirBuilder::new().recursive(true).mode(0o755).create(root).map_err(failed)?;
        fs::set_permissions(root, Permissions::from_mode(0o755)).map_err(failed)?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// Where a bundle is, or would be.
    #[must_use]
    pub fn folder_of(&self, digest: &Digest) -> PathBuf {
        self.root.join(digest.hex())
    }

    /// Is a bundle there, with all its files, each of the right kind, size and mode? Contents are not read:
    /// a folder that only root can write to does not rot in ways that keep the sizes.
    #[must_use]
    pub fn holds(&self, digest: &Digest) -> bool {
        let folder = self.folder_of(digest);
        let record =
            fs::read(self.record_of(digest)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        record.is_some_and(|record: Record| record.fits(&folder))
    }

    /// What lies in a bundle's folder in the depot at `root`, by paths in that folder; none where there is no record of it.
    /// Touches nothing.
    #[must_use]
    pub fn contents(root: &Path, digest: &Digest) -> Option<BTreeSet<PathBuf>> {
        let bytes = fs::read(root.join(format!("{}.json", digest.hex()))).ok()?;
        let record: Record = serde_json::from_slice(&bytes).ok()?;
        let files = record.files.iter().map(|file| &file.path);
        let paths = files.chain(record.links.iter().map(|link| &link.path)).chain(&record.folders);
        Some(paths.map(|path| path.as_ref().to_path_buf()).collect())
    }

    /// Whether a folder of this name is one in which a depot is at work, or was when it was killed.
    #[must_use]
    pub fn is_work(name: &str) -> bool {
        name.starts_with(NEW) || name.starts_with(GONE)
    }

    /// Makes a bundle be there, from an archive that must be the one of this digest. Done once, it costs next
    /// to nothing: then the archive is not even looked at.
    ///
    /// # Errors
    /// When the archive is another or breaks a rule, or the disk fails. Then there is no folder of that name,
    /// except a whole one that was there before.
    pub fn unpack(&self, digest: &Digest, archive: &Path, limits: Limits) -> Result<Outcome, DepotError> {
        if self.holds(digest) {
            return Ok(Outcome::AlreadyThere);
        }
        let file = unpack::verified(archive, Some(digest), limits)?;
        let _lock = self.lock()?;
        self.sweep_locked()?;
        // Somebody else may have done it while we waited.
        if self.holds(digest) {
            return Ok(Outcome::AlreadyThere);
        }
        let folder = self.folder_of(digest);
        let new = tempfile::Builder::new().prefix(NEW).tempdir_in(&self.root);
        let new = new.map_err(|source| failed(&self.root, source))?;
        let unpacked = unpack::fill(new.path(), archive, file, Some(digest), limits)?;
        let replaced = self.move_away(&folder)?;
        self.write_record(digest, unpacked)?;
        let rename = || rustix::fs::renameat_with(CWD, new.path(), CWD, &folder, RenameFlags::NOREPLACE);
        checkpoint::around(|| format!("unpack {}", folder.display()), rename)
            .map_err(|errno| failed(&folder, errno))?;
        let _gone = new.keep();
        self.sync()?;
        self.sweep_locked()?;
        Ok(if replaced { Outcome::Replaced } else { Outcome::Unpacked })
    }

    /// The bundles that have a folder, in order.
    ///
    /// # Errors
    /// When the depot cannot be read.
    pub fn list(&self) -> Result<Vec<Digest>, DepotError> {
        let names = self.names()?;
        let digest = |name: &String| format!("sha256:{name}").parse().ok();
        let mut digests: Vec<Digest> = names.iter().filter_map(digest).collect();
        digests.sort();
        Ok(digests)
    }

    /// Removes a bundle, if it is there. Whoever calls knows that nothing runs from it.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn remove(&self, digest: &Digest) -> Result<(), DepotError> {
        let _lock = self.lock()?;
        self.move_away(&self.folder_of(digest))?;
        match fs::remove_file(self.record_of(digest)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed(&self.record_of(digest), error));
            }
            _ => {}
        }
        self.sync()?;
        self.sweep_locked()
    }

    /// Removes what a crash left over; does nothing while somebody is at work.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn sweep(&self) -> Result<(), DepotError> {
        let (file, path) = self.lock_file()?;
        match file.try_lock() {
            Ok(()) => self.sweep_locked(),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(source)) => Err(failed(&path, source)),
        }
    }

    fn lock_file(&self) -> Result<(File, PathBuf), DepotError> {
        let path = self.root.join(".lock");
        let mut options = OpenOptions::new();
        let opened = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
        Ok((opened.map_err(|source| failed(&path, source))?, path))
    }

    /// Waits for whoever is at work, which is never for longer than one unpacking: the kernel lets go of the
    /// lock of one that died.
    fn lock(&self) -> Result<File, DepotError> {
        let (file, path) = self.lock_file()?;
        file.lock().map_err(|source| failed(&path, source))?;
        Ok(file)
    }

    /// With the lock held, all work in hand is somebody's who died.
    fn sweep_locked(&self) -> Result<(), DepotError> {
        let names = self.names()?;
        for name in &names {
            let path = self.root.join(name);
            if Self::is_work(name) {
                fs::remove_dir_all(&path).map_err(|source| failed(&path, source))?;
            }
            let partial = is_partial_name(name);
            let alone =
                name.strip_suffix(".json").is_some_and(|folder| !names.iter().any(|name| name == folder));
            if partial || alone {
                fs::remove_file(&path).map_err(|source| failed(&path, source))?;
            }
        }
        Ok(())
    }

    /// Takes a folder's name from it; what still runs from it goes on. False if there is none.
    fn move_away(&self, folder: &Path) -> Result<bool, DepotError> {
        let gone = tempfile::Builder::new().prefix(GONE).tempdir_in(&self.root);
        let gone = gone.map_err(|source| failed(&self.root, source))?.keep();
        match rustix::fs::rename(folder, gone.join("bundle")) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(folder, errno)),
        }
    }

    fn write_record(&self, digest: &Digest, unpacked: Unpacked) -> Result<(), DepotError> {
        let path = self.record_of(digest);
        let write = |source| failed(&path, source);
        let Unpacked { layer, folders } = unpacked;
        let record = Record { diff_id: layer.diff_id, folders, files: layer.files, links: layer.links };
        let mut file = Beside::create(&path).map_err(write)?;
        file.write_all(&crate::manifest::canonical(&record)).map_err(write)?;
        file.commit().map_err(write)
    }

    fn record_of(&self, digest: &Digest) -> PathBuf {
        self.root.join(format!("{}.json", digest.hex()))
    }

    fn names(&self) -> Result<Vec<String>, DepotError> {
        let read = |source| failed(&self.root, source);
        let names = fs::read_dir(&self.root).map_err(read)?;
        let names = names.map(|found| Ok(found.map_err(read)?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    }

    fn sync(&self) -> Result<(), DepotError> {
        File::open(&self.root).and_then(|root| root.sync_all()).map_err(|source| failed(&self.root, source))
    }
}

/// Which of the bundles that a machine holds nobody needs: pure. What a living process runs from, and what a handover
/// may return to, is in `keep`.
#[must_use]
pub fn unused(held: &[Digest], keep: &BTreeSet<Digest>) -> Vec<Digest> {
    held.iter().filter(|digest| !keep.contains(*digest)).cloned().collect()
}

fn failed(path: &Path, source: impl Into<io::Error>) -> DepotError {
    DepotError::Disk { path: path.to_path_buf(), source: source.into() }
}

impl Record {
    /// Does this, and nothing else, lie in the folder?
    fn fits(&self, folder: &Path) -> bool {
        let Ok(found) = entries::walk(folder) else { return false };
        let mut expected: BTreeMap<&BundlePath, String> = BTreeMap::new();
        expected.extend(self.folders.iter().map(|path| (path, "folder".to_owned())));
        expected.extend(self.files.iter().map(|file| (&file.path, format!("{} {}", file.mode, file.size))));
        expected.extend(self.links.iter().map(|link| (&link.path, format!("-> {}", link.target))));
        let shown = |source: &Source| match source {
            Source::Walked { size, mode, .. } => format!("{:04o} {size}", mode.bits()),
            Source::Link { target } => format!("-> {target}"),
            _ => "folder".to_owned(),
        };
        let found: BTreeMap<_, _> = found.iter().map(|entry| (&entry.path, shown(&entry.source))).collect();
        found == expected
    }
}

#[cfg(test)]
mod tests;
