//! A host that makes nothing true and reports as if it had: it takes declarations by the rules, and says of each
//! resource what the test wants to hear.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::bus::HostBus;
use mesh_protocol::declaration::{Declaration, Issued};
use mesh_protocol::handover::{HandoverReport, Reason, Side, State};
use mesh_protocol::id::{Digest, NodeName, ResourceId, System, Token};
use mesh_protocol::report::{Adoption, FORMAT, NodeState, Report, ResourceReport, ResourceState, SecretHeld};
use tokio::task::JoinHandle;

use crate::support::mesh;

/// What becomes of what is declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// All of it comes true.
    Converge,
    /// It is accepted, and nothing comes of it.
    Stall,
    /// This process is handed back, the rest comes true.
    HandBack(ResourceId),
}

/// What the host has and says.
pub struct Held {
    pub fate: Fate,
    pub accepted: Option<Declaration>,
    token: Token,
    applied: Option<Issued>,
    diverged: Option<Box<Declaration>>,
    /// Generation 1: held, and declared by no module.
    pub genesis: Option<Declaration>,
    resources: Vec<ResourceReport>,
    handovers: Vec<HandoverReport>,
    started: Timestamp,
    number: u64,
}

/// A host at work; it ends with the value.
pub struct Host {
    pub held: Arc<Mutex<Held>>,
    task: JoinHandle<()>,
}

impl Host {
    pub fn start(bus: HostBus, node: NodeName, genesis: Option<Declaration>) -> Self {
        let held = Held {
            fate: Fate::Converge,
            accepted: genesis.clone(),
            token: Token::default(),
            applied: genesis.as_ref().map(Declaration::issued),
            diverged: None,
            genesis,
            resources: Vec::new(),
            handovers: Vec::new(),
            started: Timestamp::now(),
            number: 0,
        };
        let held = Arc::new(Mutex::new(held));
        let task = tokio::spawn(run(bus, node, held.clone()));
        Self { held, task }
    }

    pub fn fate(&self, fate: Fate) {
        self.held.lock().unwrap().fate = fate;
    }

    pub fn accepted(&self) -> Option<Declaration> {
        self.held.lock().unwrap().accepted.clone()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(bus: HostBus, node: NodeName, held: Arc<Mutex<Held>>) {
    loop {
        let declared = bus.declaration().await.ok().flatten();
        let report = {
            let mut held = held.lock().unwrap();
            if let Some(declared) = declared {
                held.look_at(declared);
            }
            held.make_true();
            held.report(&node)
        };
        let _ = bus.report(&report).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Held {
    fn look_at(&mut self, declared: Declaration) {
        let Some(accepted) = &self.accepted else {
            self.take(declared);
            return;
        };
        if declared.token < self.token || declared.generation < accepted.generation {
            return;
        }
        if declared.issued() == accepted.issued() {
            self.take(declared);
        } else if !declared.issued.contains(&accepted.issued()) {
            self.diverged = Some(Box::new(accepted.clone()));
        } else if declared.generation > accepted.generation {
            self.take(declared);
        }
    }

    fn take(&mut self, declared: Declaration) {
        self.diverged = None;
        self.token = declared.token;
        self.accepted = Some(declared);
    }

    fn make_true(&mut self) {
        let Some(accepted) = &self.accepted else { return };
        if self.fate == Fate::Stall {
            return;
        }
        let genesis = self.genesis.as_ref().map(Declaration::resources).unwrap_or_default();
        let declared =
            if self.genesis.as_ref() == Some(accepted) { Default::default() } else { accepted.resources() };
        self.handovers.clear();
        self.resources.clear();
        for (id, digest) in &genesis {
            if !declared.contains_key(id) {
                self.resources.push(resource(id, digest, ResourceState::Converged, Some(Adoption::Genesis)));
            }
        }
        for (id, digest) in &declared {
            let back = self.fate == Fate::HandBack(id.clone());
            let state = if back {
                ResourceState::Held("it was handed back".to_owned())
            } else {
                ResourceState::Converged
            };
            self.resources.push(resource(id, digest, state, None));
            if back {
                self.handovers.push(handed_back(id, digest, accepted));
            }
        }
        self.applied = Some(accepted.issued());
    }

    fn report(&mut self, node: &NodeName) -> Report {
        self.number += 1;
        let secret = |module: &str| SecretHeld {
            module: module.parse().unwrap(),
            name: "key".to_owned(),
            digest: Digest::of(b"secret"),
        };
        Report {
            format: FORMAT,
            mesh: mesh(),
            node: node.clone(),
            system: System::LinuxAmd64,
            boot_id: "boot".to_owned(),
            host_version: "0.1.0".to_owned(),
            time: Timestamp::now(),
            number: self.number,
            host_started: self.started,
            check_interval_ms: Some(300),
            accepted: self.accepted.as_ref().map(Declaration::issued),
            token: self.token,
            applied: self.applied.clone(),
            state: if self.diverged.is_some() { NodeState::Diverged } else { NodeState::Converged },
            refused: None,
            refused_count: 0,
            diverged: self.diverged.clone(),
            secrets: ["web", "other"].map(secret).to_vec(),
            resources: self.resources.clone(),
            instances: Vec::new(),
            handovers: self.handovers.clone(),
        }
    }
}

fn resource(
    id: &ResourceId,
    digest: &Digest,
    state: ResourceState,
    adopted: Option<Adoption>,
) -> ResourceReport {
    ResourceReport { id: id.clone(), state, digest: Some(digest.clone()), adopted, runtime: None }
}

fn handed_back(id: &ResourceId, digest: &Digest, accepted: &Declaration) -> HandoverReport {
    HandoverReport {
        seat: "web".parse().unwrap(),
        state: State::Held,
        since: Timestamp::now(),
        old: Side { resource: "container:web".parse().unwrap(), spec: Digest::of(b"old"), instance: None },
        new: Side { resource: id.clone(), spec: digest.clone(), instance: None },
        generation: accepted.generation,
        waiting_for: None,
        checks_passed: 0,
        failed_at: Some("the first check".to_owned()),
        reason: Some(Reason::Exited { code: 7 }),
        log_tail: vec!["cannot bind".to_owned()],
        next_try: None,
        tries: 1,
        cleanup_pending: None,
        passed: Vec::new(),
    }
}
