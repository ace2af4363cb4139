//! Images: is it there, put it there, take it away.
//!
//! In: references, ids, archives as streams of bytes. Out: [`Image`]s as the engine has them. Not here: what an
//! archive is made of. An image's id is the engine's own and differs between engines: compare by label.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::errors::Error as ClientError;
use bollard::query_parameters::{
    CreateImageOptionsBuilder, ImportImageOptionsBuilder, ListImagesOptionsBuilder, RemoveImageOptionsBuilder,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;

use crate::container::LabelSelector;
use crate::engine::{Engine, QUICK, WORK};
use crate::error::Error;

/// A load reads from this machine and writes to it: five minutes are gigabytes even on a slow disk.
const LOAD: Duration = Duration::from_secs(300);

/// Whoever loads against somebody who takes the same image away again and again gives up after so many times.
const LOADS: u32 = 10;

/// An image in the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The engine's id of it: `sha256:…`.
    pub id: String,
    /// The references that name it, as the engine shortens them: `registry:2.8.3`.
    pub references: Vec<String>,
    /// The labels of its configuration.
    pub labels: BTreeMap<String, String>,
    /// Its bytes, unpacked.
    pub size: u64,
}

/// What became of an image that was to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageRemoved {
    /// It, or the reference that was given, is no more.
    Removed,
    /// It was not there.
    Gone,
    /// A container or another reference holds it.
    InUse {
        /// What the engine said.
        message: String,
    },
}

impl Engine {
    /// Looks for an image by its reference or its full id.
    ///
    /// # Errors
    /// When the engine does not answer; that there is none is `None`.
    pub async fn find_image(&self, reference: &str) -> Result<Option<Image>, Error> {
        let what = format!("find image {reference:?}");
        check_reference(&what, reference)?;
        match self.ask(&what, QUICK, self.client.inspect_image(reference)).await {
            Ok(found) => {
                let references = found.repo_tags.unwrap_or_default();
                let id = found.id.unwrap_or_default();
                if is_beginning_of(&id, reference) && !references.contains(&with_tag(reference)) {
                    return Ok(None);
                }
                Ok(Some(Image {
                    id,
                    references,
                    labels: found.config.and_then(|c| c.labels).unwrap_or_default().into_iter().collect(),
                    size: found.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0),
                }))
            }
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts the images of an archive (`docker save`'s format) into the engine, which reads what `open` gives. Loading
    /// what is there already changes nothing.
    ///
    /// The engine makes an image and names it one after the other. Where the same image has one name more, and somebody
    /// takes that away in between, it takes the image with it, and says of the load that all is well: what was loaded is
    /// looked for, and loaded once more where it is not there.
    ///
    /// # Errors
    /// When the archive cannot be read or the engine does not take it; or when what was loaded is gone each time.
    pub async fn load_image<R, F>(&self, open: impl Fn() -> F) -> Result<Vec<Image>, Error>
    where
        R: AsyncRead + Send + 'static,
        F: Future<Output = io::Result<R>>,
    {
        let mut loads = 1;
        loop {
            let archive = open().await.map_err(|source| Error::Archive { source })?;
            match self.load_once(archive).await {
                Err(Error::NotFound { .. }) if loads < LOADS => loads += 1,
                other => return other,
            }
        }
    }

    async fn load_once<R>(&self, archive: R) -> Result<Vec<Image>, Error>
    where
        R: AsyncRead + Send + 'static,
    {
        let what = "load an image archive";
        // A reader that fails ends the request; the client would show that as a broken connection.
        let failure = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&failure);
        let body = ReaderStream::with_capacity(archive, 256 * 1024).map_err(move |error| {
            let told = io::Error::new(error.kind(), error.to_string());
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            told
        });
        let options = ImportImageOptionsBuilder::new().quiet(true).build();
        let answer = self.client.import_image_stream(options, body, None);
        let loading = async {
            let mut told = String::new();
            let mut answer = std::pin::pin!(answer);
            while let Some(part) = answer.next().await {
                told.push_str(&part?.stream.unwrap_or_default());
            }
            Ok::<_, ClientError>(told)
        };
        let told = match self.have(what, LOAD, loading).await {
            Ok(told) => told,
            Err(error) => {
                let read_failure = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
                return Err(read_failure.map_or(error, |source| Error::Archive { source }));
            }
        };
        let names = loaded_names(&told);
        if names.is_empty() {
            return Err(Error::Nonsense { what: what.to_owned(), found: format!("{told:?} names no image") });
        }
        let mut images: Vec<Image> = Vec::new();
        for name in names {
            let image = self.find_image(name).await?;
            let image = image.ok_or_else(|| Error::NotFound { what: format!("loaded image {name:?}") })?;
            if images.iter().all(|other| other.id != image.id) {
                images.push(image);
            }
        }
        Ok(images)
    }

    /// Writes an image, under its reference, as an archive that [`Self::load_image`] takes.
    ///
    /// # Errors
    /// When the engine does not have it, or it cannot be written.
    pub async fn save_image<W>(&self, reference: &str, archive: &mut W) -> Result<(), Error>
    where
        W: AsyncWrite + Unpin + Send,
    {
        let what = format!("save image {reference:?}");
        check_reference(&what, reference)?;
        let mut parts = std::pin::pin!(self.client.export_image(reference));
        while let Some(part) = self.ask(&what, LOAD, parts.try_next()).await? {
            archive.write_all(&part).await.map_err(|source| Error::Archive { source })?;
        }
        archive.flush().await.map_err(|source| Error::Archive { source })
    }

    /// Has the engine fetch an image from the registry that its reference names; `limit` bounds it all.
    ///
    /// # Errors
    /// When the registry is out of reach or does not have it.
    pub async fn pull_image(&self, reference: &str, limit: Duration) -> Result<Image, Error> {
        let what = format!("pull image {reference:?}");
        check_reference(&what, reference)?;
        let full = with_tag(reference);
        let options = CreateImageOptionsBuilder::new().from_image(&full).build();
        let pulling = self.client.create_image(Some(options), None, None).try_for_each(|part| async {
            match part.error_detail {
                Some(detail) => {
                    Err(ClientError::DockerStreamError { error: detail.message.unwrap_or_default() })
                }
                None => Ok(()),
            }
        });
        self.have(&what, limit, pulling).await.map_err(|error| pull_error(reference, error))?;
        self.find_image(&full)
            .await?
            .ok_or_else(|| Error::NotFound { what: format!("pulled image {reference:?}") })
    }

    /// Takes a reference away, and the image with its last one. Where somebody does the same at the same time, the engine
    /// may fail at what is gone already: gone is what was wanted.
    ///
    /// # Errors
    /// When the engine does not answer, or refuses for another reason than that the image is used.
    pub async fn remove_image(&self, reference: &str) -> Result<ImageRemoved, Error> {
        let what = format!("remove image {reference:?}");
        check_reference(&what, reference)?;
        let options = RemoveImageOptionsBuilder::new().build();
        match self.have(&what, WORK, self.client.remove_image(reference, Some(options), None)).await {
            Ok(_) => Ok(ImageRemoved::Removed),
            Err(Error::Refused { status: Some(404), .. }) => Ok(ImageRemoved::Gone),
            Err(Error::Refused { status: Some(409), message, .. }) => Ok(ImageRemoved::InUse { message }),
            Err(error @ Error::Refused { status: Some(500), .. }) => {
                match self.find_image(reference).await? {
                    None => Ok(ImageRemoved::Gone),
                    Some(_) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The images whose labels fit.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn list_images(&self, selector: &LabelSelector) -> Result<Vec<Image>, Error> {
        let filters = HashMap::from([("label", selector.filters())]);
        let options = ListImagesOptionsBuilder::new().filters(&filters).build();
        let listing = self.client.list_images(Some(options));
        let found = self.ask("list images", QUICK, listing).await?;
        let images = found.into_iter().map(|image| Image {
            id: image.id,
            // How engines before API 1.43 write that there is none.
            references: image.repo_tags.into_iter().filter(|r| r != "<none>:<none>").collect(),
            labels: image.labels.into_iter().collect(),
            size: u64::try_from(image.size).unwrap_or(0),
        });
        Ok(images.collect())
    }
}

/// References go into the path of a request as they are: only what a reference can be made of may.
fn check_reference(what: &str, reference: &str) -> Result<(), Error> {
    let right =
        |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/' | b':' | b'@' | b'+');
    let segments_right = reference.split('/').all(|segment| !matches!(segment, "" | "." | ".."));
    if !reference.is_empty() && reference.bytes().all(right) && segments_right {
        return Ok(());
    }
    Err(Error::Refused {
        what: what.to_owned(),
        status: None,
        message: "it is not an image reference: expected e.g. registry:2.8.3".to_owned(),
    })
}

/// Whether the engine found an image only because it takes any unambiguous beginning of an id for a name.
fn is_beginning_of(id: &str, reference: &str) -> bool {
    let hex = id.split_once(':').map_or(id, |(_, hex)| hex);
    reference != id && reference != hex && (id.starts_with(reference) || hex.starts_with(reference))
}

/// A reference without tag and digest means `latest`; without this the engine pulls every tag there is.
fn with_tag(reference: &str) -> String {
    let name = reference.rsplit_once('/').map_or(reference, |(_, name)| name);
    if name.contains(':') || reference.contains('@') {
        reference.to_owned()
    } else {
        format!("{reference}:latest")
    }
}

/// What an engine says after a load: one line an image, `Loaded image: name:tag` or `Loaded image ID: sha256:…`.
fn loaded_names(told: &str) -> Vec<&str> {
    told.lines()
        .filter_map(|line| {
            line.strip_prefix("Loaded image: ").or_else(|| line.strip_prefix("Loaded image ID: "))
        })
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect()
}

/// Beginnings and parts of what engines say when they could not speak to a registry at all: the words are those
/// of Go's network library, which they pass on.
const OUT_OF_REACH: [&str; 8] = [
    "dial tcp",
    "no such host",
    "connection refused",
    "i/o timeout",
    "TLS handshake timeout",
    "network is unreachable",
    "Temporary failure in name resolution",
    "request canceled while waiting for connection",
];

fn pull_error(reference: &str, error: Error) -> Error {
    match error {
        Error::Refused { message, .. } if OUT_OF_REACH.iter().any(|part| message.contains(part)) => {
            Error::RegistryUnreachable { reference: reference.to_owned(), message }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_without_a_tag_means_latest() {
        assert_eq!(with_tag("registry"), "registry:latest");
        assert_eq!(with_tag("localhost:5000/registry"), "localhost:5000/registry:latest");
        assert_eq!(with_tag("localhost:5000/registry:2"), "localhost:5000/registry:2");
        assert_eq!(with_tag("registry@sha256:00"), "registry@sha256:00");
    }

    #[test]
    fn what_could_leave_the_path_is_no_reference() {
        for bad in ["", "a/../b", "a?b", "a#b", "a b", "/a", "a/", "ä"] {
            check_reference("find", bad).unwrap_err();
        }
        for good in ["a", "docker.io/library/registry:2.8.3", "sha256:00ff", "a@sha256:00"] {
            check_reference("find", good).unwrap();
        }
    }

    #[test]
    fn only_a_whole_id_is_an_id() {
        for (reference, expected) in
            [("sha256:abcd", false), ("abcd", false), ("abc", true), ("sha256:ab", true), ("registry", false)]
        {
            assert_eq!(is_beginning_of("sha256:abcd", reference), expected, "{reference}");
        }
    }

    #[test]
    fn a_load_names_what_it_loaded() {
        let told = "Loaded image: a:1\nLoaded image ID: sha256:00\nsomething else\n";
        assert_eq!(loaded_names(told), ["a:1", "sha256:00"]);
        assert!(loaded_names("").is_empty());
    }

    #[test]
    fn a_registry_out_of_reach_is_told_from_one_that_refuses() {
        let refused = |message: &str| Error::Refused {
            what: "pull".to_owned(),
            status: Some(500),
            message: message.to_owned(),
        };
        let error = pull_error("a:1", refused("Get \"https://x/v2/\": dial tcp: lookup x: no such host"));
        assert!(matches!(error, Error::RegistryUnreachable { .. }));
        assert!(error.remedy().is_some());
        assert!(matches!(pull_error("a:1", refused("manifest unknown")), Error::Refused { .. }));
    }
}
