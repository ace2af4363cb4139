//! What a name in a store stands for: a version's index, one system's manifest, or a bundle itself.
//!
//! In: a repository, and a tag or a digest. Out: the bundle's digest, and what is said about it, verified by digest
//! on the way. Not here: fetching the bundle; publishing.

use std::collections::BTreeMap;

use mesh_protocol::id::{Digest, System};
use reqwest::StatusCode;
use serde::Deserialize;

use super::address::{Repository, Tag, Wanted};
use super::client::{MAX_MANIFEST, Store, refused, same};
use super::error::StoreError;
use super::plan::Presence;
use crate::config::Config;
use crate::manifest::{ARTIFACT_TYPE, Descriptor, INDEX_KIND, INDEX_TYPE, Index, Manifest};

/// What a reference stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The bundle.
    pub bundle: Digest,
    /// Its length, where a manifest says it.
    pub size: Option<u64>,
    /// The manifest, where the reference was to one, or to an index.
    pub manifest: Option<Manifest>,
    /// The manifest's digest, as it is in the store.
    pub manifest_digest: Option<Digest>,
}

/// What stands under a manifest's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Index(Index),
    Manifest(Manifest),
}

impl Found {
    /// Reads a manifest or an index of bundles; else says what it is.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            media_type: Option<String>,
            artifact_type: Option<String>,
            config: Option<ConfigKind>,
            #[serde(default)]
            annotations: BTreeMap<String, String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ConfigKind {
            media_type: String,
        }
        let unread = |error: serde_json::Error| error.to_string();
        let kind: Kind = serde_json::from_slice(bytes).map_err(unread)?;
        if kind.media_type.as_deref() == Some(INDEX_TYPE)
            && kind.annotations.get(INDEX_KIND).is_some_and(|kind| kind == ARTIFACT_TYPE)
        {
            return serde_json::from_slice(bytes).map(Self::Index).map_err(unread);
        }
        if kind.artifact_type.as_deref() != Some(ARTIFACT_TYPE) {
            let config = kind.config.map(|config| config.media_type);
            let found = kind.artifact_type.or(config).or(kind.media_type).unwrap_or_default();
            return Err(format!("its type is {found:?}, expected {ARTIFACT_TYPE:?}"));
        }
        let manifest: Manifest = serde_json::from_slice(bytes).map_err(unread)?;
        match manifest.layers.len() {
            1 => Ok(Self::Manifest(manifest)),
            layers => Err(format!("it has {layers} layers, expected 1")),
        }
    }
}

impl Store {
    /// What a tag or a digest stands for on a machine like this one: see [`Self::resolve_for`].
    ///
    /// # Errors
    /// When it is not there, or stands for something else than a bundle.
    pub async fn resolve(&self, repository: &Repository, wanted: &Wanted) -> Result<Resolved, StoreError> {
        self.resolve_for(repository, wanted, System::of_this_program()).await
    }

    /// What a tag or a digest stands for on a system: of a version's index, its bundle for that system. A digest may
    /// be that of an index, of a manifest or of a bundle.
    ///
    /// # Errors
    /// When it is not there, or stands for something else than a bundle, or for none of that system.
    pub async fn resolve_for(
        &self,
        repository: &Repository,
        wanted: &Wanted,
        system: System,
    ) -> Result<Resolved, StoreError> {
        let name = match wanted {
            Wanted::Tag(tag) => tag.to_string(),
            Wanted::Digest(digest) => digest.to_string(),
        };
        let what = format!("{repository} {name}");
        let bytes = match self.manifest_bytes(repository, &name).await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return self.resolve_blob(repository, wanted, StoreError::NotFound { what }).await,
            // There are registries that fail when they are asked for a blob as if it were a manifest.
            Err(error @ StoreError::Busy { .. }) => {
                return self.resolve_blob(repository, wanted, error).await;
            }
            Err(error) => return Err(error),
        };
        if let Wanted::Digest(expected) = wanted {
            same(what.clone(), expected, Digest::of(&bytes))?;
        }
        let not_bundle = |found: String| StoreError::NotBundle { what: what.clone(), found };
        let (manifest, digest) = match Found::read(&bytes).map_err(not_bundle)? {
            Found::Manifest(manifest) => (manifest, Digest::of(&bytes)),
            Found::Index(index) => {
                let Some(child) = index.of_system(system) else {
                    let what = format!("a bundle for {system} in the index {what}");
                    return Err(StoreError::NotFound { what });
                };
                (self.child(repository, child).await?, child.digest.clone())
            }
        };
        let layer = &manifest.layers[0];
        let (bundle, size) = (layer.digest.clone(), Some(layer.size));
        Ok(Resolved { bundle, size, manifest: Some(manifest), manifest_digest: Some(digest) })
    }

    /// A manifest that an index names.
    pub(super) async fn child(
        &self,
        repository: &Repository,
        child: &Descriptor,
    ) -> Result<Manifest, StoreError> {
        let what = format!("{repository} {}", child.digest);
        let bytes = self.manifest_bytes(repository, child.digest.as_str()).await?;
        let bytes = bytes.ok_or_else(|| StoreError::NotFound { what: what.clone() })?;
        same(what.clone(), &child.digest, Digest::of(&bytes))?;
        match Found::read(&bytes) {
            Ok(Found::Manifest(manifest)) => Ok(manifest),
            Ok(Found::Index(_)) => {
                Err(StoreError::NotBundle { what, found: "an index in an index".to_owned() })
            }
            Err(found) => Err(StoreError::NotBundle { what, found }),
        }
    }

    /// The index of a version, if there is one.
    ///
    /// # Errors
    /// When the tag names something else, or the store cannot say.
    pub async fn index(&self, repository: &Repository, tag: &Tag) -> Result<Option<Index>, StoreError> {
        let what = || format!("{repository}:{tag}");
        let Some(bytes) = self.manifest_bytes(repository, &tag.to_string()).await? else { return Ok(None) };
        match Found::read(&bytes) {
            Ok(Found::Index(index)) => Ok(Some(index)),
            Ok(Found::Manifest(_)) => Err(StoreError::NotBundle {
                what: what(),
                found: "one system's manifest, expected an index".to_owned(),
            }),
            Err(found) => Err(StoreError::NotBundle { what: what(), found }),
        }
    }

    /// What a digest stands for that is no manifest's: a bundle's own, or nothing.
    async fn resolve_blob(
        &self,
        repository: &Repository,
        wanted: &Wanted,
        otherwise: StoreError,
    ) -> Result<Resolved, StoreError> {
        let Wanted::Digest(digest) = wanted else { return Err(otherwise) };
        match self.blob(repository, digest).await? {
            Presence::There(size) => {
                Ok(Resolved { bundle: digest.clone(), size, manifest: None, manifest_digest: None })
            }
            Presence::Absent => Err(otherwise),
        }
    }

    /// What a bundle says of itself.
    ///
    /// # Errors
    /// When it is not there, or not what its manifest says.
    pub async fn config(&self, repository: &Repository, manifest: &Manifest) -> Result<Config, StoreError> {
        let digest = &manifest.config.digest;
        let what = format!("{repository} configuration {digest}");
        let url = self.url(&format!("{repository}/blobs/{digest}"))?;
        let response = self.send(self.http.get(url.clone()), &url).await?;
        let response = refused(response, &url, &[StatusCode::OK, StatusCode::NOT_FOUND]).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(StoreError::NotFound { what });
        }
        let bytes = self.body(response, &url, MAX_MANIFEST).await?;
        same(what.clone(), digest, Digest::of(&bytes))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| StoreError::NotBundle { what, found: error.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_kinds_are_called_by_their_names() {
        let said = |text: &str| Found::read(text.as_bytes()).unwrap_err();
        let image =
            r#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json"}}"#;
        assert!(said(image).contains("application/vnd.oci.image.config.v1+json"));
        let list = r#"{"mediaType":"application/vnd.docker.distribution.manifest.list.v2+json"}"#;
        assert!(said(list).contains("manifest.list"));
        assert!(said("[]").contains("expected"));
        assert!(said("").contains("EOF"));
    }
}
