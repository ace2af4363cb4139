//! What can go wrong with a store, and whether trying again can help.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mesh_protocol::id::Digest;

use super::credentials::CredentialError;

/// Why a store did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No client can be made of these options.
    #[error("the given CA certificates cannot be used: {reason}")]
    Certificates {
        /// Why.
        reason: String,
    },
    /// No client can be made at all.
    #[error("cannot make an HTTP client")]
    Client(#[source] reqwest::Error),
    /// Nobody answers, or the connection broke.
    #[error("cannot reach the store at {url}")]
    Unreachable {
        /// What was asked for.
        url: String,
        /// Why.
        source: reqwest::Error,
    },
    /// The connection stands and nothing comes.
    #[error("the store at {url} sent or took nothing for {idle:?}")]
    Silent {
        /// What was asked for.
        url: String,
        /// For how long.
        idle: Duration,
    },
    /// The store says that it cannot now.
    #[error("the store at {url} answered {status}: {answer:?}")]
    Busy {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// The beginning of what it said.
        answer: String,
    },
    /// It is not there.
    #[error("{what} is not in the store")]
    NotFound {
        /// What.
        what: String,
    },
    /// What is there is something else.
    #[error("{what} is corrupted in the store: expected {expected}, found {found}")]
    Corrupted {
        /// What.
        what: String,
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// What is there has another length.
    #[error("{what} is corrupted in the store: expected {expected} bytes, found {found}")]
    WrongSize {
        /// What.
        what: String,
        /// How long it should be.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// What is there is not what was sent there.
    #[error("{what} is corrupted in the store: byte {at} is another than in {path}, which was sent", path = .path.display())]
    Differs {
        /// What.
        what: String,
        /// The file that it was sent from.
        path: PathBuf,
        /// Which byte, counted from 0.
        at: u64,
    },
    /// What is there is larger than it may be.
    #[error("{what} is too large: expected at most {limit} bytes")]
    TooLarge {
        /// What.
        what: String,
        /// How large it may be.
        limit: u64,
    },
    /// The store does not want to.
    #[error("the store refused {url} with {status}: {answer:?}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// The beginning of what it said.
        answer: String,
    },
    /// The store wants to know who asks, and does not like the answer.
    #[error("the store wants credentials for {url}: {found}")]
    Unauthorized {
        /// What was asked for.
        url: String,
        /// What it was given, and what it said.
        found: String,
    },
    /// Where credentials are kept.
    #[error(transparent)]
    Credentials(#[from] CredentialError),
    /// Somebody else published under the same name at the same time.
    #[error("{tag} was moved by somebody else meanwhile: expected {expected}, found {found}")]
    TagMoved {
        /// The tag, with its repository.
        tag: String,
        /// What it should name.
        expected: String,
        /// What it names.
        found: String,
    },
    /// The store does not speak the protocol.
    #[error("the store at {url} answered against the protocol: {what}")]
    Protocol {
        /// What was asked for.
        url: String,
        /// What is wrong with the answer.
        what: String,
    },
    /// What is there is no bundle.
    #[error("{what} is not a bundle: {found}")]
    NotBundle {
        /// What.
        what: String,
        /// What it is instead.
        found: String,
    },
    /// The file to send or to write.
    #[error("cannot use {path}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file to send is not the one that it should be.
    #[error("{path} has {found} bytes: expected {expected}", path = .path.display())]
    FileChanged {
        /// Which.
        path: PathBuf,
        /// How long it should be.
        expected: u64,
        /// How long it is.
        found: u64,
    },
    /// The file to send is as long as it should be, and another.
    #[error("{path} has the digest {found}: expected {expected}", path = .path.display())]
    FileDiffers {
        /// Which.
        path: PathBuf,
        /// What it should be.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
}

/// What an error means for whoever wants something of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The way to the store, or its health: try again later.
    Surroundings,
    /// It is not there: publish it first.
    Missing,
    /// It is there and damaged: nothing helps but mending the store.
    Corrupted,
    /// It is refused, here or there: something has to change first.
    Refused,
    /// The disk of this machine.
    Disk,
}

impl StoreError {
    /// What it means.
    #[must_use]
    pub const fn trouble(&self) -> Trouble {
        match self {
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Busy { .. } => Trouble::Surroundings,
            Self::NotFound { .. } => Trouble::Missing,
            Self::Corrupted { .. } | Self::WrongSize { .. } | Self::Differs { .. } => Trouble::Corrupted,
            Self::File { .. } => Trouble::Disk,
            Self::Certificates { .. }
            | Self::Client(_)
            | Self::TooLarge { .. }
            | Self::Refused { .. }
            | Self::Unauthorized { .. }
            | Self::Credentials(_)
            | Self::TagMoved { .. }
            | Self::Protocol { .. }
            | Self::NotBundle { .. }
            | Self::FileChanged { .. }
            | Self::FileDiffers { .. } => Trouble::Refused,
        }
    }
}
