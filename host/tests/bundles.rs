//! Bundles from a real registry: fetched, unpacked, kept, collected; and what goes wrong on the way.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests may stop too

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use camino::Utf8PathBuf;
use mesh_bundles::SILENT;
use mesh_bundles::archive::FileMode;
use mesh_bundles::entries::{Entry, Source};
use mesh_bundles::pack::{Bundle, pack};
use mesh_bundles::store::{Options, PlainHttp, Publication, Store, StoreAddress};
use mesh_host::accounts::Change;
use mesh_host::bundles::{collect, ensure, holds, take};
use mesh_protocol::declaration::BundleSpec;
use mesh_protocol::id::Digest;
use mesh_protocol::layout::Layout;

/// A registry in a folder of its own.
struct Registry {
    child: Child,
    folder: tempfile::TempDir,
    url: String,
}

impl Registry {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.yml");
        let storage = folder.path().join("storage");
        let text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: 127.0.0.1:0}}\n",
            storage.display()
        );
        fs::write(&config, text).unwrap();
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/parts");
        let parts = std::env::var_os("MESH_PARTS").map_or_else(default, PathBuf::from);
        let mut child = Command::new(parts.join("docker-registry/usr/bin/docker-registry"))
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .find_map(|line| Some(line.unwrap().split_once("listening on ")?.1.split('"').next()?.to_owned()))
            .expect("the registry says where it listens");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, folder, url: format!("http://{address}") }
    }

    async fn publish(&self, content: &[u8]) -> BundleSpec {
        let path = "program".parse().unwrap();
        let source = Source::Bytes { content: content.to_vec(), mode: FileMode::Program };
        let bundle = Bundle {
            name: "program".parse().unwrap(),
            version: "1.0.0".to_owned(),
            system: "linux/amd64".parse().unwrap(),
            entrypoint: "program".parse().unwrap(),
            entries: vec![Entry { path, source }],
        };
        let archive = self.folder.path().join("program.tar.gz");
        let packed = pack(bundle, &archive, 1, SILENT).unwrap();
        let address = StoreAddress::parse(&self.url, PlainHttp::LoopbackOnly).unwrap();
        let store = Store::new(address, &Options::default()).unwrap();
        let publication = Publication {
            archive: &archive,
            digest: &packed.digest,
            size: packed.size,
            config: &packed.config,
            created: None,
        };
        store.publish(&publication, SILENT).await.unwrap();
        BundleSpec { name: "program".parse().unwrap(), digest: packed.digest, size: packed.size }
    }

    /// The file that a blob lies in.
    fn blob(&self, digest: &Digest) -> PathBuf {
        let blobs = self.folder.path().join("storage/docker/registry/v2/blobs/sha256");
        blobs.join(&digest.hex()[..2]).join(digest.hex()).join("data")
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn layout() -> (tempfile::TempDir, Layout) {
    let folder = tempfile::tempdir().unwrap();
    let root = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    (folder, Layout::new(root))
}

/// The smallest that the packer takes for a program: an ELF header and a program that ends at once.
fn program(code: u8) -> Vec<u8> {
    let instructions = [0xbf, code, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let (base, begin) = (0x40_0000_u64, 64 + 56_u64);
    let length = begin + instructions.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\x00".to_vec();
    elf.extend([0; 8]);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend((base + begin).to_le_bytes());
    elf.extend(64_u64.to_le_bytes());
    elf.extend([0; 12]);
    elf.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, base, base, length, length, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(instructions);
    elf
}

#[tokio::test]
async fn a_bundle_is_fetched_once_and_kept_while_it_is_needed() {
    let (_kept, layout) = layout();
    let registry = Registry::start();
    let one = registry.publish(&program(1)).await;
    let two = registry.publish(&program(2)).await;
    assert!(!holds(&layout, &one.digest));
    let made = ensure(&layout, &registry.url, &one).await.unwrap();
    assert_eq!((&made.folder, made.change), (&layout.bundle(&one.digest), Change::Done));
    let status = Command::new(made.folder.join("program")).status().unwrap();
    assert_eq!(status.code(), Some(1));
    ensure(&layout, &registry.url, &two).await.unwrap();
    let url = registry.url.clone();
    drop(registry);
    let again = ensure(&layout, &url, &one).await.unwrap();
    assert_eq!(again.change, Change::None, "the store is not asked");
    assert_eq!(fs::read_dir(layout.host().join("fetch")).unwrap().count(), 0);
    assert_eq!(
        collect(&layout, &BTreeSet::from([two.digest.clone()])).unwrap(),
        std::slice::from_ref(&one.digest)
    );
    assert!(!holds(&layout, &one.digest) && holds(&layout, &two.digest));
    let error = ensure(&layout, &url, &one).await.unwrap_err();
    assert!(error.is_surroundings(), "nobody answers there: {error}");
}

#[tokio::test]
async fn what_speaks_against_the_bundle_is_told_from_what_does_not() {
    let (_kept, layout) = layout();
    let registry = Registry::start();
    let published = registry.publish(&program(1)).await;
    let missing = BundleSpec { digest: Digest::of(b"nothing"), ..published.clone() };
    let error = ensure(&layout, &registry.url, &missing).await.unwrap_err();
    assert!(!error.is_surroundings(), "{error}");
    let too_large = BundleSpec { size: 7, ..published.clone() };
    let error = ensure(&layout, &registry.url, &too_large).await.unwrap_err();
    assert!(!error.is_surroundings(), "{error}");
    let blob = registry.blob(&published.digest);
    let mut bytes = fs::read(&blob).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::set_permissions(&blob, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&blob, bytes).unwrap();
    let error = ensure(&layout, &registry.url, &published).await.unwrap_err();
    assert!(!error.is_surroundings(), "{error}");
    assert!(!layout.bundle(&published.digest).exists());
    let error = ensure(&layout, "ftp://nowhere", &published).await.unwrap_err();
    assert!(error.is_surroundings(), "{error}");
}

#[tokio::test]
async fn an_archive_that_was_fetched_before_is_verified_all_the_same() {
    let (_kept, layout) = layout();
    let registry = Registry::start();
    let published = registry.publish(&program(1)).await;
    let fetched = layout.host().join("fetch");
    fs::create_dir_all(&fetched).unwrap();
    let archive = fetched.join(format!("{}.tar.gz", published.digest.hex()));
    fs::write(&archive, vec![0; usize::try_from(published.size).unwrap()]).unwrap();
    let error = ensure(&layout, &registry.url, &published).await.unwrap_err();
    assert!(!error.is_surroundings(), "{error}");
    ensure(&layout, &registry.url, &published).await.unwrap();
    assert!(holds(&layout, &published.digest));
    assert_eq!(collect(&layout, &BTreeSet::new()).unwrap(), [published.digest]);
}

#[tokio::test]
async fn an_archive_that_somebody_gave_stays_until_it_is_unpacked_and_no_other_does() {
    let (kept, layout) = layout();
    let registry = Registry::start();
    let published = registry.publish(&program(1)).await;
    let (wanted, given) = (published.digest.clone(), kept.path().join("given.tar.gz"));
    fs::copy(registry.blob(&wanted), &given).unwrap();
    take(&layout, camino::Utf8Path::from_path(&given).unwrap(), &wanted).unwrap();
    let leftover = layout.host().join("fetch/leftover");
    fs::write(&leftover, "").unwrap();
    let keep = BTreeSet::from([wanted.clone()]);
    assert!(collect(&layout, &keep).unwrap().is_empty());
    assert!(!leftover.exists());
    drop(registry);
    // The store is gone, and what was given does.
    ensure(&layout, "http://127.0.0.1:9", &published).await.unwrap();
    assert!(holds(&layout, &wanted));
    assert!(collect(&layout, &keep).unwrap().is_empty());
    assert_eq!(collect(&layout, &BTreeSet::new()).unwrap(), [wanted]);
}
