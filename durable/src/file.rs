//! Files that are whole or not there, whenever the machine or the program stops.
//!
//! In: a path and bytes. Out: the same bytes under that path after any crash, or what was there before. Not
//! here: what the bytes mean.
//!
//! All of it blocks. Folders that are written to belong to root; a link in the last place is replaced,
//! never followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::checkpoint;

/// Why a file or folder could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// The system refused a step.
    #[error("{path} cannot be {deed}")]
    System {
        /// The file or folder.
        path: Utf8PathBuf,
        /// Which step: "written", "renamed", …
        deed: &'static str,
        /// The system's word.
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error("{path} does not hold what it should: expected {expected}")]
    Corrupt {
        /// The file.
        path: Utf8PathBuf,
        /// The kind of document, as the program names the type.
        expected: &'static str,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
}

impl DurableError {
    fn new(path: &Utf8Path, deed: &'static str) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::System { path, deed, source }
    }

    /// Whether the disk is full, which is nothing that speaks against what was to be written.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::System { source, .. } => {
                matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Self::Corrupt { .. } => false,
        }
    }
}

/// Whether a file had to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is new, or has new bytes.
    New,
    /// It was as it should be.
    WasThere,
}

/// Whom a file shall belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Whoever writes it: root.
    Writer,
    /// This user and group, by number.
    Ids {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
}

/// Writes a file of the writer's own: beside, synced, renamed, and the folder synced.
///
/// # Errors
/// When a step fails; what was there before is then still there.
pub fn write(path: &Utf8Path, bytes: &[u8], mode: u32) -> Result<(), DurableError> {
    write_owned(path, bytes, mode, Ownership::Writer)
}

/// Like [`write`], and the file belongs to whom it should before it has its name.
///
/// # Errors
/// When a step fails; what was there before is then still there.
pub fn write_owned(
    path: &Utf8Path,
    bytes: &[u8],
    mode: u32,
    ownership: Ownership,
) -> Result<(), DurableError> {
    let content = |file: &mut File| file.write_all(bytes);
    checkpoint::around(|| format!("write {path}"), || replace(path, content, mode, ownership))
}

/// Like [`write`], of what is too much to be held at once: `content` writes it.
///
/// # Errors
/// When a step fails; what was there before is then still there.
pub fn write_by(
    path: &Utf8Path,
    mode: u32,
    content: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), DurableError> {
    checkpoint::around(|| format!("write {path}"), || replace(path, content, mode, Ownership::Writer))
}

fn replace(
    path: &Utf8Path,
    content: impl FnOnce(&mut File) -> io::Result<()>,
    mode: u32,
    ownership: Ownership,
) -> Result<(), DurableError> {
    let (beside, file) = create_beside(path)?;
    let written =
        fill(file, content, mode, ownership).map_err(DurableError::new(&beside, "written")).and_then(|()| {
            // A point of its own: a crash before it leaves the whole new file, and not under its name.
            let renaming = || fs::rename(&beside, path);
            let renamed = checkpoint::around(|| format!("give {path} its name"), renaming);
            renamed.map_err(DurableError::new(path, "replaced"))
        });
    if written.is_err() {
        // What is left of it is swept by the next start; the first error is the one to tell.
        let _ = fs::remove_file(&beside);
    }
    written?;
    sync_folder(folder_of(path))
}

/// Writes a file unless it has these bytes already.
///
/// # Errors
/// When it cannot be written; what was there before is then still there.
pub fn write_unless_same(path: &Utf8Path, bytes: &[u8], mode: u32) -> Result<Written, DurableError> {
    if fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(Written::WasThere);
    }
    write(path, bytes, mode).map(|()| Written::New)
}

/// Writes a value as JSON with a line end.
///
/// # Errors
/// When a step fails; what was there before is then still there.
pub fn write_json<T: Serialize>(path: &Utf8Path, value: &T, mode: u32) -> Result<(), DurableError> {
    let mut bytes = serde_json::to_vec(value).map_err(|source| DurableError::Corrupt {
        path: path.to_owned(),
        expected: std::any::type_name::<T>(),
        source,
    })?;
    bytes.push(b'\n');
    write(path, &bytes, mode)
}

/// Reads what [`write_json`] wrote; nothing where there is no file.
///
/// # Errors
/// When the file is there and cannot be read, or holds something else.
pub fn read_json<T: DeserializeOwned>(path: &Utf8Path) -> Result<Option<T>, DurableError> {
    let Some(bytes) = read(path)? else {
        return Ok(None);
    };
    let value = serde_json::from_slice(&bytes).map_err(|source| DurableError::Corrupt {
        path: path.to_owned(),
        expected: std::any::type_name::<T>(),
        source,
    })?;
    Ok(Some(value))
}

/// Reads a file; nothing where there is none.
///
/// # Errors
/// When it is there and cannot be read.
pub fn read(path: &Utf8Path) -> Result<Option<Vec<u8>>, DurableError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(DurableError::new(path, "read")(error)),
    }
}

/// Removes a file, and syncs its folder; one that is not there is removed already.
///
/// # Errors
/// When it is still there.
pub fn remove(path: &Utf8Path) -> Result<(), DurableError> {
    let removing = || match fs::remove_file(path) {
        Ok(()) => sync_folder(folder_of(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DurableError::new(path, "removed")(error)),
    };
    checkpoint::around(|| format!("remove {path}"), removing)
}

/// Removes a folder with all that is in it, following no link, and syncs the one that it was in; one that is
/// not there is removed already.
///
/// # Errors
/// When something of it is still there.
pub fn remove_tree(path: &Utf8Path) -> Result<(), DurableError> {
    let removing = || match fs::remove_dir_all(path) {
        Ok(()) => sync_folder(folder_of(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DurableError::new(path, "removed")(error)),
    };
    checkpoint::around(|| format!("remove {path}"), removing)
}

/// Makes a folder, and those it lies in, with exactly this mode, which the innermost gets also when it was
/// there already.
///
/// # Errors
/// When it cannot be made, or something else has its name: a file, or a link.
pub fn ensure_folder(path: &Utf8Path, mode: u32) -> Result<(), DurableError> {
    let failed = || DurableError::new(path, "made a folder");
    let made = !path.exists();
    if made {
        checkpoint::around(|| format!("make folder {path}"), || make_folder(path, mode))?;
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
    let folder =
        rustix::fs::open(path.as_std_path(), flags, Mode::empty()).map_err(|e| failed()(e.into()))?;
    rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode)).map_err(|e| failed()(e.into()))?;
    if made {
        sync_folder(folder_of(path))?;
    }
    Ok(())
}

/// Makes it with those it lies in; one that is there by now is made.
fn make_folder(path: &Utf8Path, mode: u32) -> Result<(), DurableError> {
    match fs::create_dir(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.parent().is_some() => {
            ensure_folder(folder_of(path), mode)?;
            make_folder(path, mode)
        }
        Err(error) => Err(DurableError::new(path, "made a folder")(error)),
    }
}

/// Makes the folders that `path` lies in, where they are missing, as the system makes them.
///
/// # Errors
/// When one cannot be made.
pub fn make_parents(path: &Utf8Path) -> Result<(), DurableError> {
    let parent = folder_of(path);
    fs::create_dir_all(parent).map_err(DurableError::new(parent, "made a folder"))
}

/// Makes a folder's list of names durable.
///
/// # Errors
/// When the system cannot.
pub fn sync_folder(folder: &Utf8Path) -> Result<(), DurableError> {
    File::open(folder).and_then(|opened| opened.sync_all()).map_err(DurableError::new(folder, "synced"))
}

/// Makes each file and folder below a folder durable, the folder itself too: what others wrote and have not
/// synced. What vanishes meanwhile needs no syncing; links and other things are passed by.
///
/// # Errors
/// When one cannot be synced.
pub fn sync_tree(folder: &Utf8Path) -> Result<(), DurableError> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(DurableError::new(folder, "listed")(error)),
    };
    for entry in entries {
        let entry = entry.map_err(DurableError::new(folder, "listed"))?;
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => sync_tree(path)?,
            Ok(kind) if kind.is_file() => match open_plain(path).and_then(|file| file.sync_all()) {
                Ok(()) => {}
                Err(error) if gone(&error) => {}
                Err(error) => return Err(DurableError::new(path, "synced")(error)),
            },
            Ok(_) => {}
            Err(error) if gone(&error) => {}
            Err(error) => return Err(DurableError::new(path, "looked at")(error)),
        }
    }
    match sync_folder(folder) {
        Err(DurableError::System { source, .. }) if gone(&source) => Ok(()),
        result => result,
    }
}

/// Removes a folder that holds only files of these names, with what a killed writer left beside them; one that is not
/// there is removed already. What else is in it is somebody else's, and stays, and the folder with it.
///
/// # Errors
/// When something of it is still there.
pub fn remove_folder_of(path: &Utf8Path, names: &[&str]) -> Result<(), DurableError> {
    let removing = || {
        let entries = match path.read_dir_utf8() {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(DurableError::new(path, "listed")(error)),
        };
        let mut is_empty = true;
        for entry in entries {
            let entry = entry.map_err(DurableError::new(path, "listed"))?;
            let (name, kind) = (entry.file_name(), entry.file_type());
            let is_folder = kind.map_err(DurableError::new(entry.path(), "looked at"))?.is_dir();
            if is_folder || !(names.contains(&name) || is_beside(name)) {
                is_empty = false;
                continue;
            }
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(DurableError::new(entry.path(), "removed")(error));
                }
                _ => {}
            }
        }
        if !is_empty {
            return sync_folder(path);
        }
        match fs::remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(DurableError::new(path, "removed")(error))
            }
            _ => sync_folder(folder_of(path)),
        }
    };
    checkpoint::around(|| format!("remove {path}"), removing)
}

/// Removes what a killed writer left beside the files of a folder. What somebody who still runs is writing stays.
///
/// # Errors
/// When one is still there.
pub fn sweep(folder: &Utf8Path) -> Result<(), DurableError> {
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(DurableError::new(folder, "listed")(error)),
    };
    for entry in entries {
        let entry = entry.map_err(DurableError::new(folder, "listed"))?;
        if is_beside(entry.file_name()) && !is_being_written(entry.file_name()) {
            remove(entry.path())?;
        }
    }
    Ok(())
}

/// Whether the process that a file's name beside another tells of still runs. Where its number went to somebody else
/// by now, the file stays until that one has ended too.
fn is_being_written(name: &str) -> bool {
    let writer = name.trim_end_matches(BESIDE).rsplit('.').nth(1).and_then(|pid| pid.parse::<u32>().ok());
    writer.is_some_and(|pid| Utf8Path::new("/proc").join(pid.to_string()).exists())
}

/// Opens a file for reading: not a link, and without waiting, whatever it is.
///
/// # Errors
/// When it is not there, is a link, or may not be read.
pub fn open_plain(path: &Utf8Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)
}

const BESIDE: &str = ".tmp";

/// Whether a file of this name is what a killed writer left beside the file that it was to become.
#[must_use]
pub fn is_beside(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(BESIDE)
}

fn folder_of(path: &Utf8Path) -> &Utf8Path {
    match path.parent() {
        Some(parent) if !parent.as_str().is_empty() => parent,
        _ => Utf8Path::new("."),
    }
}

fn create_beside(path: &Utf8Path) -> Result<(Utf8PathBuf, File), DurableError> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default();
    loop {
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let beside = folder_of(path).join(format!(".{name}.{}.{number}{BESIDE}", std::process::id()));
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside);
        match created {
            Ok(file) => return Ok((beside, file)),
            // Left by a killed program that had the same process id: the next number is free.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(DurableError::new(&beside, "made")(error)),
        }
    }
}

fn fill(
    mut file: File,
    content: impl FnOnce(&mut File) -> io::Result<()>,
    mode: u32,
    ownership: Ownership,
) -> io::Result<()> {
    content(&mut file)?;
    if let Ownership::Ids { uid, gid } = ownership {
        rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
