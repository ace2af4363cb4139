//! A real handover, replayed: the host writes down each of its decisions with what it was made from, and each is what
//! the model's own `decide` makes of it. What was changed in such a trace is found.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use mesh_host::handover::decide::{Action, Haste, Which};
use mesh_host::handover::trace::{Decided, fault};
use mesh_protocol::handover::State;
use mesh_protocol::id::Token;
use mesh_tests::mesh::Mesh;
use mesh_tests::until::eventually;

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_handover_is_one_of_the_model_s_and_a_changed_one_is_not() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    let file = mesh.layout().host().join("trace");
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let _ = mesh.raise().await;

    let read = || -> Vec<Decided> {
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let done = async || {
        let trace = read();
        let ends = trace.last().is_some_and(|last| written(last) == Some(State::Done));
        ends.then_some(trace)
    };
    let trace = eventually("the trace of a handover to its end", LIMIT, done).await;
    let mut states: Vec<State> = trace.iter().filter_map(written).collect();
    states.dedup();
    let whole = [State::Trial, State::Joined, State::Alone, State::Removing, State::Done];
    assert_eq!(states, whole);
    eprintln!("{} decisions, {} bytes", trace.len(), std::fs::metadata(&file).unwrap().len());
    assert_eq!(fault(&trace), None);

    let wrong = |what: &str, change: fn(&mut Vec<Decided>)| {
        let mut changed = trace.clone();
        change(&mut changed);
        let wrong = fault(&changed).unwrap_or_else(|| panic!("{what}: believed"));
        eprintln!("{what}: {wrong}");
    };
    wrong("a check dropped", |trace| {
        trace.retain(|decided| {
            decided.record.state != State::Trial || written(decided) == Some(State::Joined)
        });
    });
    wrong("a state skipped", |trace| trace.retain(|decided| decided.record.state != State::Alone));
    wrong("an end before its record", |trace| {
        let place = trace.iter().position(|decided| written(decided) == Some(State::Removing)).unwrap();
        trace[place - 1].decision.actions.push(Action::End(Which::Old, Haste::Grace));
    });
    wrong("a token back", |trace| {
        trace.last_mut().unwrap().token = Token::default();
    });
    wrong("another answer", |trace| {
        let place = trace.iter().position(|decided| written(decided) == Some(State::Joined)).unwrap();
        trace[place].seen.new.ready = None;
    });
}

/// The state that a decision goes to.
fn written(decided: &Decided) -> Option<State> {
    decided.decision.actions.iter().rev().find_map(|action| match action {
        Action::Write(next) if next.state != decided.record.state => Some(next.state),
        _ => None,
    })
}
