use mesh_protocol::declaration::Declaration;
use mesh_protocol::id::Generation;
use mesh_protocol::report::{Refusal, ResourceState};

use super::*;
use crate::testing::{
    TOKEN, accept, converge, mesh, node, now, plan_for, plan_id, push, record, resource, web,
};

/// A world in which steps are carried out as the effects do, without a bus.
struct World {
    known: Known,
    plan: Plan,
    token: Token,
}

impl World {
    fn new(known: Known, action: Action) -> Self {
        Self { known, plan: plan_for(action, plan_id(1)), token: TOKEN }
    }

    /// One module on one node.
    fn web() -> Self {
        Self::new(mesh(&["n1"]), push(&record("web", 1, &web("1.0.0", ""), &["n1"])))
    }

    fn step(&self) -> Step {
        let (plan, known) = (&self.plan, &self.known);
        decide(&View { plan, known, token: self.token, now: now() })
    }

    fn carry_out(&mut self, step: Step) {
        match step {
            Step::Store(plan) => self.plan = *plan,
            Step::Record(record) => {
                self.known.modules.insert(record.name.clone(), *record);
            }
            Step::Declare(declaration) => self.put(*declaration),
            Step::PutAgain(declarations) => declarations.into_iter().for_each(|d| self.put(d)),
            Step::Recover(taken) => {
                self.known.modules.extend(taken.records);
                self.put(taken.declaration);
            }
            Step::Wait | Step::Lost(_) => panic!("{step:?} is nothing to carry out"),
        }
    }

    fn put(&mut self, declaration: Declaration) {
        self.known.declarations.insert(declaration.node.clone(), declaration);
    }

    /// Goes on until it waits or has ended.
    fn settle(&mut self) {
        for _ in 0..50 {
            match self.step() {
                Step::Wait => return,
                step => self.carry_out(step),
            }
        }
        panic!("it never settles: {:?}", self.step());
    }

    fn waiting_for(&self) -> &str {
        match &self.plan.state {
            PlanState::Open { waiting_for, .. } => waiting_for,
            other => panic!("{other:?}"),
        }
    }

    /// The host takes and carries out what was declared.
    fn converge(&mut self, name: &str) {
        let declaration = &self.known.declarations[&node(name)];
        converge(self.known.reports.get_mut(&node(name)).unwrap(), declaration);
    }

    fn failures(&self) -> &[PlanFailure] {
        match &self.plan.state {
            PlanState::Failed { failures, .. } => failures,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_plan_goes_its_way_step_by_step() {
    let mut world = World::web();
    let step = world.step();
    assert!(matches!(&step, Step::Store(plan) if matches!(plan.state, PlanState::Open { .. })));
    world.carry_out(step);
    let step = world.step();
    assert!(matches!(&step, Step::Record(record) if record.revision == 1));
    world.carry_out(step);
    let step = world.step();
    assert!(matches!(&step, Step::Declare(d) if d.plan == Some(plan_id(1)) && d.token == TOKEN));
    world.carry_out(step);
    let step = world.step();
    assert!(matches!(&step, Step::Store(plan) if plan.targets[&node("n1")] == Generation(1)));
    world.carry_out(step);
    assert_eq!(world.step(), Step::Wait);
    assert_eq!(world.waiting_for(), "n1: its host to take generation 1");
    world.converge("n1");
    world.settle();
    assert_eq!(world.plan.state, PlanState::Done { at: now() });
}

#[test]
fn whoever_goes_on_after_any_step_ends_the_same() {
    for stop_after in 0..5 {
        let mut world = World::web();
        for _ in 0..stop_after {
            match world.step() {
                Step::Wait => break,
                step => world.carry_out(step),
            }
        }
        // Somebody else, with a higher token, who knows nothing but what is stored.
        world.token = Token { epoch: TOKEN.epoch + 1, revision: 1 };
        world.settle();
        // Begun and not declared yet: the place of the first declaration is taken before.
        let generation = if matches!(stop_after, 1 | 2) { 2 } else { 1 };
        assert_eq!(
            world.known.declarations[&node("n1")].generation,
            Generation(generation),
            "after {stop_after}"
        );
        assert_eq!(world.known.declarations[&node("n1")].token, world.token, "after {stop_after}");
        world.converge("n1");
        world.settle();
        assert_eq!(world.plan.state, PlanState::Done { at: now() }, "after {stop_after}");
    }
}

#[test]
fn who_continues_first_puts_again_what_the_plan_may_still_write() {
    let mut world = World::web();
    world.settle();
    let before = world.known.declarations[&node("n1")].clone();
    world.token = Token { epoch: 9, revision: 1 };
    world.plan.abort_asked = true;
    let step = world.step();
    let Step::PutAgain(again) = &step else { panic!("{step:?}") };
    assert_eq!(again[0].digest(), before.digest());
    assert_eq!((again[0].token, &again[0].issued), (world.token, &before.issued));
    world.carry_out(step);
    world.settle();
    assert_eq!(world.plan.state, PlanState::Aborted { at: now() });
}

#[test]
fn who_continues_takes_the_place_of_a_first_declaration_that_is_still_under_way() {
    for abort_asked in [false, true] {
        let mut world = World::web();
        for _ in 0..2 {
            let step = world.step();
            world.carry_out(step);
        }
        let late = world.step();
        let Step::Declare(late) = late else { panic!("{late:?}") };
        world.token = Token { epoch: 9, revision: 1 };
        world.plan.abort_asked = abort_asked;
        let step = world.step();
        let Step::Declare(first) = &step else { panic!("{step:?}") };
        assert_eq!((first.modules.len(), &first.plan, first.token), (0, &None, world.token));
        assert_eq!(
            first.generation, late.generation,
            "both are made where none was: the later one is refused"
        );
        world.carry_out(step);
        let step = world.step();
        assert!(matches!(&step, Step::Store(plan) if plan.token == Some(world.token)), "{step:?}");
        world.settle();
        assert_eq!(matches!(world.plan.state, PlanState::Aborted { .. }), abort_asked);
    }
}

#[test]
fn a_plan_that_was_written_under_a_higher_token_is_somebody_else_s() {
    let mut world = World::web();
    let step = world.step();
    world.carry_out(step);
    assert_eq!(world.plan.token, Some(TOKEN));
    world.token = Token { epoch: 1, revision: 99 };
    assert_eq!(world.step(), Step::Lost(TOKEN));
}

#[test]
fn a_higher_token_than_one_s_own_means_that_the_lock_is_lost() {
    let mut world = World::web();
    world.settle();
    world.token = Token { epoch: 1, revision: 99 };
    assert_eq!(world.step(), Step::Lost(TOKEN));
}

#[test]
fn an_aborted_plan_writes_nothing_more() {
    let mut world = World::web();
    world.plan.abort_asked = true;
    world.settle();
    assert_eq!(world.plan.state, PlanState::Aborted { at: now() });
    assert!(world.known.modules.is_empty());
    assert_eq!(world.step(), Step::Wait);
}

#[test]
fn a_node_that_has_not_reported_is_waited_for() {
    let mut world = World::new(mesh(&[]), push(&record("web", 1, &web("1.0.0", ""), &["n1"])));
    world.settle();
    assert_eq!(world.waiting_for(), "n1: its host's first report");
    assert!(world.known.declarations.is_empty());
    world.known.reports.insert(node("n1"), crate::testing::report("n1"));
    world.settle();
    world.converge("n1");
    world.settle();
    assert!(matches!(world.plan.state, PlanState::Done { .. }));
}

#[test]
fn a_module_on_no_node_is_done_when_it_is_recorded() {
    let mut world = World::new(mesh(&["n1"]), push(&record("web", 1, &web("1.0.0", ""), &[])));
    world.settle();
    assert!(matches!(world.plan.state, PlanState::Done { .. }));
    assert_eq!(world.known.modules.len(), 1);
}

#[test]
fn every_node_is_waited_for_and_every_failure_is_told() {
    let mut world =
        World::new(mesh(&["n1", "n2"]), push(&record("web", 1, &web("1.0.0", ""), &["n1", "n2"])));
    world.settle();
    for (name, what) in [("n1", "disk full"), ("n2", "no such blob")] {
        world.converge(name);
        let report = world.known.reports.get_mut(&node(name)).unwrap();
        let bundle = report.resources.iter_mut().find(|r| r.id.to_string() == "bundle:web").unwrap();
        bundle.state = ResourceState::Failed(what.to_owned());
        world.plan.changes.push(mesh_protocol::plan::NodeChanges {
            node: node(name),
            resources: vec![mesh_protocol::plan::ResourceChange {
                id: "bundle:web".parse().unwrap(),
                change: mesh_protocol::plan::Change::Create,
            }],
        });
        if name == "n1" {
            world.settle();
            assert_eq!(world.waiting_for(), "n2: its host to take generation 1");
        }
    }
    world.settle();
    let errors: Vec<&str> = world.failures().iter().map(|failure| failure.error.as_str()).collect();
    assert_eq!(errors, ["bundle:web failed: disk full", "bundle:web failed: no such blob"]);
}

#[test]
fn a_host_that_refuses_fails_the_plan() {
    let mut world = World::web();
    world.settle();
    let declaration = world.known.declarations[&node("n1")].clone();
    world.known.reports.get_mut(&node("n1")).unwrap().refused = Some(Refusal {
        offered: declaration.issued(),
        token: TOKEN,
        why: "an account exists".to_owned(),
        time: now(),
    });
    world.settle();
    assert_eq!(world.failures()[0].error, "its host refused generation 1: an account exists");
}

#[test]
fn a_module_that_changed_since_is_not_written_over() {
    let mut world = World::web();
    let other = record("web", 3, &web("3.0.0", ""), &["n1"]);
    world.known.modules.insert(other.name.clone(), other.clone());
    world.settle();
    assert!(world.failures()[0].error.contains("revision 3 already"), "{:?}", world.failures());
    assert_eq!(world.known.modules[&other.name], other);
}

#[test]
fn what_the_node_lacks_when_it_comes_to_it_fails_the_plan() {
    let mut world = World::web();
    world.known.reports.get_mut(&node("n1")).unwrap().secrets.clear();
    world.settle();
    assert!(world.failures()[0].error.contains("secret key"), "{:?}", world.failures());
}

#[test]
fn assigning_records_the_node_and_unassigning_takes_it_away() {
    let module = record("web", 2, &web("1.0.0", ""), &["n1"]);
    let mut known = mesh(&["n1", "n2"]);
    known.modules.insert(module.name.clone(), module.clone());
    let assign = Action::Assign { module: module.name.clone(), node: node("n2") };
    let mut world = World::new(known, assign);
    world.settle();
    assert_eq!(world.known.modules[&module.name].nodes.len(), 2);
    world.converge("n2");
    world.settle();
    assert!(matches!(world.plan.state, PlanState::Done { .. }));
    let unassign = Action::Unassign { module: module.name.clone(), node: node("n2") };
    let mut world = World { plan: plan_for(unassign, plan_id(2)), ..world };
    world.settle();
    assert_eq!(world.known.modules[&module.name].nodes, [node("n1")]);
    assert!(world.known.declarations[&node("n2")].modules.is_empty());
    world.converge("n2");
    world.settle();
    assert!(matches!(world.plan.state, PlanState::Done { .. }));
}

#[test]
fn what_a_host_holds_is_taken_over_before_anything_is_composed_for_it() {
    let mut world = World::web();
    // The host holds a module that nobody here knows of.
    let mut other = World::new(
        mesh(&["n1"]),
        push(&record("other", 4, &web("1.0.0", "").replace("web", "other"), &["n1"])),
    );
    other.settle();
    let mut held = other.known.declarations[&node("n1")].clone();
    held.generation = Generation(12);
    accept(world.known.reports.get_mut(&node("n1")).unwrap(), &held);
    world.settle();
    assert_eq!(world.waiting_for(), "n1: its host to tell what it holds");
    assert!(world.known.declarations[&node("n1")].modules.is_empty());
    let report = world.known.reports.get_mut(&node("n1")).unwrap();
    report.diverged = Some(Box::new(held.clone()));
    report.resources.push(resource("process:other".parse().unwrap(), ResourceState::Converged, None));
    world.settle();
    let declaration = &world.known.declarations[&node("n1")];
    let names: Vec<&str> = declaration.modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["other", "web"]);
    assert_eq!(declaration.modules[0], held.modules[0]);
    assert!(declaration.issued.contains(&held.issued()));
    assert!(declaration.generation > held.generation);
    assert_eq!(world.known.modules[&"other".parse().unwrap()].revision, 4);
}
