//! The host killed before and after each action, each action done twice, the machine restarted at each action: it
//! ends as if nothing had happened.

use std::mem::{Discriminant, discriminant};

use mesh_protocol::handover::{Reason, State};

use super::explore::is_over;
use super::run::Kind;
use super::trial::{LONG, no_wrong};
use super::world::{Cut, Event, World};
use crate::handover::decide::Which;

/// How it ended.
#[derive(Debug, PartialEq)]
struct End {
    state: State,
    holder: Which,
    tombstone: bool,
    next_try: bool,
    failed: Option<(State, Discriminant<Reason>)>,
}

fn end(mut world: World, what: &str) -> (End, usize) {
    assert!(world.run_until(LONG, is_over), "{what}: no end, but {:?}", world.states);
    no_wrong(&world);
    let failure = world.record.failure.as_ref();
    let end = End {
        state: world.state(),
        holder: world.holder,
        tombstone: world.tombstone,
        next_try: world.record.next_try.is_some(),
        failed: failure.map(|failure| (failure.state, discriminant(&failure.reason))),
    };
    (end, world.acted)
}

fn kinds() -> impl Iterator<Item = Kind> {
    [Kind::Good].into_iter().chain(Kind::BAD)
}

#[test]
fn a_host_killed_before_or_after_any_action_ends_as_an_undisturbed_one() {
    for kind in kinds() {
        let (undisturbed, actions) = end(World::new(kind), "undisturbed");
        for cut in (0..actions).flat_map(|at| [Cut::Before(at), Cut::After(at)]) {
            let mut world = World::new(kind);
            world.cut = Some(cut);
            let what = format!("{kind:?}, killed {cut:?}");
            assert_eq!(end(world, &what).0, undisturbed, "{what}");
        }
    }
}

#[test]
fn an_action_done_twice_is_done_once() {
    for kind in kinds() {
        let (undisturbed, _) = end(World::new(kind), "undisturbed");
        let mut world = World::new(kind);
        world.twice = true;
        assert_eq!(end(world, "twice").0, undisturbed, "{kind:?}");
    }
}

#[test]
fn a_machine_restarted_after_any_action_comes_to_the_same_end() {
    let (undisturbed, actions) = end(World::new(Kind::Good), "undisturbed");
    for cut in (0..actions).flat_map(|at| [Cut::Before(at), Cut::After(at)]) {
        let mut world = World::new(Kind::Good);
        world.cut = Some(cut);
        let (Cut::Before(at) | Cut::After(at)) = cut;
        world.run_until(LONG, |world| world.acted > at);
        world.happen(Event::Reboot);
        assert_eq!(end(world, "restarted").0, undisturbed, "restarted {cut:?}");
    }
}
