//! A connection to an engine that was seen to answer, and the deadline around everything that is asked of it.
//!
//! In: an endpoint. Out: an [`Engine`] whose API version is negotiated, or in which way there is none. Not here:
//! what is asked; that is `container`, `image` and `probe`.

use std::future::Future;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker};
use mesh_durable::checkpoint;

use crate::endpoint::{Address, Endpoint};
use crate::error::{ApiVersion, Error};

/// The oldest API that has all that is used here; Docker 20.10 speaks it, and so does Debian 12's.
pub const OLDEST_API: ApiVersion = ApiVersion { major: 1, minor: 41 };

/// The newest API that the client speaks: an engine that is newer speaks older ones too, for some years.
pub const NEWEST_API: ApiVersion = ApiVersion {
    major: API_DEFAULT_VERSION.major_version as u32,
    minor: API_DEFAULT_VERSION.minor_version as u32,
};

/// For what the engine answers from memory in milliseconds: ten seconds is a machine that is starved, and
/// more is an engine that hangs.
pub(crate) const QUICK: Duration = Duration::from_secs(10);

/// For what makes the engine work (create, start, kill, remove): storage and runtime take a tenth of a second
/// each, and a machine that swaps or syncs a slow disk takes several.
pub(crate) const WORK: Duration = Duration::from_secs(60);

/// The client's own limit counts to the answer's head only, and must not end a call before its deadline here:
/// a day is longer than any of them.
const CLIENT_LIMIT_SECONDS: u64 = 24 * 60 * 60;

/// A container engine that was seen to answer.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) client: Docker,
    endpoint: Endpoint,
    api: ApiVersion,
}

impl Engine {
    /// Connects to the engine at `endpoint` and agrees with it on the API's version.
    ///
    /// # Errors
    /// In which way there is no engine that can be used: no socket, not permitted, nobody answers, hangs, too old, too
    /// new.
    pub async fn connect(endpoint: &Endpoint) -> Result<Self, Error> {
        let what = "answer";
        let address = &endpoint.address;
        bounded(what, QUICK, knock(address)).await?.map_err(|e| Error::from_connection(address, e))?;
        let client_of = |version: &ClientVersion| {
            let client = match address {
                Address::Unix(path) => {
                    Docker::connect_with_unix(&path.display().to_string(), CLIENT_LIMIT_SECONDS, version)
                }
                Address::Loopback { .. } => {
                    Docker::connect_with_http(&address.to_string(), CLIENT_LIMIT_SECONDS, version)
                }
            };
            client.map_err(|e| Error::from_client(address, what, e))
        };
        let client = client_of(API_DEFAULT_VERSION)?;
        // Asked before anything is negotiated, so that an engine which is too old is told from one that fails.
        let version = bounded(what, QUICK, client.version())
            .await?
            .map_err(|e| Error::from_client(address, what, e))?;
        let api = api_version(&version.api_version.unwrap_or_default())?;
        if api < OLDEST_API {
            return Err(Error::TooOld { address: address.clone(), found: api });
        }
        let oldest = version.min_api_version.as_deref().map(api_version).transpose()?;
        if let Some(found) = oldest.filter(|oldest| *oldest > NEWEST_API) {
            return Err(Error::TooNew { address: address.clone(), found });
        }
        // As the client's own negotiation ends, which would ask a second time: for each answer the engine starts its runtime
        // twice, to ask for its version.
        let agreed = api.min(NEWEST_API);
        let client = client_of(&ClientVersion {
            major_version: agreed.major as usize,
            minor_version: agreed.minor as usize,
        })?;
        Ok(Self { client, endpoint: endpoint.clone(), api })
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The newest API version that it speaks.
    #[must_use]
    pub fn api(&self) -> ApiVersion {
        self.api
    }

    /// Asks the engine to do `what`, and waits for `limit` at most.
    pub(crate) async fn ask<T>(
        &self,
        what: &str,
        limit: Duration,
        answer: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, Error> {
        bounded(what, limit, answer).await?.map_err(|error| self.error(what, error))
    }

    /// Like [`Engine::ask`], for what changes something there.
    pub(crate) async fn have<T>(
        &self,
        what: &str,
        limit: Duration,
        answer: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, Error> {
        checkpoint::around_async(|| what.to_owned(), self.ask(what, limit, answer)).await
    }

    pub(crate) fn error(&self, what: &str, error: bollard::errors::Error) -> Error {
        Error::from_client(&self.endpoint.address, what, error)
    }
}

fn api_version(text: &str) -> Result<ApiVersion, Error> {
    text.parse().map_err(|()| Error::Nonsense {
        what: "tell its API version".to_owned(),
        found: format!("{text:?} is not of the form 1.41"),
    })
}

/// `work`, given up after `limit`.
pub(crate) async fn bounded<T>(
    what: &str,
    limit: Duration,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.map_err(|_| Error::TimedOut { what: what.to_owned(), limit })
}

/// Opens a connection and drops it: the system's own error tells apart what the client lumps together.
async fn knock(address: &Address) -> std::io::Result<()> {
    match address {
        Address::Unix(path) => tokio::net::UnixStream::connect(path).await.map(drop),
        Address::Loopback { host, port } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            tokio::net::TcpStream::connect((host, *port)).await.map(drop)
        }
    }
}
