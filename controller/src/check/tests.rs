use proptest::prelude::{Strategy, prop_assert, prop_assert_eq, proptest};
use proptest::sample::select;

use mesh_protocol::declaration::Adopted;
use mesh_protocol::id::Digest;
use mesh_protocol::plan::Action;

use super::*;
use crate::compose::compose;
use crate::testing::{
    TOKEN, bundles, converge, genesis, manifest, mesh, node, plan_id, push, record, seated, web,
};

fn next(known: &Known, action: &Action) -> BTreeMap<NodeName, Declaration> {
    let composed = |node: NodeName| {
        let declaration = compose(known, action, &plan_id(1), &node, TOKEN).ok()?;
        Some((node, declaration))
    };
    Known::concerned(action).into_iter().filter_map(composed).collect()
}

/// Carries an action out, as far as the check lets it.
fn carry_out(known: &mut Known, action: &Action) -> Result<(), Box<Contradiction>> {
    let next = next(known, action);
    check(known, &next)?;
    known.modules = known.records_after(action);
    for (node, declaration) in next {
        converge(known.reports.get_mut(&node).unwrap(), &declaration);
        known.declarations.insert(node, declaration);
    }
    Ok(())
}

#[test]
fn a_resource_has_one_module_on_a_node() {
    let mut known = mesh(&["n1", "n2"]);
    carry_out(&mut known, &push(&record("web", 1, &web("1", ""), &["n1"]))).unwrap();
    let twin = web("1", "").replacen("name = \"web\"", "name = \"twin\"", 1);
    let mut record_of_twin = record("twin", 1, &twin, &["n1"]);
    record_of_twin.bundles = bundles("web", "x");
    let error = carry_out(&mut known, &push(&record_of_twin)).unwrap_err();
    assert!(matches!(*error, Contradiction::DuplicateResource { .. }), "{error}");
    carry_out(&mut known, &push(&record("twin", 1, &twin.replace("web", "twin"), &["n2"]))).unwrap();
}

#[test]
fn adopted_is_never_declared() {
    let known = mesh(&["n1"]);
    let mut next = next(&known, &push(&record("web", 1, &web("1", ""), &["n1"])));
    let declaration = next.get_mut(&node("n1")).unwrap();
    declaration.adopted.push(Adopted { id: "process:web".parse().unwrap(), digest: Digest::of(b"") });
    assert!(matches!(*check(&known, &next).unwrap_err(), Contradiction::AdoptedAndDeclared { .. }));
}

#[test]
fn a_module_replaces_nothing_of_another_s() {
    let mut known = mesh(&["n1"]);
    carry_out(&mut known, &push(&record("web", 1, &web("1", ""), &["n1"]))).unwrap();
    let text = manifest("other", "1", "", "replaces = \"process:web\"");
    let error = carry_out(&mut known, &push(&record("other", 1, &text, &["n1"]))).unwrap_err();
    assert!(matches!(*error, Contradiction::ForeignTarget { .. }), "{error}");
}

#[test]
fn a_seat_has_one_holder_and_it_goes_by_a_handover_only() {
    let mut known = mesh(&["n1", "n2"]);
    genesis(known.reports.get_mut(&node("n1")).unwrap(), "mesh-controller");
    let successor = seated("1", "replaces = \"container:mesh-controller\"");
    let at = |nodes: &[&str], text: &str| push(&record("mesh-controller", 1, text, nodes));
    let error = check(&known, &next(&known, &at(&["n1"], &seated("1", "")))).unwrap_err();
    assert!(matches!(*error, Contradiction::NotTheSuccessor { .. }), "{error}");
    let error = check(&known, &next(&known, &at(&["n2"], &successor))).unwrap_err();
    assert!(matches!(*error, Contradiction::NotTheSuccessor { .. }), "{error}");
    let error = check(&known, &next(&known, &at(&["n1", "n2"], &successor))).unwrap_err();
    assert!(matches!(*error, Contradiction::TwoHolders { .. }), "{error}");
    carry_out(&mut known, &at(&["n1"], &successor)).unwrap();
    carry_out(&mut known, &at(&["n1"], &seated("2", "replaces = \"container:mesh-controller\""))).unwrap();
    let name: ModuleName = "mesh-controller".parse().unwrap();
    let error = carry_out(&mut known, &Action::Unassign { module: name, node: node("n1") }).unwrap_err();
    assert!(matches!(*error, Contradiction::Abandoned { .. }), "{error}");
}

/// What somebody may ask of a mesh of three nodes and four modules, two of which want one seat.
fn actions() -> impl Strategy<Value = Action> {
    let names = select(vec!["web", "other", "mesh-controller", "pretender"]);
    let nodes = select(vec!["n1", "n2", "n3"]);
    let versions = select(vec!["1", "2"]);
    let replaces = select(vec!["", "replaces = \"process:web\"", "replaces = \"container:mesh-controller\""]);
    (names, proptest::collection::vec(nodes, 0..3), versions, replaces, 0..4u8).prop_map(
        |(name, mut on, version, replaces, kind)| {
            let module: ModuleName = name.parse().unwrap();
            let one = node(on.first().unwrap_or(&"n1"));
            on.sort_unstable();
            on.dedup();
            let seat = if name == "mesh-controller" || name == "pretender" {
                "seat = \"mesh-controller\""
            } else {
                ""
            };
            // A pretender's resources are the other's, so that ids collide too.
            let text = manifest(name, version, seat, replaces);
            match kind {
                0 => Action::Assign { module, node: one },
                1 => Action::Unassign { module, node: one },
                _ => push(&record(name, 1, &text, &on)),
            }
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_pushed_and_assigned_the_mesh_stays_right(
        wanted in proptest::collection::vec(actions(), 1..20),
    ) {
        let mut known = mesh(&["n1", "n2", "n3"]);
        genesis(known.reports.get_mut(&node("n1")).unwrap(), "mesh-controller");
        for action in &wanted {
            let before = known.clone();
            if carry_out(&mut known, action).is_err() {
                prop_assert_eq!(&known, &before);
            }
            let mut holders = 0;
            for declaration in known.declarations.values() {
                let mut ids: Vec<ResourceId> =
                    declaration.modules.iter().flat_map(mesh_protocol::declaration::ModuleSection::resource_ids).collect();
                let all = ids.len();
                prop_assert!(declaration.adopted.iter().all(|adopted| !ids.contains(&adopted.id)));
                ids.sort();
                ids.dedup();
                prop_assert_eq!(ids.len(), all);
                holders += declaration.modules.iter().filter(|section| section.seat_holder().is_some()).count();
            }
            prop_assert!(holders <= 1);
        }
    }
}
