//! Faults planted into the decision: each is found by the exploration that finds none in the real one. So the
//! rules that are looked at can fail.

use std::time::Duration;

use mesh_protocol::handover::{Reason, Role, State};

use super::explore::explore;
use super::world::{Decide, World};
use crate::handover::decide::{Action, Decision, Haste, Memory, Now, Which, decide};
use crate::handover::record::{Failure, Record, Weighed};
use crate::handover::seen::Seen;

type Input<'a> = (&'a Record, &'a Seen, &'a Now);

/// The decision, changed before anybody sees it.
fn changed(
    (record, memory, seen, now, interval): (&Record, &Memory, &Seen, &Now, Duration),
    change: impl FnOnce(&mut Decision, Input<'_>),
) -> Decision {
    let mut decision = decide(record, memory, seen, now, interval);
    change(&mut decision, (record, seen, now));
    decision
}

macro_rules! fault {
    ($name:ident, $change:expr) => {
        fn $name(record: &Record, memory: &Memory, seen: &Seen, now: &Now, interval: Duration) -> Decision {
            changed((record, memory, seen, now, interval), $change)
        }
    };
}

fn go(record: &Record, state: State, now: &Now) -> Action {
    let mut next = record.clone();
    next.state = state;
    next.boot_id.clone_from(&now.boot_id);
    Action::Write(Box::new(next))
}

fn written(decision: &Decision) -> Option<&Record> {
    decision.actions.iter().find_map(|action| match action {
        Action::Write(record) => Some(&**record),
        _ => None,
    })
}

fault!(one_check_is_enough, |decision, (record, _, now)| {
    if record.state == State::Trial && decision.memory.checks_passed == 1 && written(decision).is_none() {
        decision.actions = vec![Action::SyncBus, go(record, State::Joined, now)];
    }
});

fault!(the_run_is_started_before_it_is_recorded, |decision, (record, _, _)| {
    if record.state == State::Planned && written(decision).is_some_and(|next| next.state == State::Trial) {
        decision.actions.insert(0, Action::StartNew);
    }
});

fault!(going_back_ends_the_new_one_first, |decision, (record, seen, _)| {
    if record.state == State::Aborting && seen.new.life.is_alive() {
        decision.actions.insert(0, Action::End(Which::New, Haste::Grace));
    }
});

fault!(alone_is_not_waited_for, |decision, (record, seen, now)| {
    if record.state == State::Alone && seen.old.follows(Role::StandingBy) {
        decision.actions = vec![Action::CommitLedger, go(record, State::Removing, now)];
    }
});

fault!(the_old_one_is_ended_without_one_more_answer, |decision, (record, seen, _)| {
    if record.state == State::Removing && seen.old.life.is_alive() && written(decision).is_none() {
        decision.actions = vec![Action::CommitLedger, Action::End(Which::Old, Haste::Grace)];
    }
});

fault!(the_tombstone_comes_before_the_record, |decision, (record, _, _)| {
    if !record.old_ended && written(decision).is_some_and(|next| next.old_ended) {
        decision.actions.insert(0, Action::Bury);
    }
});

fault!(a_dead_old_one_is_not_started_again, |decision, _| {
    decision.actions.retain(|action| !matches!(action, Action::StartOld(_)));
});

fault!(silence_is_no_failure, |decision, _| {
    let silent = written(decision).and_then(|next| next.failure.as_ref());
    if silent.is_some_and(|failure| matches!(failure.reason, Reason::FellSilent { .. })) {
        decision.actions.clear();
    }
});

fault!(going_back_forgets_the_ledger, |decision, _| {
    decision.actions.retain(|action| *action != Action::RestoreLedger);
});

fault!(going_back_forgets_the_old_ones_role, |decision, (record, _, _)| {
    if record.state == State::Aborting || written(decision).is_some_and(|next| next.state == State::Aborting)
    {
        decision.actions.retain(|action| !matches!(action, Action::Order(Which::Old, _)));
    }
});

fault!(the_commitment_is_made_without_the_bus_on_disk, |decision, _| {
    decision.actions.retain(|action| *action != Action::SyncBus);
});

fault!(both_leave_at_once, |decision, (record, _, _)| {
    if record.state == State::Joined {
        decision.actions.push(Action::Order(Which::Old, Role::StandingBy));
    }
});

fault!(what_cannot_be_removed_is_given_up, |decision, (record, _, now)| {
    if record.old_ended {
        decision.actions = vec![go(record, State::Done, now)];
    }
});

fault!(the_boot_is_not_looked_at, |decision, (record, _, now)| {
    let in_play = !matches!(record.state, State::Planned | State::Aborting | State::Held);
    if in_play && record.boot_id != now.boot_id {
        decision.actions.clear();
    }
});

fault!(nothing_is_weighed, |decision, (record, _, _)| {
    let Some(failure) = record.failure.as_ref().filter(|_| record.state == State::Aborting) else { return };
    if failure.weighed == Weighed::NotYet {
        let mut next = record.clone();
        next.failure = Some(Failure { weighed: Weighed::Yes, ..failure.clone() });
        decision.actions = vec![Action::Order(Which::Old, Role::Serving), Action::Write(Box::new(next))];
    }
});

const CASES: u32 = 500;
/// How often a story in which a fault shows is made shorter.
const SHRINKS: u32 = 150;

fn is_found(name: &str, fault: Decide) {
    let make = |story: &super::explore::Story| {
        let mut world = World::new(story.kind);
        world.decide = fault;
        world
    };
    let found = explore((CASES, 1, SHRINKS), make);
    shown(name, found);
}

/// The fault, and the shortest story that was found for it.
fn shown(name: &str, found: Result<(), String>) {
    let Err(story) = found else { panic!("{name}: not found in {CASES} stories") };
    eprintln!("{name}: {story}");
}

#[test]
fn each_planted_fault_is_found() {
    let faults: [(&str, Decide); 15] = [
        ("one check is enough", one_check_is_enough),
        ("the run is started before it is recorded", the_run_is_started_before_it_is_recorded),
        ("going back ends the new one first", going_back_ends_the_new_one_first),
        ("alone is not waited for", alone_is_not_waited_for),
        ("the old one is ended without one more answer", the_old_one_is_ended_without_one_more_answer),
        ("the tombstone comes before the record", the_tombstone_comes_before_the_record),
        ("a dead old one is not started again", a_dead_old_one_is_not_started_again),
        ("silence is no failure", silence_is_no_failure),
        ("going back forgets the ledger", going_back_forgets_the_ledger),
        ("going back forgets the old one's role", going_back_forgets_the_old_ones_role),
        ("the commitment is made without the bus on disk", the_commitment_is_made_without_the_bus_on_disk),
        ("both leave at once", both_leave_at_once),
        ("what cannot be removed is given up", what_cannot_be_removed_is_given_up),
        ("the boot is not looked at", the_boot_is_not_looked_at),
        ("nothing is weighed", nothing_is_weighed),
    ];
    for (name, fault) in faults {
        is_found(name, fault);
    }
}

#[test]
fn a_restart_that_voids_no_check_is_found() {
    let make = |story: &super::explore::Story| {
        let mut world = World::new(story.kind);
        world.memory_is_kept = true;
        world
    };
    shown("a restart voids no check", explore((CASES, 1, SHRINKS), make));
}
