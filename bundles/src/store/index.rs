//! The index of a version: derived, never edited, so that publishers of several systems need no lock.
//!
//! In: a repository and a version. Out: an index, under the version's tag, of whatever bundles have the tags of its
//! systems. Not here: those bundles and tags.
//!
//! A registry has no compare-and-set, so two publishers that each added their own to the index they read could lose one
//! another's. Here each puts its own tag (`1.0-linux-amd64`), and then, to save a turn, the index as it will be if
//! nobody else publishes; then it derives the index from all such tags, and puts it, until what it would put is what is
//! there. Whoever puts an index last has looked at the tags after that, and whoever put a tag later than that look has
//! still to look at the index: so the last one has them all. A publisher that dies in between leaves an index that the
//! next one, or its own next run, makes right. The tags also keep the manifests: there are registries whose garbage
//! collection takes what only an index names.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;
use mesh_protocol::id::System;

use super::address::{AddressFault, Repository, Tag};
use super::client::Store;
use super::error::StoreError;
use super::resolve::Found;
use crate::manifest::{Descriptor, INDEX_TYPE, Index, system_tag, version_tag};

/// Each further round is the doing of one more publisher at the same moment.
const MAX_ROUNDS: usize = 16;

impl Store {
    /// Makes a version's index be what the tags of its systems say, and returns what they said at last.
    pub(super) async fn put_index(
        &self,
        repository: &Repository,
        name: &str,
        version: &str,
    ) -> Result<BTreeMap<System, Descriptor>, StoreError> {
        let tag = tag_in(repository, &version_tag(version))?;
        for _ in 0..MAX_ROUNDS {
            let tagged = self.tagged_systems(repository, version).await?;
            // Read after the tags: an index that is newer than they were differs, and is derived again.
            let there = self.index(repository, &tag).await?;
            let index = derive(name, version, tagged.values().cloned(), there.as_ref());
            if there.as_ref() == Some(&index) || (index.manifests.is_empty() && there.is_none()) {
                return Ok(tagged);
            }
            self.put(repository, &tag.to_string(), INDEX_TYPE, &index.to_bytes()).await?;
        }
        Err(StoreError::TagMoved {
            tag: format!("{repository}:{tag}"),
            expected: "an index that stays for a moment".to_owned(),
            found: format!("others, {MAX_ROUNDS} times"),
        })
    }

    /// The index that will be when a bundle has its tag, if nobody else publishes now; none if it is there.
    pub(super) async fn index_with(
        &self,
        repository: &Repository,
        name: &str,
        version: &str,
        (system, own): (System, Descriptor),
    ) -> Result<Option<Index>, StoreError> {
        let tag = tag_in(repository, &version_tag(version))?;
        let (mut tagged, there) =
            tokio::try_join!(self.tagged_systems(repository, version), self.index(repository, &tag))?;
        let _ = tagged.insert(system, own);
        let index = derive(name, version, tagged.into_values(), there.as_ref());
        Ok(Some(index).filter(|index| there.as_ref() != Some(index)))
    }

    /// The bundles that have the tags of a version's systems.
    pub(super) async fn tagged_systems(
        &self,
        repository: &Repository,
        version: &str,
    ) -> Result<BTreeMap<System, Descriptor>, StoreError> {
        let looking = System::ALL.map(|system| async move {
            let bytes = self.manifest_bytes(repository, &system_tag(version, system)).await?;
            Ok::<_, StoreError>((system, bytes))
        });
        let mut tagged = BTreeMap::new();
        for (system, bytes) in try_join_all(looking).await? {
            let Some(bytes) = bytes else { continue };
            // What has the tag and is something else is nobody's for this system.
            if let Ok(Found::Manifest(manifest)) = Found::read(&bytes)
                && manifest.version() == Some(version)
            {
                tagged.insert(system, Descriptor::of_bundle(&bytes, system));
            }
        }
        Ok(tagged)
    }
}

/// A tag that a version makes. A version may be too long for one.
pub(super) fn tag_in(repository: &Repository, tag: &str) -> Result<Tag, StoreError> {
    tag.parse().map_err(|fault: AddressFault| StoreError::NotBundle {
        what: repository.to_string(),
        found: fault.to_string(),
    })
}

/// What the index should be: ours as they are tagged, and what others have in it for systems that we do not know.
fn derive(
    name: &str,
    version: &str,
    tagged: impl Iterator<Item = Descriptor>,
    there: Option<&Index>,
) -> Index {
    let foreign = there.into_iter().flat_map(Index::foreign).cloned();
    Index::new(name, version, foreign.chain(tagged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Platform;

    #[test]
    fn what_is_tagged_is_in_it_and_what_is_not_ours_stays() {
        let [one, two] = System::ALL.map(|system| Descriptor::of_bundle(system.dashed().as_bytes(), system));
        let riscv = Platform { os: "linux".to_owned(), architecture: "riscv64".to_owned(), variant: None };
        let foreign = Descriptor { platform: Some(riscv), ..one.clone() };
        let old = Descriptor::of_bundle(b"old", System::LinuxArm64);
        let there = Index::new("n", "1", [old, foreign.clone()]);
        let index = derive("n", "1", [one.clone(), two.clone()].into_iter(), Some(&there));
        assert_eq!(index.manifests, [one.clone(), two, foreign.clone()]);
        let index = derive("n", "1", [one.clone()].into_iter(), Some(&there));
        assert_eq!(index.manifests, [one, foreign]);
    }
}
