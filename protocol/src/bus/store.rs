//! One key at a time in JetStream's buckets: what the controller's state and a host's reports have in common.
//!
//! In: a bucket's and a key's name, bytes, the revision that was read. Out: entries, revisions, errors that
//! say which key. Not here: which buckets there are (`streams`), or what is in them.
//!
//! Buckets are read by direct get and written by publishing, which needs no right but on the key itself. The
//! library's own handle asks for the stream's description first, which a host may not.
//!
//! A write that is reported failed may still be done: the library keeps what is published while the link is
//! down and sends it later. So every write under a revision carries a nonce, and one that was not answered
//! is looked for before anything is said about it.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::{ContextBuilder, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{DirectGetError, DirectGetErrorKind, Stream};
use bytes::Bytes;

use super::connect::{Connection, violation_of};

/// How long one request to the store waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How often a write that was not answered, and is not there, is made.
const WRITES: u32 = 2;
const NONCE: &str = "Mesh-Nonce";
const OPERATION: &str = "KV-Operation";

/// Why state could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// `create`, and there is one.
    #[error("{bucket}/{key} exists already")]
    AlreadyExists {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
    },
    /// `update` or `delete`, and it is not as it was read any more.
    #[error("{bucket}/{key} changed: expected revision {expected}")]
    Stale {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
        /// The revision that it had been read with.
        expected: u64,
    },
    /// No answer in time, and a write is not to be found: it may still come.
    #[error("{bucket}/{key}: no answer from the bus within {} ms", ANSWER_WITHIN.as_millis())]
    Unanswered {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
    },
    /// There is no such bucket, or no JetStream.
    #[error("{bucket}/{key}: the bus keeps no such bucket now")]
    Unavailable {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
    },
    /// The credential does not allow it.
    #[error("the bus does not permit it: {0}")]
    NotPermitted(
        /// In the server's words.
        String,
    ),
    /// What is there is not what it should be.
    #[error("{bucket}/{key} is not right")]
    Unreadable {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// What was to be written cannot be.
    #[error("{bucket}/{key} cannot be written")]
    Unwritable {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
        /// Why: not JSON, or larger than the bus takes.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A key goes into a subject: letters, digits, `-`, `_`, and dots within.
    #[error("{key:?} is no key for the bucket {bucket}: expected letters, digits, '-', '_' and dots between")]
    InvalidKey {
        /// Where.
        bucket: String,
        /// As it was given.
        key: String,
    },
    /// Anything else that the server or the library says.
    #[error("{bucket}/{key}: the bus failed")]
    Failed {
        /// Where.
        bucket: String,
        /// Which.
        key: String,
        /// What they say.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StateError {
    /// Whether the same may work later, as it is: the bus is away, or not ready yet.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        matches!(self, Self::Unanswered { .. } | Self::Unavailable { .. })
    }
}

/// A key's name, and how to say it in subjects and errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) bucket: &'a str,
    pub(super) key: &'a str,
}

impl Place<'_> {
    fn subject(self) -> Result<String, StateError> {
        let right = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        let token = |token: &str| !token.is_empty() && token.bytes().all(right);
        if self.key.split('.').all(token) {
            Ok(format!("$KV.{}.{}", self.bucket, self.key))
        } else {
            Err(StateError::InvalidKey { bucket: self.bucket.to_owned(), key: self.key.to_owned() })
        }
    }

    fn names(self) -> (String, String) {
        (self.bucket.to_owned(), self.key.to_owned())
    }

    pub(super) fn already_exists(self) -> StateError {
        let (bucket, key) = self.names();
        StateError::AlreadyExists { bucket, key }
    }

    pub(super) fn stale(self, expected: u64) -> StateError {
        let (bucket, key) = self.names();
        StateError::Stale { bucket, key, expected }
    }

    pub(super) fn unanswered(self) -> StateError {
        let (bucket, key) = self.names();
        StateError::Unanswered { bucket, key }
    }

    fn unavailable(self) -> StateError {
        let (bucket, key) = self.names();
        StateError::Unavailable { bucket, key }
    }

    pub(super) fn unreadable(self, source: serde_json::Error) -> StateError {
        let (bucket, key) = self.names();
        StateError::Unreadable { bucket, key, source }
    }

    pub(super) fn unwritable(
        self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> StateError {
        let (bucket, key) = self.names();
        StateError::Unwritable { bucket, key, source: source.into() }
    }

    pub(super) fn failed(self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StateError {
        let (bucket, key) = self.names();
        StateError::Failed { bucket, key, source: source.into() }
    }
}

/// What a key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) revision: u64,
    /// None where the key was deleted.
    pub(super) value: Option<Bytes>,
    nonce: Option<String>,
}

impl Entry {
    fn of(bucket: &str, message: StreamMessage) -> Self {
        let text = |name: &str| message.headers.get(name).map(ToString::to_string);
        let prefix = format!("$KV.{bucket}.");
        let subject = message.subject.as_str();
        Self {
            key: subject.strip_prefix(&prefix).unwrap_or(subject).to_owned(),
            revision: message.sequence,
            nonce: text(NONCE),
            value: match text(OPERATION).as_deref() {
                Some("DEL" | "PURGE") => None,
                _ => Some(message.payload),
            },
        }
    }
}

/// How one write ended.
enum Written {
    At(u64),
    WrongRevision,
    NoAnswer,
}

/// What a write leaves behind.
pub(super) enum Write {
    /// A value.
    Value(Bytes),
    /// Nothing.
    Deletion,
}

/// Keys in buckets, over one connection.
#[derive(Debug, Clone)]
pub(super) struct Store {
    connection: Connection,
    context: Context,
}

impl Store {
    pub(super) fn new(connection: Connection) -> Self {
        let context = ContextBuilder::new().timeout(ANSWER_WITHIN).build(connection.client().clone());
        Self { connection, context }
    }

    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    pub(super) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// What the key holds; none when it never did, or that was forgotten.
    pub(super) async fn entry(&self, place: Place<'_>) -> Result<Option<Entry>, StateError> {
        let subject = place.subject()?;
        let name = format!("KV_{}", place.bucket);
        let api = format!("$JS.API.DIRECT.GET.{name}.{subject}");
        let mut violations = self.connection.violations();
        let got = tokio::select! {
            // cancel safe: a read
            got = async { self.stream(&name).await?.direct_get_last_for_subject(subject).await } => got,
            // cancel safe: reads a broadcast
            text = violation_of(&mut violations, &api) => return Err(StateError::NotPermitted(text)),
        };
        match got {
            Ok(message) => Ok(Some(Entry::of(place.bucket, message))),
            Err(error) => read_error(place, error).map(|()| None),
        }
    }

    /// The first entry of the bucket whose revision is at least `revision`.
    pub(super) async fn next_entry(&self, bucket: &str, revision: u64) -> Result<Option<Entry>, StateError> {
        let place = Place { bucket, key: "*" };
        let name = format!("KV_{bucket}");
        let got = async {
            let stream = self.stream(&name).await?;
            stream.direct_get_next_for_subject(format!("$KV.{bucket}.>"), Some(revision)).await
        };
        match got.await {
            Ok(message) => Ok(Some(Entry::of(bucket, message))),
            Err(error) => read_error(place, error).map(|()| None),
        }
    }

    async fn stream(&self, name: &str) -> Result<Stream<()>, DirectGetError> {
        self.context
            .get_stream_no_info(name)
            .await
            .map_err(|error| DirectGetError::with_source(DirectGetErrorKind::Other, error))
    }

    /// Writes if the key's revision is `expected` (0: it never had one). Answers the new revision.
    pub(super) async fn write(
        &self,
        place: Place<'_>,
        write: &Write,
        expected: u64,
    ) -> Result<u64, StateError> {
        let nonce = self.connection.unique();
        for _ in 0..WRITES {
            let publish =
                message(write).header(NONCE, nonce.as_str()).expected_last_subject_sequence(expected);
            let answered = match self.publish(place, publish).await? {
                Written::At(revision) => return Ok(revision),
                Written::WrongRevision => true,
                Written::NoAnswer => false,
            };
            let found = self.entry(place).await?;
            let revision = found.as_ref().map_or(0, |entry| entry.revision);
            match found {
                Some(entry) if entry.nonce.as_deref() == Some(nonce.as_str()) => {
                    return Ok(entry.revision);
                }
                // Revisions only rise: what expected this one can never be stored any more.
                _ if answered || revision != expected => return Err(place.stale(expected)),
                _ => {}
            }
        }
        Err(place.unanswered())
    }

    /// Writes whatever the key's revision is: for a key that has one writer, whose last word counts.
    pub(super) async fn put(&self, place: Place<'_>, value: Bytes) -> Result<u64, StateError> {
        let publish = message(&Write::Value(value));
        match self.publish(place, publish).await? {
            Written::At(revision) => Ok(revision),
            Written::WrongRevision | Written::NoAnswer => Err(place.unanswered()),
        }
    }

    async fn publish(&self, place: Place<'_>, publish: PublishMessage) -> Result<Written, StateError> {
        let subject = place.subject()?;
        let mut violations = self.connection.violations();
        let acknowledged = async { self.context.send_publish(subject.clone(), publish).await?.await };
        let acknowledged = tokio::select! {
            // cancel safe: given up only when the server refused it
            acknowledged = acknowledged => acknowledged,
            // cancel safe: reads a broadcast
            text = violation_of(&mut violations, &subject) => return Err(StateError::NotPermitted(text)),
        };
        match acknowledged {
            Ok(acknowledgement) => Ok(Written::At(acknowledgement.sequence)),
            Err(error) => match error.kind() {
                PublishErrorKind::WrongLastSequence => Ok(Written::WrongRevision),
                PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => Ok(Written::NoAnswer),
                PublishErrorKind::StreamNotFound => Err(place.unavailable()),
                PublishErrorKind::MaxPayloadExceeded => Err(place.unwritable(error)),
                _ => Err(place.failed(error)),
            },
        }
    }
}

fn message(write: &Write) -> PublishMessage {
    match write {
        Write::Value(value) => PublishMessage::build().payload(value.clone()),
        Write::Deletion => {
            let mut headers = HeaderMap::new();
            headers.insert(OPERATION, "DEL");
            PublishMessage::build().headers(headers)
        }
    }
}

/// Nothing there is no error.
fn read_error(place: Place<'_>, error: DirectGetError) -> Result<(), StateError> {
    match error.kind() {
        DirectGetErrorKind::NotFound => Ok(()),
        DirectGetErrorKind::TimedOut => Err(place.unanswered()),
        // Nobody answers for the bucket.
        DirectGetErrorKind::Request => Err(place.unavailable()),
        _ => Err(place.failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_tokens_between_dots() {
        let subject = |key| Place { bucket: "b", key }.subject();
        assert_eq!(subject("n1").unwrap(), "$KV.b.n1");
        assert_eq!(subject("mesh-bus.12").unwrap(), "$KV.b.mesh-bus.12");
        for bad in ["", ".", "a.", ".a", "a..b", "*", ">", "a b", "a/b"] {
            let error = subject(bad).unwrap_err();
            assert!(matches!(error, StateError::InvalidKey { .. }), "{bad:?}");
        }
    }
}
