use mesh_protocol::plan::{Change, ModuleRecord};

use super::*;
use crate::testing::{TOKEN, converge, mesh, node, now, plan_id, push, record, seated, web};

fn drafted(known: &Known, action: Action) -> Result<Plan, VerbRefusal> {
    draft(known, action, plan_id(9), "p-1".parse().unwrap(), now())
}

/// The module is recorded, declared and converged.
fn deploy(known: &mut Known, module: &ModuleRecord) {
    for name in &module.nodes {
        let declaration = compose(known, &push(module), &plan_id(1), name, TOKEN).unwrap();
        converge(known.reports.get_mut(name).unwrap(), &declaration);
        known.declarations.insert(name.clone(), declaration);
    }
    known.modules.insert(module.name.clone(), module.clone());
}

fn again(module: &ModuleRecord) -> ModuleRecord {
    ModuleRecord { revision: module.revision + 1, plan: Some(plan_id(9)), ..module.clone() }
}

#[test]
fn what_is_assigned_to_no_node_is_only_recorded() {
    let plan = drafted(&mesh(&["n1"]), push(&record("web", 1, &web("1", ""), &[]))).unwrap();
    assert_eq!(plan.state, PlanState::Stored);
    assert_eq!(plan.remarks, ["web is assigned to no node: it is recorded, and runs nowhere"]);
}

#[test]
fn the_same_again_is_done_at_once_and_what_is_held_is_tried_again() {
    let mut known = mesh(&["n1"]);
    let module = record("web", 1, &web("1", ""), &["n1"]);
    deploy(&mut known, &module);
    let plan = drafted(&known, push(&again(&module))).unwrap();
    assert_eq!(plan.state, PlanState::Done { at: now() });
    assert_eq!(plan.action, push(&module), "no new revision");
    let report = known.reports.get_mut(&node("n1")).unwrap();
    report.resources.last_mut().unwrap().state =
        mesh_protocol::report::ResourceState::Held("it exited".to_owned());
    let plan = drafted(&known, push(&again(&module))).unwrap();
    assert_eq!(plan.state, PlanState::Stored);
    assert_eq!(plan.changes[0].resources[0].change, Change::Retry);
}

#[test]
fn words_that_change_no_resource_are_recorded_all_the_same() {
    let mut known = mesh(&["n1"]);
    let module = record("web", 1, &web("1", ""), &["n1"]);
    deploy(&mut known, &module);
    let mut commented = again(&module);
    commented.manifest.push_str("# a word\n");
    let plan = drafted(&known, push(&commented)).unwrap();
    assert_eq!((plan.state, plan.changes), (PlanState::Stored, Vec::new()));
}

#[test]
fn what_was_recorded_and_never_declared_is_not_done() {
    let mut known = mesh(&["n1"]);
    let module = record("web", 1, &web("1", ""), &["n1"]);
    deploy(&mut known, &module);
    known.modules.insert(module.name.clone(), again(&module));
    let plan = drafted(&known, push(&again(&again(&module)))).unwrap();
    assert_eq!(plan.state, PlanState::Stored);
}

#[test]
fn assigned_already_is_done_and_not_assigned_too() {
    let mut known = mesh(&["n1", "n2"]);
    let module = record("web", 1, &web("1", ""), &["n1"]);
    deploy(&mut known, &module);
    let assign = |to: &str| Action::Assign { module: module.name.clone(), node: node(to) };
    let unassign = |from: &str| Action::Unassign { module: module.name.clone(), node: node(from) };
    assert!(drafted(&known, assign("n1")).unwrap().state.is_ended());
    assert!(!drafted(&known, assign("n2")).unwrap().state.is_ended());
    assert!(!drafted(&known, unassign("n1")).unwrap().state.is_ended());
    assert!(drafted(&known, unassign("n2")).unwrap().state.is_ended());
}

#[test]
fn what_is_missing_or_contradicts_is_refused() {
    let mut known = mesh(&["n1", "n2"]);
    let mut bare = record("web", 1, &web("1", ""), &["n1"]);
    bare.bundles.clear();
    let refusal = drafted(&known, push(&bare)).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Missing);
    deploy(&mut known, &record("mesh-controller", 1, &seated("1", ""), &["n1"]));
    let moved = record("mesh-controller", 2, &seated("1", ""), &["n2"]);
    assert_eq!(drafted(&known, push(&moved)).unwrap_err().code, RefusalCode::Conflict);
}

#[test]
fn a_node_that_has_not_reported_is_waited_for() {
    let plan = drafted(&mesh(&["n1"]), push(&record("web", 1, &web("1", ""), &["n1", "n9"]))).unwrap();
    assert_eq!(plan.remarks, ["n9 has not reported: it is waited for"]);
    assert_eq!(plan.changes.len(), 1);
}
