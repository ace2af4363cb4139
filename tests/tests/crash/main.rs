//! Host and controller ended by SIGKILL while the mesh runs: what each leaves, and how it goes on. Each test has a
//! mesh of its own, and kills nothing else.

// A test's name says what it shows, and it stops at the first thing that is not as it says.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod in_a_handover;
mod killed;
mod shim;
