//! The file of a backup: written whole or not at all, read with distrust.
//!
//! In: what was gathered; a file. Out: a file; a root. The first entry is `manifest.json`, the second its digest, and then
//! each content once, `content/<sha256>`, in their order: the same state makes the same bytes. Not here: what goes in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use mesh_durable as durable;
use mesh_protocol::id::Digest;
use serde::Deserialize;
use sha2::Digest as _;

use super::gather::{Gathered, Place, measure};
use super::{FORMAT, FileEntry, ImageEntry, Manifest};
use crate::output::{Code, Failure, Result};

const MANIFEST: &str = "manifest.json";
const MANIFEST_DIGEST: &str = "manifest.sha256";
const CONTENT: &str = "content/";

/// A line a file: a hundred thousand files are some twenty megabytes.
const LONGEST_MANIFEST: u64 = 256 << 20;

/// Bytes on their way, measured.
pub(super) struct Measured<T> {
    inner: T,
    hasher: sha2::Sha256,
    size: u64,
}

impl<T> Measured<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, hasher: sha2::Sha256::new(), size: 0 }
    }

    pub(super) fn end(self) -> (Digest, u64) {
        (Digest::from_sha256(self.hasher.finalize().into()), self.size)
    }

    fn count(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
    }
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.count(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Measured<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count(&buffer[..count]);
        Ok(count)
    }
}

/// Writes a backup under its name, once all of it is on the disk. `head` has all but what was gathered; `images` are
/// archives by their references. Returns the manifest.
///
/// # Errors
/// When something cannot be read, or the file not be written: then there is none, or the one that was there before.
pub fn write(
    path: &Utf8Path,
    head: Manifest,
    gathered: &Gathered,
    images: &[(String, Utf8PathBuf)],
) -> Result<Manifest> {
    let mut contents: BTreeMap<Digest, Place> = BTreeMap::new();
    let mut manifest = Manifest {
        folders: gathered.folders.iter().cloned().collect(),
        links: gathered.links.iter().cloned().collect(),
        ..head
    };
    let unread = |path: &Utf8Path, error: &io::Error| {
        Failure::because(Code::Io, &format!("{path} cannot be read"), error)
    };
    for (name, (mode, place)) in &gathered.files {
        let (digest, size) = match place {
            Place::Bytes(bytes) => (Digest::of(bytes), bytes.len() as u64),
            Place::File(file) => measure(file).map_err(|error| unread(file, &error))?,
        };
        contents.insert(digest.clone(), place.clone());
        manifest.files.push(FileEntry { path: name.clone(), mode: *mode, size, digest });
    }
    for (reference, file) in images {
        let (digest, size) = measure(file).map_err(|error| unread(file, &error))?;
        contents.insert(digest.clone(), Place::File(file.clone()));
        manifest.images.push(ImageEntry { reference: reference.clone(), size, digest });
    }
    let written = durable::write_by(path, 0o600, |file| fill(file, &manifest, &contents));
    written.map_err(|error| {
        let code = if error.is_disk_full() { Code::DiskFull } else { Code::Io };
        Failure::of(code, &error)
            .hint("nothing was written under that name; give a path in a folder that has room")
    })?;
    Ok(manifest)
}

fn fill(file: &mut File, manifest: &Manifest, contents: &BTreeMap<Digest, Place>) -> io::Result<()> {
    let sizes = manifest.contents();
    let mut tar = tar::Builder::new(io::BufWriter::with_capacity(1 << 20, file));
    let text = serde_json::to_vec(manifest)?;
    append(&mut tar, MANIFEST, text.len() as u64, text.as_slice())?;
    let digest = format!("{}\n", Digest::of(&text));
    append(&mut tar, MANIFEST_DIGEST, digest.len() as u64, digest.as_bytes())?;
    for (digest, place) in contents {
        let size = sizes.get(digest).copied().unwrap_or_default();
        let name = format!("{CONTENT}{}", digest.hex());
        match place {
            Place::Bytes(bytes) => append(&mut tar, &name, size, bytes.as_slice())?,
            Place::File(path) => {
                let mut source = Measured::new(File::open(path)?.take(size));
                append(&mut tar, &name, size, &mut source)?;
                if source.end() != (digest.clone(), size) {
                    return Err(io::Error::other(format!("{path} changed while it was read")));
                }
            }
        }
    }
    tar.into_inner()?.flush()
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, size: u64, content: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_size(size);
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_entry_type(tar::EntryType::Regular);
    header.set_cksum();
    tar.append(&header, content)
}

/// A backup whose manifest was read and found right.
#[derive(Debug, Clone)]
pub struct Opened {
    path: Utf8PathBuf,
    /// What is in it.
    pub manifest: Manifest,
    /// Of the manifest: what tells this backup from every other.
    pub digest: Digest,
}

impl Opened {
    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// When it is no backup, is damaged, or is of a newer form.
    pub fn read(path: &Utf8Path) -> Result<Self> {
        let file = File::open(path)
            .map_err(|error| Failure::because(Code::Io, &format!("backup {path} cannot be read"), &error))?;
        let mut tar = tar::Archive::new(io::BufReader::new(file));
        let mut entries = tar.entries().map_err(|error| damaged(path, &error.to_string()))?;
        let mut next = |name: &str| -> Result<Vec<u8>> {
            let none = || {
                damaged(path, &format!("it has no {name} where one should be"))
                    .expected("a file that mesh backup wrote")
            };
            let entry = entries.next().ok_or_else(none)?.map_err(|_| none())?;
            if entry.path_bytes().as_ref() != name.as_bytes() {
                return Err(none());
            }
            let mut bytes = Vec::new();
            entry
                .take(LONGEST_MANIFEST)
                .read_to_end(&mut bytes)
                .map_err(|error| damaged(path, &error.to_string()))?;
            Ok(bytes)
        };
        let text = next(MANIFEST)?;
        let told = next(MANIFEST_DIGEST)?;
        let digest = Digest::of(&text);
        if String::from_utf8_lossy(&told).trim() != digest.as_str() {
            return Err(damaged(path, "its manifest is not what its digest says"));
        }
        let manifest = understood(path, &text)?;
        Ok(Self { path: path.to_owned(), manifest, digest })
    }

    /// Looks whether all of it is there and as it was written, and returns some of its files, which must be small.
    ///
    /// # Errors
    /// When something is missing or damaged, or one of the files is not in it.
    pub fn verify(&self, wanted: &[&str]) -> Result<BTreeMap<Utf8PathBuf, Vec<u8>>> {
        let mut found = BTreeMap::new();
        self.each(|digest, content| {
            let files = self.manifest.files.iter().filter(|file| &file.digest == digest);
            let names: Vec<&Utf8PathBuf> =
                files.map(|file| &file.path).filter(|path| wanted.contains(&path.as_str())).collect();
            if names.is_empty() {
                return io::copy(content, &mut io::sink()).map(|_| ());
            }
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes)?;
            found.extend(names.into_iter().map(|name| (name.clone(), bytes.clone())));
            Ok(())
        })?;
        match wanted.iter().find(|name| !found.contains_key(Utf8Path::new(name))) {
            None => Ok(found),
            Some(missing) => Err(damaged(&self.path, &format!("it has no {missing}"))),
        }
    }

    /// Puts folders, files and links below `root`, but for those of `later`, and image archives into `images`, named by
    /// their digests. What is there of an earlier try is overwritten. All of it is on the disk when this returns.
    ///
    /// # Errors
    /// When something is damaged, or cannot be written.
    pub fn unpack(&self, root: &Utf8Path, images: &Utf8Path, later: &Utf8Path) -> Result<()> {
        let unwritten = |path: &Utf8Path, error: &io::Error| {
            Failure::because(Code::Io, &format!("{path} cannot be written"), error)
        };
        for folder in &self.manifest.folders {
            let path = root.join(&folder.path);
            durable::ensure_folder(&path, folder.mode).map_err(|error| Failure::of(Code::Io, &error))?;
        }
        self.each(|digest, content| {
            let mut first: Option<Utf8PathBuf> = None;
            let wanted =
                self.manifest.files.iter().filter(|file| &file.digest == digest && file.path != later);
            let files = wanted.map(|file| (root.join(&file.path), file.mode));
            let archives = self.manifest.images.iter().filter(|image| &image.digest == digest);
            let archives = archives.map(|image| (images.join(format!("{}.tar", image.digest.hex())), 0o600));
            for (path, mode) in files.chain(archives) {
                let mut file = std::fs::OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(0o600)
                    .open(&path)?;
                match &first {
                    None => io::copy(content, &mut file)?,
                    Some(first) => io::copy(&mut File::open(first)?, &mut file)?,
                };
                file.set_permissions(std::fs::Permissions::from_mode(mode))?;
                first.get_or_insert(path);
            }
            if first.is_none() {
                io::copy(content, &mut io::sink())?;
            }
            Ok(())
        })?;
        for link in &self.manifest.links {
            let path = root.join(&link.path);
            if path.read_link_utf8().is_ok_and(|target| target == link.target) {
                continue;
            }
            std::os::unix::fs::symlink(&link.target, &path).map_err(|error| unwritten(&path, &error))?;
        }
        durable::sync_tree(root).map_err(|error| Failure::of(Code::Io, &error))
    }

    /// Reads each content, and whether it is what its name says; and that none is missing.
    fn each(&self, mut take: impl FnMut(&Digest, &mut dyn Read) -> io::Result<()>) -> Result<()> {
        let path = &self.path;
        let mut missing: BTreeMap<&Digest, u64> = self.manifest.contents();
        let file = File::open(path)
            .map_err(|error| Failure::because(Code::Io, &format!("backup {path} cannot be read"), &error))?;
        let mut tar = tar::Archive::new(io::BufReader::with_capacity(1 << 20, file));
        for entry in tar.entries().map_err(|error| damaged(path, &error.to_string()))?.skip(2) {
            let entry = entry.map_err(|error| damaged(path, &error.to_string()))?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let unknown = || damaged(path, &format!("its entry {name:?} is not in its manifest"));
            let hex = name.strip_prefix(CONTENT).ok_or_else(unknown)?;
            let digest: Digest = format!("sha256:{hex}").parse().map_err(|_| unknown())?;
            let size = missing.remove(&digest).ok_or_else(unknown)?;
            let mut content = Measured::new(entry);
            take(&digest, &mut content).map_err(|error| cannot_go_on(path, &name, &error))?;
            if content.end() != (digest, size) {
                return Err(damaged(path, &format!("its entry {name} is not what its name says")));
            }
        }
        match missing.keys().next() {
            None => Ok(()),
            Some(digest) => Err(damaged(
                path,
                &format!("it ends before {} of its contents, {digest} first", missing.len()),
            )),
        }
    }
}

/// The manifest, of this form and with paths that stay below the root.
fn understood(path: &Utf8Path, text: &[u8]) -> Result<Manifest> {
    #[derive(Deserialize)]
    struct Form {
        format: u32,
    }
    let form: Form = serde_json::from_slice(text).map_err(|error| damaged(path, &error.to_string()))?;
    if form.format > FORMAT {
        return Err(Failure::new(Code::BackupInvalid, format!("backup {path} is of a newer form"))
            .expected(format!("format {FORMAT}"))
            .found(format!("format {}", form.format))
            .hint("use the `mesh` that made it, or a newer one"));
    }
    let manifest: Manifest =
        serde_json::from_slice(text).map_err(|error| damaged(path, &error.to_string()))?;
    let links: BTreeSet<&Utf8Path> = manifest.links.iter().map(|link| link.path.as_path()).collect();
    let folders = manifest.folders.iter().map(|folder| folder.path.as_path());
    let files = manifest.files.iter().map(|file| file.path.as_path());
    for inner in folders.chain(files).chain(links.iter().copied()) {
        let is_below = inner.components().all(|part| matches!(part, Utf8Component::Normal(_)));
        let is_through_link = inner.ancestors().skip(1).any(|above| links.contains(above));
        if !is_below || is_through_link || inner.as_str().is_empty() {
            return Err(damaged(path, &format!("its path {inner:?} leads out of a mesh's folder")));
        }
    }
    Ok(manifest)
}

fn damaged(path: &Utf8Path, what: &str) -> Failure {
    Failure::new(Code::BackupInvalid, format!("backup {path} is damaged, or none: {what}"))
        .hint("take another backup; nothing of this one was put in place")
}

/// A disk that is full is not the backup's fault.
fn cannot_go_on(path: &Utf8Path, name: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Failure::because(Code::DiskFull, "there is too little room for what is in the backup", error)
        }
        io::ErrorKind::UnexpectedEof => damaged(path, &format!("it ends in its entry {name}")),
        _ => Failure::because(
            Code::Io,
            &format!("entry {name} of backup {path} cannot be put in place"),
            error,
        ),
    }
}

#[cfg(test)]
mod tests;
