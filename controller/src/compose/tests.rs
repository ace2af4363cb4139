use mesh_protocol::declaration::{Declaration, Issued};
use mesh_protocol::id::Generation;
use mesh_protocol::section::Missing;

use super::*;
use crate::testing::{TOKEN, accept, genesis, mesh, node, plan_id, push, record, seated, web};

fn composed(known: &Known, action: &Action, name: &str) -> Declaration {
    compose(known, action, &plan_id(9), &node(name), TOKEN).unwrap()
}

#[test]
fn a_node_without_a_report_gets_none() {
    let known = mesh(&[]);
    let module = record("web", 1, &web("1.0.0", ""), &["n1"]);
    let error = compose(&known, &push(&module), &plan_id(1), &node("n1"), TOKEN).unwrap_err();
    assert_eq!(error, ComposeError::NoReport { node: node("n1") });
}

#[test]
fn the_first_declaration_knows_of_genesis_s_own_and_carries_what_is_adopted() {
    let mut known = mesh(&["n1"]);
    genesis(known.reports.get_mut(&node("n1")).unwrap(), "seat-of-lab");
    let module = record("web", 1, &web("1.0.0", ""), &["n1"]);
    let declaration = composed(&known, &push(&module), "n1");
    assert_eq!(declaration.generation, Generation(2));
    assert_eq!(declaration.token, TOKEN);
    let first = known.reports[&node("n1")].accepted.clone().unwrap();
    assert_eq!(declaration.issued, [first, declaration.issued()]);
    let adopted: Vec<String> = declaration.adopted.iter().map(|a| a.id.to_string()).collect();
    assert_eq!(adopted, ["container:seat-of-lab"]);
}

#[test]
fn what_is_declared_is_adopted_no_more() {
    let mut known = mesh(&["n1"]);
    genesis(known.reports.get_mut(&node("n1")).unwrap(), "mesh-controller");
    let mut text = web("1.0.0", "");
    text.push_str("[[container]]\nname = \"mesh-controller\"\nimage = \"a/b:1\"\naccount = \"web\"\n");
    let declaration = composed(&known, &push(&record("web", 1, &text, &["n1"])), "n1");
    assert_eq!(declaration.adopted, []);
}

#[test]
fn a_change_composes_its_own_module_and_leaves_the_others_word_for_word() {
    let mut known = mesh(&["n1"]);
    let other = record("mesh-controller", 4, &seated("1.0.0", ""), &["n1"]);
    known.modules.insert(other.name.clone(), other.clone());
    let first = composed(&known, &push(&other), "n1");
    known.declarations.insert(node("n1"), first.clone());
    // The secrets have changed since: composing anew would change what nobody asked to change.
    known.reports.get_mut(&node("n1")).unwrap().secrets.iter_mut().for_each(|secret| {
        secret.digest = mesh_protocol::id::Digest::of(b"another");
    });
    let second = composed(&known, &push(&record("web", 1, &web("1.0.0", ""), &["n1"])), "n1");
    assert_eq!(second.modules[0], first.modules[0]);
    assert_eq!(second.modules.len(), 2);
    let again = composed(&known, &push(&other), "n1");
    assert_ne!(again.modules[0], first.modules[0], "its own plan takes the new secret");
}

#[test]
fn a_module_whose_record_went_on_is_composed_with_the_next_change() {
    let mut known = mesh(&["n1"]);
    let old = record("web", 1, &web("1.0.0", ""), &["n1"]);
    known.declarations.insert(node("n1"), composed(&known, &push(&old), "n1"));
    let new = record("web", 2, &web("2.0.0", ""), &["n1"]);
    known.modules.insert(new.name.clone(), new);
    let next = composed(&known, &push(&record("mesh-controller", 1, &seated("1", ""), &["n1"])), "n1");
    assert_eq!(next.module(&"web".parse().unwrap()).unwrap().revision, 2);
}

#[test]
fn what_was_issued_is_kept_from_the_last_report_on() {
    let mut known = mesh(&["n1"]);
    let mut declarations = Vec::new();
    for revision in 1..=4 {
        let module = record("web", revision, &web(&format!("{revision}.0.0"), ""), &["n1"]);
        let declaration = composed(&known, &push(&module), "n1");
        known.declarations.insert(node("n1"), declaration.clone());
        declarations.push(declaration);
        if revision == 2 {
            accept(known.reports.get_mut(&node("n1")).unwrap(), &declarations[1]);
        }
    }
    let issued: Vec<Issued> = declarations[1..].iter().map(Declaration::issued).collect();
    assert_eq!(declarations[3].issued, issued);
    assert_eq!(declarations[3].generation, Generation(4));
}

#[test]
fn assigning_and_unassigning_change_one_node_s_list() {
    let mut known = mesh(&["n1", "n2"]);
    let web = record("web", 3, &web("1.0.0", ""), &["n1"]);
    known.modules.insert(web.name.clone(), web.clone());
    let assign = Action::Assign { module: web.name.clone(), node: node("n2") };
    assert_eq!(composed(&known, &assign, "n2").modules.len(), 1);
    let unassign = Action::Unassign { module: web.name, node: node("n1") };
    assert_eq!(composed(&known, &unassign, "n1").modules.len(), 0);
}

#[test]
fn all_that_a_node_lacks_is_named() {
    let mut known = mesh(&["n1"]);
    known.reports.get_mut(&node("n1")).unwrap().secrets.clear();
    let mut module = record("web", 1, &web("1.0.0", ""), &["n1"]);
    module.bundles.clear();
    let error = compose(&known, &push(&module), &plan_id(1), &node("n1"), TOKEN).unwrap_err();
    let ComposeError::Missing { missing, .. } = &error else { panic!("{error}") };
    assert!(matches!(missing[..], [Missing::Bundle { .. }, Missing::Secret { .. }]), "{missing:?}");
    assert!(error.to_string().contains("on n1: bundle web"), "{error}");
}
