//! The installer's end of the local door.
//!
//! In: a request. Out: the host's answer, or in which way there is no host. Not here: what the words mean
//! (`mesh_protocol::door`), and starting a host that is not there (`daemon`).

use std::io;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_durable::checkpoint;
use mesh_protocol::door::{DoorAnswer, DoorRequest, Observed};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use crate::output::{Code, Failure};

/// For what the host answers from memory.
pub const QUICK: Duration = Duration::from_secs(5);

/// How often it is looked whether the host still runs.
const LOOK: Duration = Duration::from_millis(500);

/// An init that looks after the host starts it again within a second or two.
const GONE: Duration = Duration::from_secs(4);

/// How often a host that broke off is asked again: a process that is killed is gone within milliseconds.
const ENDING: Duration = Duration::from_millis(20);

/// For what ends programs and removes what they left: every program has its grace.
pub const LONG: Duration = Duration::from_secs(120);

/// An answer has a whole declaration and ledger in it; past this it is no answer.
const LONGEST_ANSWER: u64 = 64 * 1024 * 1024;

/// The local door of one root.
#[derive(Debug, Clone)]
pub struct Door {
    path: Utf8PathBuf,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// No host runs.
    #[error("no host answers at {path}")]
    NoHost {
        /// The socket.
        path: Utf8PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is one, and this user may not speak to it.
    #[error("the host at {path} may not be spoken to by this user")]
    NotPermitted {
        /// The socket.
        path: Utf8PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It hangs.
    #[error("the host at {path} did not answer within {} s", limit.as_secs())]
    TimedOut {
        /// The socket.
        path: Utf8PathBuf,
        /// How long it had.
        limit: Duration,
    },
    /// It broke off.
    #[error("the host at {path} broke off")]
    BrokeOff {
        /// The socket.
        path: Utf8PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It answered something that is no answer.
    #[error("the host at {path} gave an answer that cannot be read")]
    Unreadable {
        /// The socket.
        path: Utf8PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

impl Door {
    /// The door at this socket.
    #[must_use]
    pub fn new(path: Utf8PathBuf) -> Self {
        Self { path }
    }

    /// Asks, and waits for the answer for `limit` at most.
    ///
    /// # Errors
    /// In which way there is none.
    pub async fn ask(&self, request: &DoorRequest, limit: Duration) -> Result<DoorAnswer, DoorError> {
        let path = || self.path.clone();
        let asking = tokio::time::timeout(limit, self.exchange(request));
        let asked = match deed(request) {
            Some(deed) => checkpoint::around_async(|| format!("ask the host to {deed}"), asking).await,
            None => asking.await,
        };
        match asked {
            Ok(answer) => answer,
            Err(_) => Err(DoorError::TimedOut { path: path(), limit }),
        }
    }

    async fn exchange(&self, request: &DoorRequest) -> Result<DoorAnswer, DoorError> {
        let path = || self.path.clone();
        let stream = UnixStream::connect(&self.path).await.map_err(|source| refused(&self.path, source))?;
        let (read, mut write) = stream.into_split();
        let mut line =
            serde_json::to_vec(request).map_err(|source| DoorError::Unreadable { path: path(), source })?;
        line.push(b'\n');
        let broke_off = |source| DoorError::BrokeOff { path: self.path.clone(), source };
        write.write_all(&line).await.map_err(broke_off)?;
        let mut answer = Vec::new();
        BufReader::new(read.take(LONGEST_ANSWER)).read_until(b'\n', &mut answer).await.map_err(broke_off)?;
        if answer.is_empty() {
            return Err(broke_off(io::ErrorKind::UnexpectedEof.into()));
        }
        serde_json::from_slice(&answer).map_err(|source| DoorError::Unreadable { path: path(), source })
    }

    /// All that the host knows.
    ///
    /// # Errors
    /// When there is no host, or it does not say.
    pub async fn observe(&self) -> Result<Observed, Failure> {
        match self.ask(&DoorRequest::Observe, QUICK).await? {
            DoorAnswer::Observed(observed) => Ok(*observed),
            other => Err(unexpected("observe", &other)),
        }
    }

    /// As [`Self::observe`]; that no host runs is `None`. One that is just ending breaks off, and is not there a
    /// moment later; so where one breaks off, it is asked until it answers or is gone.
    ///
    /// # Errors
    /// When there is a host and it does not say.
    pub async fn observe_if_there(&self) -> Result<Option<Observed>, Failure> {
        let deadline = tokio::time::Instant::now() + QUICK;
        loop {
            match self.ask(&DoorRequest::Observe, QUICK).await {
                Ok(DoorAnswer::Observed(observed)) => return Ok(Some(*observed)),
                Ok(other) => return Err(unexpected("observe", &other)),
                Err(DoorError::NoHost { .. }) => return Ok(None),
                Err(DoorError::BrokeOff { .. }) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(ENDING).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What the host is asked to do; none where it is only asked to tell.
const fn deed(request: &DoorRequest) -> Option<&'static str> {
    match request {
        DoorRequest::Observe => None,
        DoorRequest::Pivot { .. } => Some("take generation 1"),
        DoorRequest::Retry { .. } => Some("retry"),
        DoorRequest::Recover { .. } => Some("recover"),
        DoorRequest::Dissolve { .. } => Some("dissolve"),
    }
}

/// Comes back when the host has been gone for a while, with a failure that says so: for those who wait for what it alone can
/// do.
pub async fn gone(door: Door) -> Failure {
    let mut since = None;
    loop {
        tokio::time::sleep(LOOK).await;
        match door.observe_if_there().await {
            Ok(None) => {
                let since = *since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() >= GONE {
                    return Failure::new(Code::HostUnreachable, "the host does not run any more")
                        .expected(format!("a host at {}", door.path))
                        .hint(
                            "the same command starts it again and goes on; mesh logs host says why it ended",
                        );
                }
            }
            _ => since = None,
        }
    }
}

/// What an answer that does not fit its request is.
#[must_use]
pub fn unexpected(request: &str, answer: &DoorAnswer) -> Failure {
    match answer {
        DoorAnswer::Refused { why } => {
            Failure::new(Code::HostRefused, format!("the host refused to {request}: {why}"))
        }
        _ => Failure::new(
            Code::HostAnswer,
            format!("the host answered something else when asked to {request}"),
        )
        .hint("host and command are of different versions: use the `mesh` that belongs to this mesh"),
    }
}

fn refused(path: &Utf8Path, source: io::Error) -> DoorError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::PermissionDenied => DoorError::NotPermitted { path, source },
        _ => DoorError::NoHost { path, source },
    }
}

impl From<DoorError> for Failure {
    fn from(error: DoorError) -> Self {
        match &error {
            DoorError::NoHost { .. } => {
                Self::of(Code::HostUnreachable, &error).hint("start the host: mesh up")
            }
            DoorError::NotPermitted { .. } => Self::of(Code::NotRoot, &error).hint("run this as root"),
            DoorError::TimedOut { .. } | DoorError::BrokeOff { .. } => {
                Self::of(Code::HostUnreachable, &error).hint("see the host's log: mesh logs host")
            }
            DoorError::Unreadable { .. } => Self::of(Code::HostAnswer, &error)
                .hint("host and command are of different versions: use the `mesh` that belongs to this mesh"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    fn socket() -> (tempfile::TempDir, Utf8PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(temp.path()).unwrap().join("door.sock");
        (temp, path)
    }

    async fn answering(path: &Utf8Path, answer: &'static [u8]) -> tokio::task::JoinHandle<String> {
        let listener = UnixListener::bind(path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            let mut line = String::new();
            BufReader::new(read).read_line(&mut line).await.unwrap();
            write.write_all(answer).await.unwrap();
            line
        })
    }

    #[tokio::test]
    async fn one_line_goes_and_one_comes_back() {
        let (_temp, path) = socket();
        let host = answering(&path, b"{\"answer\":\"already\"}\n").await;
        let resource = "process:a".parse().unwrap();
        let answer = Door::new(path).ask(&DoorRequest::Retry { resource }, QUICK).await.unwrap();
        assert_eq!(answer, DoorAnswer::Already);
        assert_eq!(host.await.unwrap(), "{\"request\":\"retry\",\"resource\":\"process:a\"}\n");
    }

    #[tokio::test]
    async fn a_host_that_is_ending_is_not_there() {
        let (_temp, path) = socket();
        let listener = UnixListener::bind(&path).unwrap();
        let ending = tokio::spawn(async move {
            // Twice it takes a question and answers none; then nobody listens.
            for _ in 0..2 {
                let _ = listener.accept().await.unwrap();
            }
        });
        assert_eq!(Door::new(path).observe_if_there().await.unwrap(), None);
        ending.await.unwrap();
    }

    #[tokio::test]
    async fn each_way_of_having_no_host_is_named() {
        let (_temp, path) = socket();
        let door = Door::new(path.clone());
        assert_eq!(door.observe_if_there().await.unwrap(), None);
        let failure = door.observe().await.unwrap_err();
        assert_eq!(
            (failure.code, failure.hint.as_deref()),
            (Code::HostUnreachable, Some("start the host: mesh up"))
        );

        let host = answering(&path, b"{\"answer\":\"refused\",\"why\":\"no\"}\n").await;
        assert_eq!(door.observe().await.unwrap_err().code, Code::HostRefused);
        host.await.unwrap();
        std::fs::remove_file(&path).unwrap();

        let host = answering(&path, b"pardon?\n").await;
        assert_eq!(door.observe().await.unwrap_err().code, Code::HostAnswer);
        host.await.unwrap();
        std::fs::remove_file(&path).unwrap();

        let _listener = UnixListener::bind(&path).unwrap();
        let error = door.ask(&DoorRequest::Observe, Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(error, DoorError::TimedOut { .. }), "{error}");
    }
}
