//! Sending one blob: in one streamed request, or in chunks where the store does not take that.
//!
//! In: a file or bytes, and their digest. Out: the blob in the store, which has checked the digest itself. A
//! transfer that fails is started afresh in a new session: what a broken session holds is not known (there are
//! registries that append a chunk wherever it was meant to go). Not here: whether a blob is needed.

use std::io::{self, SeekFrom};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use mesh_durable::checkpoint;
use mesh_protocol::id::Digest;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Body, Request, RequestBuilder, Response, StatusCode, Url};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, ReadBuf};
use tokio_util::io::ReaderStream;

use super::address::Repository;
use super::client::{Store, protocol, refused, unreachable};
use super::error::{StoreError, Trouble};
use crate::Progress;

/// What every registry takes: the largest chunk of the strictest (and the smallest of those that have a least one).
const CHUNK: u64 = 4 << 20;
/// What is read of a file at once: each reading is handed to another thread and back.
pub(super) const PORTION: usize = 256 << 10;
const OCTETS: &str = "application/octet-stream";

/// A blob to send.
pub(super) struct Blob<'a> {
    pub(super) content: Content<'a>,
    pub(super) digest: &'a Digest,
    pub(super) size: u64,
}

pub(super) enum Content<'a> {
    File(&'a Path),
    Bytes(Bytes),
}

/// How a blob goes over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    OneRequest,
    Chunks,
}

impl Store {
    /// Sends a blob, whether or not it is there.
    pub(super) async fn upload(
        &self,
        repository: &Repository,
        blob: &Blob<'_>,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        self.upload_as(repository, blob, Way::OneRequest, progress).await
    }

    pub(super) async fn upload_as(
        &self,
        repository: &Repository,
        blob: &Blob<'_>,
        mut way: Way,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let mut pauses = self.pauses.iter();
        loop {
            let error = match self.try_upload(repository, blob, way, progress).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match (&error, error.trouble()) {
                (_, Trouble::Surroundings) => {
                    let Some(pause) = pauses.next() else { return Err(error) };
                    tokio::time::sleep(*pause).await;
                }
                // These are how registries say that a request is too large.
                (StoreError::Refused { status: 405 | 411 | 413 | 416, .. }, _) if way == Way::OneRequest => {
                    way = Way::Chunks;
                }
                _ => return Err(error),
            }
        }
    }

    async fn try_upload(
        &self,
        repository: &Repository,
        blob: &Blob<'_>,
        way: Way,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let Some(session) = self.session(repository, blob).await? else {
            progress(blob.size, Some(blob.size));
            return Ok(());
        };
        let sent = match way {
            Way::OneRequest => self.finish(&session, blob, 0, progress).await,
            Way::Chunks => self.chunks(session.clone(), blob, progress).await,
        };
        if sent.is_err() {
            // Out of politeness only: a registry clears sessions away by itself.
            let _ignored = self.send(self.http.delete(session.clone()), &session).await;
        }
        sent
    }

    /// A session to upload in; none where the store took the blob from another of its repositories.
    async fn session(&self, repository: &Repository, blob: &Blob<'_>) -> Result<Option<Url>, StoreError> {
        let url = self.url(&format!("{repository}/blobs/uploads/"))?;
        if let Some(from) = self.mount_from.as_ref().filter(|from| *from != repository) {
            let mut mount = url.clone();
            let from = from.to_string();
            mount.query_pairs_mut().append_pair("mount", blob.digest.as_str()).append_pair("from", &from);
            let asked = self.send(self.http.post(mount.clone()).header(CONTENT_LENGTH, 0), &mount).await;
            // Who may not read there, or asks a store that knows of no mounts, sends it.
            match asked {
                Ok(response) if response.status() == StatusCode::CREATED => return Ok(None),
                Ok(response) if response.status() == StatusCode::ACCEPTED => {
                    return location(&mount, response.headers()).map(Some);
                }
                _ => {}
            }
        }
        let response = self.send(self.http.post(url.clone()).header(CONTENT_LENGTH, 0), &url).await?;
        let response = refused(response, &url, &[StatusCode::ACCEPTED]).await?;
        location(&url, response.headers()).map(Some)
    }

    async fn chunks(
        &self,
        mut session: Url,
        blob: &Blob<'_>,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let mut at = 0;
        while blob.size - at > CHUNK {
            let end = at + CHUNK;
            let request = self
                .http
                .patch(session.clone())
                .header(CONTENT_TYPE, OCTETS)
                .header("content-range", format!("{at}-{}", end - 1))
                .header(CONTENT_LENGTH, CHUNK);
            let response = self.stream(request, &session, blob, at..end, progress).await?;
            let response = refused(response, &session, &[StatusCode::ACCEPTED]).await?;
            let range = response.headers().get("range").and_then(|range| range.to_str().ok());
            if range != Some(&format!("0-{}", end - 1)) {
                return Err(protocol(&session, &format!("range {range:?} after {end} bytes")));
            }
            session = location(&session, response.headers())?;
            at = end;
        }
        self.finish(&session, blob, at, progress).await
    }

    /// The rest, and what the whole must be.
    async fn finish(
        &self,
        session: &Url,
        blob: &Blob<'_>,
        at: u64,
        progress: Progress<'_>,
    ) -> Result<(), StoreError> {
        let mut url = session.clone();
        url.query_pairs_mut().append_pair("digest", blob.digest.as_str());
        let request =
            self.http.put(url.clone()).header(CONTENT_TYPE, OCTETS).header(CONTENT_LENGTH, blob.size - at);
        let response = self.stream(request, &url, blob, at..blob.size, progress).await?;
        refused(response, &url, &[StatusCode::CREATED]).await.map(drop)
    }

    /// Sends a part of a blob, and once more where the store asks who sends it: a token may end in the middle of an
    /// upload.
    async fn stream(
        &self,
        request: RequestBuilder,
        url: &Url,
        blob: &Blob<'_>,
        part: std::ops::Range<u64>,
        progress: Progress<'_>,
    ) -> Result<Response, StoreError> {
        let build = |request: RequestBuilder| request.build().map_err(|error| unreachable(url, error));
        let mut request = build(request)?;
        let mut again = request.try_clone();
        let told = self.authority.sign(&mut request);
        let deed = format!("{} {}", request.method(), url.path());
        let sending = self.stream_once(request, url, blob, part.clone(), progress);
        let response = checkpoint::around_async(|| deed, sending).await?;
        let Some(mut again) = again.take().filter(|_| response.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(response);
        };
        self.challenged(response, &again, told.as_ref()).await?;
        self.authority.sign(&mut again);
        let response = self.stream_once(again, url, blob, part, progress).await?;
        if response.status() == StatusCode::UNAUTHORIZED {
            return Err(self.authority.unauthorized(response, url).await);
        }
        Ok(response)
    }

    /// Sends a part of a blob, as long as it moves.
    async fn stream_once(
        &self,
        mut request: Request,
        url: &Url,
        blob: &Blob<'_>,
        part: std::ops::Range<u64>,
        progress: Progress<'_>,
    ) -> Result<Response, StoreError> {
        let moved = Arc::new(AtomicU64::new(0));
        let body = match &blob.content {
            Content::Bytes(bytes) => {
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
                Body::from(bytes.slice(index(part.start)..index(part.end)))
            }
            Content::File(path) => {
                let failed = |source| StoreError::File { path: path.to_path_buf(), source };
                let mut file = tokio::fs::File::open(path).await.map_err(failed)?;
                let found = file.metadata().await.map_err(failed)?.len();
                if found != blob.size {
                    let path = path.to_path_buf();
                    return Err(StoreError::FileChanged { path, expected: blob.size, found });
                }
                file.seek(SeekFrom::Start(part.start)).await.map_err(failed)?;
                let counted = Counted { source: file.take(part.end - part.start), moved: Arc::clone(&moved) };
                Body::wrap_stream(Boxed(Box::pin(ReaderStream::with_capacity(counted, PORTION))))
            }
        };
        *request.body_mut() = Some(body);
        let mut answer = std::pin::pin!(self.http.execute(request));
        progress(part.start, Some(blob.size));
        let mut before = 0;
        let mut still = tokio::time::Instant::now();
        // Seldom enough to cost nothing, and often enough for who waits for the end of it.
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(10));
        loop {
            tokio::select! {
                // cancel safe: the request is pinned outside, and goes on with the next turn.
                answer = &mut answer => {
                    progress(part.end, Some(blob.size));
                    return answer.map_err(|error| unreachable(url, error));
                }
                // cancel safe: an interval keeps its time.
                _ = tick.tick() => {
                    let now = moved.load(Ordering::Relaxed);
                    if now > before {
                        (before, still) = (now, tokio::time::Instant::now());
                        progress(part.start + now, Some(blob.size));
                    }
                    if still.elapsed() > self.idle {
                        return Err(StoreError::Silent { url: url.to_string(), idle: self.idle });
                    }
                }
            }
        }
    }
}

/// Where to go on, which may be said relative to where we were.
fn location(url: &Url, headers: &HeaderMap) -> Result<Url, StoreError> {
    let said = headers.get(LOCATION).and_then(|location| location.to_str().ok());
    let said = said.ok_or_else(|| protocol(url, "an upload without a location"))?;
    let next = url.join(said).map_err(|error| protocol(url, &format!("location {said:?}: {error}")))?;
    if url.scheme() == "https" && next.scheme() != "https" {
        return Err(protocol(url, "an upload that is to go on without encryption"));
    }
    Ok(next)
}

/// A reader that tells how much went through it.
struct Counted<R> {
    source: R,
    moved: Arc<AtomicU64>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Counted<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.source).poll_read(context, buffer);
        self.moved.fetch_add((buffer.filled().len() - before) as u64, Ordering::Relaxed);
        read
    }
}

/// A stream of a type that need not be named.
struct Boxed(Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>);

impl Stream for Boxed {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_may_be_absolute_a_path_or_relative() {
        let url = Url::parse("http://127.0.0.1:5000/v2/r/blobs/uploads/").unwrap();
        let at = |said: &'static str| {
            location(&url, &HeaderMap::from_iter([(LOCATION, said.parse().unwrap())])).unwrap().to_string()
        };
        assert_eq!(
            at("http://127.0.0.1:5000/v2/r/blobs/uploads/1?_state=x"),
            "http://127.0.0.1:5000/v2/r/blobs/uploads/1?_state=x"
        );
        assert_eq!(at("/v2/r/blobs/uploads/1"), "http://127.0.0.1:5000/v2/r/blobs/uploads/1");
        assert_eq!(at("1?a=b"), "http://127.0.0.1:5000/v2/r/blobs/uploads/1?a=b");
        location(&url, &HeaderMap::new()).unwrap_err();
        let tls = Url::parse("https://store.example/v2/").unwrap();
        let plain = HeaderMap::from_iter([(LOCATION, "http://store.example/x".parse().unwrap())]);
        location(&tls, &plain).unwrap_err();
    }
}
