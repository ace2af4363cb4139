//! The model that is the code: two controllers, a host, a bus, disks and an operator, explored to the end of a bound
//! with what may go wrong at every step.
//!
//! What is decided in it is decided by the code itself: the host's `accept`, `open`, handover `decide` and
//! `supervise::decide`, the controller's `roles::decide`, `executor::decide`, `recovery` and `draft`, and the plan
//! lock's `lock::decide`. What is modelled is what lies between: what the bus keeps and what of it is on the
//! disk, what is under way, who is alive. It begins with an old one that serves and a plan, just stored, that
//! replaces it: genesis's container by a process, or a process by the next one.
//!
//! What must be so: somebody answers the seat, and no step that is not itself a misfortune leaves its queue group
//! empty; two never hold the plan lock, and nothing is written for a plan without it; no host follows a
//! stale token; the old one is ended after two checks and an interval alone, by this host; what was removed does
//! not come back, what is adopted is not made again, and no run is alive that no record knows; and an end (one
//! answers, the plan has ended, nothing is held or under way) can be reached from every state by what happens
//! of itself.
//!
//! The bound. Time goes in ticks of a second, and only when nobody has anything to do; the bus and the host are
//! away for up to three of them.
//! Misfortunes: a host, a run, or all of them by a power cut (with
//! the bus's folder as it was, or as it was last on the disk) die, at every step and between any two effects of
//! the host; a run or the host stops and goes on; a question to the bus, its answer or a write is lost, or late; an
//! earlier declaration is read again; the bus goes; somebody removes the container; the operator asks for
//! something newer, or for what was before; somebody is slower than all others.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod bus;
mod docs;
mod explore;
mod faults;
mod host;
mod keep;
mod make;
mod next;
mod planted;
mod run;
mod seen;
mod world;

use std::time::Instant;

use explore::{Found, explore};
use faults::Fault;
use world::{Misfortunes, Order, Setting, Start, World};

/// Far more than is reached.
const MOST: usize = 30_000_000;

/// A container and a process as the old one on the bus's own machine, and a process on another.
const BEGINNINGS: [(Start, bool); 3] =
    [(Start::Container, false), (Start::Process, false), (Start::Process, true)];

fn look(setting: Setting, fault: Option<Fault>, most: usize) -> Found {
    let docs = docs::Docs::new(setting, fault);
    let world = World::new(&docs);
    explore(world, most, |world| next::next(world, &docs), |world| next::is_end(world, &docs))
}

fn nothing_is_wrong(order: Order, misfortunes: Misfortunes, left: u8) {
    for (start, bus_is_far) in BEGINNINGS {
        let began = Instant::now();
        let setting = Setting { start, order, misfortunes, left, bus_is_far };
        match look(setting, None, MOST) {
            Found::Nothing { states, steps, ends } => eprintln!(
                "{start:?}, bus far: {bus_is_far}, {order:?} order, {left} of {misfortunes:?}: \
                 {states} states, {steps} steps, {ends} ends, {:.1?}",
                began.elapsed()
            ),
            Found::Wrong { what, trace, states } => {
                panic!("{setting:?}: {what}, after {states} states:\n  {}", trace.join("\n  "));
            }
            Found::TooMany { states } => panic!("{setting:?}: more than {states} states"),
        }
    }
}

#[test]
fn in_every_order_without_a_misfortune() {
    nothing_is_wrong(Order::Every, Misfortunes::All, 0);
}

/// `MESH_MISFORTUNES` looks at more than one: two are some millions of states.
#[test]
fn with_any_one_misfortune_at_any_step() {
    let left = std::env::var("MESH_MISFORTUNES").map_or(1, |left| left.parse().unwrap());
    nothing_is_wrong(Order::One, Misfortunes::All, left);
}

/// Two deaths by one order take some two minutes, one in every order a little less: `MESH_DEATHS` and
/// `MESH_DEATHS_IN_EVERY_ORDER` look at so many.
#[test]
fn with_deaths_at_any_step() {
    let left = |name: &str| std::env::var(name).ok().map(|left| left.parse().unwrap());
    nothing_is_wrong(Order::One, Misfortunes::Deaths, left("MESH_DEATHS").unwrap_or(1));
    if let Some(left) = left("MESH_DEATHS_IN_EVERY_ORDER") {
        nothing_is_wrong(Order::Every, Misfortunes::Deaths, left);
    }
}
