//! What of a root goes into a backup, read so that it is of one instant though everything runs.
//!
//! In: a root. Out: folders, links, and files with where their bytes are. Not here: writing them down.
//!
//! What changes (the host's records, the bus's folder, the secrets) is read until two readings in a row are equal, byte for
//! byte. Every first look at a file came before every second one: so at the instant between the two readings all files
//! were as they were read. A machine whose power is cut at that instant is left with just that, and host, bus and
//! controller come up from it. What is named by its content (bundles, the store's blobs) is read afterwards: it was there
//! before what refers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::id::Digest;
use mesh_protocol::layout::Layout;
use serde::Deserialize;

use super::{FolderEntry, LinkEntry};
use crate::output::{Code, Failure, Result};
use crate::third_party::ThirdParty;

/// A host writes its report every ten seconds, and a reading takes some milliseconds: two equal ones come soon. In a
/// handover everything changes every 50 ms, for some seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the bytes of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// They were read.
    Bytes(Vec<u8>),
    /// They lie there, and do not change.
    File(Utf8PathBuf),
}

/// Whether the artifact store's content is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreContent {
    /// It is.
    With,
    /// It is backed up otherwise.
    Without,
}

/// What goes into a backup, by paths below the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gathered {
    /// The folders.
    pub folders: BTreeSet<FolderEntry>,
    /// The files, with their permissions.
    pub files: BTreeMap<Utf8PathBuf, (u32, Place)>,
    /// The links.
    pub links: BTreeSet<LinkEntry>,
    /// The images that its containers are made from.
    pub images: BTreeSet<String>,
}

/// How files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Now,
    Later,
}

/// Reads all that goes into a backup.
///
/// # Errors
/// When something cannot be read, or changed all the time.
pub fn gather(layout: &Layout, store: StoreContent) -> Result<Gathered> {
    let deadline = Instant::now() + LIMIT;
    let mut gathered = stable(|| changing(layout), deadline)?;
    gathered.images = held(&gathered)?.iter().flat_map(images_of).collect();
    lasting(layout, store, &mut gathered)?;
    for entry in held(&gathered)? {
        for bundle in &entry.section.bundles {
            let path = below(layout, &layout.bundle(&bundle.digest));
            if !gathered.folders.iter().any(|folder| folder.path == path) {
                return Err(Failure::new(
                    Code::Missing,
                    format!("bundle {} of {} is not on this node", bundle.digest, entry.id),
                )
                .expected(layout.bundle(&bundle.digest).to_string())
                .hint("see mesh status; try again when the host has it"));
            }
        }
    }
    Ok(gathered)
}

/// Reads until two readings in a row are equal.
fn stable<T: PartialEq>(mut read: impl FnMut() -> Result<T>, deadline: Instant) -> Result<T> {
    let mut before = read()?;
    loop {
        let now = read()?;
        if now == before {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(Failure::new(Code::Unavailable, "the mesh's state changes all the time")
                .expected(format!("two equal readings of it within {} s", LIMIT.as_secs()))
                .hint("try again when no plan is under way: mesh plans"));
        }
        before = now;
    }
}

/// What changes while the mesh runs.
fn changing(layout: &Layout) -> Result<Gathered> {
    let mut gathered = Gathered::default();
    let bus = ThirdParty::Bus.module()?;
    for file in [layout.mesh_file(), layout.host_file(), layout.declaration(), layout.ledger()] {
        gathered.take(layout, &file, Reading::Now)?;
    }
    for folder in [
        layout.identity(),
        parent(&layout.credential("x")),
        layout.all_secrets(),
        layout.handovers(),
        layout.steadies(),
        layout.recoveries(),
        layout.data(&bus),
    ] {
        gathered.take(layout, &folder, Reading::Now)?;
    }
    Ok(gathered)
}

/// What is named by its content, or replaced by nobody who does not hold the lock.
fn lasting(layout: &Layout, store: StoreContent, gathered: &mut Gathered) -> Result<()> {
    gathered.take(layout, &layout.programs(), Reading::Later)?;
    for bundle in entries(&layout.bundles())? {
        let is_whole = bundle.file_name().is_some_and(|name| name.len() == 64);
        if is_whole {
            gathered.take(layout, &bundle, Reading::Later)?;
        }
    }
    if store == StoreContent::With {
        // A link of the store is there after the blob that it names: so links are looked at first.
        let store = layout.data(&ThirdParty::Store.module()?);
        let folders = ["docker/registry/v2/repositories", "docker/registry/v2/blobs"];
        for folder in folders {
            gathered.take(layout, &store.join(folder), Reading::Later)?;
        }
    }
    for folder in [layout.bundles(), layout.host(), parent(&layout.data(&ThirdParty::Bus.module()?))] {
        gathered.name(layout, &folder)?;
    }
    Ok(())
}

impl Gathered {
    /// Takes what is there, with all that is in it; what is not there is not in it.
    fn take(&mut self, layout: &Layout, path: &Utf8Path, reading: Reading) -> Result<()> {
        let facts = match std::fs::symlink_metadata(path) {
            Ok(facts) => facts,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unread(path, &error)),
        };
        let mode = facts.permissions().mode() & 0o7777;
        if facts.is_dir() {
            self.name(layout, path)?;
            for entry in entries(path)? {
                if !is_left_out(&entry) {
                    self.take(layout, &entry, reading)?;
                }
            }
        } else if facts.is_symlink() {
            let target = path.read_link_utf8().map_err(|error| unread(path, &error))?;
            self.links.insert(LinkEntry { path: below(layout, path), target });
        } else if facts.is_file() {
            let place = match reading {
                Reading::Later => Place::File(path.to_owned()),
                Reading::Now => match std::fs::read(path) {
                    Ok(bytes) => Place::Bytes(bytes),
                    // It went between two looks: the next reading does not find it either.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                    Err(error) => return Err(unread(path, &error)),
                },
            };
            self.files.insert(below(layout, path), (mode, place));
        }
        Ok(())
    }

    /// Takes a folder itself, and those it lies in.
    fn name(&mut self, layout: &Layout, path: &Utf8Path) -> Result<()> {
        for folder in path.ancestors().take_while(|folder| *folder != layout.root()) {
            let mode = match std::fs::symlink_metadata(folder) {
                Ok(facts) => facts.permissions().mode() & 0o7777,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(unread(folder, &error)),
            };
            self.folders.insert(FolderEntry { path: below(layout, folder), mode });
        }
        Ok(())
    }
}

/// What half-written files are called, and uploads to the store that have not ended.
fn is_left_out(path: &Utf8Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name == "_uploads" || (name.starts_with('.') && name.ends_with(".tmp"))
}

/// What the host held, as it was read.
fn held(gathered: &Gathered) -> Result<Vec<LedgerEntry>> {
    #[derive(Deserialize)]
    struct Ledger {
        entries: Vec<LedgerEntry>,
    }
    let Some((_, Place::Bytes(bytes))) = gathered.files.get(Utf8Path::new("host/ledger.json")) else {
        return Err(Failure::new(Code::NotReached, "the host of this mesh holds nothing yet")
            .hint("go on with: mesh genesis"));
    };
    let ledger: Ledger = serde_json::from_slice(bytes)
        .map_err(|error| Failure::because(Code::HostAnswer, "the host's ledger cannot be read", &error))?;
    Ok(ledger.entries)
}

fn images_of(entry: &LedgerEntry) -> Vec<String> {
    entry.section.containers.iter().map(|container| container.image.clone()).collect()
}

fn entries(folder: &Utf8Path) -> Result<Vec<Utf8PathBuf>> {
    let found = match folder.read_dir_utf8() {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unread(folder, &error)),
    };
    let mut paths = Vec::new();
    for entry in found {
        paths.push(entry.map_err(|error| unread(folder, &error))?.into_path());
    }
    paths.sort();
    Ok(paths)
}

fn below(layout: &Layout, path: &Utf8Path) -> Utf8PathBuf {
    path.strip_prefix(layout.root()).unwrap_or(path).to_owned()
}

fn parent(path: &Utf8Path) -> Utf8PathBuf {
    path.parent().unwrap_or(path).to_owned()
}

fn unread(path: &Utf8Path, error: &io::Error) -> Failure {
    Failure::because(Code::Io, &format!("{path} cannot be read"), error)
}

/// The digest of a file and its length.
pub(super) fn measure(path: &Utf8Path) -> io::Result<(Digest, u64)> {
    let mut measured = super::archive::Measured::new(io::sink());
    io::copy(&mut std::fs::File::open(path)?, &mut measured)?;
    Ok(measured.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_of_one_instant() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap());
        let folder = layout.data(&ThirdParty::Bus.module().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        let files: Vec<Utf8PathBuf> = (0..20).map(|number| folder.join(format!("{number:02}"))).collect();
        // One after the other is raised, the last first: at any instant no file has more than one behind it, and the first
        // and the last are at most one apart. Bursts, for a bus is not written to all the time.
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0_u64;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    for _ in 0..5 {
                        number += 1;
                        for file in files.iter().rev() {
                            std::fs::write(file, number.to_string()).unwrap();
                        }
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            for _ in 0..30 {
                let read = stable(|| changing(&layout), Instant::now() + Duration::from_secs(20)).unwrap();
                // A file that is being written is empty for a moment; that too is how it was at that instant.
                let numbers: Vec<u64> = files
                    .iter()
                    .filter_map(|file| read.files.get(&below(&layout, file)))
                    .filter_map(|(_, place)| match place {
                        Place::Bytes(bytes) => std::str::from_utf8(bytes).unwrap().parse().ok(),
                        Place::File(_) => None,
                    })
                    .collect();
                assert!(numbers.is_sorted(), "{numbers:?}");
                if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
                    assert!(last - first <= 1, "{numbers:?}");
                }
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn what_changes_all_the_time_is_given_up() {
        let mut number = 0;
        let read = || {
            number += 1;
            Ok(number)
        };
        let failure = stable(read, Instant::now()).unwrap_err();
        assert_eq!(failure.code, Code::Unavailable);
    }

    #[test]
    fn half_written_files_and_uploads_are_left_out_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap().join("root"));
        let bundle = layout.bundles().join("a".repeat(64));
        let blobs = layout.data(&ThirdParty::Store.module().unwrap()).join("docker/registry/v2");
        for folder in [
            &bundle,
            &layout.bundles().join("half"),
            &blobs.join("blobs"),
            &blobs.join("repositories/x/_uploads"),
        ] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let outside = layout.root().parent().unwrap().join("precious");
        std::fs::write(&outside, "mine").unwrap();
        std::os::unix::fs::symlink(&outside, bundle.join("link")).unwrap();
        for file in [
            bundle.join("program"),
            bundle.join(".program.1.2.tmp"),
            blobs.join("blobs/b"),
            blobs.join("repositories/x/_uploads/u"),
        ] {
            std::fs::write(file, "x").unwrap();
        }
        let mut gathered = Gathered::default();
        lasting(&layout, StoreContent::With, &mut gathered).unwrap();
        let names: Vec<&str> = gathered.files.keys().map(|path| path.file_name().unwrap()).collect();
        assert_eq!(names, ["program", "b"]);
        assert_eq!(gathered.links.first().map(|link| link.target.as_path()), Some(outside.as_path()));
        let mut without = Gathered::default();
        lasting(&layout, StoreContent::Without, &mut without).unwrap();
        assert_eq!(without.files.len(), 1);
    }
}
