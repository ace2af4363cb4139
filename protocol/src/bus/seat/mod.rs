//! A seat: verbs asked of whoever serves it, and the two ways around the queue group.
//!
//! In: requests. Out: answers. Not here: what a verb does.

pub mod client;
mod membership;
pub mod server;
