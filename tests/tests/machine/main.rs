//! What happens to a whole machine: its power is cut, its engine hangs or loses containers, its bus goes away. Each test
//! has a machine of its own, with an engine of its own, and what it kills is in there.

// A test's name says what it shows, and it stops at the first thing that is not as it says.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod cycles;
mod disk;
mod engine;
mod genesis;
mod lost;
mod mistakes;
mod power_cut;
mod swarm;
