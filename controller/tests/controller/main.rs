//! The real program against a real bus, with hosts that only say what hosts say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    reason = "all of it is tests, also what stands outside of a test's function"
)]

#[path = "../../../protocol/tests/support/mod.rs"]
#[allow(dead_code)]
mod support;

mod host;
mod instance;
mod world;

mod adoption;
mod arguments;
mod loss;
mod push;
mod roles;
