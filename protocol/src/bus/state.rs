//! The controller's state: documents under keys, each written only over what was read.
//!
//! In: buckets, keys, values. Out: values with their revisions. Not here: the lock (`lock`), and who may
//! write (a host has `host`).

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::chain::chain;
use crate::event::Event;
use crate::id::MeshId;
use crate::subject::{self, EVENTS, bucket};
use crate::verb::Check;

use super::connect::Connection;
use super::store::{Entry, Place, StateError, Store, Write};
use super::streams;

/// How often `create` goes round when the trace of a deleted key comes or goes meanwhile.
const CREATE_ROUNDS: u32 = 4;

/// A value, and the revision that an update of it must name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Versioned<T> {
    /// What was read.
    pub value: T,
    /// Raised by each write.
    pub revision: u64,
}

/// All state of a mesh. Clones share the connection.
#[derive(Debug, Clone)]
pub struct State {
    store: Store,
    mesh: MeshId,
    lease: Duration,
}

impl State {
    /// Over a connection of the account CTRL; makes the buckets that are not there. `lease` is how long the
    /// plan lock outlives a holder that does not renew it.
    ///
    /// # Errors
    /// When JetStream does not answer or does not want to.
    pub async fn open(connection: Connection, mesh: MeshId, lease: Duration) -> Result<Self, StateError> {
        let store = Store::new(connection);
        streams::ensure(store.context(), &mesh, lease).await?;
        Ok(Self { store, mesh, lease })
    }

    /// The mesh.
    #[must_use]
    pub const fn mesh(&self) -> &MeshId {
        &self.mesh
    }

    /// The connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        self.store.connection()
    }

    pub(super) const fn lease(&self) -> Duration {
        self.lease
    }

    /// What `key` holds.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn read<T: DeserializeOwned>(
        &self,
        bucket: &str,
        key: &str,
    ) -> Result<Option<Versioned<T>>, StateError> {
        let entry = self.store.entry(Place { bucket, key }).await?;
        entry.map_or(Ok(None), |entry| parse(bucket, &entry))
    }

    /// Every key of a bucket. Each is read as it is when it is its turn.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn list<T: DeserializeOwned>(
        &self,
        bucket: &str,
    ) -> Result<BTreeMap<String, Versioned<T>>, StateError> {
        let mut all = BTreeMap::new();
        let mut next = 1;
        while let Some(entry) = self.store.next_entry(bucket, next).await? {
            next = entry.revision + 1;
            match parse(bucket, &entry)? {
                Some(value) => {
                    all.insert(entry.key, value);
                }
                None => {
                    all.remove(&entry.key);
                }
            }
        }
        Ok(all)
    }

    /// Writes a key that is not there, and answers its revision.
    ///
    /// # Errors
    /// [`StateError::AlreadyExists`] when it is there; else see [`StateError`].
    pub async fn create<T: Serialize>(&self, bucket: &str, key: &str, value: &T) -> Result<u64, StateError> {
        let place = Place { bucket, key };
        let write = Write::Value(to_bytes(place, value)?);
        // A key that was deleted has a revision still, until that is forgotten.
        let mut expected = 0;
        for _ in 0..CREATE_ROUNDS {
            match self.store.write(place, &write, expected).await {
                Err(StateError::Stale { .. }) => {}
                other => return other,
            }
            expected = match self.store.entry(place).await? {
                Some(Entry { value: Some(_), .. }) => return Err(place.already_exists()),
                Some(Entry { revision, .. }) => revision,
                None => 0,
            };
        }
        Err(place.already_exists())
    }

    /// Writes a key over the revision that was read, and answers the new one.
    ///
    /// # Errors
    /// [`StateError::Stale`] when it has another by now; else see [`StateError`].
    pub async fn update<T: Serialize>(
        &self,
        bucket: &str,
        key: &str,
        value: &T,
        revision: u64,
    ) -> Result<u64, StateError> {
        let place = Place { bucket, key };
        let write = Write::Value(to_bytes(place, value)?);
        self.store.write(place, &write, revision).await
    }

    /// Deletes a key at the revision that was read.
    ///
    /// # Errors
    /// [`StateError::Stale`] when it has another by now; else see [`StateError`].
    pub async fn delete(&self, bucket: &str, key: &str, revision: u64) -> Result<(), StateError> {
        let place = Place { bucket, key };
        self.store.write(place, &Write::Deletion, revision).await.map(|_| ())
    }

    /// Says an event. With the same `dedupe` said again within two minutes it is stored once.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn publish_event(&self, event: &Event, dedupe: &str) -> Result<(), StateError> {
        let place = Place { bucket: EVENTS, key: event.what.kind() };
        let subject = subject::event(&self.mesh, event.what.kind());
        let message = PublishMessage::build().payload(to_bytes(place, event)?).message_id(dedupe);
        let sent = async { self.store.context().send_publish(subject, message).await?.await };
        match sent.await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == PublishErrorKind::TimedOut => Err(place.unanswered()),
            Err(error) => Err(place.failed(error)),
        }
    }

    /// Whether buckets can be read and written now: reads one, writes another.
    pub async fn check(&self) -> Check {
        match self.try_out().await {
            Ok(()) => Check::Passed,
            Err(error) => Check::Failed(chain(&error)),
        }
    }

    async fn try_out(&self) -> Result<(), StateError> {
        let numbers = Place { bucket: bucket::NUMBERS, key: "epoch" };
        self.store.entry(numbers).await?;
        let scratch = Place { bucket: bucket::SCRATCH, key: "check" };
        let value = self.connection().unique();
        self.store.put(scratch, value.into()).await.map(|_| ())
    }
}

fn parse<T: DeserializeOwned>(bucket: &str, entry: &Entry) -> Result<Option<Versioned<T>>, StateError> {
    let Some(value) = &entry.value else {
        return Ok(None);
    };
    let place = Place { bucket, key: &entry.key };
    let value = serde_json::from_slice(value).map_err(|error| place.unreadable(error))?;
    Ok(Some(Versioned { value, revision: entry.revision }))
}

pub(super) fn to_bytes<T: Serialize>(place: Place<'_>, value: &T) -> Result<Bytes, StateError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|error| place.unwritable(error))
}
