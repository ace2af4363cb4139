//! A small mesh to decide about, for unit tests.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::handover::{Form, HandoverReport, Role, Side, State};
use mesh_protocol::id::{Digest, Generation, NodeName, PlanId, ResourceId, System, Token};
use mesh_protocol::plan::{Action, ModuleRecord, Plan, PlanState, Published};
use mesh_protocol::report::{
    Adoption, InstanceReport, NodeState, Report, ResourceReport, ResourceState, SecretHeld,
};

use crate::known::Known;

pub(crate) const TOKEN: Token = Token { epoch: 3, revision: 7 };

pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// A module with one process; `replaces` as a whole line or nothing.
pub(crate) fn web(version: &str, replaces: &str) -> String {
    manifest("web", version, "", replaces)
}

/// A module with a seat of its own name.
pub(crate) fn seated(version: &str, replaces: &str) -> String {
    manifest("mesh-controller", version, "seat = \"mesh-controller\"", replaces)
}

pub(crate) fn manifest(name: &str, version: &str, seat: &str, replaces: &str) -> String {
    format!(
        r#"
[module]
name = "{name}"
version = "{version}"
{seat}

[[account]]
name = "{name}"

[[bundle]]
name = "{name}"
system = "linux/amd64"
binary = "out/{name}"

[[bundle]]
name = "{name}"
system = "linux/arm64"
binary = "out-arm/{name}"

[[file]]
path = "${{module.dir}}/key"
secret = "key"
mode = "0400"
account = "{name}"

[[process]]
name = "{name}"
bundle = "{name}"
run = ["./{name}", "--key", "${{module.dir}}/key", "--version-is", "{version}"]
account = "{name}"
{replaces}
"#
    )
}

pub(crate) fn bundles(name: &str, content: &str) -> crate::plan::Bundles {
    let published =
        |system: &str| Published { digest: Digest::of(format!("{content}{system}").as_bytes()), size: 9 };
    let systems = System::ALL.map(|system| (system, published(&system.to_string())));
    BTreeMap::from([(name.parse().unwrap(), BTreeMap::from(systems))])
}

pub(crate) fn record(name: &str, revision: u64, manifest: &str, nodes: &[&str]) -> ModuleRecord {
    ModuleRecord {
        name: name.parse().unwrap(),
        revision,
        version: "1.0.0".to_owned(),
        manifest: manifest.to_owned(),
        bundles: bundles(name, manifest),
        nodes: nodes.iter().map(|node| node.parse().unwrap()).collect(),
        plan: Some(plan_id(revision)),
        time: now(),
        again: None,
    }
}

pub(crate) fn plan_id(number: u64) -> PlanId {
    format!("plan-{number}").parse().unwrap()
}

pub(crate) fn push(record: &ModuleRecord) -> Action {
    Action::Push { module: record.clone() }
}

pub(crate) fn plan_for(action: Action, id: PlanId) -> Plan {
    Plan {
        format: mesh_protocol::plan::FORMAT,
        id,
        action,
        created: now(),
        by: "p-1".parse().unwrap(),
        changes: Vec::new(),
        remarks: Vec::new(),
        state: PlanState::Stored,
        targets: BTreeMap::new(),
        abort_asked: false,
        token: None,
    }
}

/// A host that has reported, and has nothing.
pub(crate) fn report(node: &str) -> Report {
    let secret = |module: &str| SecretHeld {
        module: module.parse().unwrap(),
        name: "key".to_owned(),
        digest: Digest::of(b"secret"),
    };
    Report {
        format: mesh_protocol::report::FORMAT,
        mesh: "m1".parse().unwrap(),
        node: node.parse().unwrap(),
        system: System::LinuxAmd64,
        boot_id: "boot".to_owned(),
        host_version: "0.1.0".to_owned(),
        time: now(),
        number: 1,
        host_started: now(),
        check_interval_ms: Some(300),
        accepted: None,
        token: Token::default(),
        applied: None,
        state: NodeState::Empty,
        refused: None,
        refused_count: 0,
        diverged: None,
        secrets: ["web", "mesh-controller", "other", "twin", "pretender"].map(secret).to_vec(),
        resources: Vec::new(),
        instances: Vec::new(),
        handovers: Vec::new(),
    }
}

/// The host took and carried out the declaration: all is right.
pub(crate) fn converge(report: &mut Report, declaration: &Declaration) {
    accept(report, declaration);
    report.applied = report.accepted.clone();
    report.state = NodeState::Converged;
    report.resources = declaration
        .resources()
        .into_iter()
        .map(|(id, digest)| resource(id, ResourceState::Converged, Some(digest)))
        .collect();
}

pub(crate) fn accept(report: &mut Report, declaration: &Declaration) {
    report.accepted = Some(declaration.issued());
    report.token = declaration.token;
    report.number += 1;
}

pub(crate) fn resource(id: ResourceId, state: ResourceState, digest: Option<Digest>) -> ResourceReport {
    ResourceReport { id, state, digest, adopted: None, runtime: None }
}

/// Generation 1: the host holds a container that no module declares, and it has the seat.
pub(crate) fn genesis(report: &mut Report, container: &str) {
    let id: ResourceId = format!("container:{container}").parse().unwrap();
    let issued = mesh_protocol::declaration::Issued {
        generation: Generation::FIRST,
        digest: Digest::of(b"generation one"),
    };
    report.accepted = Some(issued.clone());
    report.applied = Some(issued);
    let mut found = resource(id.clone(), ResourceState::Converged, Some(Digest::of(b"worn bundle")));
    found.adopted = Some(Adoption::Genesis);
    report.resources.push(found);
    report.instances.push(InstanceReport {
        instance: "c-1".parse().unwrap(),
        seat: "mesh-controller".parse().unwrap(),
        resource: id,
        form: Form::Container,
        role: Role::Serving,
        version: "0.1.0".to_owned(),
        since: now(),
    });
}

pub(crate) fn handover(
    from: &str,
    to: &str,
    spec: Digest,
    generation: Generation,
    state: State,
) -> HandoverReport {
    HandoverReport {
        seat: "mesh-controller".parse().unwrap(),
        state,
        since: now(),
        old: Side { resource: from.parse().unwrap(), spec: Digest::of(b"old"), instance: None },
        new: Side { resource: to.parse().unwrap(), spec, instance: None },
        generation,
        waiting_for: None,
        checks_passed: 0,
        failed_at: None,
        reason: None,
        log_tail: Vec::new(),
        next_try: None,
        tries: 1,
        cleanup_pending: None,
        passed: Vec::new(),
    }
}

/// A mesh whose hosts have reported.
pub(crate) fn mesh(nodes: &[&str]) -> Known {
    let mut known = Known::nothing("m1".parse().unwrap());
    for node in nodes {
        known.reports.insert(node.parse().unwrap(), report(node));
    }
    known
}

pub(crate) fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}
