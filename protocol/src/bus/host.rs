//! What a host does on the bus: fetches its declaration, leaves its report, hears that there is another one.
//!
//! In: a connection with a host's credential. Out: declarations, hints. Not here: asking instances
//! (`seat::client`), or what follows from a declaration.

use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::watch;

use crate::declaration::Declaration;
use crate::id::{MeshId, NodeName};
use crate::report::Report;
use crate::subject::{self, bucket};

use super::connect::{Connection, Link};
use super::state::to_bytes;
use super::store::{Place, StateError, Store};

/// How soon a subscription that could not be made is tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(250);

/// The bus, as a host may use it.
#[derive(Debug, Clone)]
pub struct HostBus {
    store: Store,
    mesh: MeshId,
    node: NodeName,
}

impl HostBus {
    /// For the host of `node`.
    #[must_use]
    pub fn new(connection: Connection, mesh: MeshId, node: NodeName) -> Self {
        Self { store: Store::new(connection), mesh, node }
    }

    /// The connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        self.store.connection()
    }

    /// The node's declaration; none before its first.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn declaration(&self) -> Result<Option<Declaration>, StateError> {
        let place = Place { bucket: bucket::DECLARATIONS, key: self.node.as_str() };
        let Some(value) = self.store.entry(place).await?.and_then(|entry| entry.value) else {
            return Ok(None);
        };
        serde_json::from_slice(&value).map(Some).map_err(|error| place.unreadable(error))
    }

    /// Leaves a report: returns when the bus has stored it.
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn report(&self, report: &Report) -> Result<(), StateError> {
        let place = Place { bucket: bucket::REPORTS, key: self.node.as_str() };
        let value = to_bytes(place, report)?;
        self.store.put(place, value).await.map(|_| ())
    }

    /// Says when the declaration may be another: at once, whenever the bus says so, and each time the
    /// connection came back, for a hint may have been missed. Never ends. Several hints may come as one.
    pub fn hints(&self) -> impl Stream<Item = ()> + Send + use<> {
        let connection = self.connection().clone();
        let subject = subject::declared(&self.mesh, &self.node);
        let link = connection.link();
        let start = Hints { connection, subject, link, subscriber: None };
        stream::unfold(start, |mut hints| async move {
            hints.next().await;
            Some(((), hints))
        })
    }
}

struct Hints {
    connection: Connection,
    subject: String,
    link: watch::Receiver<Link>,
    subscriber: Option<async_nats::Subscriber>,
}

impl Hints {
    async fn next(&mut self) {
        loop {
            let Some(subscriber) = &mut self.subscriber else {
                let subscribed = self.connection.client().subscribe(self.subject.clone());
                if let Ok(subscriber) = subscribed.await {
                    self.subscriber = Some(subscriber);
                    return;
                }
                tokio::time::sleep(SUBSCRIBE_AGAIN).await;
                continue;
            };
            tokio::select! {
                // cancel safe: a stream's next
                hint = subscriber.next() => match hint {
                    Some(_) => return,
                    None => {
                        self.subscriber = None;
                        tokio::time::sleep(SUBSCRIBE_AGAIN).await;
                    }
                },
                // cancel safe: a watch
                changed = self.link.changed() => match changed {
                    Ok(()) if self.link.borrow_and_update().is_up() => return,
                    Ok(()) => {}
                    Err(_) => std::future::pending().await,
                },
            }
        }
    }
}
