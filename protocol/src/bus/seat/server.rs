//! Answering for a seat.
//!
//! In: requests on three subjects: the seat's own, in its queue group, while serving; the seat's fallback and
//! the instance's own, always. Out: what the handler says. Not here: what a verb does, when an instance
//! serves (its host says), or how the queue group is left (`membership`).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::{Client, Message, SubscribeError, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;

use crate::handover::{Form, Role};
use crate::id::{InstanceId, MeshId, SeatName};
use crate::subject;
use crate::verb::{Answer, By, Outcome, RefusalCode, Verb, VerbRefusal};

use super::super::connect::{Connection, EchoError, violation_of};
use super::super::identity::inbox;
use super::membership::{Group, Membership, Take};
pub use super::membership::{Leave, Left};

/// How long a fence may take.
const FENCE_WITHIN: Duration = Duration::from_secs(1);
/// How long handlers may take when all is closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Where a request came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// The seat's own subject: only while serving.
    Public,
    /// The subject that is asked when nobody serves.
    Fallback,
    /// The instance's own.
    At,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is asked.
    pub verb: Verb,
    /// Where it came in.
    pub path: Path,
    /// The request's body.
    pub body: Bytes,
}

/// What answers. [`Verb::Ready`] comes on the instance's own subject only, and nothing else comes there;
/// [`Verb::Noop`] and verbs that nobody knows never come. A changing verb that comes on the fallback subject
/// is for the handler to refuse while it stands by.
pub trait Handler: Send + Sync + 'static {
    /// The body of the answer: an [`Answer`] as JSON.
    fn handle(&self, call: Call) -> impl Future<Output = Vec<u8>> + Send;
}

/// Why a seat is not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The credential does not allow it.
    #[error("the bus does not permit it: {0}")]
    NotPermitted(
        /// In the server's words.
        String,
    ),
    /// Whether the server has the subscription is not known.
    #[error("the bus does not confirm the subscription")]
    Fence(
        /// Why.
        #[source]
        EchoError,
    ),
    /// The library does not want to.
    #[error("the subscription cannot be made")]
    Subscribe(
        /// Why.
        #[source]
        SubscribeError,
    ),
}

/// One instance of a seat, answering. Clones are the same instance.
#[derive(Clone)]
pub struct SeatServer {
    inner: Arc<Inner>,
}

struct Inner {
    group: Group,
    membership: Mutex<Option<Membership>>,
    standing: Mutex<Option<Standing>>,
    serving: Arc<AtomicBool>,
}

/// The task that answers on the instance's own and the fallback subject.
struct Standing {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl std::fmt::Debug for SeatServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeatServer").field("subject", &self.inner.group.subject).finish_non_exhaustive()
    }
}

impl SeatServer {
    /// Answers on the instance's own and on the seat's fallback subject; returns when the server has both
    /// subscriptions.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn stand_by<H: Handler>(
        connection: Connection,
        mesh: MeshId,
        seat: SeatName,
        instance: InstanceId,
        handler: Arc<H>,
    ) -> Result<Self, ServeError> {
        let serving = Arc::new(AtomicBool::new(false));
        let desk = Arc::new(Desk {
            client: connection.client().clone(),
            answer: Box::new(move |call| {
                let handler = handler.clone();
                Box::pin(async move { handler.handle(call).await })
            }),
            instance: instance.clone(),
            serving: serving.clone(),
        });
        let at = subject::at(&mesh, &seat, &instance, "*");
        let fallback = subject::fallback(&mesh, &seat, "*");
        let standing = stand(&connection, &desk, at, fallback).await?;
        let take: Take = Arc::new(move |message| desk.take(message, Path::Public));
        let group = Group {
            subject: subject::verbs(&mesh, &seat),
            queue: seat.as_str().to_owned(),
            noop: subject::verb(&mesh, &seat, Verb::Noop.as_str()),
            connection,
            take,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                group,
                membership: Mutex::new(None),
                standing: Mutex::new(Some(standing)),
                serving,
            }),
        })
    }

    /// Joins the seat's queue group; returns when the server has the subscription. Nothing happens when it
    /// is joined already.
    ///
    /// # Errors
    /// See [`ServeError`].
    pub async fn serve(&self) -> Result<(), ServeError> {
        let mut membership = self.inner.membership.lock().await;
        if membership.as_ref().is_some_and(Membership::is_alive) {
            return Ok(());
        }
        *membership = None;
        *membership = Some(Membership::join(self.inner.group.clone()).await?);
        self.inner.serving.store(true, Ordering::Release);
        Ok(())
    }

    /// Why it does not serve any more, where the server refused the subscription after [`Self::serve`] had
    /// returned.
    pub async fn trouble(&self) -> Option<String> {
        let membership = self.inner.membership.lock().await;
        membership.as_ref().and_then(Membership::trouble)
    }

    /// Leaves the queue group without losing a request: returns when what was routed here is answered, the
    /// replies are out, and the server has had all of it.
    pub async fn leave(&self) -> Leave {
        let membership = self.inner.membership.lock().await.take();
        self.inner.serving.store(false, Ordering::Release);
        match membership {
            Some(membership) => membership.leave().await,
            None => Leave::NOTHING,
        }
    }

    /// Leaves, and then answers on no subject any more.
    pub async fn close(&self) -> Leave {
        let leave = self.leave().await;
        let standing = self.inner.standing.lock().await.take();
        if let Some(Standing { stop, task }) = standing {
            let _ = stop.send(());
            let _ = task.await;
        }
        leave
    }
}

/// What is done with a message, wherever it came in.
struct Desk {
    client: Client,
    answer: Box<dyn Fn(Call) -> BoxFuture<'static, Vec<u8>> + Send + Sync>,
    instance: InstanceId,
    serving: Arc<AtomicBool>,
}

/// What a message is.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// For the handler.
    Known(Verb),
    /// To be told that there is no such verb, there.
    Unknown(String),
    /// To be passed over.
    Ignored,
}

/// What to do with a message, from its subject and reply subject. Pure.
fn kind(subject: &str, reply: Option<&str>, path: Path) -> Kind {
    // Acknowledgements and forged requests have no reply subject, or one that is no inbox: whoever answered
    // them would write where it was told to.
    if !reply.is_some_and(|reply| reply.starts_with(inbox::ANY)) {
        return Kind::Ignored;
    }
    let name = subject.rsplit('.').next().unwrap_or_default();
    match (Verb::named(name), path) {
        (Some(Verb::Noop), _) => Kind::Ignored,
        (Some(Verb::Ready), Path::At) => Kind::Known(Verb::Ready),
        (Some(Verb::Ready) | None, _) | (Some(_), Path::At) => Kind::Unknown(name.to_owned()),
        (Some(verb), Path::Public | Path::Fallback) => Kind::Known(verb),
    }
}

impl Desk {
    fn take(self: &Arc<Self>, message: Message, path: Path) -> Option<BoxFuture<'static, ()>> {
        let kind = kind(&message.subject, message.reply.as_deref(), path);
        let reply = message.reply?;
        let desk = self.clone();
        match kind {
            Kind::Ignored => None,
            Kind::Known(verb) => Some(Box::pin(async move {
                let call = Call { verb, path, body: message.payload };
                let answer = (desk.answer)(call).await;
                let _ = desk.client.publish(reply, answer.into()).await;
            })),
            Kind::Unknown(name) => Some(Box::pin(async move {
                let answer = desk.unknown_verb(&name);
                let _ = desk.client.publish(reply, answer.into()).await;
            })),
        }
    }

    fn unknown_verb(&self, name: &str) -> Vec<u8> {
        let form = if self.instance.as_str().starts_with("c-") { Form::Container } else { Form::Process };
        let role = if self.serving.load(Ordering::Acquire) { Role::Serving } else { Role::StandingBy };
        let answer = Answer::<()> {
            by: By {
                instance: self.instance.clone(),
                form,
                role,
                version: env!("CARGO_PKG_VERSION").to_owned(),
            },
            outcome: Outcome::Refused(VerbRefusal {
                code: RefusalCode::UnknownVerb,
                message: format!("{name:?} is no verb that is answered there"),
                hint: Some("ask a newer controller, or use an older program".to_owned()),
            }),
        };
        serde_json::to_vec(&answer).unwrap_or_default()
    }
}

async fn stand(
    connection: &Connection,
    desk: &Arc<Desk>,
    at: String,
    fallback: String,
) -> Result<Standing, ServeError> {
    let client = connection.client();
    let mut refused_at = connection.violations();
    let mut refused_fallback = connection.violations();
    let on_at = client.subscribe(at.clone()).await.map_err(ServeError::Subscribe)?;
    let on_fallback = client.subscribe(fallback.clone()).await.map_err(ServeError::Subscribe)?;
    let fenced = async {
        connection.echo(FENCE_WITHIN).await?;
        connection.echo(FENCE_WITHIN).await
    };
    tokio::select! {
        biased;
        // cancel safe: reads a broadcast
        text = violation_of(&mut refused_at, &at) => return Err(ServeError::NotPermitted(text)),
        // cancel safe: reads a broadcast
        text = violation_of(&mut refused_fallback, &fallback) => return Err(ServeError::NotPermitted(text)),
        // cancel safe: given up with both subscriptions
        fenced = fenced => fenced.map_err(ServeError::Fence)?,
    };
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(answer_until(stopped, desk.clone(), on_at, on_fallback));
    Ok(Standing { stop, task })
}

async fn answer_until(
    mut stopped: oneshot::Receiver<()>,
    desk: Arc<Desk>,
    mut at: Subscriber,
    mut fallback: Subscriber,
) {
    let mut handlers = JoinSet::new();
    loop {
        let work = tokio::select! {
            // cancel safe: a stream's next
            Some(message) = at.next() => desk.take(message, Path::At),
            // cancel safe: a stream's next
            Some(message) = fallback.next() => desk.take(message, Path::Fallback),
            // cancel safe: a join set's next
            Some(_) = handlers.join_next(), if !handlers.is_empty() => None,
            // cancel safe: a oneshot
            _ = &mut stopped => break,
        };
        if let Some(work) = work {
            handlers.spawn(work);
        }
    }
    let rest = async {
        let _ = at.drain().await;
        let _ = fallback.drain().await;
        while let Some(message) = at.next().await {
            if let Some(work) = desk.take(message, Path::At) {
                handlers.spawn(work);
            }
        }
        while let Some(message) = fallback.next().await {
            if let Some(work) = desk.take(message, Path::Fallback) {
                handlers.spawn(work);
            }
        }
        while handlers.join_next().await.is_some() {}
    };
    let _ = tokio::time::timeout(CLOSE_WITHIN, rest).await;
    handlers.detach_all();
    let _ = desk.client.flush().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_answered_where() {
        let inbox = Some("_INBOX.o.op1.x");
        let public = |verb: &str, reply| kind(&format!("mesh.m.seat.s.{verb}"), reply, Path::Public);
        assert_eq!(public("status", inbox), Kind::Known(Verb::Status));
        assert_eq!(public("push", inbox), Kind::Known(Verb::Push));
        assert_eq!(public("ready", inbox), Kind::Unknown("ready".to_owned()));
        assert_eq!(public("frob", inbox), Kind::Unknown("frob".to_owned()));
        assert_eq!(public("noop", inbox), Kind::Ignored);
        let at = |verb: &str| kind(&format!("mesh.m.seat.s.at.i.{verb}"), inbox, Path::At);
        assert_eq!(at("ready"), Kind::Known(Verb::Ready));
        assert_eq!(at("push"), Kind::Unknown("push".to_owned()));
    }

    #[test]
    fn nobody_is_answered_but_at_an_inbox() {
        let subject = "mesh.m.seat.s.status";
        for reply in [None, Some("$KV.declarations.n2"), Some("_INBOXES.a"), Some("")] {
            assert_eq!(kind(subject, reply, Path::Public), Kind::Ignored, "{reply:?}");
        }
    }
}
