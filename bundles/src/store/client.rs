//! One store, and what can be asked of it in one request.
//!
//! In: an address and what the client may do. Out: presence, tags, manifests. Long transfers are beside (`download`,
//! `upload`), and so are what a name stands for (`resolve`), what publishing means (`publish`), and who may (`auth`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mesh_durable::checkpoint;
use mesh_protocol::id::{Digest, ResourceName};
use reqwest::header::{ACCEPT, CONTENT_LENGTH, DATE, HeaderMap, LINK};
use reqwest::{Method, Request, RequestBuilder, Response, StatusCode, Url};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::address::{Repository, StoreAddress, Tag};
use super::auth::Authority;
use super::credentials::Credentials;
use super::error::StoreError;
use super::plan::Presence;

/// No registry takes a larger manifest.
pub(super) const MAX_MANIFEST: u64 = 4 << 20;
/// What is wanted under a manifest's name; other kinds are asked for too, so that they can be called by their names.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                        application/vnd.docker.distribution.manifest.v2+json, \
                        application/vnd.docker.distribution.manifest.list.v2+json";
/// Pages of tags; each has a hundred or more.
const MAX_PAGES: usize = 1000;
/// As much of an error's text as one wants to read.
const MAX_ANSWER: usize = 500;

/// A resolver that knows nothing of `localhost` is found in every container without `/etc/hosts`.
const LOCALHOST: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 0),
];

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// CA certificates, as PEM: the only ones that are trusted. None are needed for plain HTTP.
    pub roots: Vec<u8>,
    /// Who we are, where the store asks.
    pub credentials: Credentials,
    /// Below which path bundles are, where the store gives each of its users one.
    pub path: Option<Repository>,
    /// A repository of the store that may have what is to be sent: then the store takes it from there.
    pub mount_from: Option<Repository>,
    /// How long a transfer may stand still. There is no limit on the whole: a large bundle takes its time.
    pub idle: Duration,
    /// How long to wait before each further try when a transfer was cut; a try that brought bytes starts over.
    pub pauses: Vec<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        let pauses = [100, 300, 1000].map(Duration::from_millis).to_vec();
        Self {
            roots: Vec::new(),
            credentials: Credentials::Anonymous,
            path: None,
            mount_from: None,
            idle: Duration::from_secs(30),
            pauses,
        }
    }
}

/// A store.
#[derive(Debug, Clone)]
pub struct Store {
    pub(super) http: reqwest::Client,
    pub(super) address: StoreAddress,
    path: Option<Repository>,
    pub(super) mount_from: Option<Repository>,
    pub(super) idle: Duration,
    pub(super) pauses: Vec<Duration>,
    pub(super) authority: Arc<Authority>,
}

impl Store {
    /// A client for the store at `address`. Nothing is sent yet.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub fn new(address: StoreAddress, options: &Options) -> Result<Self, StoreError> {
        let redirects = reqwest::redirect::Policy::custom(|attempt| {
            let from_tls = attempt.previous().iter().any(|url| url.scheme() == "https");
            if from_tls && attempt.url().scheme() == "http" {
                return attempt.error("a redirect from https to http");
            }
            if attempt.previous().len() > 5 { attempt.error("too many redirects") } else { attempt.follow() }
        });
        let http = reqwest::Client::builder()
            // The store is given by its address; a proxy of the environment would see what it must not.
            .no_proxy()
            .tls_backend_preconfigured(tls(&options.roots)?)
            .redirect(redirects)
            // Whatever this machine's resolver says, it is this machine; and both families of addresses are tried.
            .resolve_to_addrs("localhost", &LOCALHOST)
            .connect_timeout(Duration::from_secs(5))
            .user_agent(concat!("mesh-bundles/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(StoreError::Client)?;
        let authority = Arc::new(Authority::new(&address, options.credentials.clone())?);
        let Options { path, mount_from, idle, pauses, .. } = options.clone();
        Ok(Self { http, address, path, mount_from, idle, pauses, authority })
    }

    /// The repository of a bundle's name.
    #[must_use]
    pub fn repository(&self, name: &ResourceName) -> Repository {
        Repository::below(self.path.as_ref(), name)
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// Does it answer, as a registry does?
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let url = self.url("")?;
        let response = self.send(self.http.get(url.clone()), &url).await?;
        refused(response, &url, &[StatusCode::OK]).await.map(drop)
    }

    /// The date of its answer, as it wrote it; none where it wrote none.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn date(&self) -> Result<Option<String>, StoreError> {
        let url = self.url("")?;
        let response = self.send(self.http.get(url.clone()), &url).await?;
        let date = response.headers().get(DATE).and_then(|value| value.to_str().ok());
        Ok(date.map(str::to_owned))
    }

    /// Is a blob there?
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn blob(&self, repository: &Repository, digest: &Digest) -> Result<Presence, StoreError> {
        let head = self.head(&format!("{repository}/blobs/{digest}")).await?;
        Ok(head
            .map_or(Presence::Absent, |headers| Presence::There(number(&headers, CONTENT_LENGTH.as_str()))))
    }

    /// Is a manifest there?
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn manifest(&self, repository: &Repository, digest: &Digest) -> Result<Presence, StoreError> {
        let head = self.head(&format!("{repository}/manifests/{digest}")).await?;
        Ok(head
            .map_or(Presence::Absent, |headers| Presence::There(number(&headers, CONTENT_LENGTH.as_str()))))
    }

    /// What a tag names, if there is such a tag. A store that does not say the digest is asked for the manifest.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn tagged(&self, repository: &Repository, tag: &Tag) -> Result<Option<Digest>, StoreError> {
        let Some(headers) = self.head(&format!("{repository}/manifests/{tag}")).await? else {
            return Ok(None);
        };
        let said = headers.get("docker-content-digest").and_then(|value| value.to_str().ok()?.parse().ok());
        match said {
            Some(digest) => Ok(Some(digest)),
            None => {
                Ok(self.manifest_bytes(repository, &tag.to_string()).await?.map(|bytes| Digest::of(&bytes)))
            }
        }
    }

    /// The tags of a repository; none if there is no such repository.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn tags(&self, repository: &Repository) -> Result<Vec<String>, StoreError> {
        #[derive(Deserialize)]
        struct Page {
            tags: Option<Vec<String>>,
        }
        self.pages(&format!("{repository}/tags/list"), |page: Page| page.tags.unwrap_or_default()).await
    }

    /// The repositories of a store, in order, those without tags too; of one with a path those right below it.
    ///
    /// # Errors
    /// When the store cannot say; there are stores that tell nobody.
    pub async fn repositories(&self) -> Result<Vec<Repository>, StoreError> {
        #[derive(Deserialize)]
        struct Page {
            repositories: Option<Vec<String>>,
        }
        let names = self.pages("_catalog", |page: Page| page.repositories.unwrap_or_default()).await?;
        let repositories = names.iter().filter_map(|name| name.parse::<Repository>().ok());
        Ok(repositories.filter(|repository| repository.is_below(self.path.as_ref())).collect())
    }

    /// A list that comes in pages, in order.
    async fn pages<P: DeserializeOwned>(
        &self,
        path: &str,
        names: impl Fn(P) -> Vec<String>,
    ) -> Result<Vec<String>, StoreError> {
        let mut url = self.url(path)?;
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let response = self.send(self.http.get(url.clone()), &url).await?;
            let response = refused(response, &url, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
            if response.status() == StatusCode::NOT_FOUND {
                break;
            }
            let next = next_page(response.headers(), &url);
            let bytes = self.body(response, &url, MAX_MANIFEST).await?;
            let page = serde_json::from_slice(&bytes).map_err(|error| protocol(&url, &error.to_string()))?;
            all.extend(names(page));
            match next {
                Some(next) if next != url => url = next,
                _ => break,
            }
        }
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// A manifest as it is in the store.
    pub(super) async fn manifest_bytes(
        &self,
        repository: &Repository,
        name: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let url = self.url(&format!("{repository}/manifests/{name}"))?;
        let response = self.send(self.http.get(url.clone()).header(ACCEPT, ACCEPTED), &url).await?;
        let response = refused(response, &url, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        self.body(response, &url, MAX_MANIFEST).await.map(Some)
    }

    async fn head(&self, path: &str) -> Result<Option<HeaderMap>, StoreError> {
        let url = self.url(path)?;
        let request = self.http.head(url.clone()).header(ACCEPT, ACCEPTED);
        let response = self.send(request, &url).await?;
        let response = refused(response, &url, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
        Ok((response.status() == StatusCode::OK).then(|| response.headers().clone()))
    }

    pub(super) fn url(&self, path: &str) -> Result<Url, StoreError> {
        let text = format!("{}/v2/{path}", self.address.url());
        Url::parse(&text).map_err(|error| StoreError::Protocol { url: text, what: error.to_string() })
    }

    /// Sends a request that has little to say, and waits for the beginning of the answer. Where the store wants to
    /// know who asks, it is told, and asked again: once.
    pub(super) async fn send(&self, request: RequestBuilder, url: &Url) -> Result<Response, StoreError> {
        let mut request = request.build().map_err(|error| unreachable(url, error))?;
        let mut again = request.try_clone();
        let told = self.authority.sign(&mut request);
        let response = self.execute(request, url).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            self.authority.answered();
            return Ok(response);
        }
        let Some(mut again) = again.take() else { return Ok(response) };
        self.challenged(response, &again, told.as_ref()).await?;
        self.authority.sign(&mut again);
        let response = self.execute(again, url).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(self.authority.unauthorized(response, url).await);
        }
        self.authority.answered();
        Ok(response)
    }

    pub(super) async fn execute(&self, request: Request, url: &Url) -> Result<Response, StoreError> {
        let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
        let deed = format!("{} {}", request.method(), request.url().path());
        let asking = tokio::time::timeout(self.idle, self.http.execute(request));
        let asked = if changes { checkpoint::around_async(|| deed, asking).await } else { asking.await };
        match asked {
            Ok(answer) => answer.map_err(|error| unreachable(url, error)),
            Err(_) => Err(StoreError::Silent { url: url.to_string(), idle: self.idle }),
        }
    }

    /// A short body, whole.
    pub(super) async fn body(
        &self,
        mut response: Response,
        url: &Url,
        limit: u64,
    ) -> Result<Vec<u8>, StoreError> {
        let mut body = Vec::new();
        while let Some(bytes) = self.chunk(&mut response, url).await? {
            body.extend_from_slice(&bytes);
            if body.len() as u64 > limit {
                return Err(StoreError::TooLarge { what: url.to_string(), limit });
            }
        }
        Ok(body)
    }

    /// Some more of a body.
    pub(super) async fn chunk(
        &self,
        response: &mut Response,
        url: &Url,
    ) -> Result<Option<bytes::Bytes>, StoreError> {
        match tokio::time::timeout(self.idle, response.chunk()).await {
            Ok(chunk) => chunk.map_err(|error| unreachable(url, error)),
            Err(_) => Err(StoreError::Silent { url: url.to_string(), idle: self.idle }),
        }
    }
}

/// Trusts the given certificates and no others, so that a machine without any can still make a client. Of many, as a
/// system has them, one that is odd is left out.
fn tls(pem: &[u8]) -> Result<rustls::ClientConfig, StoreError> {
    let bad = |reason: String| StoreError::Certificates { reason };
    let mut roots = rustls::RootCertStore::empty();
    let mut odd = None;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        odd = roots.add(certificate).err().or(odd);
    }
    if let Some(error) = odd.filter(|_| roots.is_empty()) {
        return Err(bad(error.to_string()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

pub(super) fn unreachable(url: &Url, error: reqwest::Error) -> StoreError {
    StoreError::Unreachable { url: url.to_string(), source: error.without_url() }
}

pub(super) fn protocol(url: &Url, what: &str) -> StoreError {
    StoreError::Protocol { url: url.to_string(), what: what.to_owned() }
}

/// The answer, if it has one of these statuses; else what it says.
pub(super) async fn refused(
    response: Response,
    url: &Url,
    right: &[StatusCode],
) -> Result<Response, StoreError> {
    let status = response.status();
    if right.contains(&status) {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    let answer: String = text.trim().chars().take(MAX_ANSWER).collect();
    let (url, status_number) = (url.to_string(), status.as_u16());
    if status.is_server_error()
        || status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::REQUEST_TIMEOUT
    {
        return Err(StoreError::Busy { url, status: status_number, answer });
    }
    Err(StoreError::Refused { url, status: status_number, answer })
}

pub(super) fn same(what: String, expected: &Digest, found: Digest) -> Result<(), StoreError> {
    if found == *expected {
        Ok(())
    } else {
        Err(StoreError::Corrupted { what, expected: expected.clone(), found })
    }
}

pub(super) fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

/// `Link: <…>; rel="next"`, which may be relative; never to another host.
fn next_page(headers: &HeaderMap, url: &Url) -> Option<Url> {
    let link = headers.get(LINK)?.to_str().ok()?;
    let (target, rest) = link.strip_prefix('<')?.split_once('>')?;
    let next = url.join(target).ok()?;
    (rest.contains("next") && next.origin() == url.origin()).then_some(next)
}
