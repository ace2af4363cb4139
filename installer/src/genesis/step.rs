//! The steps of genesis, each with the goal that it makes true.
//!
//! In and out: names. Not here: which are to be done (`plan`) and how (`steps`).

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// A step of genesis, in their order. A later goal supersedes the earlier ones: who sees a later one hold needs none
/// before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// The machine can do this: every check named, all failures at once, each with its remedy. Leaves nothing behind.
    Preflight,
    /// Mesh id, keys, credentials and the modules' secrets exist, root-only; the inputs are those of the last time.
    Identity,
    /// The controller's bundle is packed and its digest known; the host's program is static and of this system.
    Bundles,
    /// The engine has the controller's image (the bundle worn as an image), the bus's and the store's.
    Images,
    /// The host runs on this machine and answers at its door.
    Host,
    /// The host holds generation 1, the bus is up, the controller's container answers the seat, the node is
    /// registered and its containers are adopted.
    Pivot,
    /// Bus and store are modules, and the store answers.
    Store,
    /// The controller's bundle is in the store, verified by digest.
    Publish,
    /// The controller's manifest is pushed: the first declaration that names its process.
    Push,
    /// The seat went from the container to the process.
    Handover,
    /// One controller, a process; no controller container; the seat answered by it.
    Verify,
}

impl Step {
    /// All of them, in their order.
    pub const ALL: [Self; 11] = [
        Self::Preflight,
        Self::Identity,
        Self::Bundles,
        Self::Images,
        Self::Host,
        Self::Pivot,
        Self::Store,
        Self::Publish,
        Self::Push,
        Self::Handover,
        Self::Verify,
    ];

    /// As it is typed and printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preflight => "preflight",
            Self::Identity => "identity",
            Self::Bundles => "bundles",
            Self::Images => "images",
            Self::Host => "host",
            Self::Pivot => "pivot",
            Self::Store => "store",
            Self::Publish => "publish",
            Self::Push => "push",
            Self::Handover => "handover",
            Self::Verify => "verify",
        }
    }

    /// What it makes true, for people.
    #[must_use]
    pub const fn goal(self) -> &'static str {
        match self {
            Self::Preflight => "can this machine do it?",
            Self::Identity => "mesh id, keys and credentials",
            Self::Bundles => "pack the controller's bundle",
            Self::Images => "the images of controller, bus and store",
            Self::Host => "start the host",
            Self::Pivot => "raise the bus, and the controller as a container",
            Self::Store => "push the bus and the store as modules",
            Self::Publish => "publish the controller's bundle",
            Self::Push => "push the controller's manifest",
            Self::Handover => "hand the seat over from the container to the process",
            Self::Verify => "one controller, a process",
        }
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
