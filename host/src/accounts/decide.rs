//! What is to be done about an account: pure.
//!
//! In: what is wanted and what was found. Out: one decision. Not here: looking, doing.

use mesh_protocol::declaration::AccountOrigin;
use mesh_protocol::id::MeshId;

use super::{AccountError, Ids};

/// utmp's field and useradd's own limit.
const LONGEST_NAME: usize = 32;

/// An account as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its numbers.
    pub ids: Ids,
    /// Its comment (GECOS), which tells who made it.
    pub comment: String,
}

/// What is to be done so that an account is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it is there.
    Right(Ids),
    /// It is to be made.
    Make,
}

/// What is to be done so that an account of ours is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// Nothing: it is not there.
    Gone,
    /// It is to be removed; returned by [`super::remove`], it was.
    Remove(Ids),
    /// Nothing: it is not ours.
    NotOurs,
}

/// What is to be done so that the account is there.
///
/// # Errors
/// When it must not or cannot be made.
pub fn decide(
    mesh: &MeshId,
    name: &str,
    origin: AccountOrigin,
    found: Option<&Found>,
) -> Result<Decision, AccountError> {
    match (origin, found) {
        (AccountOrigin::Existing, Some(found)) => Ok(Decision::Right(found.ids)),
        (AccountOrigin::Existing, None) => Err(AccountError::Missing { name: name.to_owned() }),
        (AccountOrigin::Made, Some(found)) if found.comment == mark(mesh) => Ok(Decision::Right(found.ids)),
        (AccountOrigin::Made, Some(found)) => {
            Err(AccountError::Foreign { name: name.to_owned(), comment: found.comment.clone() })
        }
        (AccountOrigin::Made, None) if name.len() > LONGEST_NAME => {
            Err(AccountError::TooLong { name: name.to_owned(), length: name.len(), limit: LONGEST_NAME })
        }
        (AccountOrigin::Made, None) => Ok(Decision::Make),
    }
}

/// What is to be done so that the account is not there, if it is ours.
#[must_use]
pub fn decide_removal(mesh: &MeshId, found: Option<&Found>) -> Removal {
    match found {
        None => Removal::Gone,
        Some(found) if found.comment == mark(mesh) => Removal::Remove(found.ids),
        Some(_) => Removal::NotOurs,
    }
}

/// The comment of the accounts that this mesh made.
pub(super) fn mark(mesh: &MeshId) -> String {
    format!("mesh {mesh}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: Ids = Ids { uid: 7, gid: 8 };

    fn mesh() -> MeshId {
        "m1".parse().unwrap()
    }

    fn found(comment: &str) -> Option<Found> {
        Some(Found { ids: IDS, comment: comment.to_owned() })
    }

    #[test]
    fn ours_is_right_and_a_strangers_is_refused() {
        let made = |found: Option<&Found>| decide(&mesh(), "a", AccountOrigin::Made, found);
        assert_eq!(made(None).unwrap(), Decision::Make);
        assert_eq!(made(found("mesh m1").as_ref()).unwrap(), Decision::Right(IDS));
        for other in ["", "mesh m2", "mesh m1 "] {
            let error = made(found(other).as_ref()).unwrap_err();
            assert!(error.to_string().contains("existing = true"), "{error}");
        }
    }

    #[test]
    fn an_existing_one_is_used_whoever_made_it() {
        let existing = |found: Option<&Found>| decide(&mesh(), "a", AccountOrigin::Existing, found);
        assert_eq!(existing(found("").as_ref()).unwrap(), Decision::Right(IDS));
        assert!(matches!(existing(None), Err(AccountError::Missing { .. })));
    }

    #[test]
    fn a_name_that_no_account_can_have_is_refused() {
        let error = decide(&mesh(), &"a".repeat(33), AccountOrigin::Made, None).unwrap_err();
        assert!(matches!(error, AccountError::TooLong { length: 33, .. }));
    }

    #[test]
    fn only_ours_is_removed() {
        assert_eq!(decide_removal(&mesh(), None), Removal::Gone);
        assert_eq!(decide_removal(&mesh(), found("mesh m1").as_ref()), Removal::Remove(IDS));
        assert_eq!(decide_removal(&mesh(), found("mesh m2").as_ref()), Removal::NotOurs);
        assert_eq!(decide_removal(&mesh(), found("").as_ref()), Removal::NotOurs);
    }
}
