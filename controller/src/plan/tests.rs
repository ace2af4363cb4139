use mesh_protocol::id::PlanId;
use mesh_protocol::plan::{Action, ModuleRecord};

use super::*;
use crate::compose::compose;
use crate::known::Known;
use crate::testing::{TOKEN, bundles, converge, genesis, mesh, node, plan_id, push, record, seated, web};

fn planned(known: &Known, action: &Action) -> NodePlan {
    let node = node("n1");
    let id: PlanId = plan_id(1);
    let new = compose(known, action, &id, &node, TOKEN).unwrap();
    changes(known.declarations.get(&node), &new, &known.reports[&node], action.module())
}

fn shown(plan: &NodePlan) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::Create => "create".to_owned(),
        Change::Update => "update".to_owned(),
        Change::Remove => "remove".to_owned(),
        Change::TakeOver => "take over".to_owned(),
        Change::HandOver { from } => format!("from {from}"),
        Change::Retry => "retry".to_owned(),
    };
    plan.changes.resources.iter().map(|r| format!("{} {}", r.id, change(&r.change))).collect()
}

/// The module is recorded, declared on n1 and converged there.
fn deploy(known: &mut Known, module: &ModuleRecord) {
    let declaration = compose(known, &push(module), &plan_id(1), &node("n1"), TOKEN).unwrap();
    converge(known.reports.get_mut(&node("n1")).unwrap(), &declaration);
    known.declarations.insert(node("n1"), declaration);
    known.modules.insert(module.name.clone(), module.clone());
}

const CREATED: [&str; 4] =
    ["account:web create", "bundle:web create", "file:web/key create", "process:web create"];

#[test]
fn what_is_new_is_created_in_the_host_s_order() {
    let plan = planned(&mesh(&["n1"]), &push(&record("web", 1, &web("1.0.0", ""), &["n1"])));
    assert_eq!(shown(&plan), CREATED);
    assert_eq!(plan.remarks, [""; 0]);
}

#[test]
fn what_is_as_it_was_does_not_change_and_what_is_held_gets_one_more_try() {
    let mut known = mesh(&["n1"]);
    let one = record("web", 1, &web("1.0.0", ""), &["n1"]);
    deploy(&mut known, &one);
    let mut again = one.clone();
    again.revision = 2;
    assert_eq!(shown(&planned(&known, &push(&again))), [""; 0]);
    let report = known.reports.get_mut(&node("n1")).unwrap();
    report.resources.last_mut().unwrap().state = ResourceState::Held("it exited".to_owned());
    assert_eq!(shown(&planned(&known, &push(&again))), ["process:web retry"]);
    let other = push(&record("mesh-controller", 1, &seated("1.0.0", ""), &["n1"]));
    assert!(!shown(&planned(&known, &other)).contains(&"process:web retry".to_owned()));
}

#[test]
fn a_new_version_updates_what_it_is_made_of() {
    let mut known = mesh(&["n1"]);
    deploy(&mut known, &record("web", 1, &web("1.0.0", ""), &["n1"]));
    let plan = planned(&known, &push(&record("web", 2, &web("2.0.0", ""), &["n1"])));
    assert_eq!(shown(&plan), ["bundle:web update", "process:web update"]);
}

#[test]
fn what_goes_goes_last_and_backwards() {
    let mut known = mesh(&["n1"]);
    deploy(&mut known, &record("web", 1, &web("1.0.0", ""), &["n1"]));
    let unassign = Action::Unassign { module: "web".parse().unwrap(), node: node("n1") };
    assert_eq!(
        shown(&planned(&known, &unassign)),
        ["process:web remove", "file:web/key remove", "bundle:web remove", "account:web remove"]
    );
}

#[test]
fn the_first_process_takes_the_seat_from_the_container_that_it_names() {
    let mut known = mesh(&["n1"]);
    genesis(known.reports.get_mut(&node("n1")).unwrap(), "mesh-controller");
    let text = seated("1.0.0", "replaces = \"container:mesh-controller\"");
    let plan = planned(&known, &push(&record("mesh-controller", 1, &text, &["n1"])));
    assert_eq!(shown(&plan).last().unwrap(), "process:mesh-controller from container:mesh-controller");
    assert_eq!(plan.remarks, [""; 0]);
}

#[test]
fn a_target_that_is_not_there_is_remarked_and_a_new_version_takes_over_from_itself() {
    let mut known = mesh(&["n1"]);
    let text = |version| seated(version, "replaces = \"container:mesh-controller\"");
    let first = record("mesh-controller", 1, &text("1.0.0"), &["n1"]);
    let plan = planned(&known, &push(&first));
    assert_eq!(shown(&plan).last().unwrap(), "process:mesh-controller create");
    let remark =
        "process:mesh-controller replaces container:mesh-controller, which is not on n1: nothing is replaced";
    assert_eq!(plan.remarks, [remark]);
    deploy(&mut known, &first);
    let plan = planned(&known, &push(&record("mesh-controller", 2, &text("2.0.0"), &["n1"])));
    assert_eq!(
        shown(&plan),
        ["bundle:mesh-controller update", "process:mesh-controller from process:mesh-controller"]
    );
    assert_eq!(plan.remarks, [remark]);
}

#[test]
fn after_it_was_handed_back_the_next_version_still_takes_the_seat_from_the_container() {
    let mut known = mesh(&["n1"]);
    genesis(known.reports.get_mut(&node("n1")).unwrap(), "mesh-controller");
    let adopted = known.reports[&node("n1")].resources.clone();
    let text = |version| seated(version, "replaces = \"container:mesh-controller\"");
    deploy(&mut known, &record("mesh-controller", 1, &text("1.0.0"), &["n1"]));
    let report = known.reports.get_mut(&node("n1")).unwrap();
    report.resources.iter_mut().filter(|r| r.id.to_string().starts_with("process")).for_each(|r| {
        r.state = ResourceState::Held("never ready".to_owned());
        r.digest = None;
    });
    report.resources.extend(adopted);
    let plan = planned(&known, &push(&record("mesh-controller", 2, &text("2.0.0"), &["n1"])));
    assert_eq!(shown(&plan).last().unwrap(), "process:mesh-controller from container:mesh-controller");
    let mut again = known.modules[&"mesh-controller".parse().unwrap()].clone();
    again.revision = 2;
    assert_eq!(shown(&planned(&known, &push(&again))), ["process:mesh-controller retry"]);
}

#[test]
fn what_genesis_raised_is_taken_over_where_it_is_the_same() {
    let mut known = mesh(&["n1"]);
    let module = record("web", 1, &web("1.0.0", ""), &["n1"]);
    let declared = compose(&known, &push(&module), &plan_id(1), &node("n1"), TOKEN).unwrap();
    let report = known.reports.get_mut(&node("n1")).unwrap();
    converge(report, &declared);
    report.resources.iter_mut().for_each(|r| r.adopted = Some(mesh_protocol::report::Adoption::Genesis));
    let plan = planned(&known, &push(&module));
    assert!(shown(&plan).iter().all(|line| line.ends_with("take over")), "{:?}", shown(&plan));
    let plan = planned(&known, &push(&record("web", 1, &web("2.0.0", ""), &["n1"])));
    assert_eq!(shown(&plan)[3], "process:web update");
}

#[test]
fn needs_are_per_bundle_and_system_with_who_needs_them() {
    let manifest = Manifest::parse("m", &web("1.0.0", "")).unwrap();
    let nodes = BTreeMap::from([
        (node("n1"), System::LinuxAmd64),
        (node("n2"), System::LinuxArm64),
        (node("n3"), System::LinuxAmd64),
    ]);
    let mut known = bundles("web", "x");
    known.values_mut().for_each(|systems| {
        systems.remove(&System::LinuxArm64);
    });
    let needs = needs(&manifest, &nodes, &known);
    assert_eq!(needs.len(), 2);
    assert_eq!(needs[0].nodes, [node("n1"), node("n3")]);
    assert!(needs[0].published.is_some());
    assert_eq!((needs[1].nodes.as_slice(), &needs[1].published), (&[node("n2")][..], &None));
    let stand_ins = with_stand_ins(&manifest, &known);
    assert_eq!(stand_ins[&"web".parse().unwrap()].len(), 2);
}

#[test]
fn the_handovers_of_a_plan_are_told_with_their_interval() {
    let mut known = mesh(&["n1"]);
    let report = known.reports.get_mut(&node("n1")).unwrap();
    genesis(report, "mesh-controller");
    let text = seated("1.0.0", "replaces = \"container:mesh-controller\"");
    let manifest = Manifest::parse("m", &text).unwrap();
    let first = push(&record("mesh-controller", 1, &text, &["n1"]));
    let found = handovers(&[planned(&known, &first).changes], &manifest, &known);
    let sides = |found: &[PlannedHandover]| {
        let side = |handover: &PlannedHandover| format!("{} -> {}", handover.from, handover.to);
        found.iter().map(side).collect::<Vec<_>>()
    };
    assert_eq!(sides(&found), ["container:mesh-controller -> process:mesh-controller"]);
    assert_eq!((found[0].check_interval_ms, found[0].checks_ms()), (Some(300), Some(900)));
    let nothing = handovers(
        &[planned(&known, &push(&record("web", 1, &web("1.0.0", ""), &["n1"]))).changes],
        &Manifest::parse("m", &web("1.0.0", "")).unwrap(),
        &known,
    );
    assert_eq!(nothing, []);
}
