//! Saying who we are to a store: nothing until it asks, and then to it alone.
//!
//! In: requests about to be sent, answers with status 401. Out: requests that carry what the store asked for, as
//! long as that is valid. Not here: where logins are kept (see `credentials`), what a challenge means (see
//! `challenge`), and sending requests a second time (see `client`).
//!
//! A login goes to the store's own scheme, host and port, and to the token server that the store names, if that is
//! asked with no less protection; a redirect or an upload's location on another host gets nothing.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Method, Request, Response, StatusCode, Url};
use serde::Deserialize;

use super::address::StoreAddress;
use super::challenge::{Challenge, is_realm_right};
use super::client::{Store, protocol, refused};
use super::credentials::{Credentials, Login};
use super::error::StoreError;

/// What a token server means that does not say how long its token is good (the token specification).
const DEFAULT_LIFE: Duration = Duration::from_secs(60);
/// A token is renewed so long before its end, for it also has to arrive.
const MARGIN: Duration = Duration::from_secs(5);
/// A token is a few kilobytes.
const MAX_TOKEN: u64 = 1 << 20;
const MAX_SAID: usize = 300;

/// Who we are, for one store.
#[derive(Debug)]
pub(super) struct Authority {
    /// The store's own scheme, host and port.
    store: Url,
    address: StoreAddress,
    credentials: Credentials,
    state: Mutex<State>,
    /// Held by the one request that finds out what the store wants, while others that are told to wait for it.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the store has answered before.
    has_answered: bool,
    /// What the store wanted the last time.
    scheme: Option<Challenge>,
    /// For each repository looked up once, for files may have one for each; inside: whether there is one.
    logins: BTreeMap<Option<String>, Result<Option<Login>, String>>,
    tokens: BTreeMap<Access, Token>,
}

struct Token {
    value: String,
    until: Instant,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("until", &self.until).finish_non_exhaustive()
    }
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Access {
    repository: Option<String>,
    right: Right,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Right {
    Pull,
    Push,
    Delete,
}

impl Access {
    fn of(method: &Method, url: &Url) -> Self {
        let path = url.path().strip_prefix("/v2/").unwrap_or_default();
        let end = ["/manifests/", "/blobs/", "/tags/"].iter().filter_map(|part| path.rfind(part)).max();
        let right = match *method {
            Method::GET | Method::HEAD => Right::Pull,
            Method::DELETE => Right::Delete,
            _ => Right::Push,
        };
        Self { repository: end.map(|end| path[..end].to_owned()), right }
    }

    fn scope(&self) -> Option<String> {
        let actions = match self.right {
            Right::Pull => "pull",
            Right::Push => "pull,push",
            Right::Delete => "delete",
        };
        Some(format!("repository:{}:{actions}", self.repository.as_ref()?))
    }
}

impl Authority {
    pub(super) fn new(address: &StoreAddress, credentials: Credentials) -> Result<Self, StoreError> {
        let store = Url::parse(&address.url())
            .map_err(|error| StoreError::Protocol { url: address.url(), what: error.to_string() })?;
        let (address, state, asking) = (address.clone(), Mutex::default(), tokio::sync::Mutex::default());
        Ok(Self { store, address, credentials, state, asking })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether several requests may be the first at once: where there is nothing to tell, or the store has said already
    /// what it wants to be told. Else a login that is wrong would be told as often as there are requests.
    pub(super) fn is_settled(&self) -> bool {
        self.credentials == Credentials::Anonymous || self.state().has_answered
    }

    /// Notes that the store was told all that it wanted.
    pub(super) fn answered(&self) {
        self.state().has_answered = true;
    }

    /// Puts onto a request what the store wanted to have the last time, and tells what that is.
    pub(super) fn sign(&self, request: &mut Request) -> Option<HeaderValue> {
        let value = self.authorization(request)?;
        request.headers_mut().insert(AUTHORIZATION, value.clone());
        Some(value)
    }

    /// What the store wanted to have the last time, if that is there and the request goes to it.
    fn authorization(&self, request: &Request) -> Option<HeaderValue> {
        if request.url().origin() != self.store.origin() {
            return None;
        }
        let access = Access::of(request.method(), request.url());
        let state = self.state();
        let login = state.logins.get(&access.repository).and_then(|login| login.as_ref().ok()?.as_ref());
        let value = match (&state.scheme, login) {
            (Some(Challenge::Basic), Some(login)) => basic(login),
            (Some(Challenge::Bearer { .. }), Some(Login::RegistryToken(token))) => {
                Some(format!("Bearer {}", token.reveal()))
            }
            (Some(Challenge::Bearer { .. }), _) => {
                let token = state.tokens.get(&access).filter(|token| token.until > Instant::now());
                token.map(|token| format!("Bearer {}", token.value))
            }
            (Some(Challenge::Basic) | None, _) => None,
        };
        let mut value = HeaderValue::from_str(&value?).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Why a store that was told who asks still does not want to.
    pub(super) async fn unauthorized(&self, response: Response, asked: &Url) -> StoreError {
        let repository = Access::of(&Method::GET, asked).repository;
        let url = response.url().to_string();
        let text = response.text().await.unwrap_or_default();
        let said: String = text.trim().chars().take(MAX_SAID).collect();
        let given = match self.state().logins.get(&repository) {
            Some(Ok(Some(Login::Password { user, .. }))) => {
                format!("the credentials of {user:?} were refused")
            }
            Some(Ok(Some(_))) => "the token that is kept for it was refused".to_owned(),
            Some(Err(error)) => error.clone(),
            Some(Ok(None)) | None => format!("none are known for {}", self.address),
        };
        StoreError::Unauthorized { url, found: format!("{given}; it said {said:?}") }
    }

    /// Our login for a repository of this store, looked up once. One that cannot be looked up is none, and told if none
    /// does not do.
    async fn login(&self, repository: Option<String>) -> Option<Login> {
        if let Some(known) = self.state().logins.get(&repository) {
            return known.as_ref().ok().cloned().flatten();
        }
        let found = match &self.credentials {
            Credentials::Anonymous => Ok(None),
            Credentials::Given(login) => Ok(Some(login.clone())),
            Credentials::Kept(keychain) => {
                let found = keychain.login(&self.address, repository.as_deref()).await;
                found.map_err(|error| chain(&error))
            }
        };
        let login = found.as_ref().ok().cloned().flatten();
        self.state().logins.insert(repository, found);
        login
    }
}

/// An error and what it came from, for it goes on as a text.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn basic(login: &Login) -> Option<String> {
    let Login::Password { user, password } = login else { return None };
    Some(format!("Basic {}", BASE64.encode(format!("{user}:{}", password.reveal()).as_bytes())))
}

impl Store {
    /// Takes up an answer with status 401 to a request that was sent as `told`: afterwards it can be signed, or there is
    /// no way to. Of several that are refused at once one asks, and the others take what it was given.
    pub(super) async fn challenged(
        &self,
        response: Response,
        request: &Request,
        told: Option<&HeaderValue>,
    ) -> Result<(), StoreError> {
        let authority = &self.authority;
        let _asking = authority.asking.lock().await;
        if authority.authorization(request).is_some_and(|value| told != Some(&value)) {
            return Ok(());
        }
        let headers = response.headers().get_all(WWW_AUTHENTICATE);
        let challenge = Challenge::best(headers.iter().filter_map(|header| header.to_str().ok()));
        let ours = request.url().origin() == authority.store.origin();
        let Some(challenge) = challenge.filter(|_| ours) else {
            return Err(authority.unauthorized(response, request.url()).await);
        };
        authority.state().scheme = Some(challenge.clone());
        let access = Access::of(request.method(), request.url());
        let login = authority.login(access.repository.clone()).await;
        match (&challenge, &login) {
            (Challenge::Basic, Some(Login::Password { .. })) => Ok(()),
            (Challenge::Basic, _) => Err(authority.unauthorized(response, request.url()).await),
            (Challenge::Bearer { .. }, Some(Login::RegistryToken(_))) => Ok(()),
            (Challenge::Bearer { realm, service, scope }, login) => {
                authority.state().tokens.remove(&access);
                let scope = scope.clone().or_else(|| access.scope());
                let fields = [("service", service.as_deref()), ("scope", scope.as_deref())];
                let token = self.token(realm, fields, login.as_ref(), request.url()).await?;
                authority.state().tokens.insert(access, token);
                Ok(())
            }
        }
    }

    /// Asks the token server.
    async fn token(
        &self,
        realm: &str,
        fields: [(&str, Option<&str>); 2],
        login: Option<&Login>,
        asked_for: &Url,
    ) -> Result<Token, StoreError> {
        let store = &self.authority.store;
        let mut url = Url::parse(realm)
            .map_err(|error| protocol(store, &format!("a token server {realm:?}: {error}")))?;
        if !is_realm_right(store, &url) {
            return Err(protocol(
                store,
                &format!("a token server that is asked without protection: {realm:?}"),
            ));
        }
        let fields = fields.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let request = match login {
            Some(Login::IdentityToken(token)) => {
                let mut form = Url::parse("form:").map_err(|error| protocol(store, &error.to_string()))?;
                form.query_pairs_mut()
                    .extend_pairs(fields)
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "mesh-bundles")
                    .append_pair("refresh_token", token.reveal());
                let body = form.query().unwrap_or_default().to_owned();
                self.http
                    .post(url.clone())
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(body)
            }
            login => {
                url.query_pairs_mut().extend_pairs(fields);
                let request = self.http.get(url.clone());
                match login.and_then(basic) {
                    Some(basic) => request.header(AUTHORIZATION, sensitive(&basic, store)?),
                    None => request,
                }
            }
        };
        let request = request.build().map_err(|error| super::client::unreachable(&url, error))?;
        let asked = Instant::now();
        let response = self.execute(request, &url).await?;
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(self.authority.unauthorized(response, asked_for).await);
        }
        let response = refused(response, &url, &[StatusCode::OK]).await?;
        let bytes = self.body(response, &url, MAX_TOKEN).await?;
        Token::read(&bytes, asked).ok_or_else(|| protocol(&url, "no token in the token server's answer"))
    }
}

fn sensitive(value: &str, store: &Url) -> Result<HeaderValue, StoreError> {
    let mut value = HeaderValue::from_str(value).map_err(|error| protocol(store, &error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Token {
    /// Out of a token server's answer.
    fn read(answer: &[u8], asked: Instant) -> Option<Self> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
            expires_in: Option<u64>,
        }
        let answer: Answer = serde_json::from_slice(answer).ok()?;
        let value = answer.token.or(answer.access_token).filter(|value| !value.is_empty())?;
        let life = answer.expires_in.map_or(DEFAULT_LIFE, Duration::from_secs);
        // A day is as good as for ever, and no sum of times overflows.
        let life = life.min(Duration::from_secs(86_400));
        Some(Self { value, until: asked + life.saturating_sub(MARGIN.min(life / 2)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_token_is_good_for_follows_from_the_request() {
        let access = |method: Method, url: &str| {
            Access::of(&method, &Url::parse(&format!("http://127.0.0.1:1{url}")).unwrap()).scope()
        };
        assert_eq!(access(Method::HEAD, "/v2/a/b/blobs/sha256:0").unwrap(), "repository:a/b:pull");
        assert_eq!(access(Method::POST, "/v2/a/blobs/uploads/").unwrap(), "repository:a:pull,push");
        assert_eq!(
            access(Method::PUT, "/v2/a/blobs/b/manifests/t").unwrap(),
            "repository:a/blobs/b:pull,push"
        );
        assert_eq!(access(Method::DELETE, "/v2/a/manifests/t").unwrap(), "repository:a:delete");
        assert_eq!(access(Method::GET, "/v2/"), None);
        assert_eq!(access(Method::GET, "/elsewhere/manifests/t"), None);
    }

    #[test]
    fn a_token_server_s_answer_is_read() {
        let now = Instant::now();
        let life =
            |answer: &str| Token::read(answer.as_bytes(), now).map(|token| (token.value, token.until - now));
        let seconds = Duration::from_secs;
        assert_eq!(life(r#"{"token":"t"}"#).unwrap(), ("t".to_owned(), seconds(55)));
        assert_eq!(life(r#"{"access_token":"a","expires_in":4}"#).unwrap(), ("a".to_owned(), seconds(2)));
        assert!(life(r#"{"token":"t","expires_in":18446744073709551615}"#).unwrap().1 < seconds(86_400));
        for bad in ["", "{}", r#"{"token":""}"#, r#"{"token":1}"#, "[]"] {
            assert!(Token::read(bad.as_bytes(), now).is_none());
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let token = Token { value: "seen".to_owned(), until: Instant::now() };
        let login = Login::IdentityToken(crate::store::Secret::new("seen"));
        assert!(!format!("{token:?} {login:?}").contains("seen"));
    }
}
