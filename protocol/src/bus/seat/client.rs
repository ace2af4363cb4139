//! Asking a seat.
//!
//! In: a verb, a body, how patient to be. Out: an answer and who gave it, or why there is none. Not here:
//! what verbs mean.
//!
//! The server says *no responders* when nobody is in the seat's queue group: the request certainly reached
//! nobody, and may be asked of any instance on the fallback subject. A timeout says nothing: somebody may
//! have got it. Only a request that changes nothing, or that is found again by its id, is sent once more.

use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Request, RequestError};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::id::{InstanceId, MeshId, SeatName};
use crate::subject;
use crate::verb::{Answer, By, Outcome, RefusalCode, Verb, VerbRefusal};

use super::super::connect::{Connection, violation_of};

/// How long one try waits.
const TRY_WITHIN: Duration = Duration::from_secs(1);
/// How long all tries take at most.
const ALL_WITHIN: Duration = Duration::from_secs(8);
/// Between two tries at most.
const PAUSE_AT_MOST: Duration = Duration::from_millis(100);

/// How patient to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// One try, of whoever serves, for so long.
    Once(Duration),
    /// A verb that changes nothing: asked of any instance when nobody serves, and again; 1 s a try, 8 s in
    /// all.
    Read,
    /// A verb that changes something, and whose body carries its request's id: the same, and asked again
    /// where it was refused for the moment.
    Change,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// Nobody serves the seat, and no instance of it is there.
    #[error("nobody answers for {subject}")]
    NoResponders {
        /// What was asked.
        subject: String,
    },
    /// No answer in time. Somebody may have got the question.
    #[error("no answer to {subject} within {} ms", within.as_millis())]
    TimedOut {
        /// What was asked.
        subject: String,
        /// How long was waited, all tries together.
        within: Duration,
    },
    /// It was answered: no. Only [`SeatClient::ask_for`] makes an error of it.
    #[error("{} refused", by.instance)]
    Refused {
        /// Why.
        #[source]
        refusal: VerbRefusal,
        /// Who.
        by: Box<By>,
    },
    /// The credential does not allow to ask.
    #[error("the bus does not permit it: {0}")]
    NotPermitted(
        /// In the server's words.
        String,
    ),
    /// What came is no answer.
    #[error("the answer to {subject} is not right")]
    Unreadable {
        /// What was asked.
        subject: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The question cannot be written or sent.
    #[error("{subject} cannot be asked")]
    Unsendable {
        /// What was asked.
        subject: String,
        /// Why: not JSON, larger than the bus takes, or the connection is closed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Asks one seat of one mesh.
#[derive(Debug, Clone)]
pub struct SeatClient {
    connection: Connection,
    mesh: MeshId,
    seat: SeatName,
}

impl SeatClient {
    /// Asks `seat`.
    #[must_use]
    pub const fn new(connection: Connection, mesh: MeshId, seat: SeatName) -> Self {
        Self { connection, mesh, seat }
    }

    /// The connection.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Asks. A refusal is an answer here: see its outcome.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        verb: Verb,
        body: &Q,
        policy: Policy,
    ) -> Result<Answer<A>, AskError> {
        let public = subject::verb(&self.mesh, &self.seat, verb.as_str());
        let body = to_bytes(&public, body)?;
        if let Policy::Once(within) = policy {
            return parse(&public, &self.request(&public, body, within).await?);
        }
        let fallback = subject::fallback(&self.mesh, &self.seat, verb.as_str());
        let started = Instant::now();
        let mut pauses = Pauses::default();
        let mut before = None;
        loop {
            let left = ALL_WITHIN.saturating_sub(started.elapsed());
            let within = TRY_WITHIN.min(left);
            let tried = match self.request(&public, body.clone(), within).await {
                Err(AskError::NoResponders { .. }) => {
                    self.request_fallback(&fallback, body.clone(), within).await
                }
                other => other,
            };
            let ended = telling(before.take(), tried.and_then(|bytes| parse(&public, &bytes)), within);
            let pause = pauses.next_pause();
            if started.elapsed() + pause >= ALL_WITHIN || !is_worth_another(&ended) {
                return ended.map_err(|error| with_all(error, started.elapsed()));
            }
            before = Some(ended);
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks, and makes an error of a refusal.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask_for<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        verb: Verb,
        body: &Q,
        policy: Policy,
    ) -> Result<(A, By), AskError> {
        let answer = self.ask(verb, body, policy).await?;
        match answer.outcome {
            Outcome::Answer(given) => Ok((given, answer.by)),
            Outcome::Refused(refusal) => Err(AskError::Refused { refusal, by: Box::new(answer.by) }),
        }
    }

    /// Asks one instance, on its own subject, once.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask_at<A: DeserializeOwned>(
        &self,
        instance: &InstanceId,
        verb: Verb,
        within: Duration,
    ) -> Result<Answer<A>, AskError> {
        let subject = subject::at(&self.mesh, &self.seat, instance, verb.as_str());
        let body = Bytes::from_static(b"{}");
        parse(&subject, &self.request(&subject, body, within).await?)
    }

    /// Whoever may not ask there is told what it was told before: nobody serves.
    async fn request_fallback(
        &self,
        subject: &str,
        body: Bytes,
        within: Duration,
    ) -> Result<Bytes, AskError> {
        match self.request(subject, body, within).await {
            Err(AskError::NotPermitted(_)) => Err(AskError::NoResponders { subject: subject.to_owned() }),
            other => other,
        }
    }

    async fn request(&self, subject: &str, body: Bytes, within: Duration) -> Result<Bytes, AskError> {
        let request = Request::new().payload(body).timeout(Some(within));
        let mut violations = self.connection.violations();
        let client = self.connection.client();
        let answered = async {
            // The library's own limit begins when the question was handed over, which waits while the
            // link is down and much is waiting already.
            let sent = client.send_request(subject.to_owned(), request);
            tokio::time::timeout(within, sent).await
        };
        tokio::select! {
            // cancel safe: given up only when the server refused it
            answered = answered => match answered {
                Ok(Ok(message)) => Ok(message.payload),
                Ok(Err(error)) => Err(request_error(subject, within, error)),
                Err(_) => Err(AskError::TimedOut { subject: subject.to_owned(), within }),
            },
            // cancel safe: reads a broadcast
            text = violation_of(&mut violations, subject) => Err(AskError::NotPermitted(text)),
        }
    }
}

fn request_error(subject: &str, within: Duration, error: RequestError) -> AskError {
    let subject = subject.to_owned();
    match error.kind() {
        RequestErrorKind::NoResponders => AskError::NoResponders { subject },
        RequestErrorKind::TimedOut => AskError::TimedOut { subject, within },
        _ => AskError::Unsendable { subject, source: error.into() },
    }
}

fn with_all(error: AskError, elapsed: Duration) -> AskError {
    match error {
        AskError::TimedOut { subject, .. } => AskError::TimedOut { subject, within: elapsed },
        other => other,
    }
}

/// What the last try says, and where it had less than its time, what the one before it said: that it was not answered
/// within 2 ms, because no more were left, is no news beside a refusal.
fn telling<T>(
    before: Option<Result<T, AskError>>,
    last: Result<T, AskError>,
    within: Duration,
) -> Result<T, AskError> {
    match (before, last) {
        (Some(before), Err(AskError::TimedOut { .. })) if within < TRY_WITHIN => before,
        (_, last) => last,
    }
}

/// Whether to ask again: nobody was there, nobody answered, or it was refused for the moment only.
fn is_worth_another<A>(ended: &Result<Answer<A>, AskError>) -> bool {
    match ended {
        Ok(answer) => match &answer.outcome {
            Outcome::Answer(_) => false,
            Outcome::Refused(refusal) => {
                matches!(refusal.code, RefusalCode::StandingBy | RefusalCode::Unavailable)
            }
        },
        Err(error) => matches!(error, AskError::NoResponders { .. } | AskError::TimedOut { .. }),
    }
}

/// 1, 3, 9, 27, 81, 100, 100 ... ms.
#[derive(Debug, Default)]
struct Pauses {
    taken: u32,
}

impl Pauses {
    fn next_pause(&mut self) -> Duration {
        let pause = Duration::from_millis(3u64.saturating_pow(self.taken)).min(PAUSE_AT_MOST);
        self.taken += 1;
        pause
    }
}

fn to_bytes<Q: Serialize>(subject: &str, body: &Q) -> Result<Bytes, AskError> {
    serde_json::to_vec(body)
        .map(Bytes::from)
        .map_err(|source| AskError::Unsendable { subject: subject.to_owned(), source: source.into() })
}

fn parse<A: DeserializeOwned>(subject: &str, bytes: &Bytes) -> Result<Answer<A>, AskError> {
    serde_json::from_slice(bytes)
        .map_err(|source| AskError::Unreadable { subject: subject.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use crate::handover::{Form, Role};

    use super::*;

    #[test]
    fn pauses_grow_to_100_ms() {
        let mut pauses = Pauses::default();
        let taken: Vec<u128> = (0..7).map(|_| pauses.next_pause().as_millis()).collect();
        assert_eq!(taken, [1, 3, 9, 27, 81, 100, 100]);
    }

    #[test]
    fn a_last_try_that_was_cut_short_does_not_hide_what_was_answered_before() {
        let timed_out = || {
            let (subject, within) = ("s".to_owned(), TRY_WITHIN);
            Err(AskError::TimedOut { subject, within })
        };
        let short = Duration::from_millis(2);
        assert_eq!(telling(Some(Ok(1)), timed_out(), short).unwrap(), 1);
        assert_eq!(telling(Some(Ok(1)), Ok(2), short).unwrap(), 2);
        assert!(matches!(telling(Some(Ok(1)), timed_out(), TRY_WITHIN), Err(AskError::TimedOut { .. })));
        assert!(matches!(telling::<u8>(None, timed_out(), short), Err(AskError::TimedOut { .. })));
    }

    #[test]
    fn what_is_asked_again() {
        let refused = |code| {
            Ok(Answer::<()> {
                by: By {
                    instance: "p-1".parse().unwrap(),
                    form: Form::Process,
                    role: Role::StandingBy,
                    version: "1".to_owned(),
                },
                outcome: Outcome::Refused(VerbRefusal { code, message: String::new(), hint: None }),
            })
        };
        assert!(is_worth_another(&refused(RefusalCode::StandingBy)));
        assert!(is_worth_another(&refused(RefusalCode::Unavailable)));
        assert!(!is_worth_another(&refused(RefusalCode::Conflict)));
        let subject = "s".to_owned();
        assert!(is_worth_another::<()>(&Err(AskError::NoResponders { subject })));
        assert!(!is_worth_another::<()>(&Err(AskError::NotPermitted(String::new()))));
    }
}
