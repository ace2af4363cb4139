//! The strict reader of bundles: what it does not wholly understand, it refuses.
//!
//! In: a reader of a tar.gz from anywhere. Out: its entries, one after the other, in the archive's order, each
//! a plain path, a kind and at most one bit of mode; or which rule was broken. Not here: writing to a disk
//! (see `unpack`), and whether these are the right bytes (whoever names a bundle names its digest).
//!
//! Two readers must never see two different archives in the same bytes; hence one format only, one gzip
//! member, and every padding zero.

use std::io::Read;

use mesh_protocol::id::Digest;

use crate::gunzip::Gunzip;
use crate::path::{BundlePath, PathFault};
use crate::tree::{Kind, Tree};
use crate::ustar::{self, BLOCK, Header, PaxRecords, Type};

pub use crate::tree::TreeFault;
pub use crate::ustar::HeaderFault;

/// How much an archive may take. The defaults fit programs, not data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the archive as it travels.
    pub compressed: u64,
    /// Bytes of the tar in it.
    pub unpacked: u64,
    /// Entries.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { compressed: 1 << 30, unpacked: 4 << 30, entries: 65_536 }
    }
}

/// The most bytes of pax records before one entry: two paths of the greatest length, and their keys.
const MAX_PAX: u64 = 2 * crate::path::MAX_PATH as u64 + 64;

/// Why an archive is refused.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It could not be read.
    #[error("cannot read the archive")]
    Read(#[source] std::io::Error),
    /// It is not gzip.
    #[error("not a gzip file: it begins with {begins:?}")]
    NotGzip {
        /// Its first bytes.
        begins: String,
    },
    /// Its gzip header has a name, a time or another option.
    #[error("the gzip header has a name, a time or an option: expected none")]
    GzipOptions,
    /// Its compressed data are not deflate data.
    #[error("the compressed data are damaged")]
    Deflate,
    /// gzip's checksum or length does not fit.
    #[error("gzip's checksum or length does not fit the content")]
    Checksum,
    /// A second gzip member.
    #[error("a second gzip member follows the first")]
    SecondMember,
    /// Bytes behind the gzip member.
    #[error("bytes follow the gzip member")]
    BehindGzip,
    /// It ends too early.
    #[error("the archive ends too early")]
    Truncated,
    /// It is too large as it is.
    #[error("the archive has {found} bytes: expected at most {limit}")]
    FileTooLarge {
        /// Its length.
        found: u64,
        /// How long it may be.
        limit: u64,
    },
    /// It unpacks to too much.
    #[error("the archive unpacks to more than {limit} bytes")]
    TooLarge {
        /// How much it may be.
        limit: u64,
    },
    /// It unpacks to too much for its size.
    #[error("the archive unpacks to more than {limit} times its size")]
    Ratio {
        /// How many times it may be.
        limit: u64,
    },
    /// It has too many entries.
    #[error("the archive has more than {limit} entries")]
    TooManyEntries {
        /// How many it may have.
        limit: u64,
    },
    /// A header.
    #[error("entry {number}: {fault}")]
    Header {
        /// Which entry, from 1.
        number: u64,
        /// What is wrong.
        fault: HeaderFault,
    },
    /// A path.
    #[error("entry {number}: {fault}")]
    Path {
        /// Which entry, from 1.
        number: u64,
        /// What is wrong.
        fault: PathFault,
    },
    /// A file whose name ends with a slash.
    #[error("entry {number}: {path} is no folder and its name ends with a slash")]
    SlashBehindFile {
        /// Which entry, from 1.
        number: u64,
        /// The path.
        path: BundlePath,
    },
    /// A link's target that is not UTF-8.
    #[error("entry {number}: symbolic link {path} has a target that is not UTF-8")]
    TargetNotUtf8 {
        /// Which entry, from 1.
        number: u64,
        /// The link.
        path: BundlePath,
    },
    /// Something that is no link names a target.
    #[error("entry {number}: {path} is no link and names a target")]
    TargetOfNoLink {
        /// Which entry, from 1.
        number: u64,
        /// The entry.
        path: BundlePath,
    },
    /// Entries that do not go together.
    #[error(transparent)]
    Tree(#[from] TreeFault),
    /// Pax records of nothing, or too many bytes of them.
    #[error("entry {number}: pax records without an entry, twice, or of more than {MAX_PAX} bytes")]
    StrayPax {
        /// Which entry, from 1.
        number: u64,
    },
    /// Padding that is not zero.
    #[error("entry {number}: the padding has bytes that are not zero")]
    Padding {
        /// Which entry, from 1.
        number: u64,
    },
    /// There is no end marker.
    #[error("the archive has no end marker")]
    NoEnd,
    /// Something follows the end marker.
    #[error("bytes follow the archive's end marker")]
    BehindEnd,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Where it goes.
    pub path: BundlePath,
    /// What it is.
    pub what: What,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A folder.
    Folder,
    /// A regular file. Its content is read with [`Archive::content`].
    File {
        /// How many bytes follow.
        size: u64,
        /// May it be run?
        mode: FileMode,
    },
    /// A symbolic link to something in the same archive.
    Link {
        /// What it names, relative to its folder.
        target: String,
    },
}

/// The two modes of files in a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileMode {
    /// `0644`
    Data,
    /// `0755`
    Program,
}

impl FileMode {
    /// The one that a file of this mode gets: what its owner may run, everyone may.
    #[must_use]
    pub const fn of(mode: u32) -> Self {
        if mode & 0o100 == 0 { Self::Data } else { Self::Program }
    }

    /// As a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Data => 0o644,
            Self::Program => 0o755,
        }
    }
}

/// An archive that is being read.
pub struct Archive<R> {
    gunzip: Gunzip<R>,
    limits: Limits,
    tree: Tree,
    number: u64,
    /// Content of the last file that was not read yet.
    left: u64,
    /// And the padding behind it.
    padding: usize,
}

impl<R: Read> Archive<R> {
    /// Reads what `source` has.
    pub fn new(source: R, limits: Limits) -> Self {
        let gunzip = Gunzip::new(source, limits.unpacked);
        Self { gunzip, limits, tree: Tree::default(), number: 0, left: 0, padding: 0 }
    }

    /// The next entry. None when the end has been reached and everything was found right: until then, an entry is
    /// only a claim.
    ///
    /// # Errors
    /// At the first rule that is broken.
    pub fn next_member(&mut self) -> Result<Option<Member>, ArchiveError> {
        self.skip_content()?;
        let mut pax: Option<PaxRecords> = None;
        loop {
            let mut block = [0; BLOCK];
            if !self.block(&mut block)? {
                return Err(ArchiveError::NoEnd);
            }
            self.number += 1;
            if block.iter().all(|b| *b == 0) {
                if pax.is_some() {
                    return Err(ArchiveError::StrayPax { number: self.number });
                }
                self.end()?;
                return Ok(None);
            }
            let number = self.number;
            let header = ustar::decode(&block).map_err(|fault| ArchiveError::Header { number, fault })?;
            if header.kind != Type::Pax {
                return self.member(header, pax.unwrap_or_default()).map(Some);
            }
            self.number -= 1;
            if pax.is_some() || header.size == 0 || header.size > MAX_PAX {
                return Err(ArchiveError::StrayPax { number });
            }
            self.left = header.size;
            self.padding = padding(header.size);
            let mut records = Vec::new();
            while let Some(bytes) = self.content(&mut block)? {
                records.extend(bytes);
            }
            self.skip_content()?;
            pax = Some(ustar::decode_pax(&records).map_err(|fault| ArchiveError::Header { number, fault })?);
        }
    }

    /// Some more of the last file's content; none at its end.
    ///
    /// # Errors
    /// When the archive ends before, or cannot be read.
    pub fn content<'b>(&mut self, buffer: &'b mut [u8]) -> Result<Option<&'b [u8]>, ArchiveError> {
        if self.left == 0 {
            return Ok(None);
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.gunzip.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(ArchiveError::Truncated);
        }
        self.left -= count as u64;
        Ok(Some(&buffer[..count]))
    }

    /// The length of the tar, so far.
    #[must_use]
    pub fn unpacked(&self) -> u64 {
        self.gunzip.produced()
    }

    /// What was read from, and the digest of the tar, after [`Self::next_member`] has returned none.
    pub fn into_parts(self) -> (R, Digest) {
        self.gunzip.into_parts()
    }

    fn member(&mut self, header: Header, pax: PaxRecords) -> Result<Member, ArchiveError> {
        let number = self.number;
        if number > self.limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: self.limits.entries });
        }
        let mut name = pax.path.unwrap_or(header.name);
        let slash = name.len() > 1 && name.last() == Some(&b'/');
        if slash {
            name.pop();
        }
        let path = BundlePath::parse(&name).map_err(|fault| ArchiveError::Path { number, fault })?;
        if slash && header.kind != Type::Folder {
            return Err(ArchiveError::SlashBehindFile { number, path });
        }
        let target = pax.link.unwrap_or(header.link);
        if header.kind != Type::Link && !target.is_empty() {
            return Err(ArchiveError::TargetOfNoLink { number, path });
        }
        let (kind, what) = match header.kind {
            Type::Folder => (Kind::Folder, What::Folder),
            Type::Link => {
                let Ok(target) = String::from_utf8(target) else {
                    return Err(ArchiveError::TargetNotUtf8 { number, path });
                };
                (Kind::Link { target: target.clone() }, What::Link { target })
            }
            Type::File | Type::Pax => {
                if header.size > self.limits.unpacked {
                    return Err(ArchiveError::TooLarge { limit: self.limits.unpacked });
                }
                self.left = header.size;
                self.padding = padding(header.size);
                (Kind::File, What::File { size: header.size, mode: FileMode::of(header.mode) })
            }
        };
        self.tree.add(&path, kind)?;
        Ok(Member { path, what })
    }

    fn skip_content(&mut self) -> Result<(), ArchiveError> {
        let mut buffer = [0; 16 << 10];
        while self.content(&mut buffer)?.is_some() {}
        let mut padding = [0; BLOCK];
        let padding = &mut padding[..std::mem::take(&mut self.padding)];
        if self.fill(padding)? < padding.len() {
            return Err(ArchiveError::Truncated);
        }
        if padding.iter().any(|b| *b != 0) {
            return Err(ArchiveError::Padding { number: self.number });
        }
        Ok(())
    }

    /// The second block of the end marker; then only zeros, then nothing.
    fn end(&mut self) -> Result<(), ArchiveError> {
        let mut block = [0; BLOCK];
        if !self.block(&mut block)? {
            return Err(ArchiveError::NoEnd);
        }
        loop {
            if block.iter().any(|b| *b != 0) {
                return Err(ArchiveError::BehindEnd);
            }
            if !self.block(&mut block)? {
                return Ok(self.tree.finish()?);
            }
        }
    }

    /// A whole block; false at the end.
    fn block(&mut self, block: &mut [u8; BLOCK]) -> Result<bool, ArchiveError> {
        match self.fill(block)? {
            0 => Ok(false),
            BLOCK => Ok(true),
            _ => Err(ArchiveError::Truncated),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, ArchiveError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.gunzip.read(&mut buffer[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    }
}

/// How many bytes fill up the last block of a content.
pub(crate) fn padding(size: u64) -> usize {
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK - over }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
