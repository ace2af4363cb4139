//! What goes into a bundle: entries, and where their content comes from.
//!
//! In: a folder, or a list of files and bytes. Out: entries in the one order that an archive has them in, each
//! folder before what is in it. Not here: the archive's format. A folder may be changed by others while it is
//! read, so it is walked by descriptors, and no link is followed: links are entries.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use crate::archive::{FileMode, TreeFault};
use crate::path::{BundlePath, MAX_DEPTH, PathFault};
use crate::tree::{Kind, Tree};

/// Something that goes into a bundle.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where it goes.
    pub path: BundlePath,
    /// What it is.
    pub source: Source,
}

/// Where an entry's content comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A folder.
    Folder,
    /// A file whose content is here.
    Bytes {
        /// The content.
        content: Vec<u8>,
        /// May it be run?
        mode: FileMode,
    },
    /// A file whose content is that of another.
    File {
        /// The other.
        path: PathBuf,
        /// May it be run?
        mode: FileMode,
    },
    /// A file in a folder that was walked.
    Walked {
        /// The folder.
        folder: Arc<OwnedFd>,
        /// Where in the folder.
        path: BundlePath,
        /// Its size when the folder was walked.
        size: u64,
        /// May it be run?
        mode: FileMode,
    },
    /// A symbolic link to something else in the bundle.
    Link {
        /// What it names, relative to its folder.
        target: String,
    },
}

/// Why something cannot go into a bundle.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// It could not be read.
    #[error("cannot read {path}", path = .path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is neither a file nor a folder nor a symbolic link.
    #[error("{path} is a {found}: expected a regular file, a folder or a symbolic link", path = .path.display())]
    Kind {
        /// What.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// It has a set-user, set-group or sticky bit.
    #[error("{path} has mode {mode:04o}: expected no set-user, set-group or sticky bit", path = .path.display())]
    SpecialMode {
        /// What.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Its path cannot be in a bundle.
    #[error("in {folder}: {fault}", folder = .folder.display())]
    Path {
        /// The folder that was walked.
        folder: PathBuf,
        /// What is wrong.
        fault: PathFault,
    },
    /// Entries that do not go together.
    #[error(transparent)]
    Tree(#[from] TreeFault),
}

/// A content that can be read, and looked into.
pub(crate) trait Content: Read + Seek {}
impl<T: Read + Seek> Content for T {}

/// A content, and how long it was when it was opened.
pub(crate) struct Opened<'a> {
    pub(crate) content: Box<dyn Content + 'a>,
    pub(crate) size: u64,
}

impl Source {
    /// How many bytes it has, as far as one can tell before it is opened.
    pub(crate) fn expected_size(&self) -> u64 {
        match self {
            Self::Folder | Self::Link { .. } => 0,
            Self::Bytes { content, .. } => content.len() as u64,
            Self::File { path, .. } => path.metadata().map_or(0, |metadata| metadata.len()),
            Self::Walked { size, .. } => *size,
        }
    }

    /// The content of a file, and its size; nothing for what has none.
    pub(crate) fn open(&self) -> Result<Option<Opened<'_>>, EntryError> {
        let (file, path) = match self {
            Self::Folder | Self::Link { .. } => return Ok(None),
            Self::Bytes { content, .. } => {
                let size = content.len() as u64;
                return Ok(Some(Opened { content: Box::new(Cursor::new(content)), size }));
            }
            Self::File { path, .. } => {
                // A FIFO must not be waited for before it can be refused.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                (rustix::fs::open(path, flags, Mode::empty()), path.clone())
            }
            Self::Walked { folder, path, .. } => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
                let file = rustix::fs::openat2(folder, path.as_ref(), flags, Mode::empty(), STAY_INSIDE);
                (file, path.as_ref().to_path_buf())
            }
        };
        let read = |source| EntryError::Read { path: path.clone(), source };
        let file = File::from(file.map_err(|errno| read(errno.into()))?);
        let metadata = file.metadata().map_err(read)?;
        if !metadata.is_file() {
            let found = if metadata.is_dir() { "folder" } else { "device, FIFO or socket" };
            return Err(EntryError::Kind { path, found });
        }
        Ok(Some(Opened { content: Box::new(file), size: metadata.len() }))
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Folder => Kind::Folder,
            Self::Bytes { .. } | Self::File { .. } | Self::Walked { .. } => Kind::File,
            Self::Link { target } => Kind::Link { target: target.clone() },
        }
    }

    /// The mode of a file.
    pub(crate) fn mode(&self) -> FileMode {
        match self {
            Self::Bytes { mode, .. } | Self::File { mode, .. } | Self::Walked { mode, .. } => *mode,
            Self::Folder | Self::Link { .. } => FileMode::Data,
        }
    }
}

/// How every open in a folder is done that somebody else can write to.
pub(crate) const STAY_INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// All that is in a folder.
///
/// # Errors
/// When something in it can be in no bundle, or cannot be read: the error names it.
pub fn walk(folder: &Path) -> Result<Vec<Entry>, EntryError> {
    let read =
        |source: rustix::io::Errno| EntryError::Read { path: folder.to_path_buf(), source: source.into() };
    let root = Arc::new(rustix::fs::open(folder, FOLDER, Mode::empty()).map_err(read)?);
    let first = rustix::fs::openat(&root, ".", FOLDER, Mode::empty()).map_err(read)?;
    let mut entries = Vec::new();
    let mut todo = vec![(first, None)];
    while let Some((at, prefix)) = todo.pop() {
        walk_one(&Walk { folder, root: &root, at: &at, prefix: prefix.as_ref() }, &mut entries, &mut todo)?;
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

struct Walk<'a> {
    /// As it was named, for errors.
    folder: &'a Path,
    root: &'a Arc<OwnedFd>,
    at: &'a OwnedFd,
    prefix: Option<&'a BundlePath>,
}

fn walk_one(
    walk: &Walk<'_>,
    entries: &mut Vec<Entry>,
    todo: &mut Vec<(OwnedFd, Option<BundlePath>)>,
) -> Result<(), EntryError> {
    let here = walk.prefix.map_or_else(|| walk.folder.to_path_buf(), |prefix| walk.folder.join(prefix));
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |errno: rustix::io::Errno| EntryError::Read { path, source: errno.into() }
    };
    for found in Dir::read_from(walk.at).map_err(failed(&here))? {
        let found = found.map_err(failed(&here))?;
        let name = found.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let bytes = match walk.prefix {
            Some(prefix) => [prefix.as_str().as_bytes(), b"/", name.to_bytes()].concat(),
            None => name.to_bytes().to_vec(),
        };
        let path = BundlePath::parse(&bytes)
            .map_err(|fault| EntryError::Path { folder: walk.folder.to_path_buf(), fault })?;
        let full = walk.folder.join(&path);
        let stat = rustix::fs::statat(walk.at, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed(&full))?;
        let source = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let inner = rustix::fs::openat(walk.at, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
                todo.push((inner.map_err(failed(&full))?, Some(path.clone())));
                Source::Folder
            }
            FileType::RegularFile => {
                let mode = stat.st_mode & 0o7777;
                if mode & 0o7000 != 0 {
                    return Err(EntryError::SpecialMode { path: full, mode });
                }
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                Source::Walked {
                    folder: Arc::clone(walk.root),
                    path: path.clone(),
                    size,
                    mode: FileMode::of(mode),
                }
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(walk.at, name, Vec::new()).map_err(failed(&full))?;
                let target = target.into_string().map_err(|_| EntryError::Path {
                    folder: walk.folder.to_path_buf(),
                    fault: PathFault::NotUtf8(full.display().to_string()),
                })?;
                Source::Link { target }
            }
            FileType::Fifo => return Err(EntryError::Kind { path: full, found: "FIFO" }),
            FileType::Socket => return Err(EntryError::Kind { path: full, found: "socket" }),
            _ => return Err(EntryError::Kind { path: full, found: "device" }),
        };
        entries.push(Entry { path, source });
    }
    Ok(())
}

/// In the archive's order (by bytes), with the folders that were not named, and checked to go together.
pub(crate) fn arrange(entries: Vec<Entry>) -> Result<Vec<Entry>, EntryError> {
    let mut arranged: BTreeMap<BundlePath, Source> = BTreeMap::new();
    for Entry { path, source } in entries {
        let mut parent = path.parent();
        for _ in 0..MAX_DEPTH {
            let Some(folder) = parent else { break };
            parent = folder.parent();
            arranged.entry(folder).or_insert(Source::Folder);
        }
        match (arranged.get(&path), &source) {
            (None, _) | (Some(Source::Folder), Source::Folder) => arranged.insert(path, source),
            (Some(_), _) => return Err(TreeFault::Duplicate { path }.into()),
        };
    }
    let mut tree = Tree::default();
    for (path, source) in &arranged {
        tree.add(path, source.kind())?;
    }
    tree.finish()?;
    Ok(arranged.into_iter().map(|(path, source)| Entry { path, source }).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn named(entries: &[Entry]) -> Vec<&str> {
        entries.iter().map(|entry| entry.path.as_str()).collect()
    }

    #[test]
    fn a_folder_is_walked_in_the_order_of_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("a/c")).unwrap();
        std::fs::write(at("a/c/f"), "x").unwrap();
        std::fs::write(at("a-b"), "x").unwrap();
        symlink("a/c/f", at("l")).unwrap();
        let entries = arrange(walk(folder.path()).unwrap()).unwrap();
        assert_eq!(named(&entries), ["a", "a-b", "a/c", "a/c/f", "l"]);
    }

    #[test]
    fn what_can_be_in_no_bundle_is_refused_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let error = walk(folder.path()).unwrap_err();
        assert!(matches!(error, EntryError::Kind { path, found: "FIFO" } if path == fifo));
        std::fs::remove_file(&fifo).unwrap();

        let special = folder.path().join("su");
        std::fs::write(&special, "").unwrap();
        std::fs::set_permissions(&special, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(matches!(walk(folder.path()).unwrap_err(), EntryError::SpecialMode { mode: 0o4755, .. }));
        std::fs::remove_file(&special).unwrap();

        symlink("../outside", folder.path().join("l")).unwrap();
        let error = arrange(walk(folder.path()).unwrap()).unwrap_err();
        assert!(matches!(error, EntryError::Tree(TreeFault::LinkOutside { .. })));
    }

    #[test]
    fn a_file_that_became_a_link_since_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "x").unwrap();
        let entries = walk(folder.path()).unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink("/etc/passwd", &file).unwrap();
        assert!(entries[0].source.open().is_err());
    }

    #[test]
    fn a_path_that_is_named_twice_is_refused() {
        let entry = |path: &str| Entry {
            path: path.parse().unwrap(),
            source: Source::Bytes { content: vec![], mode: FileMode::Data },
        };
        let error = arrange(vec![entry("a"), entry("a")]).unwrap_err();
        assert!(matches!(error, EntryError::Tree(TreeFault::Duplicate { .. })));
        let error = arrange(vec![entry("a/b"), entry("a")]).unwrap_err();
        assert!(matches!(error, EntryError::Tree(TreeFault::Duplicate { .. })));
    }
}
