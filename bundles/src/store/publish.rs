//! Publishing a bundle: look, send what is missing, and look again.
//!
//! In: a packed bundle. Out: its archive, configuration and manifest in the store, under its digest and a tag, and in
//! its version's index. What a tag is to name is read back and compared, with a file that has the right digest or by it: a
//! store that answers `201` has promised, not proved. Publishing what is there already takes three requests and sends no byte of it. What does not need one
//! another is asked and sent at once: the configuration beside the archive, the manifest while the archive is read back.
//! The tags, which people see, come when all that they name has been read back.

use std::path::Path;
use std::time::Duration;

use mesh_protocol::id::Digest;
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;

use super::address::{Reference, Repository, Tag, Wanted};
use super::client::{Store, refused};
use super::error::{StoreError, Trouble};
use super::index::tag_in;
use super::plan::{Action, Part, Presence, Seen, decide};
use crate::Progress;
use crate::config::Config;
use crate::manifest::{Descriptor, INDEX_TYPE, MANIFEST_TYPE, Manifest, tag_of, version_tag};

/// Does once more what can be done twice, while the store is not well. (A function that takes such work is not
/// understood to be `Send`.)
macro_rules! patiently {
    ($store:expr, $work:expr) => {{
        let mut patience = Patience($store.pauses.iter());
        loop {
            match $work.await {
                Ok(done) => break done,
                Err(error) => patience.after(error).await?,
            }
        }
    }};
}

pub(super) use patiently;

/// The pauses that are left.
pub(super) struct Patience<'a>(pub(super) std::slice::Iter<'a, Duration>);

impl Patience<'_> {
    pub(super) async fn after(&mut self, error: StoreError) -> Result<(), StoreError> {
        match self.0.next() {
            Some(pause) if may_pass(&error) => {
                tokio::time::sleep(*pause).await;
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Is this likely to be over in a moment? A registry on plain files writes its links in place: while one publisher does,
/// another is told that what it has just seen there is unknown, or has no valid digest.
fn may_pass(error: &StoreError) -> bool {
    match error {
        StoreError::NotFound { .. } => true,
        StoreError::Refused { status: 400 | 404, answer, .. } => {
            ["MANIFEST_BLOB_UNKNOWN", "MANIFEST_UNKNOWN", "BLOB_UNKNOWN", "DIGEST_INVALID"]
                .iter()
                .any(|code| answer.contains(code))
        }
        error => error.trouble() == Trouble::Surroundings,
    }
}

/// A bundle to publish.
#[derive(Debug, Clone, Copy)]
pub struct Publication<'a> {
    /// The archive.
    pub archive: &'a Path,
    /// Its digest.
    pub digest: &'a Digest,
    /// Its length.
    pub size: u64,
    /// What it says of itself.
    pub config: &'a Config,
    /// The time that its source names (RFC 3339), if any.
    pub created: Option<&'a str>,
}

/// A bundle in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Where people find it: the tag of its version and system.
    pub tagged: Reference,
    /// Where people find its version, for whatever system.
    pub version: Reference,
    /// The manifest's digest.
    pub manifest: Digest,
    /// The bundle's digest.
    pub bundle: Digest,
    /// What had to be done: nothing where all was there.
    pub done: Vec<Action>,
}

impl Store {
    /// Makes a bundle be in the store, in the repository of its name.
    ///
    /// # Errors
    /// When the store cannot be reached, refuses, or has something else under these digests; or when somebody else
    /// publishes something else under the same tag at the same time.
    pub async fn publish(
        &self,
        publication: &Publication<'_>,
        progress: Progress<'_>,
    ) -> Result<Published, StoreError> {
        let Publication { archive, digest, config, .. } = *publication;
        let described = self.describe(publication)?;
        let Described { repository, manifest_bytes, manifest_digest, tag, version, .. } = &described;
        let look = described.look(config);
        let seen = patiently!(self, self.look(&look));
        let actions = decide(&seen, manifest_digest);
        let has_to = |action| actions.contains(&action);

        self.put_blobs(&look, archive, &actions, progress).await?;
        Box::pin(self.put_manifest(&look, (archive, manifest_bytes), &actions)).await?;
        if has_to(Action::PutTag) {
            patiently!(self, self.put_tags(&look, &seen, manifest_bytes));
        }
        if has_to(Action::PutIndex) {
            let (name, version) = (config.name.as_str(), &config.version);
            let tagged = patiently!(self, self.put_index(repository, name, version));
            let found = tagged.get(&config.system).map(|found| &found.digest);
            // The last look at the tags has mostly seen our own; what it has not seen, it tells nothing of.
            if has_to(Action::PutTag) && found != Some(manifest_digest) {
                patiently!(self, self.still_ours(&look));
            }
        }
        let reference = |tag| Reference {
            store: self.address.clone(),
            repository: repository.clone(),
            wanted: Wanted::Tag(tag),
        };
        Ok(Published {
            tagged: reference(tag.clone()),
            version: reference(version.clone()),
            manifest: manifest_digest.clone(),
            bundle: digest.clone(),
            done: actions,
        })
    }

    /// What of it is not in the store yet: what publishing it would do now.
    ///
    /// # Errors
    /// When the store cannot be reached, or has something else under these digests.
    pub async fn lacks(&self, publication: &Publication<'_>) -> Result<Vec<Action>, StoreError> {
        let described = self.describe(publication)?;
        let seen = self.look(&described.look(publication.config)).await?;
        Ok(decide(&seen, &described.manifest_digest))
    }

    /// Where a bundle is found, and what describes it there.
    fn describe(&self, publication: &Publication<'_>) -> Result<Described, StoreError> {
        let Publication { digest, size, config, created, .. } = *publication;
        let manifest = Manifest::new(config, digest, size, created);
        let manifest_bytes = manifest.to_bytes();
        let repository = self.repository(&config.name);
        Ok(Described {
            manifest_digest: Digest::of(&manifest_bytes),
            tag: tag_in(&repository, &tag_of(config))?,
            version: tag_in(&repository, &version_tag(&config.version))?,
            repository,
            manifest,
            manifest_bytes,
        })
    }

    /// What the store has of it, in as few requests as can tell.
    async fn look(&self, look: &Look<'_>) -> Result<Seen, StoreError> {
        let Look { repository, manifest, digest, tag, version, .. } = look;
        let [config, layer] = [&manifest.config, &manifest.layers[0]];
        let tagged = self.tagged(repository, tag);
        let archive = self.blob(repository, &layer.digest);
        let index = self.index(repository, version);
        let (tagged, archive, index) = if self.authority.is_settled() {
            tokio::join!(tagged, archive, index)
        } else {
            // The first one finds out who we have to be; the others need not wait for each other.
            let tagged = tagged.await?;
            let (archive, index) = tokio::join!(archive, index);
            (Ok(tagged), archive, index)
        };
        let (tagged, archive, index) = (tagged?, archive?, index?);
        as_long_as(archive, layer.size, || format!("bundle {repository}@{}", layer.digest))?;
        let listed =
            index.and_then(|index| index.of_system(look.config.system).map(|child| child.digest.clone()));
        // A tag that names it says that it is there; and a manifest that is there says that what it names is.
        let there = Presence::There(None);
        let mut seen = Seen { manifest: there, tag: tagged, listed, archive, config: there };
        if seen.tag.as_ref() != Some(*digest) {
            let (manifest, configuration) =
                tokio::join!(self.manifest(repository, digest), self.blob(repository, &config.digest));
            seen.manifest = manifest?;
            if seen.manifest == Presence::Absent {
                seen.config = configuration?;
                as_long_as(seen.config, config.size, || {
                    format!("{repository} configuration {}", config.digest)
                })?;
            }
        }
        Ok(seen)
    }

    /// What a tag is to name is read back, also what somebody else has sent: they may have found it damaged, or not have come
    /// to look. Not an archive that the tag names already, by another manifest: it was read back for that. Meanwhile the manifest gets there, if it is missing: a store takes it once it has what it names, and the
    /// time that a small document takes is the store's, which syncs what it is given. Under its digest nobody finds it.
    async fn put_manifest(
        &self,
        look: &Look<'_>,
        (archive, manifest): (&Path, &[u8]),
        actions: &[Action],
    ) -> Result<(), StoreError> {
        let repository = look.repository;
        let has_to = |action| actions.contains(&action);
        let reading_back = async {
            let Descriptor { digest, size, .. } = &look.manifest.layers[0];
            if has_to(Action::Send(Part::Archive)) {
                patiently!(self, self.read_back(repository, digest, (archive, *size)));
            } else if has_to(Action::PutTag) && !self.is_tagged(look).await {
                patiently!(self, self.verify(repository, digest, *size, crate::SILENT));
            }
            Ok::<_, StoreError>(())
        };
        let reading_config = async {
            // One that was sent was read back then.
            if has_to(Action::PutTag) && !has_to(Action::Send(Part::Config)) {
                let Descriptor { digest, size, .. } = &look.manifest.config;
                patiently!(self, self.verify(repository, digest, *size, crate::SILENT));
            }
            Ok(())
        };
        let putting = async {
            if has_to(Action::PutManifest) {
                let name = look.digest.as_str();
                patiently!(self, self.put(repository, name, MANIFEST_TYPE, manifest));
            }
            Ok(())
        };
        tokio::try_join!(reading_back, reading_config, putting).map(drop)
    }

    /// Whether the tag names this archive.
    async fn is_tagged(&self, look: &Look<'_>) -> bool {
        let found = self.resolve(look.repository, &Wanted::Tag(look.tag.clone())).await;
        found.is_ok_and(|found| found.bundle == look.manifest.layers[0].digest)
    }

    /// Moves the tag, if it is where it was when we looked; a long upload lies in between. Then comes the index as it
    /// will be if nobody else publishes now; that it is so is looked at afterwards. Not both at once: a registry on plain
    /// files writes the manifest's links anew when it takes the tag, and does not find it for the index meanwhile.
    async fn put_tags(&self, look: &Look<'_>, seen: &Seen, manifest: &[u8]) -> Result<(), StoreError> {
        let Look { repository, digest, tag, version, config, .. } = look;
        let own = Descriptor::of_bundle(manifest, config.system);
        let (found, index) = tokio::try_join!(
            self.tagged(repository, tag),
            self.index_with(repository, config.name.as_str(), &config.version, (config.system, own))
        )?;
        if found.as_ref() == Some(*digest) {
            // Somebody published the same.
            return Ok(());
        }
        if found != seen.tag {
            return Err(look.moved(seen.tag.as_ref(), found.as_ref()));
        }
        self.put(repository, &tag.to_string(), MANIFEST_TYPE, manifest).await?;
        match index {
            Some(index) => self.put(repository, &version.to_string(), INDEX_TYPE, &index.to_bytes()).await,
            None => Ok(()),
        }
    }

    async fn still_ours(&self, look: &Look<'_>) -> Result<(), StoreError> {
        let found = self.tagged(look.repository, look.tag).await?;
        if found.as_ref() == Some(look.digest) {
            return Ok(());
        }
        Err(look.moved(Some(look.digest), found.as_ref()))
    }

    pub(super) async fn put(
        &self,
        repository: &Repository,
        name: &str,
        media_type: &'static str,
        document: &[u8],
    ) -> Result<(), StoreError> {
        let url = self.url(&format!("{repository}/manifests/{name}"))?;
        let request = self.http.put(url.clone()).header(CONTENT_TYPE, media_type).body(document.to_vec());
        refused(self.send(request, &url).await?, &url, &[StatusCode::CREATED]).await.map(drop)
    }
}

/// Where a bundle is found, and what describes it there.
struct Described {
    repository: Repository,
    manifest: Manifest,
    manifest_bytes: Vec<u8>,
    manifest_digest: Digest,
    tag: Tag,
    version: Tag,
}

impl Described {
    fn look<'a>(&'a self, config: &'a Config) -> Look<'a> {
        Look {
            repository: &self.repository,
            manifest: &self.manifest,
            digest: &self.manifest_digest,
            tag: &self.tag,
            version: &self.version,
            config,
        }
    }
}

/// What to look for.
pub(super) struct Look<'a> {
    pub(super) repository: &'a Repository,
    pub(super) manifest: &'a Manifest,
    digest: &'a Digest,
    tag: &'a Tag,
    version: &'a Tag,
    pub(super) config: &'a Config,
}

impl Look<'_> {
    fn moved(&self, expected: Option<&Digest>, found: Option<&Digest>) -> StoreError {
        let shown = |digest: Option<&Digest>| digest.map_or_else(|| "nothing".to_owned(), Digest::to_string);
        let tag = format!("{}:{}", self.repository, self.tag);
        StoreError::TagMoved { tag, expected: shown(expected), found: shown(found) }
    }
}

/// Content of another length has another digest: it is damaged, and sending it again would not mend it.
fn as_long_as(found: Presence, expected: u64, what: impl Fn() -> String) -> Result<(), StoreError> {
    match found {
        Presence::There(Some(found)) if found != expected => {
            Err(StoreError::WrongSize { what: what(), expected, found })
        }
        _ => Ok(()),
    }
}
