//! Several publishers at once, of the same bundle, of several systems, and of what does not go together.

use mesh_protocol::id::System;

use super::*;
use crate::config::Config;
use crate::manifest::Index;
use crate::testing::for_system;

async fn publish_one(
    store: &Store,
    archive: &std::path::Path,
    packed: &Packed,
) -> Result<Published, StoreError> {
    let Packed { digest, size, config, .. } = packed;
    let publication = Publication { archive, digest, size: *size, config, created: None };
    store.publish(&publication, SILENT).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_of_the_same_bundle_all_succeed() {
    let registry = Registry::start();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let archive = folder.path().join(round.to_string());
        let packed = packed(a_bundle("prog", &format!("{round}.0")), &archive);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let (store, archive, packed) = (store(registry.address), archive.clone(), packed.clone());
            tasks.spawn(async move { publish_one(&store, &archive, &packed).await });
        }
        for published in tasks.join_all().await {
            assert_eq!(published.unwrap().bundle, packed.digest);
        }
        let store = store(registry.address);
        assert_eq!(publish_one(&store, &archive, &packed).await.unwrap().done, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_systems_published_at_once_are_one_index_and_each_gets_its_own() {
    let registry = Registry::start();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..6 {
        let version = format!("{round}.0+b");
        let mut tasks = tokio::task::JoinSet::new();
        let mut expected = Vec::new();
        for system in System::ALL {
            let archive = folder.path().join(format!("{round}-{}", system.dashed()));
            let packed = packed(for_system("prog", &version, system), &archive);
            expected.push((system, packed.digest.clone()));
            for _ in 0..2 {
                let (store, archive, packed) = (store(registry.address), archive.clone(), packed.clone());
                tasks.spawn(async move { publish_one(&store, &archive, &packed).await });
            }
        }
        for published in tasks.join_all().await {
            published.unwrap();
        }
        let store = store(registry.address);
        let repository = "prog".parse().unwrap();
        let tag: Tag = format!("{round}.0_b").parse().unwrap();
        let index = store.index(&repository, &tag).await.unwrap().unwrap();
        assert_eq!(index.manifests.len(), 2, "round {round}");
        for (system, digest) in expected {
            let wanted = Wanted::Tag(tag.clone());
            let resolved = store.resolve_for(&repository, &wanted, system).await.unwrap();
            assert_eq!(resolved.bundle, digest);
            let manifest = resolved.manifest.unwrap();
            let config = store.config(&repository, &manifest).await.unwrap();
            assert_eq!((config.system, &config.version), (system, &version));
        }
    }
}

#[tokio::test]
async fn a_version_has_what_was_published_of_it_and_says_what_it_lacks() {
    let place = place().await;
    let published = place.publish().await.unwrap();
    let repository = place.repository();
    assert_eq!(published.version.to_string(), format!("{}/prog:1.0.0_x", place.store.address()));
    let wanted = &published.version.wanted;
    let lacks = place.store.resolve_for(&repository, wanted, System::LinuxArm64).await.unwrap_err();
    assert_eq!(lacks.trouble(), Trouble::Missing);
    assert!(lacks.to_string().contains("linux/arm64"), "{lacks}");
    let has = place.store.resolve_for(&repository, wanted, System::LinuxAmd64).await.unwrap();
    assert_eq!(has.bundle, place.packed.digest);
    // The index is found by its digest too.
    let index = place.store.tagged(&repository, &"1.0.0_x".parse().unwrap()).await.unwrap().unwrap();
    let by_digest = Wanted::Digest(index);
    let has = place.store.resolve_for(&repository, &by_digest, System::LinuxAmd64).await.unwrap();
    assert_eq!(has.bundle, place.packed.digest);
}

#[tokio::test]
async fn an_index_that_is_not_right_is_made_right_by_the_next_who_publishes() {
    let place = place().await;
    place.publish().await.unwrap();
    let repository = place.repository();
    // As a publisher leaves it that was killed before its index.
    let tag: Tag = "1.0.0_x".parse().unwrap();
    let empty = Index::new("prog", "1.0.0+x", []);
    place.store.put(&repository, "1.0.0_x", crate::manifest::INDEX_TYPE, &empty.to_bytes()).await.unwrap();
    let published = place.publish().await.unwrap();
    assert_eq!(published.done, [Action::PutIndex]);
    assert_eq!(place.store.index(&repository, &tag).await.unwrap().unwrap().manifests.len(), 1);
}

/// What one publisher does at once does not get in its own way: a registry on plain files does not find what it writes
/// anew, and a pause before another try is longer than all that publishing a small bundle takes.
#[tokio::test]
async fn who_publishes_alone_never_has_to_try_again() {
    let registry = Registry::start();
    let address = StoreAddress::parse(&registry.address.to_string(), PlainHttp::LoopbackOnly).unwrap();
    let store = Store::new(address, &Options { pauses: Vec::new(), ..quick() }).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let archive = folder.path().join(round.to_string());
        let packed = packed(a_bundle("prog", &format!("{round}.0")), &archive);
        let published = publish_one(&store, &archive, &packed).await;
        assert!(!published.unwrap_or_else(|error| panic!("{round}: {error}")).done.is_empty());
    }
}

/// Between the two a publisher can be killed, and either can be lost.
#[tokio::test]
async fn a_tag_without_its_index_or_an_index_without_its_tag_is_completed_by_the_next_who_publishes() {
    let place = place().await;
    let first = place.publish().await.unwrap();
    let (system_tag, version_tag) = ("1.0.0_x-linux-amd64", "1.0.0_x");
    for (lost, done) in
        [(system_tag, &[Action::PutTag, Action::PutIndex][..]), (version_tag, &[Action::PutIndex])]
    {
        place.registry.forget_tag("prog", lost);
        assert_eq!(place.publish().await.unwrap().done, done, "{lost}");
        let tagged = place.store.tagged(&place.repository(), &system_tag.parse().unwrap()).await.unwrap();
        assert_eq!(tagged.as_ref(), Some(&first.manifest));
        let index = place.store.index(&place.repository(), &version_tag.parse().unwrap()).await.unwrap();
        let listed: Vec<_> = index.unwrap().manifests.into_iter().map(|child| child.digest).collect();
        assert_eq!(listed, std::slice::from_ref(&first.manifest));
        assert_eq!(place.publish().await.unwrap().done, []);
    }
}

#[tokio::test]
async fn a_tag_that_moves_during_the_upload_is_noticed_and_left_where_it_is() {
    let place = place().await;
    let archive = place.at("b");
    let Packed { digest, size, config, .. } = &place.packed;
    let registry = place.registry.address;
    let (other_archive, other_digest, other_config) = (archive.clone(), digest.clone(), config.clone());
    let others = std::sync::Mutex::new(None);
    // While the archive goes over, somebody publishes the same version with something else said about it.
    let meanwhile = |_, _| {
        let mut others = others.lock().unwrap();
        if others.is_some() {
            return;
        }
        let publish = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (archive, digest, config) = (&other_archive, &other_digest, &other_config);
            let created = Some("2026-01-02T03:04:05Z");
            let publication = Publication { archive, digest, size: *size, config, created };
            runtime.block_on(store(registry).publish(&publication, SILENT)).unwrap()
        };
        *others = Some(std::thread::scope(|scope| scope.spawn(publish).join().unwrap()));
    };
    let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
    let error = place.store.publish(&publication, &meanwhile).await.unwrap_err();
    assert!(matches!(&error, StoreError::TagMoved { expected, .. } if expected == "nothing"), "{error}");
    let tag = "1.0.0_x-linux-amd64".parse().unwrap();
    let tagged = place.store.tagged(&place.repository(), &tag).await.unwrap();
    assert_eq!(tagged, Some(others.into_inner().unwrap().unwrap().manifest));
}

/// Who was told that it came back damaged, and publishes again, finds it there; and so does who published another version.
#[tokio::test]
async fn what_is_there_and_damaged_gets_no_tag_either() {
    let place = place().await;
    let first = place.publish().await.unwrap();
    let (repository, tag) = (place.repository(), "1.0.0_x-linux-amd64");
    let Packed { digest, config, .. } = &place.packed;
    for blob in [digest.clone(), Digest::of(&config.to_bytes())] {
        place.registry.forget_tag("prog", tag);
        let file = place.registry.blob(&blob);
        let whole = std::fs::read(&file).unwrap();
        let mut damaged = whole.clone();
        damaged[200] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        let error = place.publish().await.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Corrupted, "{error}");
        assert_eq!(place.store.tagged(&repository, &tag.parse().unwrap()).await.unwrap(), None);
        std::fs::write(&file, &whole).unwrap();
        place.publish().await.unwrap();
        let tagged = place.store.tagged(&repository, &tag.parse().unwrap()).await.unwrap();
        assert_eq!(tagged.as_ref(), Some(&first.manifest));
    }
}

/// Another revision of the same: nothing of the archive goes over the wire, in neither direction.
#[tokio::test]
async fn an_archive_that_the_tag_names_already_is_neither_sent_nor_read() {
    let place = place().await;
    place.publish().await.unwrap();
    let archive = place.at("b");
    let Packed { digest, size, config, .. } = &place.packed;
    let created = Some("2026-01-02T03:04:05Z");
    let otherwise = Publication { archive: &archive, digest, size: *size, config, created };
    // It would not come back as it is.
    let file = place.registry.blob(digest);
    let mut damaged = std::fs::read(&file).unwrap();
    damaged[200] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let published = place.store.publish(&otherwise, SILENT).await.unwrap();
    assert_eq!(published.done, [Action::PutManifest, Action::PutTag, Action::PutIndex]);
}

#[tokio::test]
async fn what_it_was_built_from_is_in_the_store_and_changes_no_blob() {
    let place = place().await;
    place.publish().await.unwrap();
    let build = crate::inputs::BuildInputs {
        revision: Some("0123456789abcdef".to_owned()),
        tree: Some(crate::inputs::SourceTree::Dirty),
        command: vec!["scripts/build".to_owned(), "linux/amd64".to_owned()],
        ..Default::default()
    };
    let config: Config = place.packed.config.clone().with_build(build.clone());
    let archive = place.at("b");
    let Packed { digest, size, .. } = &place.packed;
    let publication = Publication { archive: &archive, digest, size: *size, config: &config, created: None };
    let published = place.store.publish(&publication, SILENT).await.unwrap();
    assert!(!published.done.contains(&Action::Send(Part::Archive)));
    let resolved = place.store.resolve(&place.repository(), &published.tagged.wanted).await.unwrap();
    let manifest = resolved.manifest.unwrap();
    assert_eq!(manifest.annotations["org.opencontainers.image.revision"], "0123456789abcdef");
    let found = place.store.config(&place.repository(), &manifest).await.unwrap();
    assert_eq!(found.build, Some(build));
}
