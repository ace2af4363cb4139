//! What is to be done about a module's folder: pure.
//!
//! In: the files that it shall hold, and what it holds. Out: a list of actions; an empty one means that it is
//! complete. Not here: looking, doing.

use std::fmt;

use mesh_protocol::id::Digest;

use crate::accounts::Ids;

/// A file as it shall be.
#[derive(Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// All of it.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Whom it belongs to.
    pub ids: Ids,
}

/// Its content may be a secret, and is not shown.
impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted")
            .field("name", &self.name)
            .field("bytes", &self.bytes.len())
            .field("mode", &format_args!("{:o}", self.mode))
            .field("ids", &self.ids)
            .finish()
    }
}

/// What was found under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A plain file.
    File {
        /// Its name.
        name: String,
        /// Of its bytes.
        digest: Digest,
        /// Permission bits.
        mode: u32,
        /// Whom it belongs to.
        ids: Ids,
    },
    /// A link, a folder, anything else.
    Other {
        /// Its name.
        name: String,
    },
}

impl Found {
    fn name(&self) -> &str {
        match self {
            Self::File { name, .. } | Self::Other { name } => name,
        }
    }
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// What must not be there goes: a name that is not wanted, or what is no plain file.
    Remove {
        /// Its name.
        name: String,
    },
    /// A file is written.
    Write(Wanted),
}

/// What is to be done; what goes first is what must not be there.
#[must_use]
pub fn decide(wanted: &[Wanted], found: &[Found]) -> Vec<Action> {
    let is_wanted = |name: &str| wanted.iter().any(|file| file.name == name);
    let removals = found
        .iter()
        .filter(|there| matches!(there, Found::Other { .. }) || !is_wanted(there.name()))
        .map(|there| Action::Remove { name: there.name().to_owned() });
    let writes = wanted
        .iter()
        .filter(|file| !found.iter().any(|there| is_right(file, there)))
        .map(|file| Action::Write(file.clone()));
    removals.chain(writes).collect()
}

fn is_right(wanted: &Wanted, there: &Found) -> bool {
    match there {
        Found::File { name, digest, mode, ids } => {
            name == &wanted.name
                && *mode == wanted.mode
                && *ids == wanted.ids
                && *digest == Digest::of(&wanted.bytes)
        }
        Found::Other { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: Ids = Ids { uid: 1, gid: 2 };

    fn wanted(name: &str) -> Wanted {
        Wanted { name: name.to_owned(), bytes: b"x".to_vec(), mode: 0o400, ids: IDS }
    }

    fn found(name: &str, bytes: &[u8], mode: u32, ids: Ids) -> Found {
        Found::File { name: name.to_owned(), digest: Digest::of(bytes), mode, ids }
    }

    #[test]
    fn what_is_as_wanted_needs_nothing() {
        assert_eq!(decide(&[wanted("a")], &[found("a", b"x", 0o400, IDS)]), []);
        assert_eq!(decide(&[], &[]), []);
    }

    #[test]
    fn content_mode_and_owner_all_count() {
        let other = Ids { uid: 1, gid: 3 };
        for wrong in [
            vec![],
            vec![found("a", b"y", 0o400, IDS)],
            vec![found("a", b"x", 0o600, IDS)],
            vec![found("a", b"x", 0o400, other)],
        ] {
            assert_eq!(decide(&[wanted("a")], &wrong), [Action::Write(wanted("a"))], "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_wanted_goes_and_what_is_no_file_is_replaced() {
        let there = [found("b", b"x", 0o400, IDS), Found::Other { name: "a".to_owned() }];
        let expected = [
            Action::Remove { name: "b".to_owned() },
            Action::Remove { name: "a".to_owned() },
            Action::Write(wanted("a")),
        ];
        assert_eq!(decide(&[wanted("a")], &there), expected);
    }

    #[test]
    fn a_secret_is_not_shown() {
        assert!(!format!("{:?}", Wanted { bytes: b"hush".to_vec(), ..wanted("a") }).contains("hush"));
    }
}
