//! Stores that give each of their users a path, and what one repository of a store can take from another.

use super::*;

fn at(address: SocketAddr, options: &Options) -> Store {
    let address = StoreAddress::parse(&address.to_string(), PlainHttp::LoopbackOnly).unwrap();
    Store::new(address, options).unwrap()
}

#[tokio::test]
async fn below_a_path_bundles_are_published_listed_and_pruned_and_nothing_beside_it() {
    let place = place().await;
    place.publish().await.unwrap();
    let below = at(place.registry.address, &Options { path: Some("owner/x".parse().unwrap()), ..quick() });
    let archive = place.at("b");
    let Packed { digest, size, config, .. } = &place.packed;
    let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
    let published = below.publish(&publication, SILENT).await.unwrap();
    assert!(published.tagged.to_string().contains("/owner/x/prog:"), "{}", published.tagged);

    let listed = below.list().await.unwrap();
    let names: Vec<_> = listed.iter().map(|one| one.repository.to_string()).collect();
    assert_eq!(names, ["owner/x/prog"]);
    let plan = PrunePlan::new(listed, &std::collections::BTreeSet::new());
    assert_eq!(below.prune(&plan).await.unwrap().len(), 1);
    let left: Vec<_> =
        place.store.list().await.unwrap().iter().map(|one| one.repository.to_string()).collect();
    assert_eq!(left, ["prog"]);
}

#[tokio::test]
async fn what_another_repository_has_is_taken_from_there_and_what_it_has_not_is_sent() {
    let place = place().await;
    place.publish().await.unwrap();
    let archive = place.at("b");
    let Packed { digest, size, config, .. } = &place.packed;
    let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
    let mounting = |from: &str, path: &str| {
        let (from, path) = (Some(from.parse().unwrap()), Some(path.parse().unwrap()));
        at(place.proxy.address, &Options { mount_from: from, path, ..quick() })
    };
    place.proxy.count();
    mounting("prog", "one").publish(&publication, SILENT).await.unwrap();
    let (_, sent) = place.proxy.count();
    assert!(sent < 20_000, "{sent} bytes were sent of a bundle of {size}");
    let fetched = place.at("out");
    let repository = "one/prog".parse().unwrap();
    assert_eq!(place.store.fetch(&repository, digest, &fetched, *size, SILENT).await.unwrap(), *size);

    mounting("nothing", "two").publish(&publication, SILENT).await.unwrap();
    let (_, sent) = place.proxy.count();
    assert!(sent > *size, "{sent} bytes were sent of a bundle of {size}");
}
