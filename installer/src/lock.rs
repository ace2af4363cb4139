//! One genesis or down at a time on a mesh's root.
//!
//! In: the root. Out: a lock that the system gives back when this process ends, however it ends. The lock is the
//! truth; what is written in the file is for people. Not here: what is done under it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use camino::Utf8Path;
use jiff::Timestamp;

use crate::output::{Code, Failure, Result};
use mesh_durable::{self as durable, checkpoint};
use mesh_protocol::layout::Layout;

/// Held for as long as it lives.
#[derive(Debug)]
pub struct InstallerLock {
    _file: File,
}

impl InstallerLock {
    /// Takes the lock at `path`; its folder must be there. `command` is what others are told.
    ///
    /// # Errors
    /// When somebody else has it: the failure says who.
    pub fn take(path: &Utf8Path, command: &str, now: Timestamp) -> Result<Self> {
        let failed = |error: std::io::Error| {
            Failure::because(Code::Io, &format!("lock {path} cannot be taken"), &error)
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(held(&mut file, path)),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let holder = format!("mesh {command}, pid {}, since {now:.0}\n", std::process::id());
        let written = checkpoint::around(
            || format!("write {path}"),
            || file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(holder.as_bytes())),
        );
        written.map_err(failed)?;
        // With the lock held, what lies beside the files that commands write is somebody's who was killed.
        let root = path.parent().unwrap_or(path);
        sweep(root).map_err(|error| Failure::of(Code::Io, &error))?;
        Ok(Self { _file: file })
    }
}

/// Removes what a killed command left beside its files in the root and in the folders that commands write to.
fn sweep(root: &Utf8Path) -> std::result::Result<(), durable::DurableError> {
    let layout = Layout::new(root);
    let secrets = layout.all_secrets();
    let modules =
        secrets.read_dir_utf8().into_iter().flatten().flatten().map(camino::Utf8DirEntry::into_path);
    let credentials = layout.credential("host").parent().map(Utf8Path::to_owned);
    let folders =
        [layout.genesis_work(), layout.programs(), layout.reports(), layout.host(), layout.identity()];
    let all = folders.into_iter().chain(credentials).chain(modules).chain([root.to_owned()]);
    all.filter(|folder| folder.is_dir()).try_for_each(|folder| durable::sweep(&folder))
}

/// Who holds the lock at `path`, as it said; none where nobody does.
#[must_use]
pub fn holder(path: &Utf8Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => Some(said_by(&mut file)),
        _ => None,
    }
}

/// Whether the lock at `path` was last held by such a command, and is held by nobody now.
#[must_use]
pub fn is_left_by(path: &Utf8Path, command: &str) -> bool {
    let said = File::open(path).map(|mut file| said_by(&mut file));
    holder(path).is_none() && said.is_ok_and(|said| said.starts_with(&format!("mesh {command}, ")))
}

fn said_by(file: &mut File) -> String {
    let mut holder = String::new();
    let _ = file.take(500).read_to_string(&mut holder);
    match holder.trim() {
        "" => "another mesh command".to_owned(),
        holder => holder.to_owned(),
    }
}

fn held(file: &mut File, path: &Utf8Path) -> Failure {
    let holder = said_by(file);
    Failure::new(Code::Locked, "something else is changing this mesh")
        .expected(format!("{path} not locked"))
        .found(holder)
        .hint("wait until it has ended, or end it; then run this again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_one_is_told_who_holds_it() {
        let temp = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(temp.path()).unwrap().join("lock");
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let lock = InstallerLock::take(&path, "genesis", now).unwrap();
        let failure = InstallerLock::take(&path, "down", now).unwrap_err();
        assert_eq!(failure.code, Code::Locked);
        let expected = format!("mesh genesis, pid {}, since 2026-01-02T03:04:05Z", std::process::id());
        assert_eq!(failure.found.as_deref(), Some(expected.as_str()));
        assert_eq!(holder(&path), Some(expected));
        assert!(!is_left_by(&path, "genesis"));
        drop(lock);
        assert_eq!(holder(&path), None);
        assert!(is_left_by(&path, "genesis") && !is_left_by(&path, "down"));
        InstallerLock::take(&path, "down", now).unwrap();
    }
}
