//! The documents of an incarnation's folder.
//!
//! In and out: JSON files, written durably. Not here: who writes which, and when.

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use mesh_protocol::handover::Reason;
use mesh_protocol::id::InstanceId;
use serde::{Deserialize, Serialize};

use crate::machine::ProcessIdentity;
use mesh_durable::{self as durable, DurableError};

/// What is run, as whom, where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// This run.
    pub instance: InstanceId,
    /// The program, by its absolute path.
    pub program: Utf8PathBuf,
    /// Its arguments, without the program itself.
    pub arguments: Vec<String>,
    /// The unpacked bundle.
    pub working_directory: Utf8PathBuf,
    /// The user it runs as, with no other group than `gid`.
    pub uid: u32,
    /// The group it runs as.
    pub gid: u32,
    /// Where its output goes; what was there before is kept beside, as `.1`.
    pub log: Utf8PathBuf,
    /// The size at which the log is turned.
    pub log_limit_bytes: u64,
    /// By what all that it starts is held together.
    pub grouping: Grouping,
}

/// By what all that a program starts is held together, so that it ends as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// A control group (cgroup2) of its own; on a machine that lets us make none, as [`Self::Session`].
    ControlGroup,
    /// Its session, and what descends from the shim.
    Session,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The program.
    #[serde(flatten)]
    pub program: ProcessIdentity,
    /// Its shim.
    pub shim: ProcessIdentity,
    /// When.
    pub at: Timestamp,
    /// The group that counts its memory, where it has one that lies within its maker's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_group: Option<Utf8PathBuf>,
}

/// How a run ended. It is written when nothing of it is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// How.
    #[serde(flatten)]
    pub kind: ExitKind,
    /// When.
    pub at: Timestamp,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "exit")]
pub enum ExitKind {
    /// By itself.
    Exited {
        /// Its exit status.
        code: i32,
    },
    /// By a signal that was not the kernel's for want of memory.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel ended it for want of memory.
    OutOfMemory,
    /// It never ran.
    CouldNotStart {
        /// What stood in the way.
        path: Utf8PathBuf,
        /// The system's word.
        error: String,
    },
}

impl ExitKind {
    /// The same in the words of a handover. (A SIGKILL from outside is among [`Reason::Signalled`]; whether it
    /// speaks against the program is for the handover to say.)
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Exited { code } => Reason::Exited { code: *code },
            Self::Signalled { signal } => Reason::Signalled { signal: *signal },
            Self::OutOfMemory => Reason::OutOfMemory,
            Self::CouldNotStart { path, error } => {
                Reason::CouldNotStart { detail: format!("{path}: {error}") }
            }
        }
    }
}

/// All that a run's folder holds.
pub(super) const FILES: [&str; 4] = ["launch.json", "gate", "started.json", "exit.json"];

pub(super) fn launch_file(folder: &Utf8Path) -> Utf8PathBuf {
    folder.join("launch.json")
}

pub(super) fn gate_file(folder: &Utf8Path) -> Utf8PathBuf {
    folder.join("gate")
}

fn started_file(folder: &Utf8Path) -> Utf8PathBuf {
    folder.join("started.json")
}

fn exit_file(folder: &Utf8Path) -> Utf8PathBuf {
    folder.join("exit.json")
}

pub(super) fn launch(folder: &Utf8Path) -> Result<Option<Launch>, DurableError> {
    durable::read_json(&launch_file(folder))
}

pub(super) fn started(folder: &Utf8Path) -> Result<Option<Started>, DurableError> {
    durable::read_json(&started_file(folder))
}

pub(super) fn write_started(folder: &Utf8Path, started: &Started) -> Result<(), DurableError> {
    durable::write_json(&started_file(folder), started, 0o600)
}

pub(super) fn exit(folder: &Utf8Path) -> Result<Option<Exit>, DurableError> {
    durable::read_json(&exit_file(folder))
}

pub(super) fn write_exit(folder: &Utf8Path, exit: &Exit) -> Result<(), DurableError> {
    durable::write_json(&exit_file(folder), exit, 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_read_back_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(folder.path()).unwrap();
        let identity = |pid| ProcessIdentity { pid, start_time: 7, boot_id: "b".to_owned() };
        let written = Started {
            program: identity(2),
            shim: identity(1),
            at: Timestamp::UNIX_EPOCH,
            memory_group: None,
        };
        write_started(folder, &written).unwrap();
        assert_eq!(started(folder).unwrap(), Some(written));
        assert_eq!(
            std::fs::read_to_string(started_file(folder)).unwrap(),
            concat!(
                r#"{"pid":2,"start_time":7,"boot_id":"b","shim":{"pid":1,"start_time":7,"boot_id":"b"},"#,
                r#""at":"1970-01-01T00:00:00Z"}"#,
                "\n"
            )
        );
        for kind in [
            ExitKind::Exited { code: 3 },
            ExitKind::Signalled { signal: 9 },
            ExitKind::OutOfMemory,
            ExitKind::CouldNotStart { path: "/x".into(), error: "no".to_owned() },
        ] {
            let written = Exit { kind, at: Timestamp::UNIX_EPOCH };
            write_exit(folder, &written).unwrap();
            assert_eq!(exit(folder).unwrap(), Some(written));
        }
    }
}
