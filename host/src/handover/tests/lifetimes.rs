//! A thousand newcomers that live for a random time, up to one and a half times their trial: none of them gets the seat
//! and is dead at that moment, and the old one serves after each that did not.

use std::time::Duration;

use mesh_protocol::handover::{Reason, State};

use super::run::Kind;
use super::trial::{no_wrong, seconds};
use super::world::{INTERVAL, STEP, World};

/// Two checks, from the first right answer on, which takes two steps.
const TRIAL: Duration = Duration::from_millis(2 * INTERVAL.as_millis() as u64 + 2 * STEP.as_millis() as u64);

/// splitmix64: numbers that only depend on a seed.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// How it comes out with a newcomer that ends by itself after `lifetime`.
fn outcome(lifetime: Duration) -> State {
    let mut world = World::new(Kind::Good);
    assert!(world.run_until(seconds(10), |world| world.current().is_some_and(|run| run.life.is_alive())));
    let begin = world.now;
    let over = |world: &World| matches!(world.state(), State::Removing | State::Held);
    let _ = world.run_until(lifetime, over);
    if !over(&world) {
        world.current_mut().unwrap().end(Reason::Exited { code: 9 });
        assert!(world.run_until(seconds(60), over), "no end after {lifetime:?}");
    }
    let state = world.state();
    if state == State::Removing {
        let lived = world.now - begin;
        assert!(lived <= lifetime, "{lifetime:?}: it got the seat after {lived:?}, dead");
    } else {
        assert!(world.old.serves(world.now), "{lifetime:?}: the old one does not serve");
    }
    no_wrong(&world);
    state
}

#[test]
fn of_a_thousand_lifetimes_none_gets_the_seat_dead() {
    let mut seed = 7;
    let longest = u64::try_from(TRIAL.as_millis() * 3 / 2).unwrap();
    let mut held = 0;
    for _ in 0..1000 {
        let lifetime = Duration::from_millis(random(&mut seed) % longest);
        held += usize::from(outcome(lifetime) == State::Held);
    }
    // Whoever lives for the trial and the time alone gets the seat; most of these do not.
    assert!(held > 600, "{held} of 1000 handed back");
    assert_eq!(outcome(seconds(10)), State::Removing, "one that lives on gets it");
}
