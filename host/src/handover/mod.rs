//! The handover: how a seat goes from one holder to the next without anybody noticing.
//!
//! In: the record of a handover, what was observed, the time. Out: what to write and what to do. Not here:
//! how a thing is started or asked (the task does it), nor who shall hold the seat (the declaration says it).
//!
//! [`decide`] is pure and is the whole of it; [`record`] is what survives a crash; [`seen`] is what is
//! observed. What each state does, what a crash in it leaves, and what the operator sees stands at
//! its arms, in `decide/states.rs`.

pub mod decide;
pub mod open;
pub mod record;
pub mod seen;
pub mod trace;

#[cfg(test)]
mod tests;
