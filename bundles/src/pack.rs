//! Packing: entries in, an archive whose bytes depend on nothing but them out.
//!
//! In: entries and where to write. Out: a whole file under the given name, or none; and what there is to know
//! about it, found out in the same pass. Not here: what a bundle's parts mean (see `config`), and sending it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use mesh_protocol::id::{Digest, ResourceName, System};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Progress;
use crate::archive::{Archive, ArchiveError, FileMode, Limits, What, padding};
use crate::config::{Config, ConfigError, Facts};
use crate::deflate::{self, DeflateError, Plain};
use crate::elf::{self, ElfError};
use crate::entries::{Content, Entry, EntryError, Opened, Source, arrange};
use crate::files::{Beside, Hashing};
use crate::gunzip;
use crate::image::LayerFile;
use crate::inputs::BuildInputs;
use crate::path::BundlePath;
use crate::sha256::Hasher;
use crate::ustar::{self, Type};

/// An archive that was packed, or read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// Of the archive as it travels: the bundle's name.
    pub digest: Digest,
    /// Its length.
    pub size: u64,
    /// Of the tar in it: what an image's configuration names.
    pub diff_id: Digest,
    /// The length of the tar.
    pub unpacked_size: u64,
    /// Its files, in order.
    pub files: Vec<FileFact>,
    /// Its symbolic links, in order.
    pub links: Vec<LinkFact>,
}

/// A file in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileFact {
    /// Where.
    pub path: BundlePath,
    /// `0755` or `0644`.
    pub mode: String,
    /// Its length.
    pub size: u64,
    /// Of its content.
    pub sha256: Digest,
}

/// A symbolic link in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFact {
    /// Where.
    pub path: BundlePath,
    /// What it names.
    pub target: String,
}

/// What a bundle is made of.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// Its name, which is its repository in the store too.
    pub name: ResourceName,
    /// The version of what is in it.
    pub version: String,
    /// What it runs on.
    pub system: System,
    /// Which of its files is its program.
    pub entrypoint: BundlePath,
    /// Everything that is in it, the program included. Folders need no entry.
    pub entries: Vec<Entry>,
}

/// A bundle that was packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Of the archive: the bundle's name.
    pub digest: Digest,
    /// Its length.
    pub size: u64,
    /// Of the tar in it.
    pub diff_id: Digest,
    /// The length of the tar.
    pub unpacked_size: u64,
    /// What it says of itself in the store.
    pub config: Config,
}

/// Why nothing was packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// An entry.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// A content could not be read to its end.
    #[error("cannot read the content of {path}")]
    Read {
        /// Which.
        path: BundlePath,
        /// Why.
        source: io::Error,
    },
    /// Somebody wrote to a file meanwhile.
    #[error("{path} changed while it was packed: expected {expected} bytes")]
    Changed {
        /// Which.
        path: BundlePath,
        /// Its size when it was opened.
        expected: u64,
    },
    /// A file is larger than a header can say.
    #[error("{path} has {found} bytes: expected at most {most}", most = ustar::MAX_SIZE)]
    TooLarge {
        /// Which.
        path: BundlePath,
        /// Its size.
        found: u64,
    },
    /// Nobody would unpack it.
    #[error("{plain} bytes compress to {compressed}: expected at most {most} times as many, for more is refused as a bomb", most = gunzip::RATIO)]
    Ratio {
        /// The tar's length.
        plain: u64,
        /// The archive's.
        compressed: u64,
    },
    /// The archive could not be written.
    #[error("cannot write {path}", path = .path.display())]
    Write {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program is not what a bundle's program must be.
    #[error("{entrypoint} cannot be the program of a bundle for {system}")]
    Program {
        /// The program.
        entrypoint: BundlePath,
        /// The bundle's system.
        system: System,
        /// Why.
        source: ElfError,
    },
    /// What is said about the bundle does not fit it.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

/// Packs a bundle into a file, on `workers` threads.
///
/// # Errors
/// When its program is not a static binary for its system, an entry is none, or something cannot be read or
/// written. Then there is no file of that name, unless there was one before: that one is untouched.
pub fn pack(
    bundle: Bundle,
    output: &Path,
    workers: usize,
    progress: Progress<'_>,
) -> Result<Packed, PackError> {
    let Bundle { name, version, system, entrypoint, entries } = bundle;
    let entries = arrange(entries)?;
    check_program(&entries, &entrypoint, system)?;
    let write = |source| PackError::Write { path: output.to_path_buf(), source };
    let mut file = Beside::create(output).map_err(write)?;
    let layer = pack_arranged(&entries, file.as_file(), output, workers, progress)?;
    let facts = Facts { name, version, system, entrypoint };
    let config = Config::new(facts, &layer)?;
    file.commit().map_err(write)?;
    let Layer { digest, size, diff_id, unpacked_size, .. } = layer;
    Ok(Packed { digest, size, diff_id, unpacked_size, config })
}

/// Packs any entries into a file, as they are: what is not a bundle (an image's layer) has other rules.
///
/// # Errors
/// As [`pack`], but for the program.
pub fn pack_entries(
    entries: Vec<Entry>,
    output: &Path,
    workers: usize,
    progress: Progress<'_>,
) -> Result<Layer, PackError> {
    let write = |source| PackError::Write { path: output.to_path_buf(), source };
    let entries = arrange(entries)?;
    let mut file = Beside::create(output).map_err(write)?;
    let layer = pack_arranged(&entries, file.as_file(), output, workers, progress)?;
    file.commit().map_err(write)?;
    Ok(layer)
}

/// What an archive is, found out by reading all of it as strictly as unpacking does.
///
/// # Errors
/// When it would not be unpacked.
pub fn inspect(archive: &Path, limits: Limits) -> Result<Layer, ArchiveError> {
    let file = File::open(archive).map_err(ArchiveError::Read)?;
    let length = file.metadata().map_err(ArchiveError::Read)?.len();
    if length > limits.compressed {
        return Err(ArchiveError::FileTooLarge { found: length, limit: limits.compressed });
    }
    let mut archive = Archive::new(Hashing::new(file), limits);
    let (mut files, mut links) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 64 << 10];
    while let Some(member) = archive.next_member()? {
        match member.what {
            What::Folder => {}
            What::Link { target } => links.push(LinkFact { path: member.path, target }),
            What::File { size, mode } => {
                let mut sha256 = Hasher::new();
                while let Some(bytes) = archive.content(&mut buffer)? {
                    sha256.update(bytes);
                }
                files.push(FileFact::new(member.path, mode, size, sha256.finish()));
            }
        }
    }
    let unpacked_size = archive.unpacked();
    let (source, diff_id) = archive.into_parts();
    let (digest, size) = source.finish();
    Ok(Layer { digest, size, diff_id, unpacked_size, files, links })
}

impl Packed {
    /// The same, with what it was built from, as far as anything is known.
    #[must_use]
    pub fn built_from(mut self, inputs: BuildInputs) -> Self {
        if inputs != BuildInputs::default() {
            self.config = self.config.with_build(inputs);
        }
        self
    }

    /// As the layer of an image, if it lies at `path`.
    #[must_use]
    pub fn at<'a>(&'a self, path: &'a Path) -> LayerFile<'a> {
        LayerFile {
            path,
            digest: &self.digest,
            size: self.size,
            diff_id: &self.diff_id,
            unpacked_size: self.unpacked_size,
        }
    }
}

impl Layer {
    /// As the layer of an image, if it lies at `path`.
    #[must_use]
    pub fn at<'a>(&'a self, path: &'a Path) -> LayerFile<'a> {
        LayerFile {
            path,
            digest: &self.digest,
            size: self.size,
            diff_id: &self.diff_id,
            unpacked_size: self.unpacked_size,
        }
    }
}

impl FileFact {
    pub(crate) fn new(path: BundlePath, mode: FileMode, size: u64, sha256: Digest) -> Self {
        let mode = format!("{:04o}", mode.bits());
        Self { path, mode, size, sha256 }
    }
}

fn check_program(entries: &[Entry], entrypoint: &BundlePath, system: System) -> Result<(), PackError> {
    let missing = || ConfigError::NoEntrypoint { entrypoint: entrypoint.clone() };
    let entry = entries.iter().find(|entry| entry.path == *entrypoint).ok_or_else(missing)?;
    let opened = entry.source.open()?.ok_or_else(missing)?;
    elf::check_static(opened.content, system).map_err(|source| PackError::Program {
        entrypoint: entrypoint.clone(),
        system,
        source,
    })
}

fn pack_arranged(
    entries: &[Entry],
    sink: &mut File,
    output: &Path,
    workers: usize,
    progress: Progress<'_>,
) -> Result<Layer, PackError> {
    let total = entries.iter().map(|entry| entry.source.expected_size()).sum();
    let (mut files, mut links, mut done) = (Vec::new(), Vec::new(), 0);
    let compressed = deflate::gzip(sink, workers, |plain| {
        for Entry { path, source } in entries {
            match source {
                Source::Folder => plain.put(&ustar::encode(path, Type::Folder, 0o755, 0, "")),
                Source::Link { target } => {
                    plain.put(&ustar::encode(path, Type::Link, 0o777, 0, target));
                    links.push(LinkFact { path: path.clone(), target: target.clone() });
                }
                Source::Bytes { .. } | Source::File { .. } | Source::Walked { .. } => {
                    if let Some(Opened { content, size }) = source.open()? {
                        let mode = source.mode();
                        let mut told = |bytes| {
                            done += bytes;
                            progress(done, Some(total));
                        };
                        let sha256 = put_file(plain, path, mode, content, size, &mut told)?;
                        let sha256 = Digest::from_sha256(sha256.finalize().into());
                        files.push(FileFact::new(path.clone(), mode, size, sha256));
                    }
                }
            }
            if plain.is_closed() {
                return Ok(());
            }
        }
        plain.put(&ustar::END);
        Ok(())
    });
    let compressed = compressed.map_err(|error| match error {
        DeflateError::Produce(error) => error,
        DeflateError::Write(source) => PackError::Write { path: output.to_path_buf(), source },
    })?;
    if !gunzip::is_ratio_right(compressed.size, compressed.plain_size) {
        return Err(PackError::Ratio { plain: compressed.plain_size, compressed: compressed.size });
    }
    Ok(Layer {
        digest: compressed.digest,
        size: compressed.size,
        diff_id: compressed.plain_digest,
        unpacked_size: compressed.plain_size,
        files,
        links,
    })
}

fn put_file(
    plain: &mut Plain,
    path: &BundlePath,
    mode: FileMode,
    mut content: Box<dyn Content + '_>,
    size: u64,
    told: &mut dyn FnMut(u64),
) -> Result<Sha256, PackError> {
    if size > ustar::MAX_SIZE {
        return Err(PackError::TooLarge { path: path.clone(), found: size });
    }
    plain.put(&ustar::encode(path, Type::File, mode.bits(), size, ""));
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut left = size;
    loop {
        let read = |source| PackError::Read { path: path.clone(), source };
        let count = match content.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(read(error)),
        };
        let changed = || PackError::Changed { path: path.clone(), expected: size };
        left = left.checked_sub(count as u64).ok_or_else(changed)?;
        if count == 0 {
            if left > 0 {
                return Err(changed());
            }
            break;
        }
        sha256.update(&buffer[..count]);
        plain.put(&buffer[..count]);
        told(count as u64);
        if plain.is_closed() {
            // The writer's own error is the one that is told.
            return Ok(sha256);
        }
    }
    plain.put(&[0; ustar::BLOCK][..padding(size)]);
    Ok(sha256)
}

#[cfg(test)]
mod tests;
