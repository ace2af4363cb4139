use mesh_protocol::handover::State;
use mesh_protocol::id::Generation;

use super::*;
use crate::testing::{handover, report, resource};

fn with(states: &[(&str, ResourceState)]) -> Report {
    let mut report = report("n1");
    report.resources =
        states.iter().map(|(id, state)| resource(id.parse().unwrap(), state.clone(), None)).collect();
    report
}

fn lines(before: &Report, after: &Report) -> Vec<String> {
    between(before, after).iter().map(|noticed| noticed.what.line()).collect()
}

#[test]
fn what_stands_otherwise_is_told_once() {
    let before = with(&[("process:a", ResourceState::Changed), ("process:b", ResourceState::Converged)]);
    let after = with(&[
        ("process:a", ResourceState::Converged),
        ("process:b", ResourceState::Held("it exited".to_owned())),
        ("process:c", ResourceState::Waiting("its bundle".to_owned())),
    ]);
    assert_eq!(
        lines(&before, &after),
        ["n1 process:b: held: it exited", "n1 process:c: waiting: its bundle"]
    );
    assert_eq!(lines(&after, &after), [""; 0]);
}

#[test]
fn a_handover_is_told_at_each_state_and_check() {
    let before = with(&[]);
    let mut after = before.clone();
    let spec = Digest::of(b"new");
    after.handovers.push(handover("container:a", "process:a", spec, Generation(2), State::Trial));
    assert_eq!(lines(&before, &after), ["n1 handover container:a -> process:a: trial"]);
    let mut further = after.clone();
    further.handovers[0].waiting_for = Some("a check".to_owned());
    assert_eq!(lines(&after, &further), [""; 0], "what is waited for is no step");
    further.handovers[0].checks_passed = 1;
    assert_eq!(lines(&after, &further).len(), 1);
}

#[test]
fn two_that_see_the_same_report_tell_the_same_event() {
    let before = with(&[]);
    let mut after = with(&[("process:a", ResourceState::Converged)]);
    let key = |after: &Report| between(&before, after)[0].key.clone();
    let first = key(&after);
    assert_eq!(first, key(&after));
    after.number += 1;
    assert_ne!(first, key(&after));
}
