//! A failure of an effect, as the decisions need it: what stood against it, and whether trying the same again
//! may help.

use serde::{Deserialize, Serialize};

/// What stood against an effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// Whose fault it is.
    pub blame: Blame,
    /// Expected and found, in words.
    pub text: String,
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Blame {
    /// What is declared cannot be made true here: the same again fails again, until somebody mends it.
    Declared,
    /// Store, disk, engine, bus: the same may work in a while.
    Surroundings,
    /// Not yet: something it needs is still coming.
    Pending,
}

impl Fault {
    /// What is declared cannot be made true here.
    #[must_use]
    pub fn declared(text: impl Into<String>) -> Self {
        Self { blame: Blame::Declared, text: text.into() }
    }

    /// The surroundings stood against it.
    #[must_use]
    pub fn surroundings(text: impl Into<String>) -> Self {
        Self { blame: Blame::Surroundings, text: text.into() }
    }

    /// It is not there yet.
    #[must_use]
    pub fn pending(text: impl Into<String>) -> Self {
        Self { blame: Blame::Pending, text: text.into() }
    }
}
