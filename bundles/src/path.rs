//! The paths that may stand in a bundle: relative, plain, and the same to every program that reads them.
//!
//! In: bytes from a folder or an archive. Out: a [`BundlePath`], or what is wrong with it. Not here: how
//! paths go together (see `tree`), and anything that looks at a disk.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The longest path, in bytes: Linux's `PATH_MAX` with room for the folder that it is unpacked into.
pub const MAX_PATH: usize = 3072;
/// The longest component, in bytes: Linux's `NAME_MAX`.
pub const MAX_NAME: usize = 255;
/// The deepest nesting; more is nothing that a program's files need.
pub const MAX_DEPTH: usize = 64;

/// A path in a bundle: UTF-8, relative, components parted by single slashes, no slash at the end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BundlePath(String);

/// Why a path may not stand in a bundle. Each names the path, with what cannot be printed escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathFault {
    /// There is no path.
    #[error("the path is empty")]
    Empty,
    /// It begins at the root.
    #[error("path {0:?} is absolute: expected one that is relative to the bundle")]
    Absolute(String),
    /// It has `..`.
    #[error("path {0:?} leads upwards with '..'")]
    Parent(String),
    /// It has `.` or an empty component.
    #[error("path {0:?} has an empty or '.' component")]
    EmptyComponent(String),
    /// It has a NUL byte.
    #[error("path {0:?} has a NUL byte")]
    Nul(String),
    /// It has a control character.
    #[error("path {0:?} has a control character")]
    Control(String),
    /// It has a backslash.
    #[error("path {0:?} has a backslash")]
    Backslash(String),
    /// It is not UTF-8.
    #[error("path {0:?} is not UTF-8")]
    NotUtf8(String),
    /// It is too long.
    #[error("path {path:?} has {found} bytes: expected at most {MAX_PATH}")]
    TooLong {
        /// Its beginning.
        path: String,
        /// How long it is.
        found: usize,
    },
    /// A component is too long.
    #[error("path {path:?} has a component of {found} bytes: expected at most {MAX_NAME}")]
    NameTooLong {
        /// Its beginning.
        path: String,
        /// How long the component is.
        found: usize,
    },
    /// It is nested too deeply.
    #[error("path {path:?} is {found} deep: expected at most {MAX_DEPTH}")]
    TooDeep {
        /// Its beginning.
        path: String,
        /// How deep it is.
        found: usize,
    },
    /// It is what macOS leaves beside files.
    #[error("path {0:?} is macOS metadata ('._*' or '__MACOSX')")]
    Metadata(String),
}

impl BundlePath {
    /// The path that these bytes are.
    ///
    /// # Errors
    /// When they may not be a path in a bundle.
    pub fn parse(bytes: &[u8]) -> Result<Self, PathFault> {
        let shown = || shown(bytes);
        if bytes.is_empty() {
            return Err(PathFault::Empty);
        }
        if bytes.len() > MAX_PATH {
            return Err(PathFault::TooLong { path: shown(), found: bytes.len() });
        }
        if bytes.contains(&0) {
            return Err(PathFault::Nul(shown()));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| PathFault::NotUtf8(shown()))?;
        if text.chars().any(char::is_control) {
            return Err(PathFault::Control(shown()));
        }
        if text.contains('\\') {
            return Err(PathFault::Backslash(shown()));
        }
        if text.starts_with('/') {
            return Err(PathFault::Absolute(shown()));
        }
        for name in text.split('/') {
            match name {
                ".." => return Err(PathFault::Parent(shown())),
                "" | "." => return Err(PathFault::EmptyComponent(shown())),
                _ if name.len() > MAX_NAME => {
                    return Err(PathFault::NameTooLong { path: shown(), found: name.len() });
                }
                _ if name.starts_with("._") || name == "__MACOSX" => {
                    return Err(PathFault::Metadata(shown()));
                }
                _ => {}
            }
        }
        let depth = text.split('/').count();
        if depth > MAX_DEPTH {
            return Err(PathFault::TooDeep { path: shown(), found: depth });
        }
        Ok(Self(text.to_owned()))
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder it lies in; none for what lies in the bundle's own.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('/').map(|(parent, _)| Self(parent.to_owned()))
    }

    /// Its last component.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }
}

/// At most this much of a path is shown: an attacker's path must not fill a log.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned()
}

impl std::str::FromStr for BundlePath {
    type Err = PathFault;

    fn from_str(text: &str) -> Result<Self, PathFault> {
        Self::parse(text.as_bytes())
    }
}

impl TryFrom<String> for BundlePath {
    type Error = PathFault;

    fn try_from(text: String) -> Result<Self, PathFault> {
        Self::parse(text.as_bytes())
    }
}

impl From<BundlePath> for String {
    fn from(path: BundlePath) -> Self {
        path.0
    }
}

impl AsRef<Path> for BundlePath {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

impl fmt::Display for BundlePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_relative_paths_are_taken() {
        for good in ["a", "a/b", "usr/bin/mesh-host", ".hidden", "ä/ö", "a b", "...", "a..b"] {
            assert_eq!(good.parse::<BundlePath>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn each_fault_has_its_own_name() {
        let fault = |bytes: &[u8]| BundlePath::parse(bytes).unwrap_err();
        assert!(matches!(fault(b""), PathFault::Empty));
        assert!(matches!(fault(b"/a"), PathFault::Absolute(_)));
        assert!(matches!(fault(b"a/../b"), PathFault::Parent(_)));
        assert!(matches!(fault(b"a//b"), PathFault::EmptyComponent(_)));
        assert!(matches!(fault(b"a/"), PathFault::EmptyComponent(_)));
        assert!(matches!(fault(b"./a"), PathFault::EmptyComponent(_)));
        assert!(matches!(fault(b"a\0b"), PathFault::Nul(_)));
        assert!(matches!(fault(b"a\nb"), PathFault::Control(_)));
        assert!(matches!(fault(b"a\\b"), PathFault::Backslash(_)));
        assert!(matches!(fault(b"a\xff"), PathFault::NotUtf8(_)));
        assert!(matches!(fault(b"._a"), PathFault::Metadata(_)));
        assert!(matches!(fault(b"__MACOSX/a"), PathFault::Metadata(_)));
        assert!(matches!(fault(&[b'a'; 256]), PathFault::NameTooLong { found: 256, .. }));
        assert!(matches!(
            fault("a/".repeat(65).trim_end_matches('/').as_bytes()),
            PathFault::TooDeep { found: 65, .. }
        ));
        assert!(matches!(fault("a/".repeat(1600).as_bytes()), PathFault::TooLong { found: 3200, .. }));
    }
}
