//! Rules of `joined`, `alone`, `removing` and `aborting`: who serves, who is ended when, and what holds up
//! nothing.

use std::time::Duration;

use mesh_protocol::handover::{Reason, Role, State};

use super::run::Kind;
use super::trial::{no_wrong, seconds, states, until, until_over};
use super::world::{Event, World};
use crate::handover::decide::Which;
use crate::handover::seen::{Life, Needs};

fn role_in(state: State) -> Role {
    if state == State::Alone { Role::StandingBy } else { Role::Serving }
}

/// A world in this state, which lasts.
fn world_in(state: State) -> World {
    let mut world = World::new(Kind::Good);
    world.interval = seconds(5);
    match state {
        State::Planned => {
            world.needs = Needs::Waiting("bundle".to_owned());
            world.run_for(seconds(1));
        }
        State::Aborting => {
            until(&mut world, State::Trial);
            world.happen(Event::NewerDeclaration);
            until(&mut world, State::Aborting);
        }
        State::Trial => {
            until(&mut world, State::Trial);
            world.run_for(seconds(1));
        }
        state => until(&mut world, state),
    }
    world
}

#[test]
fn an_old_one_that_dies_is_started_again_in_its_role_in_each_state() {
    for state in [State::Planned, State::Trial, State::Joined, State::Alone, State::Aborting] {
        let mut world = world_in(state);
        world.happen(Event::KillOld);
        let again = |world: &World| world.old.life == Life::Running && world.old.id.as_str() != "c-1";
        assert!(world.run_until(seconds(2), again), "in {state:?}");
        assert_eq!(world.record.old.instance.as_ref(), Some(&world.old.id), "the record has its new id");
        if world.state() == state {
            world.run_for(Duration::from_millis(200));
            assert_eq!(world.old.ordered.map(|(role, _)| role), Some(role_in(world.state())), "in {state:?}");
        }
        world.needs = Needs::Met;
        until_over(&mut world);
    }
}

#[test]
fn an_old_one_that_cannot_be_started_blocks_nothing() {
    for state in [State::Planned, State::Trial, State::Joined, State::Alone, State::Removing] {
        let mut world = world_in(state);
        world.happen(Event::OldCannotStart);
        world.happen(Event::KillOld);
        world.needs = Needs::Met;
        assert_eq!(until_over(&mut world), State::Done, "in {state:?}");
        assert_eq!(world.new.len(), 1, "in {state:?}");
    }
}

#[test]
fn an_old_one_that_freezes_is_ended_and_started_again_where_it_serves() {
    for state in [State::Planned, State::Trial, State::Joined] {
        let mut world = world_in(state);
        // Before it is silent `joined` is over: the frozen one does not leave.
        world.happen(Event::FreezeOld);
        let again = |world: &World| world.old.answers(world.now) && world.old.id.as_str() != "c-1";
        assert!(world.run_until(seconds(4), again), "in {state:?}");
        world.needs = Needs::Met;
        assert_eq!(until_over(&mut world), State::Done, "in {state:?}");
    }
}

#[test]
fn an_old_one_that_freezes_before_it_left_is_ended_within_three_seconds() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Alone);
    world.happen(Event::FreezeOld);
    assert!(world.run_until(seconds(3), |world| !world.old.is_routed_to()));
    assert_eq!(until_over(&mut world), State::Done);
}

#[test]
fn an_old_one_that_answers_and_does_not_leave_is_not_ended() {
    let mut world = World::new(Kind::Good);
    world.old.kind = Kind::NeverLeaves;
    until(&mut world, State::Aborting);
    assert_eq!(world.old.id.as_str(), "c-1");
    until(&mut world, State::Held);
    let failure = world.record.failure.as_ref().unwrap();
    assert!(matches!(failure.reason, Reason::Surroundings { .. }), "{failure:?}");
    no_wrong(&world);
}

#[test]
fn a_new_one_that_freezes_is_ended_within_three_seconds_and_the_old_one_serves() {
    for state in [State::Joined, State::Alone, State::Removing] {
        let mut world = World::new(Kind::Good);
        until(&mut world, state);
        world.happen(Event::FreezeNew);
        let ended = |world: &World| !world.new[0].life.is_alive() && world.old.serves(world.now);
        assert!(world.run_until(seconds(3), ended), "in {state:?}");
        assert_eq!(until_over(&mut world), State::Held);
        assert_eq!(world.old.id.as_str(), "c-1");
    }
}

#[test]
fn a_new_one_that_freezes_while_no_host_looks_is_found_silent_by_the_next() {
    for state in [State::Joined, State::Alone, State::Removing] {
        let mut world = World::new(Kind::Good);
        until(&mut world, state);
        world.happen(Event::KillHost);
        world.happen(Event::FreezeNew);
        let ended = |world: &World| !world.new[0].life.is_alive() && world.old.serves(world.now);
        assert!(world.run_until(seconds(6), ended), "in {state:?}");
        assert_eq!(until_over(&mut world), State::Held);
    }
}

#[test]
fn a_new_one_that_dies_brings_the_old_one_back_in_the_same_decision() {
    for state in [State::Joined, State::Alone, State::Removing] {
        let mut world = World::new(Kind::Good);
        until(&mut world, state);
        world.run_for(Duration::from_millis(100));
        world.happen(Event::KillNew);
        world.step();
        assert_eq!(world.state(), State::Aborting);
        assert_eq!(world.old.ordered.map(|(role, _)| role), Some(Role::Serving), "in {state:?}");
        assert_eq!(world.holder, Which::Old);
        assert_eq!(until_over(&mut world), State::Done, "tried again");
    }
}

#[test]
fn the_old_one_is_ended_only_after_one_more_answer() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Removing);
    // Nobody answers on the public subject any more.
    world.new[0].role = Role::StandingBy;
    world.run_for(seconds(10));
    assert_eq!(world.state(), State::Removing);
    assert!(world.old.runs());
    assert!(world.waiting_for.as_deref().unwrap().starts_with("one more answer"));
    world.new[0].role = Role::Serving;
    assert_eq!(until_over(&mut world), State::Done);
}

#[test]
fn a_hung_engine_leaves_the_removal_to_do_and_the_seat_to_the_new_one() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Removing);
    world.happen(Event::EngineHangs);
    world.run_for(seconds(100));
    assert_eq!((world.state(), world.holder), (State::Removing, Which::New));
    assert_eq!(world.waiting_for.as_deref(), Some("the end of container:mesh-controller"));
    assert!(world.current().unwrap().serves(world.now));
    world.happen(Event::EngineGoesOn);
    assert_eq!(until_over(&mut world), State::Done);
    assert_eq!(world.watch.longest_dark, Duration::ZERO);

    let mut world = World::new(Kind::Good);
    world.run_until(seconds(60), |world| world.record.old_ended);
    world.happen(Event::EngineHangs);
    world.run_for(seconds(100));
    assert_eq!(world.waiting_for.as_deref(), Some("the removal of container:mesh-controller"));
    world.happen(Event::EngineGoesOn);
    assert_eq!(until_over(&mut world), State::Done);
}

#[test]
fn a_hung_engine_does_not_keep_a_silent_new_one_in_the_queue_group() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Removing);
    world.happen(Event::EngineHangs);
    world.run_for(seconds(5));
    world.happen(Event::FreezeNew);
    assert!(world.run_until(seconds(3), |world| !world.new[0].life.is_alive()));
    assert!(world.run_until(seconds(1), |world| world.old.serves(world.now)));
    no_wrong(&world);
}

#[test]
fn after_the_end_of_the_old_one_a_reboot_lets_the_new_one_serve() {
    let mut world = World::new(Kind::Good);
    world.run_until(seconds(60), |world| world.record.old_ended);
    world.happen(Event::Reboot);
    assert_eq!(until_over(&mut world), State::Done);
    assert!(world.tombstone && !world.old.life.is_alive());
}

#[test]
fn while_the_old_one_cannot_be_started_a_new_one_that_answers_stays() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Alone);
    world.happen(Event::OldCannotStart);
    world.happen(Event::KillOld);
    world.happen(Event::BusGoes);
    until(&mut world, State::Aborting);
    world.happen(Event::BusComes);
    world.run_for(seconds(100));
    assert_eq!(world.state(), State::Aborting);
    assert!(world.current().unwrap().serves(world.now));
    world.happen(Event::KillHost);
    world.run_for(seconds(100));
    assert!(world.current().unwrap().serves(world.now), "also for a host that has not heard it yet");
    world.happen(Event::OldCanStart);
    until(&mut world, State::Held);
    assert!(world.old.serves(world.now));
    assert_eq!(until_over(&mut world), State::Done);
}

#[test]
fn when_neither_is_left_the_new_one_is_tried_again() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Alone);
    world.happen(Event::OldCannotStart);
    world.happen(Event::KillOld);
    world.happen(Event::KillNew);
    assert!(world.run_until(seconds(60), |world| world.state() == State::Done));
    assert_eq!(states(&world)[3..5], [State::Aborting, State::Held]);
    no_wrong(&world);
}

#[test]
fn the_ledger_and_the_tombstone_are_as_the_end_is() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Alone);
    assert_eq!(world.holder, Which::Old, "until the new one has served alone the old one holds the seat");
    until(&mut world, State::Removing);
    assert_eq!((world.holder, world.tombstone), (Which::New, false));
    until(&mut world, State::Done);
    assert_eq!((world.holder, world.tombstone), (Which::New, true));
}

#[test]
fn the_report_keeps_how_far_it_came_when_it_was_handed_back() {
    let mut world = World::new(Kind::ExitsBetweenChecks);
    until_over(&mut world);
    let report = world.record.report(None, 0, None);
    assert_eq!((report.checks_passed, report.failed_at.as_deref()), (1, Some("the second check")));
    assert_eq!(report.reason, Some(Reason::Exited { code: 3 }));
}
