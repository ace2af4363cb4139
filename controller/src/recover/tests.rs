use super::*;
use crate::compose::compose;
use crate::testing::{TOKEN, accept, genesis, mesh, node, now, plan_id, push, record, web};

/// A host that holds generation 1 of the module's own, and a controller that knows nothing.
fn ahead() -> (Known, Declaration) {
    let mut known = mesh(&["n1"]);
    let module = record("web", 5, &web("1.0.0", ""), &["n1"]);
    let mut held = compose(&known, &push(&module), &plan_id(1), &node("n1"), TOKEN).unwrap();
    held.generation = Generation(7);
    accept(known.reports.get_mut(&node("n1")).unwrap(), &held);
    (known, held)
}

fn found<'a>(known: &'a Known) -> Standing<'a> {
    standing(known.declarations.get(&node("n1")), &known.reports[&node("n1")])
}

#[test]
fn a_host_that_has_nothing_or_what_was_issued_is_in_step() {
    let mut known = mesh(&["n1"]);
    assert_eq!(found(&known), Standing::InStep);
    genesis(known.reports.get_mut(&node("n1")).unwrap(), "x");
    assert_eq!(found(&known), Standing::InStep);
    let module = record("web", 1, &web("1.0.0", ""), &["n1"]);
    let next = compose(&known, &push(&module), &plan_id(1), &node("n1"), TOKEN).unwrap();
    known.declarations.insert(node("n1"), next.clone());
    assert_eq!(found(&known), Standing::InStep, "it still has genesis's own, which was issued");
    accept(known.reports.get_mut(&node("n1")).unwrap(), &next);
    assert_eq!(found(&known), Standing::InStep);
}

#[test]
fn a_host_that_holds_what_is_not_known_is_asked_and_then_tells() {
    let (mut known, held) = ahead();
    let Standing::ToBeAsked(accepted) = found(&known) else { panic!("{:?}", found(&known)) };
    assert_eq!(accepted, held.issued());
    let question = question(&known, &node("n1"), &accepted, TOKEN);
    assert_eq!(question.generation, Generation(8));
    assert!(!question.issued.contains(&accepted));
    known.declarations.insert(node("n1"), question);
    assert_eq!(found(&known), Standing::AboutToTell);
    known.reports.get_mut(&node("n1")).unwrap().diverged = Some(Box::new(held.clone()));
    assert_eq!(found(&known), Standing::Holds(&held));
}

#[test]
fn what_was_taken_over_is_in_step_although_the_report_is_the_same() {
    let (mut known, held) = ahead();
    known.reports.get_mut(&node("n1")).unwrap().diverged = Some(Box::new(held.clone()));
    let taken = take_over(&known, &held, System::LinuxAmd64, TOKEN, now());
    assert_eq!(taken.declaration.modules, held.modules);
    assert_eq!(taken.declaration.generation, Generation(8));
    let record = &taken.records[&"web".parse().unwrap()];
    assert_eq!((record.revision, record.nodes.as_slice()), (5, &[node("n1")][..]));
    assert_eq!(record.manifest, web("1.0.0", ""));
    assert_eq!(record.bundles[&"web".parse().unwrap()][&System::LinuxAmd64].size, 9);
    known.declarations.insert(node("n1"), taken.declaration);
    assert_eq!(found(&known), Standing::InStep);
}

#[test]
fn a_state_that_went_back_learns_the_newer_revision_and_keeps_the_other_nodes() {
    let (mut known, held) = ahead();
    let mut old = record("web", 4, &web("0.9.0", ""), &["n1", "n2"]);
    known.modules.insert(old.name.clone(), old.clone());
    let taken = take_over(&known, &held, System::LinuxAmd64, TOKEN, now());
    let record = &taken.records[&old.name];
    assert_eq!((record.revision, record.nodes.len()), (5, 2));
    old.revision = 6;
    known.modules.insert(old.name.clone(), old.clone());
    let taken = take_over(&known, &held, System::LinuxAmd64, TOKEN, now());
    assert!(taken.records.is_empty(), "what is known is newer, and the node is on its list");
}

#[test]
fn what_the_host_does_not_have_was_taken_from_it() {
    let (mut known, held) = ahead();
    let gone = record("gone", 2, &web("1.0.0", ""), &["n1", "n2"]);
    known.modules.insert(gone.name.clone(), gone.clone());
    let taken = take_over(&known, &held, System::LinuxAmd64, TOKEN, now());
    assert_eq!(taken.records[&gone.name].nodes, [node("n2")]);
}

#[test]
fn what_genesis_raised_stays_adopted() {
    let (known, mut held) = ahead();
    held.modules[0].revision = 0;
    let taken = take_over(&known, &held, System::LinuxAmd64, TOKEN, now());
    assert!(taken.records.is_empty());
    assert!(taken.declaration.modules.is_empty());
    assert_eq!(taken.declaration.adopted.len(), 4);
}
