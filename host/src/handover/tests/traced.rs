//! A trace is believed when a host that decides as this one does could have written it, and else not.

use mesh_protocol::handover::State;
use mesh_protocol::id::Token;

use super::explore::is_over;
use super::run::Kind;
use super::trial::LONG;
use super::world::{Event, World};
use crate::handover::decide::{Action, Haste, Which};
use crate::handover::trace::{Decided, fault, note};

fn traced(kind: Kind, event: Option<Event>) -> Vec<Decided> {
    let mut world = World::new(kind);
    world.trace = Some(Vec::new());
    if let Some(event) = event {
        world.run_until(LONG, |world| world.state() == State::Joined);
        world.happen(event);
    }
    assert!(world.run_until(LONG, is_over));
    world.trace.unwrap()
}

/// The one decision that goes from one state to another.
fn step(trace: &[Decided], from: State, to: State) -> usize {
    let goes = |decided: &Decided| {
        let writes = |action: &Action| matches!(action, Action::Write(next) if next.state == to);
        decided.record.state == from && decided.decision.actions.iter().any(writes)
    };
    trace.iter().position(goes).unwrap()
}

fn refused(mut trace: Vec<Decided>, what: &str, change: impl FnOnce(&mut Vec<Decided>)) {
    change(&mut trace);
    let wrong = fault(&trace).unwrap_or_else(|| panic!("{what}: believed"));
    assert!(wrong.starts_with("decision "), "{what}: {wrong}");
}

#[test]
fn what_a_host_writes_down_is_believed() {
    for kind in [Kind::Good, Kind::WrongVersion, Kind::ExitsIn(State::Joined), Kind::NeverTakesTheLock] {
        assert_eq!(fault(&traced(kind, None)), None, "{kind:?}");
    }
    for event in [Event::KillHost, Event::KillOld, Event::Reboot, Event::FreezeNew] {
        assert_eq!(fault(&traced(Kind::Good, Some(event))), None, "{event:?}");
    }
}

#[test]
fn what_was_changed_is_not() {
    use State::{Alone, Joined, Removing, Trial};
    let trace = || traced(Kind::Good, None);
    refused(trace(), "a check dropped", |trace| {
        let joins = step(trace, Trial, Joined);
        let (record, now) = (trace[joins].record.new.instance.clone(), trace[joins].now.running);
        trace.retain(|decided| {
            decided.record.state != Trial
                || decided.record.new.instance != record
                || decided.now.running >= now
        });
    });
    refused(trace(), "a state skipped", |trace| {
        trace.retain(|decided| decided.record.state != Alone);
    });
    refused(trace(), "an end before its record", |trace| {
        let alone = step(trace, Alone, Removing);
        trace[alone - 1].decision.actions.push(Action::End(Which::Old, Haste::Grace));
    });
    refused(trace(), "a token back", |trace| {
        let last = trace.len() - 1;
        trace[last].token = Token { epoch: 1, revision: 3 };
    });
    refused(trace(), "another memory", |trace| {
        let joins = step(trace, Trial, Joined);
        trace[joins].memory.checks_passed = 0;
    });
}

#[test]
fn nothing_is_written_where_nobody_made_a_file() {
    let folder = camino_tempfile();
    let file = folder.1.join("trace");
    let decided = traced(Kind::Good, None).remove(0);
    note(&file, || panic!("made for nobody"));
    assert!(!file.exists());
    std::fs::write(&file, "").unwrap();
    note(&file, || decided.clone());
    note(&file, || decided.clone());
    let lines: Vec<Decided> = std::fs::read_to_string(&file)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, [decided.clone(), decided]);
}

fn camino_tempfile() -> (tempfile::TempDir, camino::Utf8PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = camino::Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    (folder, path)
}
