//! Stores that want to know who asks: a real registry with TLS and htpasswd, a real one with the token flow against a
//! token server of ours, and small ones that are stricter than either.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{RawQuery, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use reqwest::Url;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};

use super::*;

pub(super) const USER: &str = "publisher";
pub(super) const PASSWORD: &str = "open sesame";
/// bcrypt, cost 5, of [`PASSWORD`].
const HTPASSWD: &str = "publisher:$2b$05$mesh.bundles.tests.saeovznmbdBnNkfGzOn4wvh9ubNEUnWAUG\n";

fn given(password: &str) -> Credentials {
    Credentials::Given(Login::Password { user: USER.to_owned(), password: Secret::new(password) })
}

pub(super) fn client(address: &str, credentials: Credentials, roots: &str) -> Store {
    let address = StoreAddress::parse(address, PlainHttp::LoopbackOnly).unwrap();
    let roots = roots.as_bytes().to_vec();
    Store::new(address, &Options { credentials, roots, ..quick() }).unwrap()
}

struct Artifact {
    folder: tempfile::TempDir,
    packed: Packed,
}

fn artifact() -> Artifact {
    let folder = tempfile::tempdir().unwrap();
    let packed = packed(a_bundle("prog", "1.0"), &folder.path().join("b"));
    Artifact { folder, packed }
}

impl Artifact {
    async fn publish(&self, store: &Store) -> Result<Published, StoreError> {
        let archive = self.folder.path().join("b");
        let Packed { digest, size, config, .. } = &self.packed;
        let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
        store.publish(&publication, SILENT).await
    }

    async fn fetch(&self, store: &Store) -> Result<u64, StoreError> {
        let out = self.folder.path().join("out");
        store.fetch(&"prog".parse().unwrap(), &self.packed.digest, &out, 1 << 30, SILENT).await
    }
}

/// A registry that speaks TLS and knows one name; its address and the certificate to trust.
pub(super) fn with_tls_and_htpasswd() -> (Registry, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let root = made.cert.pem();
    std::fs::write(at("certificate"), &root).unwrap();
    std::fs::write(at("key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(at("htpasswd"), HTPASSWD).unwrap();
    let http = format!("  tls:\n    certificate: {}\n    key: {}\n", at("certificate"), at("key"));
    let auth = format!("auth:\n  htpasswd:\n    realm: mesh\n    path: {}\n", at("htpasswd"));
    let registry = Registry::configured(folder, &http, &auth);
    let address = format!("https://{}", registry.address);
    (registry, address, root)
}

#[tokio::test]
async fn tls_and_htpasswd() {
    let (registry, address, root) = with_tls_and_htpasswd();
    let artifact = artifact();
    let store = client(&address, given(PASSWORD), &root);
    store.ping().await.unwrap();
    artifact.publish(&store).await.unwrap();
    assert_eq!(artifact.fetch(&store).await.unwrap(), artifact.packed.size);
    // By name: neither the certificate nor the family of addresses is in the way.
    let by_name = client(&format!("https://localhost:{}", registry.address.port()), given(PASSWORD), &root);
    artifact.fetch(&by_name).await.unwrap();

    let nobody = client(&address, Credentials::Anonymous, &root);
    let error = nobody.ping().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unauthorized { found, .. } if found.starts_with("none are known for 127.0.0.1")),
        "{error}"
    );
    let error = artifact.fetch(&client(&address, given("wrong"), &root)).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unauthorized { found, .. } if found.starts_with("the credentials of \"publisher\" were refused")),
        "{error}"
    );
    assert_eq!(error.trouble(), Trouble::Refused);
    assert!(!error.to_string().contains("wrong"), "{error}");
    // A certificate that nobody vouches for is no store; and plain HTTP is not tried instead.
    let error = client(&address, given(PASSWORD), "").ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn credentials_are_found_where_other_tools_keep_them() {
    let (registry, address, root) = with_tls_and_htpasswd();
    let artifact = artifact();
    let auth = BASE64.encode(format!("{USER}:{PASSWORD}").as_bytes());
    let file = artifact.folder.path().join("config.json");
    let text = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.address);
    std::fs::write(&file, text).unwrap();
    let kept = Credentials::Kept(Keychain::of_file(&file));
    artifact.publish(&client(&address, kept.clone(), &root)).await.unwrap();
    std::fs::write(&file, "{").unwrap();
    let error = client(&address, kept, &root).ping().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unauthorized { found, .. } if found.contains("config.json is not valid")),
        "{error}"
    );
}

/// A token server for a real registry.
struct TokenServer {
    key: EcdsaKeyPair,
    certificate: Vec<u8>,
    issued: Mutex<Vec<String>>,
}

impl TokenServer {
    async fn start() -> (SocketAddr, Arc<Self>, String) {
        let made = rcgen::generate_simple_self_signed(["token server".to_owned()]).unwrap();
        let pkcs8 = made.signing_key.serialize_der();
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &pkcs8, &random).unwrap();
        let server =
            Arc::new(Self { key, certificate: made.cert.der().to_vec(), issued: Mutex::new(Vec::new()) });
        let router = Router::new().fallback(Self::answer).with_state(Arc::clone(&server));
        (serve(router).await, server, made.cert.pem())
    }

    /// Everybody may pull; who knows the password, or has been given the token, may push too.
    async fn answer(State(server): State<Arc<Self>>, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let query = match parts.method {
            Method::POST => String::from_utf8(body.to_vec()).unwrap(),
            _ => parts.uri.query().unwrap_or_default().to_owned(),
        };
        let fields: Vec<(String, String)> = Url::parse(&format!("form:?{query}"))
            .unwrap()
            .query_pairs()
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let basic = format!("Basic {}", BASE64.encode(format!("{USER}:{PASSWORD}").as_bytes()));
        let said = parts.headers.get(header::AUTHORIZATION).map(|value| value.to_str().unwrap());
        let known = said == Some(&basic)
            || (field("grant_type") == Some("refresh_token") && field("refresh_token") == Some("identity"));
        if !known && (said.is_some() || parts.method == Method::POST) {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let scope = field("scope").unwrap_or_default();
        // A registry names the actions in any order.
        let noted = scope.rsplit_once(':').map_or_else(String::new, |(name, actions)| {
            let mut actions: Vec<&str> = actions.split(',').collect();
            actions.sort_unstable();
            format!("{name}:{}", actions.join(","))
        });
        server.issued.lock().unwrap().push(format!("{} {noted}", parts.method));
        let token = server.token(field("service").unwrap(), scope, known);
        format!(r#"{{"token":"{token}","expires_in":300}}"#).into_response()
    }

    fn token(&self, service: &str, scope: &str, may_push: bool) -> String {
        let access = scope.rsplit_once(':').and_then(|(name, actions)| {
            let name = name.strip_prefix("repository:")?;
            let actions: Vec<_> = actions
                .split(',')
                .filter(|action| may_push || *action == "pull")
                .map(|action| format!("\"{action}\""))
                .collect();
            Some(format!(r#"{{"type":"repository","name":"{name}","actions":[{}]}}"#, actions.join(",")))
        });
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let head = format!(r#"{{"typ":"JWT","alg":"ES256","x5c":["{}"]}}"#, BASE64.encode(&self.certificate));
        let claims = format!(
            r#"{{"iss":"mesh-tests","sub":"x","aud":"{service}","exp":{},"nbf":{},"iat":{now},"jti":"{}","access":[{}]}}"#,
            now + 300,
            now - 10,
            self.issued.lock().unwrap().len(),
            access.unwrap_or_default(),
        );
        let signed = format!(
            "{}.{}",
            BASE64URL_NOPAD.encode(head.as_bytes()),
            BASE64URL_NOPAD.encode(claims.as_bytes())
        );
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", BASE64URL_NOPAD.encode(signature.as_ref()))
    }
}

pub(super) async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn the_token_flow_of_a_real_registry() {
    let (server, issuer, certificate) = TokenServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("issuer");
    std::fs::write(&bundle, certificate).unwrap();
    let auth = format!(
        "auth:\n  token:\n    realm: http://{server}/token\n    service: a store\n    issuer: mesh-tests\n    rootcertbundle: {}\n",
        bundle.display()
    );
    let registry = Registry::configured(folder, "", &auth);
    let address = registry.address.to_string();
    let artifact = artifact();
    let issued = || std::mem::take(&mut *issuer.issued.lock().unwrap());

    // With nothing known, nothing can be pushed, and it is said why.
    let nobody = client(&address, Credentials::Anonymous, "");
    let error = artifact.publish(&nobody).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unauthorized { found, .. } if found.contains("none are known")),
        "{error}"
    );
    // All looks go at once there, and so do the archive and the configuration: one of each asks for all.
    assert_eq!(issued(), ["GET repository:prog:pull", "GET repository:prog:pull,push"]);
    let error = artifact.publish(&client(&address, given("wrong"), "")).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::Unauthorized { found, .. } if found.contains("were refused")),
        "{error}"
    );

    issued();
    let store = client(&address, given(PASSWORD), "");
    artifact.publish(&store).await.unwrap();
    // One token to look and one to push, whatever the number of requests.
    assert_eq!(issued(), ["GET repository:prog:pull", "GET repository:prog:pull,push"]);
    assert_eq!(artifact.publish(&store).await.unwrap().done, []);
    assert_eq!(issued(), [""; 0]);

    // Everybody may fetch.
    artifact.fetch(&nobody).await.unwrap();
    // An identity token is changed for one by a form.
    let identity = client(&address, Credentials::Given(Login::IdentityToken(Secret::new("identity"))), "");
    issued();
    artifact.fetch(&identity).await.unwrap();
    assert_eq!(issued(), ["POST repository:prog:pull"]);
    // And one that the store takes as it is goes there at once.
    let token = issuer.token("a store", "repository:prog:pull", true);
    let registry_token = client(&address, Credentials::Given(Login::RegistryToken(Secret::new(token))), "");
    artifact.fetch(&registry_token).await.unwrap();
    assert_eq!(issued(), [""; 0]);
}

/// A store of one upload whose tokens are good for three requests each, and which takes chunks only.
#[derive(Default)]
struct Strict {
    at: Mutex<Option<SocketAddr>>,
    tokens: AtomicU64,
    uses: AtomicU64,
    have: Mutex<Vec<u8>>,
    refused: AtomicU64,
}

impl Strict {
    async fn answer(
        State(strict): State<Arc<Self>>,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        let at = strict.at.lock().unwrap().unwrap();
        if method == Method::GET {
            let token = strict.tokens.fetch_add(1, Ordering::SeqCst) + 1;
            strict.uses.store(3, Ordering::SeqCst);
            return format!(r#"{{"access_token":"{token}","expires_in":3600}}"#).into_response();
        }
        let token = format!("Bearer {}", strict.tokens.load(Ordering::SeqCst));
        let right = headers.get(header::AUTHORIZATION).is_some_and(|said| said.to_str().unwrap() == token);
        if !right || strict.uses.load(Ordering::SeqCst) == 0 {
            strict.refused.fetch_add(1, Ordering::SeqCst);
            let challenge = format!("Bearer realm=\"http://{at}/token\",service=s");
            return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
        }
        strict.uses.fetch_sub(1, Ordering::SeqCst);
        let location = (header::LOCATION, "session".to_owned());
        let mut have = strict.have.lock().unwrap();
        match method {
            Method::PUT if have.is_empty() => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
            Method::PUT => {
                have.extend_from_slice(&body);
                StatusCode::CREATED.into_response()
            }
            Method::PATCH => {
                have.extend_from_slice(&body);
                let range = (header::RANGE, format!("0-{}", have.len() - 1));
                (StatusCode::ACCEPTED, [location, range]).into_response()
            }
            _ => (StatusCode::ACCEPTED, [location]).into_response(),
        }
    }
}

#[tokio::test]
async fn a_token_that_ends_in_the_middle_of_an_upload_is_renewed() {
    let strict = Arc::new(Strict::default());
    let router = Router::new()
        .fallback(Strict::answer)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(Arc::clone(&strict));
    let address = serve(router).await;
    *strict.at.lock().unwrap() = Some(address);
    let store = client(&address.to_string(), given(PASSWORD), "");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blob");
    let content = crate::testing::some_bytes((21 << 20) + 5);
    std::fs::write(&file, &content).unwrap();
    let digest = Digest::of(&content);
    let blob =
        upload::Blob { content: upload::Content::File(&file), digest: &digest, size: content.len() as u64 };
    store.upload(&"prog".parse().unwrap(), &blob, SILENT).await.unwrap();
    assert!(*strict.have.lock().unwrap() == content);
    // Nine requests and more, three a token: refused once at the beginning and each time that a token ended.
    assert!(strict.tokens.load(Ordering::SeqCst) >= 3);
    assert_eq!(strict.refused.load(Ordering::SeqCst), strict.tokens.load(Ordering::SeqCst));
}

/// What was asked with which authorization.
type Seen = Arc<Mutex<Vec<(String, bool)>>>;

fn noting(seen: &Seen, answer: impl Fn(&Method, &str) -> Response + Clone + Send + Sync + 'static) -> Router {
    let seen = Arc::clone(seen);
    Router::new().fallback(
        move |method: Method, RawQuery(_): RawQuery, headers: HeaderMap, uri: axum::http::Uri| {
            let (seen, answer) = (Arc::clone(&seen), answer.clone());
            async move {
                let authorized = headers.contains_key(header::AUTHORIZATION);
                seen.lock().unwrap().push((format!("{method} {}", uri.path()), authorized));
                if !authorized && uri.path().starts_with("/v2/") {
                    return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=x")])
                        .into_response();
                }
                answer(&method, uri.path())
            }
        },
    )
}

#[tokio::test]
async fn credentials_go_to_no_other_host() {
    let elsewhere = Seen::default();
    let content = b"content";
    let storage = serve(noting(&elsewhere, |method, _| match *method {
        Method::GET => content.as_slice().into_response(),
        _ => StatusCode::CREATED.into_response(),
    }))
    .await;
    let asked = Seen::default();
    let registry = serve(noting(&asked, move |method, _| {
        let location = [(header::LOCATION, format!("http://{storage}/data"))];
        match *method {
            Method::GET => (StatusCode::TEMPORARY_REDIRECT, location).into_response(),
            _ => (StatusCode::ACCEPTED, location).into_response(),
        }
    }))
    .await;
    let store = client(&registry.to_string(), given(PASSWORD), "");
    let repository = "prog".parse().unwrap();
    let digest = Digest::of(content);
    assert_eq!(store.verify(&repository, &digest, 100, SILENT).await.unwrap(), 7);
    let blob =
        upload::Blob { content: upload::Content::Bytes(content.as_slice().into()), digest: &digest, size: 7 };
    store.upload(&repository, &blob, SILENT).await.unwrap();
    let seen = |seen: &Seen| std::mem::take(&mut *seen.lock().unwrap());
    let data = |method: &str| (format!("{method} /data"), false);
    assert_eq!(seen(&elsewhere), [data("GET"), data("PUT")]);
    let blob = format!("GET /v2/prog/blobs/{digest}");
    let post = "POST /v2/prog/blobs/uploads/".to_owned();
    assert_eq!(seen(&asked), [(blob.clone(), false), (blob, true), (post, true)]);
}

#[tokio::test]
async fn a_token_server_without_protection_is_not_asked() {
    let router = Router::new().fallback(|| async {
        let challenge = "Bearer realm=\"http://auth.example/token\",service=s";
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)])
    });
    let address = serve(router).await;
    let error = client(&address.to_string(), given(PASSWORD), "").ping().await.unwrap_err();
    assert!(matches!(&error, StoreError::Protocol { what, .. } if what.contains("auth.example")), "{error}");
}

#[tokio::test]
async fn a_login_that_is_wrong_is_told_once() {
    let told = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&told);
    let router = Router::new().fallback(move |headers: HeaderMap| {
        let is_told = headers.contains_key(header::AUTHORIZATION);
        counting.fetch_add(u64::from(is_told), Ordering::SeqCst);
        async { (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=x")]) }
    });
    let address = serve(router).await.to_string();
    let error = artifact().publish(&client(&address, given("wrong"), "")).await.unwrap_err();
    assert!(matches!(error, StoreError::Unauthorized { .. }), "{error}");
    assert_eq!(told.load(Ordering::SeqCst), 1);
}
