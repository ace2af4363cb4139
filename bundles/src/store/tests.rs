//! The store's client against a real registry, with a proxy before it that counts, and cuts when it is told to.

mod at_once;
mod authorization;
mod cut;
mod fuzz;
mod house;
mod interop;
mod paths;
mod proxy;
mod publishers;
pub(crate) mod registry;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mesh_protocol::id::Digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use self::proxy::Proxy;
use self::registry::Registry;
use super::*;
use crate::SILENT;
use crate::pack::Packed;
use crate::testing::{a_bundle, packed};

fn quick() -> Options {
    let pauses = [10, 20, 50, 100, 200].map(Duration::from_millis).to_vec();
    Options { idle: Duration::from_secs(5), pauses, ..Options::default() }
}

fn store(address: SocketAddr) -> Store {
    let address = StoreAddress::parse(&address.to_string(), PlainHttp::LoopbackOnly).unwrap();
    Store::new(address, &quick()).unwrap()
}

struct Place {
    folder: tempfile::TempDir,
    registry: Registry,
    proxy: Proxy,
    store: Store,
    packed: Packed,
}

async fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::start();
    let proxy = Proxy::before(registry.address).await;
    let store = store(proxy.address);
    let packed = packed(a_bundle("prog", "1.0.0+x"), &folder.path().join("b"));
    Place { folder, registry, proxy, store, packed }
}

impl Place {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn publish(&self) -> Result<Published, StoreError> {
        let archive = self.at("b");
        let Packed { digest, size, config, .. } = &self.packed;
        let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
        self.store.publish(&publication, SILENT).await
    }

    fn repository(&self) -> Repository {
        Repository::from(&self.packed.config.name)
    }

    async fn fetch(&self) -> Result<u64, StoreError> {
        let out = self.at("out");
        self.store.fetch(&self.repository(), &self.packed.digest, &out, 1 << 30, SILENT).await
    }

    fn nothing_was_left(&self) {
        let names: Vec<_> =
            std::fs::read_dir(&self.folder).unwrap().map(|found| found.unwrap().file_name()).collect();
        assert_eq!(names, ["b"]);
    }
}

#[tokio::test]
async fn what_is_published_is_fetched_by_its_digest_alone() {
    let place = place().await;
    place.store.ping().await.unwrap();
    let repository = place.repository();
    assert_eq!(place.store.tags(&repository).await.unwrap(), [""; 0]);
    assert_eq!(place.store.blob(&repository, &place.packed.digest).await.unwrap(), Presence::Absent);

    let published = place.publish().await.unwrap();
    assert_eq!(published.bundle, place.packed.digest);
    let [archive, config] = [Part::Archive, Part::Config].map(Action::Send);
    assert_eq!(published.done, [archive, config, Action::PutManifest, Action::PutTag, Action::PutIndex]);
    assert_eq!(place.store.tags(&repository).await.unwrap(), ["1.0.0_x", "1.0.0_x-linux-amd64"]);

    assert_eq!(place.fetch().await.unwrap(), place.packed.size);
    assert!(std::fs::read(place.at("out")).unwrap() == std::fs::read(place.at("b")).unwrap());

    // And found by tag, by the manifest's digest, and by the bundle's own.
    for wanted in [published.tagged.wanted.clone(), Wanted::Digest(published.manifest.clone())] {
        let resolved = place.store.resolve(&repository, &wanted).await.unwrap();
        assert_eq!((&resolved.bundle, resolved.size), (&place.packed.digest, Some(place.packed.size)));
        let config = place.store.config(&repository, &resolved.manifest.unwrap()).await.unwrap();
        assert_eq!(config, place.packed.config);
    }
    let own = Wanted::Digest(place.packed.digest.clone());
    let resolved = place.store.resolve(&repository, &own).await.unwrap();
    assert_eq!((resolved.bundle, resolved.manifest), (place.packed.digest.clone(), None));
}

#[tokio::test]
async fn publishing_again_sends_nothing() {
    let place = place().await;
    let first = place.publish().await.unwrap();
    let (_, sent) = place.proxy.count();
    assert!(sent > place.packed.size);
    let second = place.publish().await.unwrap();
    let (requests, sent) = place.proxy.count();
    assert_eq!((second.manifest, second.done), (first.manifest, vec![]));
    assert!(requests <= 3, "{requests} requests");
    assert!(sent < 2000, "{sent} bytes");
}

#[tokio::test]
async fn a_tag_that_names_something_else_is_moved_and_no_blob_sent() {
    let place = place().await;
    place.publish().await.unwrap();
    let (archive, created) = (place.at("b"), Some("2026-01-02T03:04:05Z"));
    let Packed { digest, size, config, .. } = &place.packed;
    let publication = Publication { archive: &archive, digest, size: *size, config, created };
    let published = place.store.publish(&publication, SILENT).await.unwrap();
    assert_eq!(published.done, [Action::PutManifest, Action::PutTag, Action::PutIndex]);
}

#[tokio::test]
async fn a_blob_that_is_corrupted_in_the_store_is_told_and_not_kept() {
    let place = place().await;
    place.publish().await.unwrap();
    let file = place.registry.blob(&place.packed.digest);
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[1000] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let error = place.fetch().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Corrupted);
    assert!(
        matches!(&error, StoreError::Corrupted { expected, found, .. }
        if *expected == place.packed.digest && *found == Digest::of(&damaged)),
        "{error}"
    );

    // One that is shorter is seen by publishing too, without reading it.
    std::fs::write(&file, &whole[..1000]).unwrap();
    assert_eq!(place.fetch().await.unwrap_err().trouble(), Trouble::Corrupted);
    let error = place.publish().await.unwrap_err();
    assert!(matches!(error, StoreError::WrongSize { found: 1000, .. }), "{error}");
    place.nothing_was_left();
}

#[tokio::test]
async fn a_transfer_that_is_cut_goes_on_where_it_was() {
    let place = place().await;
    place.publish().await.unwrap();
    place.proxy.count();
    place.proxy.cut_answers_after.store(150_000, Ordering::SeqCst);
    assert_eq!(place.fetch().await.unwrap(), place.packed.size);
    let (requests, _) = place.proxy.count();
    assert!(requests > place.packed.size / 150_000, "{requests} requests");
    assert!(std::fs::read(place.at("out")).unwrap() == std::fs::read(place.at("b")).unwrap());
}

#[tokio::test]
async fn a_transfer_that_is_always_cut_before_anything_comes_ends_as_unreachable() {
    let place = place().await;
    place.publish().await.unwrap();
    place.proxy.cut_answers_after.store(0, Ordering::SeqCst);
    let error = place.fetch().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
    assert_eq!(error.trouble(), Trouble::Surroundings);
    place.nothing_was_left();
}

#[tokio::test]
async fn what_is_not_there_or_too_large_or_nobody_is_each_told_apart() {
    let place = place().await;
    let error = place.fetch().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Missing);
    let tag = Wanted::Tag("none".parse().unwrap());
    assert_eq!(place.store.resolve(&place.repository(), &tag).await.unwrap_err().trouble(), Trouble::Missing);

    place.publish().await.unwrap();
    let out = place.at("out");
    let fetched = place.store.fetch(&place.repository(), &place.packed.digest, &out, 1000, SILENT).await;
    assert!(matches!(fetched.unwrap_err(), StoreError::TooLarge { limit: 1000, .. }));

    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = store(nobody).ping().await.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Surroundings);
    place.nothing_was_left();
}

#[tokio::test]
async fn a_store_that_says_nothing_is_not_waited_for() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address =
        StoreAddress::parse(&silent.local_addr().unwrap().to_string(), PlainHttp::LoopbackOnly).unwrap();
    let options = Options { idle: Duration::from_millis(200), pauses: vec![], ..Options::default() };
    let store = Store::new(address, &options).unwrap();
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Silent { .. }), "{error}");
    let place = tempfile::tempdir().unwrap();
    let repository = "prog".parse().unwrap();
    let fetched = store.fetch(&repository, &Digest::of(b""), &place.path().join("out"), 1, SILENT).await;
    assert!(matches!(fetched.unwrap_err(), StoreError::Silent { .. }));
    let blob =
        upload::Blob { content: upload::Content::Bytes("x".into()), digest: &Digest::of(b"x"), size: 1 };
    let sent = store.upload(&repository, &blob, SILENT).await;
    assert!(matches!(sent.unwrap_err(), StoreError::Silent { .. }));
}

#[tokio::test]
async fn a_file_that_is_another_by_now_is_refused() {
    let place = place().await;
    let whole = std::fs::read(place.at("b")).unwrap();
    std::fs::write(place.at("b"), &whole[1..]).unwrap();
    assert!(matches!(place.publish().await.unwrap_err(), StoreError::FileChanged { .. }));
    let mut other = whole.clone();
    other[500] ^= 1;
    std::fs::write(place.at("b"), &other).unwrap();
    let error = place.publish().await.unwrap_err();
    assert!(
        matches!(&error, StoreError::FileDiffers { found, .. } if *found == Digest::of(&other)),
        "{error}"
    );
}

#[tokio::test]
async fn progress_of_both_ways_ends_at_the_whole() {
    let place = place().await;
    let last = std::sync::Mutex::new((0, None));
    let told = |done, total| *last.lock().unwrap() = (done, total);
    let archive = place.at("b");
    let Packed { digest, size, config, .. } = &place.packed;
    let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
    place.store.publish(&publication, &told).await.unwrap();
    assert_eq!(*last.lock().unwrap(), (*size, Some(*size)));
    *last.lock().unwrap() = (0, None);
    place.store.fetch(&place.repository(), digest, &place.at("out"), *size, &told).await.unwrap();
    assert_eq!(*last.lock().unwrap(), (*size, Some(*size)));
}

#[test]
fn a_client_is_made_on_a_machine_without_certificates_and_bad_ones_are_told() {
    let address = || StoreAddress::parse("store.example", PlainHttp::LoopbackOnly).unwrap();
    Store::new(address(), &Options::default()).unwrap();
    let roots = b"-----BEGIN CERTIFICATE-----\nbm8gY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n".to_vec();
    let error = Store::new(address(), &Options { roots, ..Options::default() }).unwrap_err();
    assert!(matches!(error, StoreError::Certificates { .. }));
}

#[tokio::test]
async fn what_the_disk_has_no_room_for_is_not_begun() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = store(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let _some = stream.read(&mut request).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1_u64 << 60);
        stream.write_all(answer.as_bytes()).await.unwrap();
        // Not a byte more, and the connection stays: whoever waits for one waits until it is silent for too long.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    let folder = tempfile::tempdir().unwrap();
    let (repository, out) = ("prog".parse().unwrap(), folder.path().join("out"));
    let error = store.fetch(&repository, &Digest::of(b""), &out, u64::MAX, SILENT).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::File { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{error:?}"
    );
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

/// A registry that takes no more than a chunk in one request, says where to go on by a relative location, and
/// answers each request on a connection of its own. Returns what was sent, once it is whole.
async fn takes_chunks_only(listener: TcpListener) -> (Vec<u8>, Vec<String>) {
    let (mut have, mut asked) = (Vec::new(), Vec::new());
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        let end = loop {
            let count = stream.read(&mut buffer).await.unwrap();
            request.extend_from_slice(&buffer[..count]);
            if let Some(at) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = String::from_utf8(request[..end].to_vec()).unwrap().to_lowercase();
        let length =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = request.split_off(end);
        while body.len() < length {
            let count = stream.read(&mut buffer).await.unwrap();
            body.extend_from_slice(&buffer[..count]);
        }
        let method = head.split(' ').next().unwrap().to_owned();
        asked.push(method.clone());
        let (answer, done) = match method.as_str() {
            "post" => ("202 Accepted\r\nLocation: session?a=b".to_owned(), false),
            "put" if body.len() > 4 << 20 => ("413 Payload Too Large".to_owned(), false),
            "put" => {
                have.extend(body);
                ("201 Created".to_owned(), true)
            }
            "patch" => {
                have.extend(body);
                let last = have.len() - 1;
                (format!("202 Accepted\r\nLocation: session?a={last}\r\nRange: 0-{last}"), false)
            }
            _ => ("204 No Content".to_owned(), false),
        };
        let answer = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.unwrap();
        if done {
            return (have, asked);
        }
    }
}

#[tokio::test]
async fn a_store_that_takes_no_large_request_gets_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("blob");
    let content = crate::testing::some_bytes(9 << 20);
    std::fs::write(&file, &content).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = store(listener.local_addr().unwrap());
    let registry = tokio::spawn(takes_chunks_only(listener));
    let digest = Digest::of(&content);
    let blob = upload::Blob { content: upload::Content::File(&file), digest: &digest, size: 9 << 20 };
    store.upload(&"prog".parse().unwrap(), &blob, SILENT).await.unwrap();
    let (have, asked) = registry.await.unwrap();
    assert!(have == content);
    assert_eq!(asked, ["post", "put", "delete", "post", "patch", "patch", "put"]);
}
