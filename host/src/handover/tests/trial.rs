//! Rules of `planned` and `trial`: what proves a newcomer, whose clock runs when, and what is evidence.

use std::time::Duration;

use mesh_protocol::handover::{Reason, State};

use super::explore::is_over;
use super::run::Kind;
use super::world::{Event, World};
use crate::handover::seen::{Needs, Wanted};

pub(super) const LONG: Duration = Duration::from_secs(300);
const SECOND: Duration = Duration::from_secs(1);

pub(super) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Runs until the record has this state.
pub(super) fn until(world: &mut World, state: State) {
    let reached = world.run_until(LONG, |world| world.state() == state);
    assert!(reached, "it does not come to {state:?}, but is {:?}", world.states);
}

pub(super) fn until_over(world: &mut World) -> State {
    assert!(world.run_until(LONG, is_over), "it has no end: {:?}", world.states);
    no_wrong(world);
    world.state()
}

pub(super) fn no_wrong(world: &World) {
    assert_eq!(world.watch.wrong, Vec::<String>::new());
}

pub(super) fn states(world: &World) -> Vec<State> {
    world.states.iter().map(|(_, state)| *state).collect()
}

/// How long it was in the last state of this kind.
fn time_in(world: &World, state: State) -> Duration {
    let at = world.states.iter().rposition(|(_, entered)| *entered == state).unwrap();
    world.states[at + 1].0 - world.states[at].0
}

fn reason(world: &World) -> &Reason {
    &world.record.failure.as_ref().unwrap().reason
}

const TO_THE_END: [State; 5] = [State::Trial, State::Joined, State::Alone, State::Removing, State::Done];

#[test]
fn undisturbed_it_goes_from_state_to_state_and_nobody_is_without_an_answer() {
    let mut world = World::new(Kind::Good);
    assert_eq!(until_over(&mut world), State::Done);
    assert_eq!(states(&world), TO_THE_END);
    assert_eq!(world.watch.longest_dark, Duration::ZERO);
}

#[test]
fn two_checks_are_one_and_two_intervals_after_the_first_right_answer() {
    let mut world = World::new(Kind::Good);
    world.interval = SECOND;
    world.state_works = false;
    until(&mut world, State::Trial);
    world.run_for(seconds(5));
    world.state_works = true;
    let from = world.now;
    world.run_until(LONG, |world| world.state() == State::Joined);
    let took = world.now - from;
    assert!(took >= 2 * SECOND && took < 2 * SECOND + SECOND / 2, "{took:?}");
    assert_eq!(until_over(&mut world), State::Done);
}

#[test]
fn a_restart_of_the_host_begins_the_trials_clock_again_and_keeps_the_run() {
    let mut world = World::new(Kind::Good);
    world.interval = SECOND;
    until(&mut world, State::Trial);
    world.run_for(seconds(1) + SECOND / 2);
    let run = world.record.new.instance.clone();
    world.happen(Event::KillHost);
    let from = world.now;
    until(&mut world, State::Joined);
    assert!(world.now - from >= 2 * SECOND, "{:?}", world.now - from);
    assert_eq!(world.record.new.instance, run);
    assert_eq!(world.new.len(), 1);
}

#[test]
fn an_answer_of_another_instance_proves_nothing() {
    let mut world = World::new(Kind::AnswersAsAnother);
    assert_eq!(until_over(&mut world), State::Held);
    assert!(matches!(reason(&world), Reason::WrongAnswer { what, .. } if what == "instance"));
}

#[test]
fn never_ready_within_thirty_seconds_of_bus_is_evidence() {
    let mut world = World::new(Kind::NeverAnswers);
    assert_eq!(until_over(&mut world), State::Held);
    let took = time_in(&world, State::Trial);
    assert!(took > seconds(30) && took < seconds(31), "{took:?}");
    assert!(matches!(reason(&world), Reason::NeverReady { .. }));
    assert_eq!(world.record.next_try, None);
    assert_eq!(world.record.failure.as_ref().unwrap().failed_at, "never ready within 30 s");
}

#[test]
fn the_bus_being_away_stops_the_clock_of_readiness() {
    let mut world = World::new(Kind::NeverAnswers);
    until(&mut world, State::Trial);
    world.run_for(seconds(5));
    world.happen(Event::BusGoes);
    world.run_for(seconds(20));
    world.happen(Event::BusComes);
    assert_eq!(until_over(&mut world), State::Held);
    let took = time_in(&world, State::Trial);
    assert!(took > seconds(50) && took < seconds(51), "{took:?}");
}

#[test]
fn the_bus_being_away_stops_the_clock_of_the_checks() {
    let mut world = World::new(Kind::Good);
    world.interval = seconds(2);
    until(&mut world, State::Trial);
    world.run_for(seconds(1));
    world.happen(Event::BusGoes);
    world.run_for(seconds(20));
    assert_eq!(world.state(), State::Trial);
    assert_eq!(world.waiting_for.as_deref(), Some("the bus"));
    world.happen(Event::BusComes);
    assert_eq!(until_over(&mut world), State::Done);
    assert!(time_in(&world, State::Trial) >= seconds(24));
}

#[test]
fn the_bus_away_for_thirty_seconds_aborts_with_a_next_try_before_removing() {
    for state in [State::Planned, State::Trial, State::Joined, State::Alone] {
        let mut world = World::new(Kind::Good);
        if state == State::Planned {
            world.needs = Needs::Waiting("bundle".to_owned());
            world.step();
        }
        until(&mut world, state);
        world.happen(Event::BusGoes);
        world.run_for(seconds(29));
        assert_eq!(world.state(), state);
        world.run_for(seconds(2));
        assert_eq!(world.state(), State::Aborting, "from {state:?}");
        world.needs = Needs::Met;
        world.happen(Event::BusComes);
        until(&mut world, State::Held);
        assert!(matches!(reason(&world), Reason::Surroundings { .. }));
        assert!(world.record.next_try.is_some(), "from {state:?}");
        assert_eq!(until_over(&mut world), State::Done);
    }
}

#[test]
fn in_removing_the_bus_may_be_away_for_as_long_as_it_likes() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Removing);
    world.happen(Event::BusGoes);
    world.run_for(seconds(100));
    assert_eq!(world.state(), State::Removing);
    assert!(world.old.life.is_alive(), "the old one stays until the new one has answered once more");
    world.happen(Event::BusComes);
    assert_eq!(until_over(&mut world), State::Done);
    assert_eq!(states(&world), TO_THE_END);
}

#[test]
fn evidence_holds_without_a_next_try_and_says_what_and_where() {
    let found = |kind: Kind| {
        let mut world = World::new(kind);
        assert_eq!(until_over(&mut world), State::Held, "{kind:?}");
        assert_eq!(world.record.next_try, None, "{kind:?}");
        assert_eq!(world.record.tries, 1, "{kind:?}");
        assert_eq!(world.old.id.as_str(), "c-1", "the old one was not touched");
        let failure = world.record.failure.clone().unwrap();
        (failure.state, failure.failed_at, failure.reason.to_string())
    };
    let is = |kind: Kind, state: State, failed_at: &str, reason: &str| {
        let found = found(kind);
        assert_eq!((found.0, found.1.as_str()), (state, failed_at), "{kind:?}");
        assert!(found.2.contains(reason), "{kind:?}: {}", found.2);
    };
    let first = "before its first right answer";
    is(Kind::CannotStart, State::Trial, first, "exec: permission denied");
    is(Kind::ExitsAtOnce, State::Trial, first, "exited with status 1");
    is(Kind::ExitsBetweenChecks, State::Trial, "the second check", "exited with status 3");
    is(Kind::NeverReachesItsState, State::Trial, "never ready within 30 s", "no right to write");
    is(Kind::WrongVersion, State::Trial, first, "expected 2.0.0, found 1.0.0");
    is(Kind::WrongProgram, State::Trial, first, "another program");
    is(Kind::MayNotJoin, State::Joined, "joining the seat", "permissions violation");
    is(Kind::NeverTakesTheLock, State::Alone, "serving alone", "the plan lock");
    for state in [State::Joined, State::Alone, State::Removing] {
        let silent = found(Kind::FreezesIn(state));
        assert_eq!((silent.0, silent.1.as_str()), (state, state.as_str()));
        assert!(silent.2.contains("fell silent"), "{}", silent.2);
        let ended = found(Kind::ExitsIn(state));
        assert_eq!(ended.0, state);
        assert!(ended.2.contains("exited with status 4"), "{}", ended.2);
    }
}

/// One that exits in its trial, in surroundings that might explain it, is tried again.
fn is_blamed_on_the_surroundings(disturb: impl Fn(&mut World), mend: impl Fn(&mut World)) {
    let mut world = World::new(Kind::ExitsBetweenChecks);
    until(&mut world, State::Trial);
    world.run_for(Duration::from_millis(200));
    disturb(&mut world);
    until(&mut world, State::Aborting);
    world.run_for(seconds(1));
    mend(&mut world);
    until(&mut world, State::Held);
    assert!(matches!(reason(&world), Reason::Surroundings { .. }), "{:?}", reason(&world));
    assert!(reason(&world).to_string().contains("seen was: it exited with status 3"));
    assert!(world.record.next_try.is_some());
    no_wrong(&world);
}

#[test]
fn a_slow_echo_speaks_against_the_surroundings() {
    is_blamed_on_the_surroundings(|world| world.happen(Event::EchoSlow), |_| {});
}

#[test]
fn a_bus_that_goes_speaks_against_the_surroundings_also_when_it_comes_back() {
    let goes = |world: &mut World| world.happen(Event::BusGoes);
    is_blamed_on_the_surroundings(goes, |world| world.happen(Event::BusComes));
    is_blamed_on_the_surroundings(
        |world| {
            world.happen(Event::BusGoes);
            world.step();
            world.happen(Event::BusComes);
        },
        |_| {},
    );
}

#[test]
fn a_host_that_is_being_stopped_weighs_nothing_against_the_new_one() {
    is_blamed_on_the_surroundings(|world| world.stopping = true, |world| world.stopping = false);
}

#[test]
fn what_ended_shortly_before_the_machine_did_is_not_evidence() {
    let mut world = World::new(Kind::ExitsBetweenChecks);
    until(&mut world, State::Aborting);
    world.happen(Event::Reboot);
    until(&mut world, State::Held);
    assert!(reason(&world).to_string().contains("the machine was started again"));
}

#[test]
fn what_the_old_one_lacks_too_is_not_evidence() {
    let mut world = World::new(Kind::Good);
    world.state_works = false;
    until(&mut world, State::Held);
    assert!(reason(&world).to_string().contains("the old one lacks the same"), "{}", reason(&world));
    world.state_works = true;
    assert_eq!(until_over(&mut world), State::Done);
}

#[test]
fn what_it_has_a_moment_later_is_not_evidence() {
    let mut world = World::new(Kind::Good);
    world.state_works = false;
    until(&mut world, State::Aborting);
    world.state_works = true;
    until(&mut world, State::Held);
    assert!(reason(&world).to_string().contains("a moment later"), "{}", reason(&world));
}

#[test]
fn a_kill_from_outside_is_tried_again_with_growing_pauses_and_five_times_at_most() {
    let mut world = World::new(Kind::Good);
    let mut pauses = Vec::new();
    for attempt in 1..=5 {
        until(&mut world, State::Trial);
        assert_eq!(world.record.tries, attempt);
        world.run_for(Duration::from_millis(100));
        world.happen(Event::KillNew);
        until(&mut world, State::Held);
        let pause = world.record.next_try.map(|at| at.duration_since(world.record.since).as_secs());
        pauses.push(pause);
    }
    assert_eq!(pauses, [Some(2), Some(4), Some(8), Some(16), None]);
    world.run_for(seconds(100));
    assert_eq!(world.state(), State::Held);
    world.happen(Event::Push);
    assert_eq!(until_over(&mut world), State::Done);
    assert_eq!(world.record.surroundings, 0, "a push clears the count");
}

#[test]
fn a_reboot_before_the_end_of_the_old_one_lets_it_serve_and_a_new_trial_follows() {
    for state in [State::Trial, State::Joined, State::Alone, State::Removing] {
        let mut world = World::new(Kind::Good);
        until(&mut world, state);
        world.happen(Event::Reboot);
        assert!(world.run_until(seconds(2), |world| world.old.serves(world.now)), "from {state:?}");
        assert_eq!(until_over(&mut world), State::Done);
        assert_eq!(world.new.len(), if state == State::Trial { 1 } else { 2 }, "from {state:?}");
    }
}

#[test]
fn a_machine_that_restarts_in_every_trial_is_not_tried_for_ever() {
    let mut world = World::new(Kind::Good);
    for _ in 0..5 {
        until(&mut world, State::Trial);
        world.run_for(Duration::from_millis(100));
        world.happen(Event::Reboot);
        world.run_for(Duration::from_millis(200));
    }
    assert_eq!(until_over(&mut world), State::Held);
    assert_eq!(world.record.next_try, None);
}

#[test]
fn held_evidence_waits_for_a_push_or_a_retry() {
    let ask: [fn(&mut World); 2] = [
        |world| world.wanted = Wanted::Same { revision: 6, retry: false },
        |world| world.wanted = Wanted::Same { revision: 5, retry: true },
    ];
    for ask in ask {
        let mut world = World::new(Kind::ExitsAtOnce);
        until_over(&mut world);
        world.run_for(seconds(100));
        world.wanted = Wanted::Same { revision: 4, retry: false };
        world.run_for(seconds(10));
        assert_eq!((world.state(), world.record.tries), (State::Held, 1));
        ask(&mut world);
        until(&mut world, State::Trial);
        assert_eq!((world.record.tries, &world.record.failure), (2, &None));
        world.wanted = Wanted::Same { revision: world.record.revision, retry: false };
        assert_eq!(until_over(&mut world), State::Held);
        assert_eq!((world.new.len(), world.record.tries), (2, 2));
    }
}

#[test]
fn what_it_needs_and_does_not_get_fails_at_once_or_after_ten_minutes() {
    let mut world = World::new(Kind::Good);
    world.needs = Needs::Failed(Reason::CouldNotStart { detail: "digest differs".to_owned() });
    assert_eq!(until_over(&mut world), State::Held);
    assert_eq!((world.record.next_try, world.new.len()), (None, 0));

    let mut world = World::new(Kind::Good);
    world.needs = Needs::Waiting("bundle mesh-controller".to_owned());
    world.run_for(seconds(599));
    assert_eq!(world.state(), State::Planned);
    assert_eq!(world.waiting_for.as_deref(), Some("bundle mesh-controller"));
    until(&mut world, State::Aborting);
    assert!(matches!(reason(&world), Reason::Surroundings { .. }));
}

#[test]
fn a_newer_declaration_ends_a_trial_and_is_waited_for_by_what_comes_after() {
    for state in [State::Planned, State::Trial] {
        let mut world = World::new(Kind::Good);
        world.needs = Needs::Waiting("bundle".to_owned());
        world.step();
        if state == State::Trial {
            world.needs = Needs::Met;
        }
        until(&mut world, state);
        world.happen(Event::NewerDeclaration);
        assert_eq!(until_over(&mut world), State::Held);
        assert!(matches!(reason(&world), Reason::Superseded { .. }));
        assert_eq!(world.record.surroundings, 0);
        world.needs = Needs::Met;
        world.happen(Event::DeclaredAgain);
        assert_eq!(until_over(&mut world), State::Done, "wanted again, it is tried again");
    }
    for state in [State::Joined, State::Alone, State::Removing] {
        let mut world = World::new(Kind::Good);
        until(&mut world, state);
        world.happen(Event::NewerDeclaration);
        assert_eq!(until_over(&mut world), State::Done, "from {state:?}");
        assert_eq!(states(&world), TO_THE_END);
    }
}

#[test]
fn a_push_of_the_same_during_a_trial_lets_it_go_on() {
    let mut world = World::new(Kind::Good);
    until(&mut world, State::Trial);
    world.happen(Event::Push);
    assert_eq!(until_over(&mut world), State::Done);
    assert_eq!(world.new.len(), 1);
}

#[test]
fn while_the_host_stood_still_nobody_was_silent() {
    for state in [State::Trial, State::Joined, State::Alone, State::Removing] {
        let mut world = World::new(Kind::Good);
        world.interval = seconds(1);
        until(&mut world, state);
        world.happen(Event::HostStopped);
        world.run_for(seconds(20));
        world.happen(Event::HostContinues);
        assert_eq!(until_over(&mut world), State::Done);
        assert_eq!(states(&world), TO_THE_END, "from {state:?}");
    }
}
