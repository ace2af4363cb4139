//! What end-to-end tests are made of: the real programs and where they lie, whole meshes, a store and a corner of
//! the engine that go when the test ends.
//!
//! In: MESH_PARTS, MESH_BINARIES and MESH_TEST_BINARIES, as scripts/test sets them. Out: things that are up, or a
//! panic that says what to run. Not here: tests; they are under `tests/`, in few programs, each of one blast radius.

// A test stops at the first thing that is not as it says, in its harness too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

pub mod account;
pub mod behind;
pub mod checkpoints;
pub mod command;
pub mod engine;
pub mod events;
pub mod images;
pub mod load;
pub mod mesh;
pub mod names;
pub mod narrow;
pub mod parts;
pub mod private;
pub mod process;
pub mod proxies;
pub mod pulse;
pub mod rounds;
pub mod source;
pub mod store;
pub mod until;
pub mod versions;
pub mod watch;
