//! The prefix of each user's inbox: the one place in which a user's answers can come.
//!
//! In: a name. Out: a prefix. A program that knows only its credential file and its own name finds its inbox
//! here.

use crate::id::{NodeName, ResourceName};

/// The beginning of every inbox. A request whose reply subject is none is answered by nobody.
pub const ANY: &str = "_INBOX.";

/// The controller's, in both accounts.
pub const CONTROLLER: &str = "_INBOX.c";

/// Whoever only watches whether the seat answers.
pub const PROBER: &str = "_INBOX.p";

/// A host's.
#[must_use]
pub fn host(node: &NodeName) -> String {
    format!("_INBOX.h.{node}")
}

/// An operator's.
#[must_use]
pub fn operator(name: &ResourceName) -> String {
    format!("_INBOX.o.{name}")
}
