//! What can go wrong between us and the engine, classified by what the caller can do about it.
//!
//! In: the client's errors. Out: [`Error`], and for what a person can mend a remedy. Not here: how it is shown.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use bollard::errors::Error as ClientError;

use crate::container::{ContainerId, ContainerName, State};
use crate::endpoint::Address;
use crate::engine::{NEWEST_API, OLDEST_API};

/// A version of the engine's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// The part before the dot.
    pub major: u32,
    /// The part behind it.
    pub minor: u32,
}

impl FromStr for ApiVersion {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.split_once('.').ok_or(())?;
        Ok(Self { major: major.parse().map_err(|_| ())?, minor: minor.parse().map_err(|_| ())? })
    }
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// In which way nobody is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// The socket's file does not exist.
    NoSocket,
    /// The socket or port exists, and nobody listens at it.
    NobodyAnswers,
    /// A conversation that had begun broke off.
    BrokeOff,
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSocket => "its socket does not exist",
            Self::NobodyAnswers => "nobody answers",
            Self::BrokeOff => "it broke off the conversation",
        })
    }
}

/// Who holds a name that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The container's engine id.
    pub id: ContainerId,
    /// Its name.
    pub name: ContainerName,
    /// What it was doing.
    pub state: State,
    /// Its labels, by which its owner can be told.
    pub labels: BTreeMap<String, String>,
}

/// Why the engine did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no engine to speak to.
    #[error("no container engine at {address}: {silence}")]
    Unreachable {
        /// Where one was expected.
        address: Address,
        /// In which way nobody is there.
        silence: Silence,
        /// What the system said.
        source: io::Error,
    },
    /// The engine is there, and this user may not speak to it.
    #[error("the container engine at {address} may not be spoken to by this user")]
    NotPermitted {
        /// Where it is.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
    /// The engine is older than what this crate relies on.
    #[error("the container engine at {address} speaks API {found}: expected {OLDEST_API} or newer")]
    TooOld {
        /// Where it is.
        address: Address,
        /// What it speaks.
        found: ApiVersion,
    },
    /// The engine no longer speaks what this crate speaks.
    #[error(
        "the container engine at {address} speaks API {found} and newer: expected {NEWEST_API} or older too"
    )]
    TooNew {
        /// Where it is.
        address: Address,
        /// The oldest that it speaks.
        found: ApiVersion,
    },
    /// Another container holds the name.
    #[error("container name {:?} is held by container {} ({})", holder.name.as_str(), holder.id.short(), holder.state)]
    Conflict {
        /// Who holds it.
        holder: Box<Holder>,
    },
    /// What was to be used does not exist.
    #[error("{what} does not exist in the container engine")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// The engine did not answer in time. It may still do what it was asked.
    #[error("the container engine did not {what} within {} s", limit.as_secs_f32())]
    TimedOut {
        /// What it was asked to do.
        what: String,
        /// How long it had.
        limit: Duration,
    },
    /// The registry that an image is pulled from is out of reach.
    #[error("image {reference:?} cannot be pulled, its registry is out of reach: {message}")]
    RegistryUnreachable {
        /// The image.
        reference: String,
        /// What the engine said.
        message: String,
    },
    /// An archive that was to be loaded cannot be read, or one that was to be saved not be written.
    #[error("the image archive cannot be read or written")]
    Archive {
        /// Why.
        source: io::Error,
    },
    /// The engine refused.
    #[error("the container engine refused to {what}: {message}{}", status_text(*status))]
    Refused {
        /// What it was asked to do.
        what: String,
        /// The status of its answer; none when it refused part-way.
        status: Option<u16>,
        /// What it said.
        message: String,
    },
    /// The engine answered something that its API does not have.
    #[error("the container engine's answer makes no sense when asked to {what}: {found}")]
    Nonsense {
        /// What it was asked to do.
        what: String,
        /// What was found, and what was expected.
        found: String,
    },
}

fn status_text(status: Option<u16>) -> String {
    status.map(|status| format!(" (status {status})")).unwrap_or_default()
}

impl Error {
    /// What a person can do about it, where it is for a person to do.
    #[must_use]
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Unreachable { silence: Silence::NoSocket, .. } => Some(
                "install a container engine (on Debian: apt-get install docker.io) and start it, or say with DOCKER_HOST where it is".to_owned(),
            ),
            Self::Unreachable { silence: Silence::NobodyAnswers, .. } => {
                Some("start the container engine (systemctl start docker, or dockerd)".to_owned())
            }
            Self::Unreachable { silence: Silence::BrokeOff, .. } => {
                Some("see why the container engine ended (journalctl -u docker), and run this again".to_owned())
            }
            Self::NotPermitted { address: Address::Unix(path), .. } => {
                Some(format!("run this as root, or as a member of the group that owns {}", path.display()))
            }
            Self::TooOld { .. } => Some("upgrade the container engine to Docker 20.10 or newer".to_owned()),
            Self::TooNew { .. } => Some("use a newer release of this program, or an older engine".to_owned()),
            Self::Conflict { holder } => Some(format!(
                "if nobody needs it: docker rm {name}; else choose another name or prefix",
                name = holder.name
            )),
            Self::TimedOut { .. } => {
                Some("see whether `docker ps` answers; restart the container engine if it does not".to_owned())
            }
            Self::RegistryUnreachable { .. } => {
                Some("load the image from an archive instead, or bring its registry in reach".to_owned())
            }
            Self::NotPermitted { .. }
            | Self::NotFound { .. }
            | Self::Archive { .. }
            | Self::Refused { .. }
            | Self::Nonsense { .. } => None,
        }
    }

    /// Classifies what the system says of a connection to `address`.
    pub(crate) fn from_connection(address: &Address, source: io::Error) -> Self {
        let address = address.clone();
        let silence = match source.kind() {
            io::ErrorKind::PermissionDenied => return Self::NotPermitted { address, source },
            io::ErrorKind::NotFound => Silence::NoSocket,
            io::ErrorKind::ConnectionRefused => Silence::NobodyAnswers,
            _ => Silence::BrokeOff,
        };
        Self::Unreachable { address, silence, source }
    }

    /// Classifies what the client says of an answer to "do `what`".
    pub(crate) fn from_client(address: &Address, what: &str, error: ClientError) -> Self {
        let what = what.to_owned();
        match error {
            ClientError::DockerResponseServerError { status_code, message } => {
                Self::Refused { what, status: Some(status_code), message }
            }
            ClientError::DockerStreamError { error } => Self::Refused { what, status: None, message: error },
            ClientError::JsonDataError { message, .. } => Self::Nonsense { what, found: message },
            ClientError::JsonSerdeError { err } => Self::Nonsense { what, found: err.to_string() },
            ClientError::SocketNotFoundError(path) => {
                Self::from_connection(address, io::Error::new(io::ErrorKind::NotFound, path))
            }
            ClientError::IOError { err } => Self::from_connection(address, err),
            other => Self::from_connection(address, io_cause(other)),
        }
    }

    /// The status with which the engine refused.
    pub(crate) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => *status,
            _ => None,
        }
    }
}

/// The system's own error below the client's layers, or the client's as one.
fn io_cause(error: ClientError) -> io::Error {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(&error);
    while let Some(current) = cause {
        if let Some(found) = current.downcast_ref::<io::Error>() {
            return match found.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(found.kind(), found.to_string()),
            };
        }
        cause = current.source();
    }
    io::Error::other(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        "unix:///x.sock".parse().unwrap()
    }

    #[test]
    fn the_systems_answer_tells_how_nobody_is_there() {
        let classify = |kind: io::ErrorKind| Error::from_connection(&address(), kind.into());
        assert!(matches!(classify(io::ErrorKind::PermissionDenied), Error::NotPermitted { .. }));
        for (kind, expected) in [
            (io::ErrorKind::NotFound, Silence::NoSocket),
            (io::ErrorKind::ConnectionRefused, Silence::NobodyAnswers),
            (io::ErrorKind::BrokenPipe, Silence::BrokeOff),
        ] {
            let error = classify(kind);
            assert!(matches!(&error, Error::Unreachable { silence, .. } if *silence == expected), "{error}");
            assert!(error.remedy().is_some());
        }
    }

    #[test]
    fn the_systems_error_is_found_below_the_clients() {
        let error = ClientError::IOError { err: io::ErrorKind::PermissionDenied.into() };
        assert!(matches!(Error::from_client(&address(), "be", error), Error::NotPermitted { .. }));
        let error = ClientError::DockerResponseServerError { status_code: 500, message: "no".to_owned() };
        let error = Error::from_client(&address(), "start container \"a\"", error);
        assert_eq!(error.status(), Some(500));
        assert_eq!(
            error.to_string(),
            "the container engine refused to start container \"a\": no (status 500)"
        );
    }

    #[test]
    fn api_versions_are_ordered_as_numbers() {
        let version = |text: &str| text.parse::<ApiVersion>().unwrap();
        assert!(version("1.9") < version("1.41"));
        assert_eq!(version("1.41"), OLDEST_API);
        "1".parse::<ApiVersion>().unwrap_err();
        "1.x".parse::<ApiVersion>().unwrap_err();
    }
}
