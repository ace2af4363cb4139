use mesh_protocol::handover::Reason;
use mesh_protocol::plan::Action;
use mesh_protocol::report::{Adoption, Refusal};

use super::*;
use crate::compose::compose;
use crate::known::Known;
use crate::plan::changes;
use crate::testing::{
    TOKEN, accept, converge, genesis, handover, mesh, node, now, plan_id, push, record, seated, web,
};

const CONTAINER: &str = "container:mesh-controller";
const PROCESS: &str = "process:mesh-controller";

struct Case {
    known: Known,
    changes: Vec<ResourceChange>,
    declaration: Declaration,
    report: Report,
}

impl Case {
    fn of(known: Known, action: &Action) -> Self {
        let report = known.reports[&node("n1")].clone();
        let declaration = compose(&known, action, &plan_id(1), &node("n1"), TOKEN).unwrap();
        let plan = changes(known.declarations.get(&node("n1")), &declaration, &report, action.module());
        Self { known, changes: plan.changes.resources, declaration, report }
    }

    fn web() -> Self {
        Self::of(mesh(&["n1"]), &push(&record("web", 1, &web("1.0.0", ""), &["n1"])))
    }

    /// The process that takes the seat from genesis's container.
    fn seat() -> Self {
        let mut known = mesh(&["n1"]);
        genesis(known.reports.get_mut(&node("n1")).unwrap(), "mesh-controller");
        let text = seated("1.0.0", &format!("replaces = \"{CONTAINER}\""));
        Self::of(known, &push(&record("mesh-controller", 1, &text, &["n1"])))
    }

    fn outcome(&self) -> NodeOutcome {
        judge(&self.changes, &self.declaration, &self.report)
    }

    fn pending(&self) -> String {
        match self.outcome() {
            NodeOutcome::Pending(what) => what,
            other => panic!("{other:?}"),
        }
    }

    fn failures(&self) -> Vec<PlanFailure> {
        match self.outcome() {
            NodeOutcome::Failed(failures) => failures,
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self, id: &str, state: ResourceState) {
        let found = self.report.resources.iter_mut().find(|r| r.id.to_string() == id).unwrap();
        found.state = state;
    }

    fn hand_over(&mut self, state: State, change: impl FnOnce(&mut HandoverReport)) {
        let spec = self.declaration.resources()[&PROCESS.parse().unwrap()].clone();
        let mut report = handover(CONTAINER, PROCESS, spec, self.declaration.generation, state);
        change(&mut report);
        self.report.handovers = vec![report];
    }
}

#[test]
fn an_old_report_proves_nothing() {
    let mut case = Case::web();
    assert_eq!(case.pending(), "its host to take generation 1");
    accept(&mut case.report, &case.declaration);
    assert_eq!(case.pending(), "account:web");
}

#[test]
fn it_is_done_when_all_that_changed_is_right() {
    let mut case = Case::web();
    converge(&mut case.report, &case.declaration);
    assert_eq!(case.outcome(), NodeOutcome::Done);
    case.report.applied = None;
    assert_eq!(case.outcome(), NodeOutcome::Done, "what is there is what was declared");
    case.state("process:web", ResourceState::Waiting("its bundle".to_owned()));
    assert_eq!(case.pending(), "process:web: its bundle");
}

#[test]
fn what_is_held_or_failed_fails_it_once_the_declaration_was_carried_out() {
    let mut case = Case::web();
    converge(&mut case.report, &case.declaration);
    case.state("bundle:web", ResourceState::Failed("no such blob".to_owned()));
    case.state("process:web", ResourceState::Waiting("bundle:web".to_owned()));
    let failures = case.failures();
    assert_eq!(failures.len(), 1);
    assert_eq!(failures[0].error, "bundle:web failed: no such blob");
    assert_eq!(failures[0].outcome, FailureOutcome::Failed);
    case.report.applied = None;
    case.pending();
}

#[test]
fn troubles_that_the_plan_did_not_touch_do_not_fail_it() {
    let mut case = Case::web();
    converge(&mut case.report, &case.declaration);
    case.state("process:web", ResourceState::Held("it exited".to_owned()));
    case.changes.retain(|change| change.id.to_string() != "process:web");
    assert_eq!(case.outcome(), NodeOutcome::Done);
}

#[test]
fn a_declaration_that_changes_no_resource_is_done_when_it_was_carried_out() {
    let mut case = Case::web();
    case.changes.clear();
    accept(&mut case.report, &case.declaration);
    assert_eq!(case.pending(), "generation 1 to be carried out");
    case.report.applied = case.report.accepted.clone();
    assert_eq!(case.outcome(), NodeOutcome::Done);
}

#[test]
fn a_refused_declaration_fails_it_and_one_refused_under_an_older_token_does_not() {
    let mut case = Case::web();
    case.report.refused = Some(Refusal {
        offered: case.declaration.issued(),
        token: case.declaration.token,
        why: "token 3.7 is lower than 4.1".to_owned(),
        time: now(),
    });
    let failures = case.failures();
    assert_eq!((failures[0].resource.as_ref(), failures.len()), (None, 1));
    assert!(failures[0].error.contains("3.7"), "{}", failures[0].error);
    case.declaration.token.epoch += 1;
    case.pending();
}

#[test]
fn what_goes_is_gone_when_it_is_reported_no_more() {
    let mut case = Case::web();
    converge(&mut case.report, &case.declaration);
    let id: ResourceId = "process:old".parse().unwrap();
    case.changes = vec![ResourceChange { id: id.clone(), change: Change::Remove }];
    assert_eq!(case.outcome(), NodeOutcome::Done);
    case.report.resources.push(crate::testing::resource(
        id,
        ResourceState::Waiting("its end".to_owned()),
        None,
    ));
    assert_eq!(case.pending(), "process:old to go");
    case.state("process:old", ResourceState::Failed("busy".to_owned()));
    assert_eq!(case.failures()[0].error, "process:old did not go: busy");
}

#[test]
fn what_is_taken_over_is_adopted_no_more() {
    let mut case = Case::web();
    converge(&mut case.report, &case.declaration);
    case.changes = vec![ResourceChange { id: "process:web".parse().unwrap(), change: Change::TakeOver }];
    assert_eq!(case.outcome(), NodeOutcome::Done);
    case.report.resources.iter_mut().for_each(|r| r.adopted = Some(Adoption::Genesis));
    assert_eq!(case.pending(), "process:web");
}

#[test]
fn a_handover_is_waited_for_until_alone_has_passed() {
    let mut case = Case::seat();
    converge(&mut case.report, &case.declaration);
    case.state(PROCESS, ResourceState::Waiting("handover".to_owned()));
    case.hand_over(State::Trial, |handover| handover.waiting_for = Some("check 1 of 2".to_owned()));
    assert_eq!(case.pending(), "handover trial: check 1 of 2");
    case.hand_over(State::Trial, |handover| handover.waiting_for = None);
    assert_eq!(case.pending(), "handover trial");
    for state in [State::Planned, State::Joined, State::Alone, State::Aborting] {
        case.hand_over(state, |handover| handover.waiting_for = Some("the lock".to_owned()));
        assert_eq!(case.pending(), format!("handover {}: the lock", state.as_str()));
    }
    case.report.applied = None;
    for state in [State::Removing, State::Done] {
        case.hand_over(state, |_| ());
        assert_eq!(case.outcome(), NodeOutcome::Done, "a hung removal holds up nothing");
    }
}

#[test]
fn a_handover_that_was_handed_back_says_what_failed_and_why() {
    let mut case = Case::seat();
    converge(&mut case.report, &case.declaration);
    case.state(PROCESS, ResourceState::Held("never ready".to_owned()));
    case.report.applied = None;
    case.hand_over(State::Held, |handover| {
        handover.failed_at = Some("the first check".to_owned());
        handover.reason = Some(Reason::Exited { code: 3 });
        handover.log_tail = vec!["cannot bind".to_owned(), "bye".to_owned()];
    });
    let failures = case.failures();
    assert_eq!(failures[0].outcome, FailureOutcome::HandedBack);
    assert_eq!(
        failures[0].error,
        "mesh-controller was handed back to container:mesh-controller at the first check: \
         it exited with status 3; the last lines of its log: cannot bind | bye"
    );
    case.hand_over(State::Held, |handover| handover.next_try = Some(now()));
    assert!(case.pending().starts_with("handover held, next try at 2026"), "{}", case.pending());
}

#[test]
fn an_earlier_hold_is_not_this_plan_s_failure() {
    let mut case = Case::seat();
    converge(&mut case.report, &case.declaration);
    case.state(PROCESS, ResourceState::Held("never ready".to_owned()));
    case.report.applied = None;
    case.hand_over(State::Held, |handover| handover.generation = Generation(1));
    case.changes.retain(|change| change.id.to_string() == PROCESS);
    case.changes[0].change = Change::Retry;
    assert_eq!(case.pending(), "handover, one more try");
    case.report.applied = case.report.accepted.clone();
    assert_eq!(
        case.failures()[0].outcome,
        FailureOutcome::HandedBack,
        "it was carried out, and is still held"
    );
}

#[test]
fn another_spec_s_handover_says_nothing() {
    let mut case = Case::seat();
    accept(&mut case.report, &case.declaration);
    case.hand_over(State::Done, |handover| handover.new.spec = Digest::of(b"another"));
    case.pending();
    assert!(case.known.declarations.is_empty());
}
