//! The run folder, in which an instance and its host meet without a bus: `instance`, `role`, `role.ack`.
//!
//! In: files written by the host. Out: `role.ack`, written in place by this instance, which owns that file and
//! nothing else there. Not here: what follows from an order ([`crate::roles`]).

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::FileExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::handover::{RoleAck, RoleOrder};
use mesh_protocol::id::{InstanceId, InvalidId};

/// Longer than any of these files is, by far.
const LIMIT: u64 = 16 * 1024;

/// What cannot be read from the run folder, or written to it.
#[derive(Debug, thiserror::Error)]
pub enum RunFolderError {
    /// A file that cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// No instance id where one must be.
    #[error("{path} does not hold an instance id")]
    Instance {
        /// Which file.
        path: Utf8PathBuf,
        /// What it holds.
        #[source]
        error: InvalidId,
    },
    /// A file that is not what it should be.
    #[error("{path} is not right")]
    Form {
        /// Which.
        path: Utf8PathBuf,
        /// What is wrong with it.
        #[source]
        error: serde_json::Error,
    },
    /// The acknowledgement cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
}

/// The run folder of this instance.
#[derive(Debug, Clone)]
pub struct RunFolder {
    folder: Utf8PathBuf,
}

impl RunFolder {
    /// The run folder at `folder`.
    #[must_use]
    pub fn new(folder: &Utf8Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Who this instance is.
    ///
    /// # Errors
    /// When the file is not there, or holds something else.
    pub fn instance(&self) -> Result<InstanceId, RunFolderError> {
        let path = self.folder.join("instance");
        let text = read(&path).map_err(|error| RunFolderError::Read { path: path.clone(), error })?;
        text.trim().parse().map_err(|error| RunFolderError::Instance { path, error })
    }

    /// What the host orders; none where there is no order yet.
    ///
    /// # Errors
    /// When the file is there and cannot be read, or is not an order.
    pub fn order(&self) -> Result<Option<RoleOrder>, RunFolderError> {
        let path = self.folder.join("role");
        match read(&path) {
            Ok(text) => {
                serde_json::from_str(&text).map(Some).map_err(|error| RunFolderError::Form { path, error })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RunFolderError::Read { path, error }),
        }
    }

    /// The acknowledgement as it lies there; none where there is none, or none that can be read.
    #[must_use]
    pub fn acknowledged(&self) -> Option<RoleAck> {
        serde_json::from_str(&read(&self.folder.join("role.ack")).ok()?).ok()
    }

    /// Writes the acknowledgement in place, in one write that covers all that stood there before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn acknowledge(&self, ack: &RoleAck) -> Result<(), RunFolderError> {
        let path = self.folder.join("role.ack");
        let write = || -> Result<(), std::io::Error> {
            let mut line = serde_json::to_vec(ack)?;
            // The folder is the host's: where the file was lost and the folder may not be written, the host
            // makes it again.
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
            let before = usize::try_from(file.metadata()?.len().min(LIMIT)).unwrap_or_default();
            line.resize(line.len().max(before.saturating_sub(1)), b' ');
            line.push(b'\n');
            file.write_all_at(&line, 0)
        };
        write().map_err(|error| RunFolderError::Write { path: path.clone(), error })
    }
}

fn read(path: &Utf8Path) -> Result<String, std::io::Error> {
    let mut text = String::new();
    File::open(path)?.take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_protocol::handover::Role;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let temp = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(Utf8Path::from_path(temp.path()).unwrap());
        (temp, folder)
    }

    #[test]
    fn a_shorter_acknowledgement_covers_the_longer_one_before_it() {
        let (_temp, folder) = folder();
        let mut ack = RoleAck {
            instance: "p-1".parse().unwrap(),
            role: Role::StandingBy,
            number: 7,
            trouble: Some("a long story about what is not permitted".to_owned()),
        };
        folder.acknowledge(&ack).unwrap();
        assert_eq!(folder.acknowledged(), Some(ack.clone()));
        ack.trouble = None;
        folder.acknowledge(&ack).unwrap();
        assert_eq!(folder.acknowledged(), Some(ack));
    }

    #[test]
    fn what_is_not_there_is_no_order_and_what_is_wrong_is_an_error() {
        let (temp, folder) = folder();
        assert_eq!(folder.order().unwrap(), None);
        assert_eq!(folder.acknowledged(), None);
        std::fs::write(temp.path().join("role"), "serve!").unwrap();
        assert!(matches!(folder.order(), Err(RunFolderError::Form { .. })));
        std::fs::write(temp.path().join("role"), r#"{"instance":"p-1","role":"serving","number":1}"#)
            .unwrap();
        assert_eq!(folder.order().unwrap().unwrap().role, Role::Serving);
    }

    #[test]
    fn the_instance_is_one_line() {
        let (temp, folder) = folder();
        assert!(matches!(folder.instance(), Err(RunFolderError::Read { .. })));
        std::fs::write(temp.path().join("instance"), "p-0123456789\n").unwrap();
        assert_eq!(folder.instance().unwrap().as_str(), "p-0123456789");
        std::fs::write(temp.path().join("instance"), "not an id").unwrap();
        assert!(matches!(folder.instance(), Err(RunFolderError::Instance { .. })));
    }
}
