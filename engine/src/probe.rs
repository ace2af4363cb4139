//! What kind of engine it is, for checks before anything is asked of it and for reports.
//!
//! In: nothing. Out: [`Facts`]. Not here: whether they are good enough.

use jiff::Timestamp;

use crate::engine::{Engine, QUICK};
use crate::error::Error;

/// What the engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Its version, in its maker's words.
    pub version: String,
    /// The newest API it speaks.
    pub api: crate::error::ApiVersion,
    /// Its operating system in Go's words: `linux`.
    pub os: String,
    /// Its processor in Go's words: `amd64`.
    pub architecture: String,
    /// The version of the control groups it uses.
    pub cgroup: Option<CgroupVersion>,
    /// What makes its control groups: `cgroupfs`, `systemd`; `none` where it can make none.
    pub cgroup_driver: String,
    /// What it cannot limit of a container: `memory`, `pids`, `cpu`.
    pub unlimited: Vec<&'static str>,
    /// Where it keeps its images and containers.
    pub root_folder: String,
    /// How it confines containers, as `name=seccomp,profile=default`.
    pub security: Vec<String>,
    /// Whether it is part of a swarm.
    pub swarm: Swarm,
    /// Its clock, when it was asked.
    pub time: Option<Timestamp>,
}

/// Whether an engine is part of a swarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swarm {
    /// It is, or is about to be: others may start containers on it.
    Member,
    /// It is not.
    Apart,
}

/// Of the kernel's control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// One hierarchy per controller.
    One,
    /// One hierarchy.
    Two,
}

impl Engine {
    /// Asks the engine what it is.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn facts(&self) -> Result<Facts, Error> {
        use bollard::models::{LocalNodeState, SystemInfoCgroupVersionEnum as Cgroup};
        let what = "describe itself";
        let version = self.ask(what, QUICK, self.client.version()).await?;
        let info = self.ask(what, QUICK, self.client.info()).await?;
        Ok(Facts {
            version: version.version.unwrap_or_default(),
            api: self.api(),
            os: version.os.unwrap_or_default(),
            architecture: version.arch.unwrap_or_default(),
            cgroup: match info.cgroup_version {
                Some(Cgroup::_1) => Some(CgroupVersion::One),
                Some(Cgroup::_2) => Some(CgroupVersion::Two),
                Some(Cgroup::EMPTY) | None => None,
            },
            cgroup_driver: info.cgroup_driver.map(|driver| driver.to_string()).unwrap_or_default(),
            unlimited: [
                ("memory", info.memory_limit),
                ("pids", info.pids_limit),
                ("cpu", info.cpu_cfs_quota),
            ]
            .into_iter()
            .filter_map(|(what, can)| (can == Some(false)).then_some(what))
            .collect(),
            root_folder: info.docker_root_dir.unwrap_or_default(),
            security: info.security_options.unwrap_or_default(),
            swarm: match info.swarm.and_then(|swarm| swarm.local_node_state) {
                None | Some(LocalNodeState::EMPTY | LocalNodeState::INACTIVE) => Swarm::Apart,
                Some(_) => Swarm::Member,
            },
            time: info.system_time.and_then(|time| time.parse().ok()),
        })
    }
}
