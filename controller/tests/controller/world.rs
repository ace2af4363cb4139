//! A mesh for a test: a bus, hosts that report, whoever asks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mesh_protocol::bus::identity::User;
use mesh_protocol::bus::{AskError, HostBus, Policy, SeatClient};
use mesh_protocol::declaration::Declaration;
use mesh_protocol::handover::Role;
use mesh_protocol::id::{Digest, NodeName, PlanId, ResourceName, System};
use mesh_protocol::plan::{Plan, PlanState, Published};
use mesh_protocol::verb::{
    AssignRequest, Mode, ModulesAnswer, PlanRequest, PlannedAnswer, PushRequest, Ready, RefusalCode,
    StatusAnswer, Verb,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::host::Host;
use crate::instance::Instance;
use crate::support::{Bus, SOON, host, mesh, operator};

/// Short, so that a test does not wait for it.
pub const LEASE: Duration = Duration::from_millis(600);

pub struct World {
    pub bus: Bus,
    pub operator: SeatClient,
}

impl World {
    pub async fn start() -> Self {
        let bus = Bus::start().await;
        let connection = bus.connect(&operator()).await;
        let operator = SeatClient::new(connection, mesh(), "mesh-controller".parse().unwrap());
        Self { bus, operator }
    }

    /// An instance that stands by, or is about to.
    pub fn instance(&self, name: &str) -> Instance {
        self.instance_with(name, LEASE)
    }

    /// The same, with a lease of its own.
    pub fn instance_with(&self, name: &str, lease: Duration) -> Instance {
        let (seat, state) = (User::ControllerSeat, User::ControllerState);
        Instance::start(self.bus.path(), name, &self.bus.settings(&seat), &self.bus.settings(&state), lease)
    }

    /// An instance that serves.
    pub async fn serving(&self, name: &str) -> Instance {
        let mut instance = self.instance(name);
        instance.give(Role::Serving).await;
        instance
    }

    /// A host, and the controller knows of it.
    pub async fn host(&self, name: &str, genesis: Option<Declaration>) -> Host {
        let node: NodeName = name.parse().unwrap();
        let bus = HostBus::new(self.bus.connect(&host(name)).await, mesh(), node.clone());
        let host = Host::start(bus, node.clone(), genesis);
        self.until("the node is there", async || {
            self.status().await.nodes.iter().any(|found| found.name == node)
        })
        .await;
        host
    }

    pub async fn ask<Q: Serialize + Sync, A: DeserializeOwned>(
        &self,
        verb: Verb,
        body: &Q,
    ) -> Result<A, AskError> {
        let policy = if verb.changes() { Policy::Change } else { Policy::Read };
        self.operator.ask_for(verb, body, policy).await.map(|(answer, _)| answer)
    }

    /// The code with which it is refused.
    pub async fn refused<Q: Serialize + Sync>(&self, verb: Verb, body: &Q) -> (RefusalCode, String) {
        match self.ask::<Q, serde_json::Value>(verb, body).await {
            Err(AskError::Refused { refusal, .. }) => (refusal.code, refusal.message),
            other => panic!("{other:?}"),
        }
    }

    pub async fn status(&self) -> StatusAnswer {
        self.ask(Verb::Status, &serde_json::json!({})).await.unwrap()
    }

    pub async fn modules(&self) -> ModulesAnswer {
        self.ask(Verb::Modules, &serde_json::json!({})).await.unwrap()
    }

    pub async fn push(&self, request: &PushRequest) -> PlannedAnswer {
        self.ask(Verb::Push, request).await.unwrap()
    }

    pub async fn plan(&self, plan: &PlanId) -> Plan {
        self.ask(Verb::Plan, &PlanRequest { plan: plan.clone() }).await.unwrap()
    }

    /// The plan when it has ended.
    pub async fn ended(&self, plan: &PlanId) -> Plan {
        self.until("the plan has ended", async || self.plan(plan).await.state.is_ended()).await;
        self.plan(plan).await
    }

    /// Waits until the plan waits for something that contains `part`.
    pub async fn waits_for(&self, plan: &PlanId, part: &str) {
        self.until(part, async || match self.plan(plan).await.state {
            PlanState::Open { waiting_for, .. } => waiting_for.contains(part),
            _ => false,
        })
        .await;
    }

    /// What an instance says of itself, as its host would hear it.
    pub async fn ready(&self, host: &SeatClient, instance: &Instance) -> Option<Ready> {
        let answer = host.ask_at::<Ready>(&instance.id, Verb::Ready, Duration::from_secs(2)).await.ok()?;
        match answer.outcome {
            mesh_protocol::verb::Outcome::Answer(ready) => Some(ready),
            mesh_protocol::verb::Outcome::Refused(_) => None,
        }
    }

    /// Asks as a host does.
    pub async fn host_client(&self, name: &str) -> SeatClient {
        let connection = self.bus.connect(&host(name)).await;
        SeatClient::new(connection, mesh(), "mesh-controller".parse().unwrap())
    }

    pub async fn until(&self, what: &str, condition: impl AsyncFnMut() -> bool) {
        within(SOON, what, condition).await;
    }
}

pub async fn within(limit: Duration, what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn module(name: &str, version: &str) -> String {
    format!(
        r#"
[module]
name = "{name}"
version = "{version}"

[[account]]
name = "{name}"

[[bundle]]
name = "{name}"
system = "linux/amd64"
binary = "{name}"

[[file]]
path = "${{module.dir}}/key"
secret = "key"
mode = "0400"
account = "{name}"

[[process]]
name = "{name}"
bundle = "{name}"
run = ["./{name}", "--key", "${{module.dir}}/key"]
account = "{name}"
"#
    )
}

pub fn bundles(name: &str, content: &str) -> BTreeMap<ResourceName, BTreeMap<System, Published>> {
    let published = Published { digest: Digest::of(content.as_bytes()), size: 7 };
    BTreeMap::from([(name.parse().unwrap(), BTreeMap::from([(System::LinuxAmd64, published)]))])
}

/// A push of a module whose bundle's content is its version.
pub fn push(request: &str, name: &str, version: &str, assign: &[&str]) -> PushRequest {
    PushRequest {
        request: request.parse().unwrap(),
        path: format!("{name}/module.toml"),
        manifest: module(name, version),
        bundles: bundles(name, version),
        assign: assign.iter().map(|node| node.parse().unwrap()).collect(),
        mode: Mode::Do,
    }
}

pub fn assign(request: &str, name: &str, node: &str) -> AssignRequest {
    AssignRequest {
        request: request.parse().unwrap(),
        module: name.parse().unwrap(),
        node: node.parse().unwrap(),
        mode: Mode::Do,
    }
}
