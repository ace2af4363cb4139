//! Fetching a bundle: from a store, by its digest alone, into a file that is whole or not there.
//!
//! In: a repository, a digest, a name for the file. Out: the file, on the disk, with that digest. A transfer that
//! is cut goes on where it was, as long as each try brings something; what came is hashed as it comes. Not here:
//! unpacking, and trying again later.

use std::io;
use std::path::Path;

use bytes::Bytes;
use mesh_protocol::id::Digest;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE};
use reqwest::{Response, StatusCode, Url};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::address::Repository;
use super::client::{Store, number, protocol, refused, same};
use super::comparing::Comparing;
use super::digesting::Digesting;
use super::error::{StoreError, Trouble};
use crate::files::{Beside, check_room, folder_of};
use crate::{Progress, SILENT};

/// How often a store may give parts that do not go with what came before.
const MAX_RESTARTS: usize = 2;

/// What is found out of what comes.
enum Check {
    /// Its digest.
    Digest(Digesting),
    /// Where it differs from a file.
    Same(Comparing),
}

/// Where bytes go, and what is known of them.
struct Target<'a> {
    what: String,
    path: &'a Path,
    file: Option<tokio::fs::File>,
    check: Check,
    have: u64,
    total: Option<u64>,
    /// Tells whether a further part is of the same content.
    etag: Option<HeaderValue>,
    limit: u64,
    progress: Progress<'a>,
}

impl Store {
    /// Fetches the bundle `digest` into a new file; at most `limit` bytes. Returns its length.
    ///
    /// # Errors
    /// When it is not there, is something else, or the store or the disk fails. Then there is no new file.
    pub async fn fetch(
        &self,
        repository: &Repository,
        digest: &Digest,
        output: &Path,
        limit: u64,
        progress: Progress<'_>,
    ) -> Result<u64, StoreError> {
        let failed = |source| StoreError::File { path: output.to_path_buf(), source };
        let mut beside = Beside::create(output).map_err(failed)?;
        let file = tokio::fs::File::from_std(beside.as_file().try_clone().map_err(failed)?);
        let mut target = Target::new(repository, digest, output, limit, progress);
        target.file = Some(file);
        let length = self.transfer(repository, digest, target).await?;
        let committed = tokio::task::spawn_blocking(move || beside.commit()).await;
        committed.map_err(|error| failed(io::Error::other(error)))?.map_err(failed)?;
        Ok(length)
    }

    /// Reads a bundle in the store to its end, keeps nothing, and returns its length.
    ///
    /// # Errors
    /// When it is not there, is something else, or the store fails.
    pub async fn verify(
        &self,
        repository: &Repository,
        digest: &Digest,
        limit: u64,
        progress: Progress<'_>,
    ) -> Result<u64, StoreError> {
        let target = Target::new(repository, digest, Path::new(""), limit, progress);
        self.transfer(repository, digest, target).await
    }

    /// Reads a bundle in the store to its end, beside the file of this size that it was sent from: what comes back has the
    /// digest of the file, which whoever sent it knows.
    ///
    /// # Errors
    /// When it is not there, is not what the file is, or the store or the disk fails.
    pub(super) async fn read_back(
        &self,
        repository: &Repository,
        digest: &Digest,
        (file, size): (&Path, u64),
    ) -> Result<(), StoreError> {
        let mut target = Target::new(repository, digest, file, size, SILENT);
        let what = target.what.clone();
        target.check = Check::Same(Comparing::with(file)?);
        match self.transfer(repository, digest, target).await? {
            found if found == size => Ok(()),
            found => Err(StoreError::WrongSize { what, expected: size, found }),
        }
    }

    /// Brings the whole, and returns its length.
    async fn transfer(
        &self,
        repository: &Repository,
        digest: &Digest,
        mut target: Target<'_>,
    ) -> Result<u64, StoreError> {
        let url = self.url(&format!("{repository}/blobs/{digest}"))?;
        let mut pauses = self.pauses.iter();
        let mut restarts = 0;
        loop {
            let before = target.have;
            match self.part(&url, &mut target).await {
                Ok(Part::Whole) => return target.finish(digest).await,
                Ok(Part::Some) if target.have > before => {}
                Ok(Part::Some) => return Err(protocol(&url, "an empty part of a bundle that is longer")),
                Ok(Part::StartOver) if restarts < MAX_RESTARTS => {
                    restarts += 1;
                    target.start_over().await?;
                }
                Ok(Part::StartOver) => {
                    return Err(protocol(&url, "parts that do not go together, again and again"));
                }
                Err(error) if error.trouble() == Trouble::Surroundings => {
                    if target.have > before {
                        pauses = self.pauses.iter();
                    }
                    let Some(pause) = pauses.next() else { return Err(error) };
                    tokio::time::sleep(*pause).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One request: from where we are, as far as it goes.
    async fn part(&self, url: &Url, target: &mut Target<'_>) -> Result<Part, StoreError> {
        let mut request = self.http.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        if target.have > 0 {
            request = request.header(RANGE, format!("bytes={}-", target.have));
            if let Some(etag) = &target.etag {
                request = request.header(IF_RANGE, etag.clone());
            }
        }
        let right = [
            StatusCode::OK,
            StatusCode::PARTIAL_CONTENT,
            StatusCode::NOT_FOUND,
            StatusCode::RANGE_NOT_SATISFIABLE,
        ];
        let mut response = refused(self.send(request, url).await?, url, &right).await?;
        match response.status() {
            StatusCode::NOT_FOUND => return Err(StoreError::NotFound { what: target.what.clone() }),
            StatusCode::RANGE_NOT_SATISFIABLE if target.have > 0 => {
                let whole = range_total(response.headers()) == Some(target.have);
                return Ok(if whole { Part::Whole } else { Part::StartOver });
            }
            StatusCode::RANGE_NOT_SATISFIABLE => {
                return Err(protocol(url, "416 to a request without a range"));
            }
            StatusCode::PARTIAL_CONTENT => {
                if range_start(response.headers()) != Some(target.have) {
                    return Err(protocol(url, "a part that was not asked for"));
                }
                target.total = range_total(response.headers());
            }
            _ => {
                if target.have > 0 {
                    target.start_over().await?;
                }
                target.total = number(response.headers(), "content-length");
                target.etag =
                    response.headers().get(ETAG).filter(|etag| !etag.as_bytes().starts_with(b"W/")).cloned();
            }
        }
        target.within_limit(target.total.unwrap_or(0))?;
        target.check_room()?;
        self.take(&mut response, url, target).await?;
        match target.total {
            Some(total) if total > target.have => Ok(Part::Some),
            _ => Ok(Part::Whole),
        }
    }

    async fn take(
        &self,
        response: &mut Response,
        url: &Url,
        target: &mut Target<'_>,
    ) -> Result<(), StoreError> {
        while let Some(bytes) = self.chunk(response, url).await? {
            target.put(bytes).await?;
        }
        Ok(())
    }
}

/// What one request brought.
enum Part {
    /// All that there is.
    Whole,
    /// Less than that, and properly ended.
    Some,
    /// Something that does not go with what we have.
    StartOver,
}

impl<'a> Target<'a> {
    fn new(
        repository: &Repository,
        digest: &Digest,
        path: &'a Path,
        limit: u64,
        progress: Progress<'a>,
    ) -> Self {
        Self {
            what: format!("bundle {repository}@{digest}"),
            path,
            file: None,
            check: Check::Digest(Digesting::begin()),
            have: 0,
            total: None,
            etag: None,
            limit,
            progress,
        }
    }

    async fn put(&mut self, bytes: Bytes) -> Result<(), StoreError> {
        let length = bytes.len() as u64;
        self.within_limit(self.have + length)?;
        match &mut self.check {
            // A portion shares its memory with whoever hashes it.
            Check::Digest(digesting) => digesting.put(bytes.clone()).await,
            Check::Same(comparing) => comparing.put(&bytes)?,
        }
        if let Some(file) = &mut self.file {
            file.write_all(&bytes)
                .await
                .map_err(|source| StoreError::File { path: self.path.to_path_buf(), source })?;
        }
        self.have += length;
        (self.progress)(self.have, self.total);
        Ok(())
    }

    fn within_limit(&self, size: u64) -> Result<(), StoreError> {
        if size <= self.limit {
            return Ok(());
        }
        Err(StoreError::TooLarge { what: self.what.clone(), limit: self.limit })
    }

    /// Is there room on the disk for what is still to come?
    fn check_room(&self) -> Result<(), StoreError> {
        let Some(left) = self.total.and_then(|total| total.checked_sub(self.have)) else { return Ok(()) };
        if self.file.is_none() {
            return Ok(());
        }
        check_room(folder_of(self.path), left)
            .map_err(|source| StoreError::File { path: self.path.to_path_buf(), source })
    }

    async fn start_over(&mut self) -> Result<(), StoreError> {
        let failed = |source| StoreError::File { path: self.path.to_path_buf(), source };
        if let Some(file) = &mut self.file {
            file.flush().await.map_err(failed)?;
            file.set_len(0).await.map_err(failed)?;
            file.rewind().await.map_err(failed)?;
        }
        match &mut self.check {
            Check::Digest(digesting) => *digesting = Digesting::begin(),
            Check::Same(comparing) => comparing.start_over()?,
        }
        (self.have, self.total, self.etag) = (0, None, None);
        Ok(())
    }

    /// Is it what it should be? Then its length.
    async fn finish(self, expected: &Digest) -> Result<u64, StoreError> {
        if let Some(mut file) = self.file {
            let failed = |source| StoreError::File { path: self.path.to_path_buf(), source };
            file.flush().await.map_err(failed)?;
        }
        match self.check {
            Check::Digest(digesting) => same(self.what, expected, digesting.finish().await)?,
            Check::Same(comparing) => comparing.finish(self.what)?,
        }
        Ok(self.have)
    }
}

/// The first byte of `Content-Range: bytes 5-9/10`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    range.split_once('-')?.0.parse().ok()
}

/// The length of the whole, of `bytes 5-9/10` or `bytes */10`.
fn range_total(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.rsplit_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read() {
        let headers =
            |range: &'static str| HeaderMap::from_iter([(CONTENT_RANGE, HeaderValue::from_static(range))]);
        assert_eq!(range_start(&headers("bytes 5-9/10")), Some(5));
        assert_eq!(range_total(&headers("bytes 5-9/10")), Some(10));
        assert_eq!(range_total(&headers("bytes */10")), Some(10));
        assert_eq!(range_start(&headers("bytes */10")), None);
    }
}
