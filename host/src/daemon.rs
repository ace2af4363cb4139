//! The host as a daemon: the one of its root, and what whoever started it is told.
//!
//! In: the root. Out: the lock, held for as long as the host lives; `ready` on the pipe that its starter left
//! as standard output, which then becomes the host's log. Not here: starting one, which the installer does.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::layout::Layout;

use crate::machine::ProcessIdentity;
use mesh_durable::{self as durable, DurableError};

/// What the host says on its standard output when everything that can fail has been done.
pub const READY: &str = "ready\n";

/// Why this host cannot be the one of its root.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another holds the lock.
    #[error("another host runs for {root}: {holder}")]
    Held {
        /// The mesh's root.
        root: Utf8PathBuf,
        /// Who, as it wrote: pid, start time, boot id.
        holder: String,
    },
    /// A folder cannot be made.
    #[error("the host's folder cannot be made")]
    Folder(#[source] DurableError),
    /// The lock, the log or the machine fails.
    #[error("{path} cannot be used")]
    System {
        /// The file.
        path: Utf8PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

impl DaemonError {
    fn system(path: &Utf8Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::System { path, source }
    }
}

/// That this is the one host of its root, for as long as this value lives. The file stays: it is the lock that
/// counts, and the kernel lets it go with the process.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes it, or says who has it.
    ///
    /// # Errors
    /// When another host has it, or the file cannot be used.
    pub fn take(layout: &Layout) -> Result<Self, DaemonError> {
        durable::ensure_folder(&layout.host(), 0o700).map_err(DaemonError::Folder)?;
        let path = layout.host_lock();
        let failed = || DaemonError::system(&path);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(failed())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DaemonError::Held { root: layout.root().to_owned(), holder: holder(&path) });
            }
            Err(TryLockError::Error(error)) => return Err(failed()(error)),
        }
        let me = ProcessIdentity::of_this_program().map_err(failed())?;
        let text = serde_json::to_string(&me).map_err(|error| failed()(error.into()))?;
        file.set_len(0).map_err(failed())?;
        file.write_all(format!("{text}\n").as_bytes()).map_err(failed())?;
        Ok(Self { _file: file })
    }
}

fn holder(path: &Utf8Path) -> String {
    let identity = durable::read_json::<ProcessIdentity>(path);
    match identity {
        Ok(Some(identity)) => format!("process {}", identity.pid),
        Ok(None) | Err(_) => "it has not said which process it is".to_owned(),
    }
}

/// Tells whoever started this program that it is ready, and turns standard output and standard error to the
/// log: from then on the starter may go.
///
/// # Errors
/// When the log cannot be opened.
pub fn ready(log: &Utf8Path) -> Result<(), DaemonError> {
    if let Some(folder) = log.parent() {
        durable::ensure_folder(folder, 0o700).map_err(DaemonError::Folder)?;
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(log)
        .map_err(DaemonError::system(log))?;
    let failed = |error: rustix::io::Errno| DaemonError::system(log)(error.into());
    rustix::stdio::dup2_stderr(&file).map_err(failed)?;
    let mut out = io::stdout();
    // A starter that is gone, or never listened, is no reason not to run.
    let _ = out.write_all(READY.as_bytes()).and_then(|()| out.flush());
    rustix::stdio::dup2_stdout(&file).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_a_root_and_the_other_is_told_which() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(folder.path()).unwrap());
        let lock = Lock::take(&layout).unwrap();
        let error = Lock::take(&layout).unwrap_err();
        let expected = format!("process {}", std::process::id());
        assert!(error.to_string().contains(&expected), "{error}");
        drop(lock);
        Lock::take(&layout).unwrap();
    }
}
