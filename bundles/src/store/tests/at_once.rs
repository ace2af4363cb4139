//! What publishing does at once, and what it waits for: a small store that notes in which order it took and gave things,
//! and that holds up one until the other has been done, where both should be under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};

use super::authorization::serve;
use super::*;

/// Longer than anything here takes, and shorter than a test may.
const LIMIT: Duration = Duration::from_secs(20);
/// The manifest gets there before the archive's last byte was read back, and under no tag.
const UNTIL_READ_BACK: [&str; 5] =
    ["took config", "gave config", "took archive", "put manifest", "gave archive"];
const UPLOADS: &str = "/v2/prog/blobs/uploads/";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// The configuration is not taken, and the archive's upload never ends.
    RefusesConfig,
    /// The archive is given back with another byte.
    DamagesArchive,
    /// The archive is given back without its last bytes.
    ShortensArchive,
}

struct Small {
    fault: Fault,
    archive: Digest,
    noted: Mutex<Vec<String>>,
    content: Mutex<BTreeMap<String, Bytes>>,
}

impl Small {
    fn note(&self, what: impl Into<String>) {
        self.noted.lock().unwrap().push(what.into());
    }

    async fn until(&self, noted: &str) {
        while !self.noted.lock().unwrap().iter().any(|one| one == noted) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn answer(State(small): State<Arc<Self>>, method: Method, uri: Uri, body: Bytes) -> Response {
        let path = uri.path();
        match method {
            Method::POST => {
                (StatusCode::ACCEPTED, [(header::LOCATION, format!("{UPLOADS}session"))]).into_response()
            }
            Method::PUT if path.starts_with(UPLOADS) => {
                let (_, digest) = uri.query().unwrap().split_once("digest=").unwrap();
                small.take(&digest.replace("%3A", ":"), body).await
            }
            Method::PUT => {
                let (_, name) = path.rsplit_once('/').unwrap();
                let known = if name.starts_with("sha256:") { "manifest" } else { name };
                small.note(format!("put {known}"));
                small.content.lock().unwrap().insert(path.to_owned(), body);
                StatusCode::CREATED.into_response()
            }
            Method::GET | Method::HEAD => {
                let found = small.content.lock().unwrap().get(path).cloned();
                match found {
                    Some(bytes) => small.give(&method, path, bytes),
                    None => StatusCode::NOT_FOUND.into_response(),
                }
            }
            _ => StatusCode::NO_CONTENT.into_response(),
        }
    }

    async fn take(&self, digest: &str, body: Bytes) -> Response {
        let what = self.called(digest);
        match (what, self.fault) {
            ("config", Fault::RefusesConfig) => return StatusCode::FORBIDDEN.into_response(),
            ("config", _) => {}
            _ => self.until("gave config").await,
        }
        self.content.lock().unwrap().insert(format!("/v2/prog/blobs/{digest}"), body);
        self.note(format!("took {what}"));
        StatusCode::CREATED.into_response()
    }

    fn called(&self, digest: &str) -> &'static str {
        if digest == self.archive.as_str() { "archive" } else { "config" }
    }

    fn give(self: Arc<Self>, method: &Method, path: &str, bytes: Bytes) -> Response {
        let length = [(header::CONTENT_LENGTH, bytes.len())];
        let Some(digest) = path.strip_prefix("/v2/prog/blobs/").filter(|_| *method == Method::GET) else {
            return (length, bytes).into_response();
        };
        let what = self.called(digest);
        let is_short = self.fault == Fault::ShortensArchive && what == "archive";
        let bytes = if is_short { bytes.slice(..bytes.len() - 10) } else { bytes };
        let length = [(header::CONTENT_LENGTH, bytes.len())];
        let (first, last) = (bytes.slice(1..), bytes[0]);
        let damaged = self.fault == Fault::DamagesArchive && what == "archive";
        let mut whole = [&[if damaged { !last } else { last }][..], &first].concat();
        let end = whole.split_off(whole.len() - 1);
        let parts = stream::iter([(false, whole), (true, end)]).then(move |(is_end, part)| {
            let small = Arc::clone(&self);
            async move {
                if is_end {
                    if what == "archive" {
                        small.until("put manifest").await;
                    }
                    small.note(format!("gave {what}"));
                }
                Ok::<_, std::io::Error>(part)
            }
        });
        (length, Body::from_stream(parts)).into_response()
    }
}

/// What came of publishing into such a store, and what it noted.
async fn published(fault: Fault) -> (Result<Published, StoreError>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let Packed { digest, size, config, .. } = packed(a_bundle("prog", "1.0"), &archive);
    let (noted, content) = (Mutex::default(), Mutex::default());
    let small = Arc::new(Small { fault, archive: digest.clone(), noted, content });
    let router = Router::new()
        .fallback(Small::answer)
        .layer(DefaultBodyLimit::disable())
        .with_state(Arc::clone(&small));
    let store = store(serve(router).await);
    let publication =
        Publication { archive: &archive, digest: &digest, size, config: &config, created: None };
    let publishing = store.publish(&publication, SILENT);
    let published =
        tokio::time::timeout(LIMIT, publishing).await.expect("nothing waits for what comes later");
    let noted = std::mem::take(&mut *small.noted.lock().unwrap());
    (published, noted)
}

#[tokio::test]
async fn the_configuration_goes_with_the_archive_and_no_tag_before_the_archive_was_read_back() {
    let (published, noted) = published(Fault::None).await;
    published.unwrap();
    let mut all = UNTIL_READ_BACK.to_vec();
    all.extend(["put 1.0-linux-amd64", "put 1.0"]);
    assert_eq!(noted, all);
}

#[tokio::test]
async fn what_is_refused_ends_what_is_done_beside_it() {
    let (published, noted) = published(Fault::RefusesConfig).await;
    let error = published.unwrap_err();
    assert!(matches!(error, StoreError::Refused { status: 403, .. }), "{error}");
    assert_eq!(noted, [""; 0]);
}

#[tokio::test]
async fn an_archive_that_comes_back_as_another_gets_no_tag_and_no_index() {
    for fault in [Fault::DamagesArchive, Fault::ShortensArchive] {
        let (published, noted) = published(fault).await;
        let error = published.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Corrupted, "{error}");
        assert_eq!(noted, UNTIL_READ_BACK);
        match error {
            StoreError::Differs { at: 0, path, .. } if fault == Fault::DamagesArchive => {
                assert!(path.ends_with("b"));
            }
            StoreError::WrongSize { expected, found, .. } => assert_eq!(found, expected - 10),
            other => panic!("{other}"),
        }
    }
}
