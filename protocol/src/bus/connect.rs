//! A connection to the bus that says how it stands.
//!
//! In: an address, a credential file, an inbox. Out: a connection that is really there, a fence, the server's
//! complaints. Not here: what is asked over it.
//!
//! Three things that the client library leaves open are closed here. A connection is returned only after a
//! message went to the server and came back. A permission violation, which the library reports to nobody in
//! particular, is kept for whoever asked for the thing that was refused. And the link's state is a value that
//! can be waited on, for hints and watches may have missed something whenever it went down and came back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::{
    Client, ClientError, ConnectErrorKind, ConnectOptions, Event, ReconnectToServer, Server, ServerError,
    ServerInfo,
};
use bytes::Bytes;
use camino::Utf8PathBuf;
use futures_util::StreamExt as _;
use tokio::sync::{broadcast, watch};

use super::retiring::Retiring;

/// How long [`Connection::open`] takes at most.
const OPEN_WITHIN: Duration = Duration::from_secs(5);
/// How long one attempt to connect takes at most.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A server that froze is noticed after about three of these.
const PING_EVERY: Duration = Duration::from_secs(2);
/// How long a request waits unless it says otherwise.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// The library's own back-off reaches 4 s, by which every hint is late then.
const RECONNECT_DELAY_AT_MOST: Duration = Duration::from_millis(250);
/// How long a reconnect waits for what must be put away before it.
const RETIRE_WITHIN: Duration = Duration::from_millis(250);
/// Violations that nobody has read yet; older ones are dropped.
const VIOLATIONS_KEPT: usize = 64;

/// Where to connect, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `nats://127.0.0.1:4222`
    pub address: String,
    /// The credential file.
    pub credential: Utf8PathBuf,
    /// What the server calls this connection, for people.
    pub name: String,
    /// The prefix of the subjects on which answers come; the credential allows no other
    /// ([`super::identity::inbox`] has one for each user).
    pub inbox: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody answers, or not in time.
    #[error("the bus at {address} cannot be reached")]
    Unreachable {
        /// Where.
        address: String,
        /// What the library says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server does not know this credential.
    #[error("the bus at {address} refuses the credential {path}")]
    CredentialRefused {
        /// Where.
        address: String,
        /// Which.
        path: Utf8PathBuf,
    },
    /// The credential file is not there, or is none.
    #[error("the credential {path} cannot be read")]
    CredentialUnreadable {
        /// Which.
        path: Utf8PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Connected, and a message to the own inbox does not come back.
    #[error("connected to the bus at {address}, and the inbox {inbox} does not work")]
    InboxSilent {
        /// Where.
        address: String,
        /// Which.
        inbox: String,
        /// Why.
        #[source]
        source: EchoError,
    },
}

/// Why a message to the own inbox did not come back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EchoError {
    /// It took too long.
    #[error("a message to the own inbox did not come back within {} ms", within.as_millis())]
    TimedOut {
        /// How long was waited.
        within: Duration,
    },
    /// The server forbids it.
    #[error("the bus does not permit it: {0}")]
    NotPermitted(
        /// In the server's words.
        String,
    ),
    /// The connection was closed by this side.
    #[error("the connection to the bus is closed")]
    Closed,
}

/// How the connection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Connected.
    Up {
        /// Since when.
        since: Instant,
        /// 1 for the first time, one more each time it came back.
        count: u64,
    },
    /// Not connected; being tried again.
    Down {
        /// Since when.
        since: Instant,
        /// What the last attempt met.
        error: Option<String>,
    },
}

impl Link {
    /// Whether it is up.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self, Self::Up { .. })
    }

    /// How it stands after `event`, `connects` times connected before.
    fn after(&self, event: &Event, connects: u64, now: Instant) -> Option<Self> {
        match (event, self) {
            (Event::Connected, _) => Some(Self::Up { since: now, count: connects + 1 }),
            (Event::Disconnected | Event::Closed, Self::Up { .. }) => {
                Some(Self::Down { since: now, error: None })
            }
            (Event::ClientError(ClientError::Other(error)), Self::Down { since, .. }) => {
                Some(Self::Down { since: *since, error: Some(error.clone()) })
            }
            _ => None,
        }
    }
}

/// A connection to the bus. Clones share it.
#[derive(Debug, Clone)]
pub struct Connection {
    client: Client,
    link: watch::Receiver<Link>,
    violations: broadcast::Sender<String>,
    retiring: Retiring,
    address: Arc<str>,
}

impl Connection {
    /// Connects, and returns when a message to the own inbox came back, or after 5 s at most.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn open(settings: &Settings) -> Result<Self, ConnectError> {
        match tokio::time::timeout(OPEN_WITHIN, Self::open_unbounded(settings)).await {
            Ok(opened) => opened,
            Err(elapsed) => {
                Err(ConnectError::Unreachable { address: settings.address.clone(), source: elapsed.into() })
            }
        }
    }

    /// Connects as soon as the bus is there and knows the credential: tries again, without end, at most
    /// 250 ms after each failure.
    pub async fn open_when_there(settings: &Settings) -> Self {
        let mut attempt = 1;
        loop {
            match Self::open(settings).await {
                Ok(connection) => return connection,
                Err(_) => {
                    attempt += 1;
                    tokio::time::sleep(reconnect_delay(attempt)).await;
                }
            }
        }
    }

    async fn open_unbounded(settings: &Settings) -> Result<Self, ConnectError> {
        let unreadable =
            |source| ConnectError::CredentialUnreadable { path: settings.credential.clone(), source };
        let credential = tokio::fs::read_to_string(&settings.credential).await.map_err(unreadable)?;
        let down = Link::Down { since: Instant::now(), error: None };
        let (link_sender, mut link) = watch::channel(down);
        let (violations, _) = broadcast::channel(VIOLATIONS_KEPT);
        let connects = Arc::new(AtomicU64::new(0));
        let retiring = Retiring::new();
        let options = ConnectOptions::with_credentials(&credential)
            .map_err(unreadable)?
            .name(&settings.name)
            .custom_inbox_prefix(&settings.inbox)
            .ping_interval(PING_EVERY)
            .connection_timeout(CONNECT_WITHIN)
            .request_timeout(Some(REQUEST_WITHIN))
            .reconnect_delay_callback(reconnect_delay)
            .ignore_discovered_servers()
            .reconnect_to_server_callback(retire_first(retiring.clone(), connects.clone()))
            .event_callback(listener(link_sender, violations.clone(), connects));
        let client = options
            .connect(settings.address.as_str())
            .await
            .map_err(|error| refused_or_unreachable(settings, error))?;
        // The sender lives in the library's task, which ends with the client.
        let _ = link.wait_for(Link::is_up).await;
        let address = settings.address.as_str().into();
        let connection = Self { client, link, violations, retiring, address };
        match connection.echo(REQUEST_WITHIN).await {
            Ok(_) => Ok(connection),
            Err(source) => Err(ConnectError::InboxSilent {
                address: settings.address.clone(),
                inbox: settings.inbox.clone(),
                source,
            }),
        }
    }

    /// How it stands; changes with each loss and each return.
    #[must_use]
    pub fn link(&self) -> watch::Receiver<Link> {
        let mut link = self.link.clone();
        link.mark_unchanged();
        link
    }

    /// The fence: sends a message to the own inbox and waits for it. What was sent before on this connection
    /// has reached the server then, subscriptions included.
    ///
    /// # Errors
    /// See [`EchoError`].
    pub async fn echo(&self, within: Duration) -> Result<Duration, EchoError> {
        let started = Instant::now();
        let inbox = self.client.new_inbox();
        let mut violations = self.violations();
        let round_trip = async {
            let mut subscriber = self.client.subscribe(inbox.clone()).await.ok()?;
            self.client.publish(inbox.clone(), Bytes::new()).await.ok()?;
            subscriber.next().await
        };
        tokio::select! {
            // cancel safe: the inbox is used once, and dropping its subscriber unsubscribes
            came = round_trip => came.map(|_| started.elapsed()).ok_or(EchoError::Closed),
            // cancel safe: reads a broadcast
            text = violation_of(&mut violations, &inbox) => Err(EchoError::NotPermitted(text)),
            // cancel safe: a timer
            () = tokio::time::sleep(within) => Err(EchoError::TimedOut { within }),
        }
    }

    /// "Permissions Violation ..." in the server's words, as they come from now on.
    #[must_use]
    pub fn violations(&self) -> broadcast::Receiver<String> {
        self.violations.subscribe()
    }

    /// The library's client.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// The subscriptions that must not outlive a connection.
    pub(super) const fn retiring(&self) -> &Retiring {
        &self.retiring
    }

    /// As it was connected to.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A text that was never given out before, by anybody.
    pub(super) fn unique(&self) -> String {
        let inbox = self.client.new_inbox();
        inbox.rsplit('.').next().unwrap_or(inbox.as_str()).to_owned()
    }
}

/// The next violation that names `subject`; never when the connection is gone.
pub(super) async fn violation_of(violations: &mut broadcast::Receiver<String>, subject: &str) -> String {
    let quoted = format!("\"{subject}\"");
    loop {
        match violations.recv().await {
            Ok(text) if text.contains(&quoted) => return text,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// What the library's events do to the link and the list of violations.
fn listener(
    link: watch::Sender<Link>,
    violations: broadcast::Sender<String>,
    connects: Arc<AtomicU64>,
) -> impl Fn(Event) -> std::future::Ready<()> + Send + Sync + 'static {
    move |event| {
        if let Event::ServerError(ServerError::Other(text)) = &event
            && text.to_lowercase().starts_with("permissions violation")
        {
            let _ = violations.send(text.clone());
        }
        link.send_if_modified(|link| {
            let Some(next) = link.after(&event, connects.load(Ordering::Relaxed), Instant::now()) else {
                return false;
            };
            if let Link::Up { count, .. } = next {
                connects.store(count, Ordering::Relaxed);
            }
            *link = next;
            true
        });
        std::future::ready(())
    }
}

/// Before each attempt to connect: what must not outlive the connection before is put away first. Leaves the
/// choice of a server to the library.
fn retire_first(
    retiring: Retiring,
    connects: Arc<AtomicU64>,
) -> impl Fn(Vec<Server>, ServerInfo) -> Retired + Send + Sync + 'static {
    move |_, _| {
        let (retiring, connects) = (retiring.clone(), connects.load(Ordering::Relaxed));
        Box::pin(async move {
            let _ = tokio::time::timeout(RETIRE_WITHIN, retiring.none_left_of(connects)).await;
            None
        })
    }
}

type Retired = std::pin::Pin<Box<dyn Future<Output = Option<ReconnectToServer>> + Send + Sync>>;

/// The first attempt at once, then 10, 20, 40 ... 250 ms.
fn reconnect_delay(attempt: usize) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        n => {
            let doubled = 10u64.saturating_mul(1 << (n - 2).min(10));
            Duration::from_millis(doubled).min(RECONNECT_DELAY_AT_MOST)
        }
    }
}

fn refused_or_unreachable(settings: &Settings, error: async_nats::ConnectError) -> ConnectError {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            ConnectError::CredentialRefused {
                address: settings.address.clone(),
                path: settings.credential.clone(),
            }
        }
        _ => ConnectError::Unreachable { address: settings.address.clone(), source: error.into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_begins_at_nothing_and_ends_at_250_ms() {
        let delays: Vec<u128> = (1..9).map(|n| reconnect_delay(n).as_millis()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 250, 250]);
        assert_eq!(reconnect_delay(usize::MAX), RECONNECT_DELAY_AT_MOST);
    }

    #[test]
    fn the_link_counts_each_return_and_keeps_when_it_went() {
        let now = Instant::now();
        let down = Link::Down { since: now, error: None };
        let up = down.after(&Event::Connected, 0, now).unwrap();
        assert_eq!(up, Link::Up { since: now, count: 1 });
        let later = now + Duration::from_secs(1);
        let lost = up.after(&Event::Disconnected, 1, later).unwrap();
        let refused = Event::ClientError(ClientError::Other("IO error".to_owned()));
        let tried = lost.after(&refused, 1, later + Duration::from_secs(1)).unwrap();
        assert_eq!(tried, Link::Down { since: later, error: Some("IO error".to_owned()) });
        assert_eq!(tried.after(&Event::Disconnected, 1, later), None);
        let back = tried.after(&Event::Connected, 1, later).unwrap();
        assert_eq!(back, Link::Up { since: later, count: 2 });
    }
}
