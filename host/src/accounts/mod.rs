//! System accounts that modules declare.
//!
//! In: a name, and whether one that is there already may be used. Out: its numbers; or why not. Not here: what
//! the account is for.
//!
//! What this mesh made carries the mesh's id as its comment; nothing else is ever changed or removed. All of
//! it blocks: it runs the system's own tools, which take turns at a lock.

mod decide;
mod effect;
mod observe;

use std::io;
use std::time::Duration;

use mesh_protocol::declaration::AccountOrigin;
use mesh_protocol::id::MeshId;

pub use self::decide::{Decision, Found, Removal, decide, decide_removal};
pub use self::observe::observe;

/// How long another program may hold the lock of the account files.
const LOCK: Duration = Duration::from_secs(15);

/// The numbers of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    /// The user.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
}

/// An account that is as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ensured {
    /// Its numbers.
    pub ids: Ids,
    /// Whether it was made just now.
    pub change: Change,
}

/// Whether something was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was so already.
    None,
    /// It was done just now.
    Done,
}

/// Why an account is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// It is there, and not ours.
    #[error(
        "account {name} exists and was not made by this mesh (its comment is {comment:?}): \
         `existing = true` in the manifest uses it"
    )]
    Foreign {
        /// Its name on the system.
        name: String,
        /// What stands where our mark would.
        comment: String,
    },
    /// It should be there already, and is not.
    #[error("account {name} does not exist: the manifest says `existing = true`, which makes none")]
    Missing {
        /// Its name on the system.
        name: String,
    },
    /// It cannot be an account's name.
    #[error(
        "account name {name} has {length} characters: expected at most {limit}, the mesh's prefix included"
    )]
    TooLong {
        /// Its name on the system.
        name: String,
        /// How long it is.
        length: usize,
        /// How long it may be.
        limit: usize,
    },
    /// The accounts cannot be read.
    #[error("the system's accounts cannot be read")]
    Observe(#[source] io::Error),
    /// The system's tool is not there or cannot be run.
    #[error("{tool} cannot be run")]
    Tool {
        /// Which.
        tool: &'static str,
        /// The system's word.
        source: io::Error,
    },
    /// The system's tool refused.
    #[error("{tool} {name} failed with {status}: {words}")]
    Refused {
        /// Which.
        tool: &'static str,
        /// The account.
        name: String,
        /// Its exit status.
        status: String,
        /// What it said.
        words: String,
    },
    /// The tool said yes, and it is not so.
    #[error("account {name} is not there after it was made")]
    NotMade {
        /// Its name on the system.
        name: String,
    },
}

/// Makes true that the account is there. `name` is as the system knows it, the mesh's prefix included.
///
/// # Errors
/// When it is there and not ours, or cannot be made.
pub fn ensure(mesh: &MeshId, name: &str, origin: AccountOrigin) -> Result<Ensured, AccountError> {
    let found = observe(name)?;
    match decide(mesh, name, origin, found.as_ref())? {
        Decision::Right(ids) => Ok(Ensured { ids, change: Change::None }),
        Decision::Make => {
            effect::make(name, &decide::mark(mesh), LOCK)?;
            // Another program may have made it in between: what is there now is judged anew.
            match decide(mesh, name, origin, observe(name)?.as_ref())? {
                Decision::Right(ids) => Ok(Ensured { ids, change: Change::Done }),
                Decision::Make => Err(AccountError::NotMade { name: name.to_owned() }),
            }
        }
    }
}

/// Removes an account that this mesh made; one that is not there or not ours is left as it is.
///
/// # Errors
/// When it cannot be removed, as while something runs under it.
pub fn remove(mesh: &MeshId, name: &str) -> Result<Removal, AccountError> {
    let removal = decide_removal(mesh, observe(name)?.as_ref());
    if let Removal::Remove(ids) = removal {
        effect::remove(name, ids, LOCK)?;
    }
    Ok(removal)
}
