//! Whatever happens, and whenever the host is killed: the rules hold, and there is an end.

use std::time::Duration;

use mesh_protocol::handover::State;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

use super::run::Kind;
use super::world::{Cut, Event, World};
use crate::handover::decide::Which;
use crate::handover::seen::Wanted;

/// How long a handover may take once nothing happens any more: five tries with their pauses.
const ENDS_WITHIN: Duration = Duration::from_secs(400);

/// What happens in one world.
#[derive(Debug, Clone)]
pub(super) struct Story {
    pub(super) kind: Kind,
    pub(super) events: Vec<(u64, Event)>,
    pub(super) cuts: Vec<Cut>,
}

pub(super) fn is_over(world: &World) -> bool {
    let given_up = match world.wanted {
        Wanted::Same { revision, .. } => world.record.next_try.is_none() && revision <= world.record.revision,
        Wanted::Other(_) => true,
    };
    match world.state() {
        State::Done => true,
        State::Held => given_up && world.old.serves(world.now),
        _ => false,
    }
}

/// Lives the story to its end; says what was wrong in it.
pub(super) fn live(world: &mut World, story: &Story) -> Result<(), String> {
    let begin = world.now;
    let mut events = story.events.clone();
    events.sort_by_key(|(at, _)| *at);
    let mut cuts = story.cuts.clone();
    cuts.reverse();
    world.cut = cuts.pop();
    for (at, event) in events {
        let at = begin + Duration::from_millis(at);
        step_until(world, at, &mut cuts)?;
        world.happen(event);
    }
    world.calm();
    let limit = world.now + ENDS_WITHIN;
    while !is_over(world) {
        if world.now >= limit {
            return Err(format!("no end: {} waits for {:?}", world.state().as_str(), world.waiting_for));
        }
        let next = world.now + Duration::from_millis(1);
        step_until(world, next, &mut cuts)?;
    }
    world.run_for(Duration::from_secs(1));
    end(world, story)
}

fn step_until(world: &mut World, until: Duration, cuts: &mut Vec<Cut>) -> Result<(), String> {
    while world.now < until {
        world.step();
        if let Some(Cut::Before(at) | Cut::After(at)) = world.cut
            && world.acted > at
        {
            world.cut = cuts.pop();
        }
        if let Some(wrong) = world.watch.wrong.first() {
            return Err(wrong.clone());
        }
    }
    Ok(())
}

fn end(world: &World, story: &Story) -> Result<(), String> {
    let frozen = |event: &Event| matches!(event, Event::FreezeNew);
    let current = world.current();
    let new_alive = current.is_some_and(|run| run.life.is_alive());
    match world.state() {
        State::Done => {
            if story.kind != Kind::Good {
                return Err(format!("{:?} got the seat", story.kind));
            }
            let serves = current.is_some_and(|run| run.serves(world.now) || run.frozen);
            if world.holder != Which::New || !world.tombstone || world.old.life.is_alive() || !serves {
                return Err("done, and not so".to_owned());
            }
        }
        _ => {
            if world.holder != Which::Old || world.tombstone || new_alive || !world.old.serves(world.now) {
                return Err("held, and not so".to_owned());
            }
            let evidence = world.record.failure.as_ref().is_some_and(|failure| failure.reason.is_evidence());
            let blameless = story.kind == Kind::Good && !story.events.iter().any(|(_, event)| frozen(event));
            if evidence && blameless {
                return Err(format!("held against one that is good: {:?}", world.record.failure));
            }
        }
    }
    Ok(())
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => prop_oneof![Just(Event::KillHost), Just(Event::KillOld), Just(Event::KillNew), Just(Event::Reboot)],
        3 => prop_oneof![
            Just(Event::FreezeOld),
            Just(Event::FreezeNew),
            Just(Event::ThawOld),
            Just(Event::ThawNew),
            Just(Event::BusGoes),
            Just(Event::BusComes),
        ],
        2 => prop_oneof![
            Just(Event::EngineHangs),
            Just(Event::EngineGoesOn),
            Just(Event::OldCannotStart),
            Just(Event::OldCanStart),
            Just(Event::NewerDeclaration),
            Just(Event::DeclaredAgain),
            Just(Event::Push),
        ],
        1 => prop_oneof![
            Just(Event::EchoSlow),
            Just(Event::EchoFast),
            Just(Event::StateFails),
            Just(Event::StateWorks),
            Just(Event::HostStopped),
            Just(Event::HostContinues),
        ],
    ]
}

fn at() -> impl Strategy<Value = u64> {
    // An undisturbed handover takes about two seconds here; what comes later meets what came of the earlier.
    prop_oneof![4 => 0_u64..2_500, 1 => 2_500_u64..12_000]
}

fn cut() -> impl Strategy<Value = Cut> {
    (0_usize..30, any::<bool>())
        .prop_map(|(at, before)| if before { Cut::Before(at) } else { Cut::After(at) })
}

pub(super) fn story() -> impl Strategy<Value = Story> {
    let kind = prop_oneof![3 => Just(Kind::Good), 1 => proptest::sample::select(Kind::BAD.to_vec())];
    let events = proptest::collection::vec((at(), event()), 0..7);
    let cuts = proptest::collection::vec(cut(), 0..3);
    (kind, events, cuts).prop_map(|(kind, events, mut cuts)| {
        cuts.sort_by_key(|cut| match cut {
            Cut::Before(at) | Cut::After(at) => *at,
        });
        Story { kind, events, cuts }
    })
}

/// Tries stories in worlds that `make` makes; where one goes wrong, `shrinks` times to find a shorter one.
pub(super) fn explore(
    (cases, seed, shrinks): (u32, u64, u32),
    make: impl Fn(&Story) -> World,
) -> Result<(), String> {
    let config = Config {
        cases,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        max_shrink_iters: shrinks,
        ..Config::default()
    };
    let outcome = TestRunner::new(config)
        .run(&story(), |story| live(&mut make(&story), &story).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, story)) => Err(format!("{why}\nin {story:?}")),
        Err(TestError::Abort(why)) => Err(format!("no story could be made: {why}")),
    }
}

/// Two thousand stories take some seconds. `MESH_STORIES` and `MESH_SEED` try more, and others.
#[test]
fn whatever_happens_the_rules_hold_and_there_is_an_end() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u32>().unwrap());
    let cases = number("MESH_STORIES").unwrap_or(2000);
    let seed = number("MESH_SEED").unwrap_or(1);
    if let Err(wrong) = explore((cases, u64::from(seed), 1000), |story| World::new(story.kind)) {
        panic!("{wrong}");
    }
}
