//! The `mesh` command: genesis, push, status, bundles, down.
//!
//! In: a command line, the surroundings. Out: what was asked for on standard output, talk on standard error, an exit
//! status. It loads images, installs the host and asks it; on the machine itself only the host starts, stops, makes
//! and removes things. Not here: the host and the controller, which are never imported.

// What this crate's tests share with the end-to-end tests calls it by its name.
#[cfg(test)]
extern crate self as mesh_installer;

pub mod backup;
pub mod builds;
pub mod carry;
pub mod cli;
mod commands;
pub mod config;
pub mod controller_source;
pub mod daemon;
pub mod doctor;
pub mod door;
pub mod follow;
pub mod genesis;
pub mod images;
pub mod inputs;
pub mod interrupt;
pub mod journal;
pub mod lock;
pub mod machine;
pub mod mesh_file;
pub mod module;
pub mod output;
pub mod picture;
pub mod prober;
pub mod push;
pub mod recording;
pub mod registry;
pub mod session;
#[cfg(test)]
mod testing;
pub mod third_party;
pub mod usage;
pub mod world;

pub use commands::run;
