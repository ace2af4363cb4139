//! Bundles and images from one end to the other: what a push builds and what it refuses, who uses what is in the store and
//! what nobody does, and a genesis without network. Each test has a mesh of its own; none hurts a process or a machine.

// A test's name says what it shows, and it stops at the first thing that is not as it says.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod kept;
mod offline;
mod planned;
mod two_systems;
