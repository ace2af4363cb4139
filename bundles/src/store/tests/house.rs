//! Listing and pruning a real registry that may delete.

use std::collections::BTreeSet;

use mesh_protocol::id::System;

use super::*;
use crate::testing::for_system;

async fn publish(store: &Store, folder: &tempfile::TempDir, version: &str, system: System) -> Digest {
    let archive = folder.path().join(format!("{version}-{}", system.dashed()));
    let Packed { digest, size, config, .. } = packed(for_system("prog", version, system), &archive);
    let publication =
        Publication { archive: &archive, digest: &digest, size, config: &config, created: None };
    store.publish(&publication, SILENT).await.unwrap();
    digest
}

#[tokio::test]
async fn what_is_in_the_store_is_listed_and_what_nobody_uses_removed() {
    let (registry, folder) = (Registry::start(), tempfile::tempdir().unwrap());
    let store = store(registry.address);
    assert_eq!(store.list().await.unwrap(), []);
    let [amd64, arm64] = System::ALL;
    publish(&store, &folder, "1.0", amd64).await;
    publish(&store, &folder, "1.0", arm64).await;
    publish(&store, &folder, "1.1+b", arm64).await;
    let repository: Repository = "prog".parse().unwrap();
    // Something that is no bundle stays what it is.
    let image =
        br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    store.put(&repository, "other-linux-amd64", crate::manifest::INDEX_TYPE, image).await.unwrap();

    let listed = store.list().await.unwrap();
    let shown: Vec<_> = listed.iter().map(|one| (one.version.as_str(), one.system)).collect();
    assert_eq!(shown, [("1.0", amd64), ("1.0", arm64), ("1.1+b", arm64)]);

    // Both bundles of arm64 have the same content, and are one blob under two names.
    let used = BTreeSet::from([listed[0].bundle.clone()]);
    let plan = PrunePlan::new(listed.clone(), &used);
    assert_eq!((plan.remove.len(), plan.keep.len(), plan.freed()), (2, 1, listed[1].size));
    // The plan alone has changed nothing.
    assert_eq!(store.list().await.unwrap(), listed);
    assert_eq!(store.prune(&plan).await.unwrap(), plan.remove);
    assert_eq!(store.list().await.unwrap(), plan.keep);
    assert_eq!(store.tags(&repository).await.unwrap(), ["1.0", "1.0-linux-amd64", "other-linux-amd64"]);
    let index = store.index(&repository, &"1.0".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((index.manifests.len(), index.of_system(amd64).is_some()), (1, true));

    // Done twice it does nothing; and what is left can go too.
    assert_eq!(store.prune(&plan).await.unwrap(), []);
    store.prune(&PrunePlan::new(store.list().await.unwrap(), &BTreeSet::new())).await.unwrap();
    assert_eq!(store.tags(&repository).await.unwrap(), ["other-linux-amd64"]);
}
