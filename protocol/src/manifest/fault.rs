//! What is wrong with a manifest: where, what was found, what would be right.
//!
//! In: spans of bytes and words. Out: errors with lines and columns, all of a text at once. Not here: what is
//! looked for.

use std::fmt;
use std::ops::Range;

use crate::id::InvalidId;

/// What kind of thing is wrong; stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// Not TOML.
    Syntax,
    /// A key or section that there is none of.
    UnknownKey,
    /// A key that must be there.
    MissingKey,
    /// A number for a text, and the like.
    WrongType,
    /// A name that is no label.
    InvalidName,
    /// A version that is none.
    InvalidVersion,
    /// A system that there is no name for.
    InvalidSystem,
    /// A digest that is none.
    InvalidDigest,
    /// A path that is empty, absolute or leads out of where it belongs.
    InvalidPath,
    /// A mode that is none, or gives too much.
    InvalidMode,
    /// Neither a secret nor a content, or both.
    InvalidSource,
    /// Words to run that are empty, or whose program does not lie in its bundle.
    InvalidRun,
    /// An image's reference that is none.
    InvalidImage,
    /// A mount that cannot be.
    InvalidMount,
    /// Something to replace that cannot be replaced.
    InvalidReplaces,
    /// A `${variable}` that there is none of.
    UnknownVariable,
    /// A `${` without `}`.
    UnclosedVariable,
    /// Two of one resource id.
    DuplicateResource,
    /// Two entries of one bundle for one system.
    DuplicateBundle,
    /// A bundle that no process runs from.
    UnusedBundle,
    /// A process whose bundle is not there.
    UndeclaredBundle,
    /// An account that nobody declares.
    UndeclaredAccount,
    /// A path below `${module.dir}` that no file declares.
    UndeclaredFile,
    /// A path that a container is told of and not given.
    UnmountedPath,
    /// A seat without exactly one process or container.
    SeatHolder,
    /// The registration gate: an image of the module's own code.
    ContainerBuild,
}

impl Code {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "syntax",
            Self::UnknownKey => "unknown-key",
            Self::MissingKey => "missing-key",
            Self::WrongType => "wrong-type",
            Self::InvalidName => "invalid-name",
            Self::InvalidVersion => "invalid-version",
            Self::InvalidSystem => "invalid-system",
            Self::InvalidDigest => "invalid-digest",
            Self::InvalidPath => "invalid-path",
            Self::InvalidMode => "invalid-mode",
            Self::InvalidSource => "invalid-source",
            Self::InvalidRun => "invalid-run",
            Self::InvalidImage => "invalid-image",
            Self::InvalidMount => "invalid-mount",
            Self::InvalidReplaces => "invalid-replaces",
            Self::UnknownVariable => "unknown-variable",
            Self::UnclosedVariable => "unclosed-variable",
            Self::DuplicateResource => "duplicate-resource",
            Self::DuplicateBundle => "duplicate-bundle",
            Self::UnusedBundle => "unused-bundle",
            Self::UndeclaredBundle => "undeclared-bundle",
            Self::UndeclaredAccount => "undeclared-account",
            Self::UndeclaredFile => "undeclared-file",
            Self::UnmountedPath => "unmounted-path",
            Self::SeatHolder => "seat-holder",
            Self::ContainerBuild => "container-build",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}:{line}:{column}: found {found}, expected {expected}")]
pub struct ManifestError {
    /// The file, as the user gave it.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What kind of thing it is.
    pub code: Code,
    /// What stands there.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

/// Everything that is wrong, in the order of the lines; never nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestErrors(Vec<ManifestError>);

impl ManifestErrors {
    /// Each of them.
    #[must_use]
    pub fn all(&self) -> &[ManifestError] {
        &self.0
    }
}

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ManifestErrors {}

/// Collects what is wrong with one text.
pub(crate) struct Faults<'a> {
    path: &'a str,
    text: &'a str,
    found: Vec<ManifestError>,
}

impl<'a> Faults<'a> {
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        Self { path, text, found: Vec::new() }
    }

    pub(crate) fn add(
        &mut self,
        span: Range<usize>,
        code: Code,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) {
        let (line, column) = position(self.text, span.start);
        let (found, expected) = (found.into(), expected.into());
        self.found.push(ManifestError { path: self.path.to_owned(), line, column, code, found, expected });
    }

    pub(crate) fn add_invalid(&mut self, span: Range<usize>, code: Code, invalid: &InvalidId) {
        self.add(span, code, format!("the {} {:?}", invalid.what, invalid.found), invalid.expected);
    }

    /// What was made of the text, or all that is wrong with it, each once, in the order of the lines.
    pub(crate) fn into_result<T>(mut self, made: Option<T>) -> Result<T, ManifestErrors> {
        self.found.sort_by_key(|error| (error.line, error.column, error.code));
        self.found.dedup();
        match made {
            Some(made) if self.found.is_empty() => Ok(made),
            _ => Err(ManifestErrors(self.found)),
        }
    }
}

/// Line and column of a byte, both counted from 1; the column in characters.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The known word that somebody who wrote `found` most likely meant.
pub(crate) fn meant<'k>(found: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    known
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .filter(|(distance, word)| *distance <= (word.len() / 3).max(1))
        .min()
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_counted_from_one_and_in_characters() {
        let text = "ab\nä€x\n";
        assert_eq!(position(text, 0), (1, 1));
        assert_eq!(position(text, 3), (2, 1));
        assert_eq!(position(text, text.find('x').unwrap()), (2, 3));
        assert_eq!(position(text, 4), (2, 1), "inside a character is at its beginning");
        assert_eq!(position(text, 1000), (3, 1));
    }

    #[test]
    fn a_slip_of_the_finger_is_understood() {
        let known = ["name", "system", "binary"];
        assert_eq!(meant("nmae", known), Some("name"));
        assert_eq!(meant("sistem", known), Some("system"));
        assert_eq!(meant("frobnicate", known), None);
    }
}
