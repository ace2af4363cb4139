//! The node host: makes true what the controller declares for its machine.
//!
//! In: declarations, from the bus or through the local door. Out: accounts, bundles, files, processes and
//! containers as declared, and a report of each. Not here: what a machine shall have, which the controller
//! decides.

pub mod accept;
pub mod accounts;
pub mod bundles;
pub mod bus;
pub mod clock;
pub mod containers;
pub mod daemon;
pub mod door;
pub mod fault;
pub mod files;
pub mod handover;
pub mod jobs;
pub mod ledger;
pub mod log;
pub mod machine;
pub mod paths;
pub mod place;
pub mod probe;
pub mod processes;
pub mod recovery;
pub mod run_folder;
pub mod serve;
pub mod steady;
pub mod supervise;
pub mod task;
#[cfg(test)]
mod testing;
