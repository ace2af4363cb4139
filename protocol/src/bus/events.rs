//! Reading what happened, from any point on, and following along.
//!
//! In: a connection with an operator's credential. Out: events with their numbers in the stream. Not here:
//! saying them, which only the controller may (`state`).
//!
//! Events are fetched one by one, by number. What is published live is only a hint that there is one more:
//! so none is missed and none comes twice, and whoever reads needs no right on a consumer.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::DirectGetErrorKind;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::watch;

use crate::event::Event;
use crate::id::MeshId;
use crate::subject::{self, EVENTS};

use super::connect::{Connection, Link};
use super::store::{Place, StateError};

const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A live message may come before it is stored: looked for this soon, and then less and less often.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Looked for this often though nothing was said.
const LOOK_AT_LEAST: Duration = Duration::from_secs(1);

/// An event, and its number in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Rises; numbers may be left out.
    pub sequence: u64,
    /// What happened.
    pub event: Event,
}

/// Reads events.
#[derive(Debug, Clone)]
pub struct EventReader {
    connection: Connection,
    context: Context,
    mesh: MeshId,
}

impl EventReader {
    /// Over a connection with an operator's credential.
    #[must_use]
    pub fn new(connection: Connection, mesh: MeshId) -> Self {
        let context = ContextBuilder::new().timeout(ANSWER_WITHIN).build(connection.client().clone());
        Self { connection, context, mesh }
    }

    /// Every event that is stored, from number `sequence` on (1: from the first that is kept).
    ///
    /// # Errors
    /// See [`StateError`].
    pub async fn read_from(&self, sequence: u64) -> Result<Vec<Recorded>, StateError> {
        let mut all = Vec::new();
        let mut next = sequence;
        while let Some(recorded) = self.next(next).await? {
            next = recorded.sequence + 1;
            all.push(recorded);
        }
        Ok(all)
    }

    /// Every event from number `sequence` on, those that are still to come included. Never ends; an error is
    /// followed by another try.
    pub fn follow(&self, sequence: u64) -> impl Stream<Item = Result<Recorded, StateError>> + Send + use<> {
        let start = Following {
            reader: self.clone(),
            next: sequence.max(1),
            link: self.connection.link(),
            subscriber: None,
            pause: LOOK_AGAIN,
            errors: VecDeque::new(),
        };
        stream::unfold(start, |mut following| async move {
            let item = following.next().await;
            Some((item, following))
        })
    }

    /// The first event whose number is at least `sequence`. One of a form that this program does not know is
    /// passed over.
    async fn next(&self, sequence: u64) -> Result<Option<Recorded>, StateError> {
        let place = Place { bucket: EVENTS, key: "*" };
        let mut sequence = sequence.max(1);
        loop {
            let stream =
                self.context.get_stream_no_info(EVENTS).await.map_err(|error| place.failed(error))?;
            let all = subject::events(&self.mesh);
            let got = stream.direct_get_next_for_subject(all, Some(sequence)).await;
            let message = match got {
                Ok(message) => message,
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(place.failed(error)),
            };
            match serde_json::from_slice(&message.payload) {
                Ok(event) => {
                    return Ok(Some(Recorded { sequence: message.sequence, event }));
                }
                Err(_) => sequence = message.sequence + 1,
            }
        }
    }
}

struct Following {
    reader: EventReader,
    next: u64,
    link: watch::Receiver<Link>,
    subscriber: Option<async_nats::Subscriber>,
    pause: Duration,
    errors: VecDeque<StateError>,
}

impl Following {
    async fn next(&mut self) -> Result<Recorded, StateError> {
        loop {
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            if self.subscriber.is_none() {
                let subject = subject::events(&self.reader.mesh);
                let client = self.reader.connection.client();
                self.subscriber = client.subscribe(subject).await.ok();
            }
            match self.reader.next(self.next).await {
                Ok(Some(recorded)) => {
                    self.next = recorded.sequence + 1;
                    self.pause = LOOK_AGAIN;
                    return Ok(recorded);
                }
                Ok(None) => self.wait().await,
                Err(error) => {
                    self.errors.push_back(error);
                    self.pause = LOOK_AT_LEAST;
                    self.wait().await;
                }
            }
        }
    }

    async fn wait(&mut self) {
        let hint = async {
            match &mut self.subscriber {
                Some(subscriber) => subscriber.next().await.is_some(),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // cancel safe: a stream's next
            came = hint => {
                if !came {
                    self.subscriber = None;
                }
                self.pause = LOOK_AGAIN;
            }
            // cancel safe: a watch
            Ok(()) = self.link.changed() => {}
            // cancel safe: a timer
            () = tokio::time::sleep(self.pause) => {
                self.pause = (self.pause * 2).min(LOOK_AT_LEAST);
            }
        }
    }
}
