//! Being in the seat's queue group, and leaving it without losing a request.
//!
//! In: a subscription, what to do with a message, the order to leave. Out: a [`Leave`]. Not here: the
//! subjects on which an instance answers whatever its role (`server`).
//!
//! Whoever says *unsubscribe* loses what the server has already routed to it. So the subscription is told to
//! end by itself, `SLACK` messages from now, and is served until then; all that can be on its way is less.
//! Waiting for so many requests could take long: the member fills the slack itself, with messages that ask
//! for nothing. The group's other members get their share of them and ignore it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use super::super::connect::{Connection, Link, violation_of};
use super::super::retiring::Registration;
use super::server::ServeError;

/// More messages than can be on their way to one member.
const SLACK: u64 = 1024;
/// How many messages wait in the subscription at most: the client's own limit.
const MOST_WAITING: usize = 64 * 1024;
/// How many messages that ask for nothing are sent at a time, and how often.
const FILL: u64 = 512;
const FILL_EVERY: Duration = Duration::from_millis(2);
/// How long the slack may take; then the subscription is drained, which may lose one in tens of thousands.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);
/// How long what is left after a drain may take.
const DRAIN_WITHIN: Duration = Duration::from_millis(500);
/// How long handlers may take to finish after the last message.
const HANDLERS_WITHIN: Duration = Duration::from_secs(2);
/// How long a fence may take.
const FENCE_WITHIN: Duration = Duration::from_secs(1);

/// How the queue group was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    /// How long it took, handlers included.
    pub took: Duration,
    /// How many messages were sent to fill the slack.
    pub filled: u64,
    /// Whether the subscription ended as it should.
    pub left: Left,
    /// How many handlers were still running when it was given up to wait for them; they run on.
    pub unfinished: usize,
    /// Whether the server was seen to have had everything, replies included.
    pub fenced: bool,
}

/// How a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// There was none.
    NotJoined,
    /// By itself, its slack filled: nothing is lost.
    Filled,
    /// Drained, for the slack was not filled in time: a request may be lost.
    Drained,
}

impl Leave {
    pub(super) const NOTHING: Self =
        Self { took: Duration::ZERO, filled: 0, left: Left::NotJoined, unfinished: 0, fenced: true };
}

/// What to do with each message: a future to run, or nothing.
pub(super) type Take =
    Arc<dyn Fn(Message) -> Option<futures_util::future::BoxFuture<'static, ()>> + Send + Sync>;

/// What a member needs to know.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) connection: Connection,
    /// `mesh.<m>.seat.<s>.*`
    pub(super) subject: String,
    pub(super) queue: String,
    /// Where messages go that ask for nothing.
    pub(super) noop: String,
    pub(super) take: Take,
}

/// One membership, from joining to leaving.
pub(super) struct Membership {
    leave: oneshot::Sender<oneshot::Sender<Leave>>,
    trouble: watch::Receiver<Option<String>>,
}

impl Membership {
    /// Joins, and returns when the server has the subscription.
    pub(super) async fn join(group: Group) -> Result<Self, ServeError> {
        let connection = group.connection.clone();
        let mut violations = connection.violations();
        let link = connection.link();
        // Down: the fence does not come back either.
        let made_for = up(&link).unwrap_or(0);
        let subscriber = group.subscribe().await?;
        let joined = async {
            connection.echo(FENCE_WITHIN).await?;
            // A refusal stands before the echo on the wire, but comes to us by another way: a second
            // round gives it the time.
            connection.echo(FENCE_WITHIN).await?;
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok(())
        };
        tokio::select! {
            biased;
            // cancel safe: reads a broadcast; what is given up is the whole membership
            text = violation_of(&mut violations, &group.subject) => Err(ServeError::NotPermitted(text)),
            // cancel safe: given up with the whole membership
            joined = joined => {
                joined.map_err(ServeError::Fence)?;
                let (leave, order) = oneshot::channel();
                let (trouble_sender, trouble) = watch::channel(None);
                let member = Member {
                    work: Work {
                        take: group.take.clone(),
                        seen: 0,
                        handlers: JoinSet::new(),
                    },
                    group,
                    subscriber,
                    link,
                    made_for,
                    registration: connection.retiring().register(made_for),
                    last_up: made_for,
                };
                tokio::spawn(member.run(order, trouble_sender, violations));
                Ok(Self { leave, trouble })
            }
        }
    }

    /// Whether it is one still.
    pub(super) fn is_alive(&self) -> bool {
        !self.leave.is_closed()
    }

    /// Why it is none any more, where it is none: the server refused the subscription later.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Leaves, and returns when that is done.
    pub(super) async fn leave(self) -> Leave {
        let (answer, left) = oneshot::channel();
        if self.leave.send(answer).is_err() {
            return Leave::NOTHING;
        }
        left.await.unwrap_or(Leave::NOTHING)
    }
}

impl Group {
    async fn subscribe(&self) -> Result<Subscriber, ServeError> {
        self.connection
            .client()
            .queue_subscribe(self.subject.clone(), self.queue.clone())
            .await
            .map_err(ServeError::Subscribe)
    }
}

struct Member {
    group: Group,
    subscriber: Subscriber,
    link: watch::Receiver<Link>,
    /// The connection that the subscription was made for, by its number.
    made_for: u64,
    /// So that the connection does not come back before the subscription was put away.
    registration: Registration,
    /// The number of the last connection that was seen.
    last_up: u64,
    work: Work,
}

/// What is done with what comes.
struct Work {
    take: Take,
    /// Messages that came on this subscription, whatever they asked for.
    seen: u64,
    handlers: JoinSet<()>,
}

impl Work {
    fn take(&mut self, message: Message) {
        self.seen += 1;
        if let Some(handling) = (self.take)(message) {
            self.handlers.spawn(handling);
        }
    }

    /// Drains a subscription and serves what it still has.
    async fn serve_out(&mut self, subscriber: &mut Subscriber) {
        let _ = subscriber.drain().await;
        let rest = async {
            while let Some(message) = subscriber.next().await {
                self.take(message);
            }
        };
        let _ = tokio::time::timeout(DRAIN_WITHIN, rest).await;
    }
}

impl Member {
    async fn run(
        mut self,
        mut order: oneshot::Receiver<oneshot::Sender<Leave>>,
        trouble: watch::Sender<Option<String>>,
        mut violations: tokio::sync::broadcast::Receiver<String>,
    ) {
        let subject = self.group.subject.clone();
        loop {
            tokio::select! {
                // cancel safe: a stream's next
                message = self.subscriber.next() => match message {
                    Some(message) => self.work.take(message),
                    // The connection was closed by this side.
                    None => return,
                },
                // cancel safe: a join set's next
                Some(_) = self.work.handlers.join_next(), if !self.work.handlers.is_empty() => {}
                // cancel safe: a watch
                changed = self.link.changed() => if changed.is_err() || self.renew().await.is_err() {
                    return;
                },
                // cancel safe: reads a broadcast
                text = violation_of(&mut violations, &subject) => {
                    trouble.send_replace(Some(text));
                    return;
                }
                // cancel safe: a oneshot
                answer = &mut order => {
                    let leave = self.leave().await;
                    if let Ok(answer) = answer {
                        let _ = answer.send(leave);
                    }
                    return;
                }
            }
        }
    }

    /// Puts a new subscription in the place of one that was made for another connection, where [`renewal`]
    /// says so.
    async fn renew(&mut self) -> Result<(), ServeError> {
        let up = up(&self.link);
        self.last_up = up.unwrap_or(self.last_up);
        let Some(renewal) = renewal(self.made_for, self.last_up, up) else {
            return Ok(());
        };
        let fresh = self.group.subscribe().await?;
        let mut old = std::mem::replace(&mut self.subscriber, fresh);
        match renewal {
            Renewal::Before { count } => {
                self.made_for = count;
                // What it still has came before the link went; it is closed before the link comes back.
                while let Some(Some(message)) = old.next().now_or_never() {
                    self.work.take(message);
                }
            }
            Renewal::After { count } => {
                self.made_for = count;
                self.work.serve_out(&mut old).await;
            }
        }
        // Closed from here on.
        drop(old);
        self.registration.renewed_for(self.made_for);
        self.work.seen = 0;
        Ok(())
    }

    async fn leave(mut self) -> Leave {
        let started = Instant::now();
        let _ = self.renew().await;
        self.catch_up().await;
        let (left, filled) = self.fill().await;
        let finished = async { while self.work.handlers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(HANDLERS_WITHIN, finished).await;
        let unfinished = self.work.handlers.len();
        self.work.handlers.detach_all();
        let fenced = self.group.connection.echo(FENCE_WITHIN).await.is_ok();
        Leave { took: started.elapsed(), filled, left, unfinished, fenced }
    }

    /// Takes what is on its way already, so that the slack is counted from there. Messages beyond the end that the server
    /// sent before it knew of that end would be dropped: under load, with a processor that is busy elsewhere, more than the
    /// slack can lie between what was sent and what was looked at.
    async fn catch_up(&mut self) {
        let mut fence = std::pin::pin!(self.group.connection.echo(FENCE_WITHIN));
        loop {
            tokio::select! {
                // cancel safe: a stream's next
                message = self.subscriber.next() => match message {
                    Some(message) => self.work.take(message),
                    None => return,
                },
                // cancel safe: pinned outside; that it does not return leaves the slack for what is on its way
                _ = &mut fence => break,
            }
        }
        for _ in 0..MOST_WAITING {
            let Some(Some(message)) = self.subscriber.next().now_or_never() else { return };
            self.work.take(message);
        }
    }

    /// Serves on until the subscription ended by itself.
    async fn fill(&mut self) -> (Left, u64) {
        let deadline = tokio::time::Instant::now() + LEAVE_WITHIN;
        let end = self.work.seen + SLACK;
        let mut filled = 0;
        if self.subscriber.unsubscribe_after(end).await.is_err() {
            return (Left::Drained, filled);
        }
        let mut ticks = tokio::time::interval(FILL_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // cancel safe: a stream's next
                message = self.subscriber.next() => match message {
                    Some(message) => self.work.take(message),
                    None => return (Left::Filled, filled),
                },
                // cancel safe: a join set's next
                Some(_) = self.work.handlers.join_next(), if !self.work.handlers.is_empty() => {}
                // cancel safe: a timer
                _ = ticks.tick() => {
                    // While the link is down this waits.
                    let sent = tokio::time::timeout_at(deadline, send_noops(&self.group));
                    filled += sent.await.unwrap_or(0);
                }
                // cancel safe: a timer
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        self.work.serve_out(&mut self.subscriber).await;
        (Left::Drained, filled)
    }
}

async fn send_noops(group: &Group) -> u64 {
    let client = group.connection.client();
    let mut sent = 0;
    while sent < FILL && client.publish(group.noop.clone(), Bytes::new()).await.is_ok() {
        sent += 1;
    }
    sent
}

/// When a subscription is replaced by a new one.
///
/// After a connection came back the server counts a subscription's messages from nothing, and the library
/// goes on counting: that it shall *end by itself* at some number would mean two things. So no subscription
/// outlives the connection it was made for.
#[derive(Debug, PartialEq, Eq)]
enum Renewal {
    /// While the link is down: the old one is not there any more when it comes back.
    Before {
        /// Of the link when it will be up.
        count: u64,
    },
    /// The link came back all the same, and the old one with it: it is drained, which may lose a request.
    After {
        /// Of the link now.
        count: u64,
    },
}

/// Whether the subscription that was made for the connection `made_for` is to be replaced, when the last
/// connection that was seen was `last_up`, and the link is `up` with that number, or down. Pure.
fn renewal(made_for: u64, last_up: u64, up: Option<u64>) -> Option<Renewal> {
    match up {
        None if made_for <= last_up => Some(Renewal::Before { count: last_up + 1 }),
        Some(count) if made_for != count => Some(Renewal::After { count }),
        None | Some(_) => None,
    }
}

/// The number of the connection, while it is up.
fn up(link: &watch::Receiver<Link>) -> Option<u64> {
    match *link.borrow() {
        Link::Up { count, .. } => Some(count),
        Link::Down { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_subscription_outlives_its_connection() {
        assert_eq!(renewal(1, 1, Some(1)), None);
        assert_eq!(renewal(1, 1, None), Some(Renewal::Before { count: 2 }));
        // Made while it was down, for when it is up.
        assert_eq!(renewal(2, 1, None), None);
        assert_eq!(renewal(2, 2, Some(2)), None);
        // It went and came back before anybody looked.
        assert_eq!(renewal(1, 2, Some(2)), Some(Renewal::After { count: 2 }));
        assert_eq!(renewal(2, 3, Some(3)), Some(Renewal::After { count: 3 }));
        assert_eq!(renewal(1, 2, None), Some(Renewal::Before { count: 3 }));
    }
}
