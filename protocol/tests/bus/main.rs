//! The bus room against a real server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub
)]

mod desk;
mod events;
mod first;
mod leave;
mod link;
mod lock;
mod rights;
mod seat;
mod state;
#[path = "../support/mod.rs"]
mod support;
