//! The containers of this mesh on this machine: what there is, and the few things done to them.
//!
//! In: the engine. Out: a snapshot that is never waited for, and deeds that can be done twice. Not here: which
//! containers there shall be.

pub mod effect;
pub mod watch;
