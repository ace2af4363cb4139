//! Genesis on the real engine, bus and store: from an empty root to a controller that is a process, once more, and
//! away again; and what it refuses. Each test has a mesh of its own; none hurts a process or a machine.

// A test's name says what it shows, and it stops at the first thing that is not as it says.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod again;
mod decoys;
mod down;
mod dry_run;
mod half_done;
mod measured;
mod programs;
mod pushed;
mod refused;
mod secret;
mod surface;
mod whole;
