//! Keeping house in a store: what is in it, and what of that nobody uses.
//!
//! In: a store, the bundles that somebody uses. Out: a list, a plan (pure), and what the plan says removed. Not here:
//! who uses what, which the caller knows; and the blobs themselves, which a registry's own garbage collection takes
//! once no manifest names them. What is no bundle (an image in the same registry) is never looked at twice.

use std::collections::{BTreeMap, BTreeSet};

use mesh_protocol::id::{Digest, System};
use reqwest::StatusCode;
use serde::Serialize;

use super::address::Repository;
use super::client::{Store, refused};
use super::error::StoreError;
use super::index::tag_in;
use super::resolve::Found;
use crate::manifest::{system_tag, version_tag};

/// A bundle in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Stored {
    /// The repository, which is the bundle's name.
    #[serde(serialize_with = "as_text")]
    pub repository: Repository,
    /// Its version.
    pub version: String,
    /// Its system.
    #[serde(serialize_with = "as_text")]
    pub system: System,
    /// The bundle.
    pub bundle: Digest,
    /// Its length.
    pub size: u64,
    /// The manifest that names it.
    pub manifest: Digest,
}

fn as_text<S: serde::Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// What pruning would do: it does this and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PrunePlan {
    /// Removed.
    pub remove: Vec<Stored>,
    /// Kept.
    pub keep: Vec<Stored>,
}

impl PrunePlan {
    /// The bundles that nobody uses go. One that is used is kept under each of its names.
    #[must_use]
    pub fn new(stored: Vec<Stored>, used: &BTreeSet<Digest>) -> Self {
        // A manifest goes with all its tags: what shares it with something that is kept stays.
        let kept: BTreeSet<(Repository, Digest)> = stored
            .iter()
            .filter(|one| used.contains(&one.bundle))
            .map(|one| (one.repository.clone(), one.manifest.clone()))
            .collect();
        let (keep, remove) = stored
            .into_iter()
            .partition(|one| kept.contains(&(one.repository.clone(), one.manifest.clone())));
        Self { remove, keep }
    }

    /// How many bytes of bundles are named no more afterwards: what two name counts once.
    #[must_use]
    pub fn freed(&self) -> u64 {
        let kept: BTreeSet<&Digest> = self.keep.iter().map(|one| &one.bundle).collect();
        let gone: BTreeMap<&Digest, u64> = self.remove.iter().map(|one| (&one.bundle, one.size)).collect();
        gone.into_iter().filter(|(bundle, _)| !kept.contains(bundle)).map(|(_, size)| size).sum()
    }
}

impl Store {
    /// The bundles in the store, in order.
    ///
    /// # Errors
    /// When the store cannot say; there are stores that do not tell their repositories.
    pub async fn list(&self) -> Result<Vec<Stored>, StoreError> {
        let mut all = Vec::new();
        for repository in self.repositories().await? {
            all.extend(self.list_in(&repository).await?);
        }
        all.sort();
        Ok(all)
    }

    /// The bundles in a repository, in order.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn list_in(&self, repository: &Repository) -> Result<Vec<Stored>, StoreError> {
        let mut all = Vec::new();
        for tag in self.tags(repository).await? {
            let Some(system) = system_of(&tag) else { continue };
            let Some(bytes) = self.manifest_bytes(repository, &tag).await? else { continue };
            let Ok(Found::Manifest(manifest)) = Found::read(&bytes) else { continue };
            let Some(version) = manifest.version() else { continue };
            if system_tag(version, system) != tag {
                continue;
            }
            let layer = &manifest.layers[0];
            all.push(Stored {
                repository: repository.clone(),
                version: version.to_owned(),
                system,
                bundle: layer.digest.clone(),
                size: layer.size,
                manifest: Digest::of(&bytes),
            });
        }
        all.sort();
        Ok(all)
    }

    /// Does what a plan says, and returns what was removed; each whole version's index goes with its last bundle. What
    /// was published again meanwhile, under the same tag with another manifest, stays.
    ///
    /// # Errors
    /// At the first that the store does not remove. What came before is gone, and the same plan goes on from there.
    pub async fn prune(&self, plan: &PrunePlan) -> Result<Vec<Stored>, StoreError> {
        let mut removed = Vec::new();
        let mut versions: BTreeSet<(&Repository, &str)> = BTreeSet::new();
        for one in &plan.remove {
            versions.insert((&one.repository, &one.version));
            if self.delete_manifest(&one.repository, &one.manifest).await? {
                removed.push(one.clone());
            }
        }
        for (repository, version) in versions {
            self.settle_index(repository, version).await?;
        }
        Ok(removed)
    }

    /// An index of what is left, or none of nothing.
    async fn settle_index(&self, repository: &Repository, version: &str) -> Result<(), StoreError> {
        let tag = tag_in(repository, &version_tag(version))?;
        let Some(index) = self.index(repository, &tag).await? else { return Ok(()) };
        let is_left = !self.tagged_systems(repository, version).await?.is_empty();
        if is_left || index.foreign().next().is_some() {
            return self.put_index(repository, repository.name(), version).await.map(drop);
        }
        if let Some(digest) = self.tagged(repository, &tag).await? {
            self.delete_manifest(repository, &digest).await?;
        }
        Ok(())
    }

    /// Removes a manifest and its tags; false if it was not there.
    async fn delete_manifest(&self, repository: &Repository, digest: &Digest) -> Result<bool, StoreError> {
        let url = self.url(&format!("{repository}/manifests/{digest}"))?;
        let response = self.send(self.http.delete(url.clone()), &url).await?;
        let right = [StatusCode::ACCEPTED, StatusCode::OK, StatusCode::NO_CONTENT, StatusCode::NOT_FOUND];
        let response = refused(response, &url, &right).await?;
        Ok(response.status() != StatusCode::NOT_FOUND)
    }
}

/// The system of a bundle's tag; none of a version's.
fn system_of(tag: &str) -> Option<System> {
    System::ALL
        .into_iter()
        .find(|system| tag.strip_suffix(system.dashed()).is_some_and(|rest| rest.ends_with('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(repository: &str, version: &str, bundle: &[u8], manifest: &[u8]) -> Stored {
        Stored {
            repository: repository.parse().unwrap(),
            version: version.to_owned(),
            system: System::LinuxAmd64,
            bundle: Digest::of(bundle),
            size: bundle.len() as u64,
            manifest: Digest::of(manifest),
        }
    }

    #[test]
    fn what_nobody_uses_goes_and_what_shares_with_it_stays() {
        let old = stored("a", "1", b"old!", b"1");
        let new = stored("a", "2", b"new", b"2");
        let same_bundle = stored("a", "3", b"new", b"3");
        let same_manifest = stored("a", "2.0", b"new", b"2");
        let elsewhere = stored("b", "1", b"old!", b"1");
        let used = BTreeSet::from([Digest::of(b"new")]);
        let all = [&old, &new, &same_bundle, &same_manifest, &elsewhere].map(Clone::clone).to_vec();
        let plan = PrunePlan::new(all, &used);
        assert_eq!(plan.remove, [old.clone(), elsewhere]);
        assert_eq!(plan.keep, [new, same_bundle, same_manifest]);
        assert_eq!(plan.freed(), 4);
        assert_eq!(PrunePlan::new(vec![old.clone()], &BTreeSet::new()).remove, [old]);
    }

    #[test]
    fn a_tag_of_a_bundle_ends_with_its_system() {
        assert_eq!(system_of("1.0-linux-arm64"), Some(System::LinuxArm64));
        assert_eq!(
            (system_of("1.0"), system_of("linux-amd64"), system_of("1.0linux-amd64")),
            (None, None, None)
        );
    }
}
