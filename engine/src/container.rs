//! Containers: what is asked for, and what there is.
//!
//! In: requests. Out: containers as the engine has them, and what became of a request. Every deed is idempotent:
//! asked twice, it says the second time that it was so already. Not here: what should run, and the meaning of
//! labels.
//!
//! A container of ours is confined the same way each time (`create`): host network and no published ports, engine
//! restart policy `no`, a read-only root, no capabilities and no way to new privileges, a bounded log.

mod create;
mod lifecycle;
mod observe;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use jiff::Timestamp;
use mesh_protocol::id::InvalidId;
use serde::{Deserialize, Deserializer, Serialize};

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $what:literal, $right:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// As text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let right: fn(&str) -> bool = $right;
                if right(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { what: $what, found: text.to_owned(), expected: $expected })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

text!(
    /// The engine's own id of a container: it is never given twice.
    ContainerId,
    "container id",
    |text| text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
    "64 hexadecimal digits in lower case"
);

impl ContainerId {
    /// The first 12 digits, as engines show an id to people.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..12]
    }
}

text!(
    /// The engine's name of a container: held by one at a time, and by another later.
    ContainerName,
    "container name",
    |text| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        text.len() >= 2 && text.bytes().all(inner) && text.as_bytes()[0].is_ascii_alphanumeric()
    },
    "two or more of letters, digits, '_', '.' and '-', a letter or digit first"
);

/// Whether what is mounted can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// It can only be read.
    ReadOnly,
    /// It can be written.
    ReadWrite,
}

/// A file or folder of the machine, seen in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Its path on the machine. It must exist: the engine would make a folder of it otherwise.
    pub source: PathBuf,
    /// Its path in the container.
    pub target: PathBuf,
    /// Whether it can be written.
    pub access: Access,
}

/// What is asked for when a container is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerRequest {
    /// Its name.
    pub name: ContainerName,
    /// The reference or id of its image, which must be in the engine.
    pub image: String,
    /// The program and its arguments, or the arguments alone where the image has an entry point; empty: as
    /// the image says.
    pub command: Vec<String>,
    /// The user whose rights it has.
    pub user: User,
    /// Its working directory; the image's when there is none.
    pub working_directory: Option<PathBuf>,
    /// What it sees of the machine.
    pub mounts: Vec<Mount>,
    /// Its labels. The image's come on top in what is observed.
    pub labels: BTreeMap<String, String>,
}

/// A user and a group by number: names would be looked up in the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// A container in the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// The engine's id of it.
    pub id: ContainerId,
    /// Its name.
    pub name: ContainerName,
    /// The engine's id of its image.
    pub image_id: String,
    /// The image as it was asked for.
    pub image_reference: String,
    /// What it is doing.
    pub state: State,
    /// When it was last started; none when it never was.
    pub started_at: Option<Timestamp>,
    /// How often the engine started it again by itself.
    pub restart_count: u64,
    /// Whether the engine brings it back by itself: `no`, `always`, `unless-stopped`, `on-failure`.
    pub restart_policy: String,
    /// The user as it was asked for.
    pub user: String,
    /// Its labels, and those of its image.
    pub labels: BTreeMap<String, String>,
    /// What it sees of the machine.
    pub mounts: Vec<Mount>,
}

/// What a container is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It was never started.
    Created,
    /// Its program runs.
    Running {
        /// The pid of its program, on the machine.
        pid: u32,
        /// When it was started.
        started_at: Timestamp,
    },
    /// Its program is there and frozen.
    Paused {
        /// The pid of its program, on the machine.
        pid: u32,
    },
    /// Its program ended and the engine is about to start it again; never so for one of ours.
    Restarting,
    /// Its program ended.
    Exited {
        /// The program's exit status; 128 and the number for a signal.
        code: i64,
        /// When it ended.
        finished_at: Timestamp,
        /// Whether the kernel ended it for want of memory.
        out_of_memory: bool,
    },
    /// The engine is removing it.
    Removing,
    /// The engine failed to remove it; it can only be removed again.
    Dead,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.write_str("never started"),
            Self::Running { .. } => f.write_str("running"),
            Self::Paused { .. } => f.write_str("paused"),
            Self::Restarting => f.write_str("restarting"),
            Self::Exited { code, .. } => write!(f, "exited with {code}"),
            Self::Removing => f.write_str("being removed"),
            Self::Dead => f.write_str("dead"),
        }
    }
}

/// What became of a container that was to be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It was started.
    Started,
    /// It ran already.
    AlreadyRunning,
    /// There is no such container, or it is being removed.
    Gone,
}

/// What became of a container that was to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Its program was ended.
    Stopped,
    /// It did not run.
    AlreadyStopped,
    /// There is no such container.
    Gone,
}

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Killed {
    /// It was delivered.
    Signalled,
    /// The container did not run.
    NotRunning,
    /// There is no such container.
    Gone,
}

/// What became of a container that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// It was removed, by us or by a removal that had begun.
    Removed,
    /// There was no such container.
    Gone,
    /// It runs, and is removed only after it was stopped.
    StillRunning,
}

/// What waiting for a container's end came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waited {
    /// It ended.
    Exited {
        /// The program's exit status; 128 and the number for a signal.
        code: i64,
    },
    /// It was never started, so there is no end to wait for.
    NeverStarted,
    /// There is no such container.
    Gone,
}

/// The signals that are sent to containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Read your files again.
    Hangup,
    /// End in order.
    Terminate,
    /// End at once.
    Kill,
}

impl Signal {
    /// The name that the engine knows it by.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hangup => "SIGHUP",
            Self::Terminate => "SIGTERM",
            Self::Kill => "SIGKILL",
        }
    }
}

/// Which labels a container or image must have; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSelector(Vec<String>);

impl LabelSelector {
    /// It has the label, with whatever value.
    #[must_use]
    pub fn has(label: &str) -> Self {
        Self(vec![label.to_owned()])
    }

    /// It has the label with this value.
    #[must_use]
    pub fn is(label: &str, value: &str) -> Self {
        Self(vec![format!("{label}={value}")])
    }

    /// And it has the label with this value.
    #[must_use]
    pub fn and_is(mut self, label: &str, value: &str) -> Self {
        self.0.push(format!("{label}={value}"));
        self
    }

    pub(crate) fn filters(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_what_the_engine_has() {
        let id: ContainerId = "0123456789abcdef".repeat(4).parse().unwrap();
        assert_eq!(id.short(), "0123456789ab");
        for bad in ["", "0123456789ab", &"A".repeat(64), &"g".repeat(64)] {
            bad.parse::<ContainerId>().unwrap_err();
        }
        for good in ["ab", "mesh-controller", "lab7.mesh_bus"] {
            good.parse::<ContainerName>().unwrap();
        }
        for bad in ["", "a", "-a", "a/b", "a b", "..", "/a", "ä1"] {
            bad.parse::<ContainerName>().unwrap_err();
        }
    }
}
