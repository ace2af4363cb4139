//! The words that all programs of a mesh share, and how they travel.
//!
//! In: bytes from files, sockets and the bus. Out: typed, checked words. Not here: anything that changes
//! the world; a room that does imports these words and keeps its deeds to itself.

pub mod bus;
pub mod chain;
pub mod declaration;
pub mod door;
pub mod event;
pub mod genesis_form;
pub mod handover;
pub mod id;
pub mod layout;
pub mod manifest;
pub mod plan;
pub mod report;
pub mod schema;
pub mod section;
pub mod subject;
pub mod variable;
pub mod verb;

#[cfg(test)]
mod testing;
