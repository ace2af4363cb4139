//! The handover from the container to the process on real parts: that nobody notices it, that a process which does
//! not stay up is handed back, and that a mesh which runs goes through it like a new one. Each test has a mesh of its
//! own.

// A test's name says what it shows, and it stops at the first thing that is not as it says.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod bad_versions;
mod does_not_stay_up;
mod fails_later;
mod measured;
mod newer;
mod shown;
mod traced;
