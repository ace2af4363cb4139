//! What an instance says of itself when its host asks whether it could serve.
//!
//! In and out: the answer of the verb `ready`. Not here: what its host makes of it.

use serde::{Deserialize, Serialize};

use crate::handover::Role;
use crate::id::{Digest, InstanceId, PlanId};

/// What an instance says of itself, asked by its host on its own subject. Each part was tried for this very
/// answer, none is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Who.
    pub instance: InstanceId,
    /// What it does.
    pub role: Role,
    /// Its version, built in.
    pub version: String,
    /// The sha256 of its own executable: what the host unpacked, or something else.
    pub program: Digest,
    /// The version of the protocol that it speaks.
    pub protocol: u32,
    /// The forms of the controller's stored documents that it reads and can write, highest last.
    pub formats: Vec<u32>,
    /// Whether the buckets could be read and a scratch key written; the error where not.
    pub state: Check,
    /// Whether the plan lock's bucket could be reached; the error where not.
    pub lock: Check,
    /// Whether this instance has held the plan lock at least once since it was told to serve.
    pub lock_taken: bool,
    /// The plan that is open, as it reads it.
    pub open_plan: Option<PlanId>,
}

/// Something that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "check", content = "error")]
pub enum Check {
    /// It worked.
    Passed,
    /// It did not: the error.
    Failed(String),
}

/// The protocol's version; raised when a verb changes its meaning.
pub const PROTOCOL: u32 = 1;
