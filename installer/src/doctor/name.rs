//! The names of the checks, in the order in which they are told: what explains the others comes first.
//!
//! In: what was typed. Out: [`Name`], or the name that was most likely meant. Not here: what is checked.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

macro_rules! names {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)*) => {
        /// A check.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Name {
            $($(#[$doc])* $variant,)*
        }

        impl Name {
            /// All of them, in the order in which they are told.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// As it is typed and printed; it never changes.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }
    };
}

names! {
    /// This user is root.
    User = "user",
    /// The mesh that was begun here was begun with these options.
    Inputs = "inputs",
    /// Nothing else changes this mesh.
    Lock = "lock",
    /// What was begun here was finished.
    EarlierAttempt = "earlier-attempt",
    /// The machine is called as it was when the mesh was begun.
    HostName = "host-name",
    /// The kernel has what the host relies on.
    Kernel = "kernel",
    /// There is memory for what will run.
    Memory = "memory",
    /// Programs may open files enough.
    OpenFiles = "open-files",
    /// The machine's clock is not in the past.
    Clock = "clock",
    /// Programs that make accounts are there.
    AccountPrograms = "account-programs",
    /// The host's program is there, and for this machine.
    HostProgram = "host-program",
    /// Whatever starts the host leaves alone what the host runs.
    HostUnit = "host-unit",
    /// There is a hierarchy of control groups to put processes into.
    CgroupVersion = "cgroup-version",
    /// A control group can be made.
    CgroupGroup = "cgroup-group",
    /// No variable sends what is meant for this machine to a proxy.
    Proxies = "proxies",
    /// `localhost` is this machine's loopback.
    Localhost = "localhost",
    /// The IPv4 loopback carries connections.
    LoopbackIpv4 = "loopback-ipv4",
    /// Nobody else is at our ports of the IPv6 loopback.
    LoopbackIpv6 = "loopback-ipv6",
    /// The bus's port can be had.
    BusPort = "bus-port",
    /// The store's port can be had.
    StorePort = "store-port",
    /// The root's path can be used.
    RootPath = "root-path",
    /// The root is ours, or not there.
    RootFolder = "root-folder",
    /// Other accounts get through to the root.
    RootPassage = "root-passage",
    /// The root's file system has room.
    RootDisk = "root-disk",
    /// The root's file system has room for files.
    RootInodes = "root-inodes",
    /// A file can be written where bundles will lie.
    RootWritable = "root-writable",
    /// A file can be given to another account there.
    RootOwners = "root-owners",
    /// A socket can be made there.
    RootSockets = "root-sockets",
    /// A program can be run from there.
    RootExecutable = "root-executable",
    /// The controller's manifest is right.
    ControllerManifest = "controller-manifest",
    /// The form that genesis raises agrees with the manifest.
    ControllerForm = "controller-form",
    /// The controller's binary can be its bundle.
    ControllerBinary = "controller-binary",
    /// The account of the bus can be made.
    BusAccount = "bus-account",
    /// The account of the store can be made.
    StoreAccount = "store-account",
    /// The accounts of the controller can be made.
    ControllerAccount = "controller-account",
    /// It can be told where the container engine is.
    EngineEndpoint = "engine-endpoint",
    /// A container engine is installed.
    EngineInstalled = "engine-installed",
    /// It runs, and answers.
    EngineRunning = "engine-running",
    /// This user may speak to it.
    EnginePermitted = "engine-permitted",
    /// It speaks what we speak.
    EngineVersion = "engine-version",
    /// It runs programs of the bundles' system.
    EnginePlatform = "engine-platform",
    /// Its containers are on this machine's network.
    EngineRootful = "engine-rootful",
    /// It takes orders from nobody else.
    EngineSwarm = "engine-swarm",
    /// It can limit what containers take.
    CgroupControllers = "cgroup-controllers",
    /// Its file system has room.
    EngineDisk = "engine-disk",
    /// Its file system has room for files.
    EngineInodes = "engine-inodes",
    /// The name of the bus's container is free.
    BusName = "bus-name",
    /// The name of the store's container is free.
    StoreName = "store-name",
    /// The name of the controller's container is free.
    ControllerName = "controller-name",
    /// The bus's image can be had.
    BusImage = "bus-image",
    /// The store's image can be had.
    StoreImage = "store-image",
    /// An image can be put into the engine.
    ContainerImage = "container-image",
    /// A container can be started.
    ContainerStart = "container-start",
    /// It is on this machine's network.
    ContainerNetwork = "container-network",
    /// It sees this machine's files.
    ContainerMount = "container-mount",
    /// It can be asked to end.
    ContainerStop = "container-stop",
    /// It can be removed, and its image.
    ContainerRemove = "container-remove",
    /// The engine's clock is this machine's.
    EngineClock = "engine-clock",
    /// What is written over the bus is not of the future.
    BusClock = "bus-clock",
    /// The store's clock is this machine's.
    StoreClock = "store-clock",
    /// No containers of a mesh that is gone are left.
    LeftoverContainers = "leftover-containers",
    /// No accounts of a mesh that is gone are left.
    LeftoverAccounts = "leftover-accounts",
    /// No units of a mesh that is gone are left.
    LeftoverUnits = "leftover-units",
    /// Nothing of an earlier look at this machine is left.
    LeftoverProbes = "leftover-probes",
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().copied().find(|name| name.as_str() == text);
        found.ok_or_else(|| format!("no check is called {text:?}: the nearest is {}", nearest(text)))
    }
}

fn nearest(text: &str) -> Name {
    let distance = |name: &Name| strsim::damerau_levenshtein(text, name.as_str());
    Name::ALL.iter().copied().min_by_key(distance).unwrap_or(Name::User)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_back_and_said_once() {
        let mut texts: Vec<&str> = Name::ALL.iter().map(|name| name.as_str()).collect();
        for (name, text) in Name::ALL.iter().zip(&texts) {
            assert_eq!(text.parse::<Name>().unwrap(), *name);
            assert!(
                text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-' || byte.is_ascii_digit())
            );
        }
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), Name::ALL.len());
        assert!(texts.len() >= 30, "{}", texts.len());
    }

    #[test]
    fn a_slip_of_the_finger_is_told_the_name_that_was_meant() {
        let error = "bus-prot".parse::<Name>().unwrap_err();
        assert_eq!(error, "no check is called \"bus-prot\": the nearest is bus-port");
    }
}
