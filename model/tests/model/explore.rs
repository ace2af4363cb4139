//! Breadth first through all that may happen: every state once, the shortest way to what is wrong, and whether an
//! end can be reached from everywhere.
//!
//! In: a first state, what may follow a state. Out: how many states there are, or a trace. Not here: what a state is.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{Hash, Hasher};

/// One way on from a state.
pub(crate) struct Next<S, L> {
    pub(crate) label: L,
    /// The next state, or what is wrong.
    pub(crate) state: Result<S, String>,
    /// Whether it is something that goes wrong: nothing may depend on that for its end.
    pub(crate) disturbs: bool,
}

/// What was found.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing is wrong in so many states, of which so many are ends.
    Nothing { states: usize, steps: usize, ends: usize },
    /// What is wrong, and the shortest way to it.
    Wrong { what: String, trace: Vec<String>, states: usize },
    /// The search was given up.
    TooMany { states: usize },
}

struct Seen<L> {
    parents: Vec<(u32, Option<L>)>,
    known: HashMap<u128, u32>,
}

impl<L: Clone + Display> Seen<L> {
    fn note<S: Hash>(&mut self, state: &S, from: u32, label: Option<L>) -> (u32, bool) {
        let next = u32::try_from(self.parents.len()).unwrap();
        let number = *self.known.entry(fingerprint(state)).or_insert(next);
        if number == next {
            self.parents.push((from, label));
        }
        (number, number == next)
    }

    fn trace(&self, mut at: u32, last: Option<&L>) -> Vec<String> {
        let mut steps: Vec<String> = last.map(ToString::to_string).into_iter().collect();
        while let (from, Some(label)) = &self.parents[at as usize] {
            steps.push(label.to_string());
            at = *from;
        }
        steps.reverse();
        steps
    }
}

/// 128 bits of a state: that two of a million have the same is less likely than a fault of the memory.
fn fingerprint<S: Hash>(state: &S) -> u128 {
    let mut print = Fingerprint { one: 0x243f_6a88_85a3_08d3, two: 0x1319_8a2e_0370_7344 };
    state.hash(&mut print);
    u128::from(print.one) << 64 | u128::from(print.two)
}

struct Fingerprint {
    one: u64,
    two: u64,
}

impl Hasher for Fingerprint {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.one = folded(self.one ^ word, 0x9e37_79b9_7f4a_7c15);
        self.two = folded(self.two.rotate_left(23) ^ word, 0xd6e8_feb8_6659_fd93);
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        self.one
    }
}

/// Both halves of the product of both.
fn folded(word: u64, by: u64) -> u64 {
    let product = u128::from(word.wrapping_add(by)) * u128::from(by);
    let [low, high] = [product as u64, (product >> 64) as u64];
    low ^ high.rotate_left(17) ^ word.rotate_left(31)
}

/// Looks at every state that can be reached from `first`, nearest first.
pub(crate) fn explore<S: Hash, L: Clone + Display>(
    first: S,
    most: usize,
    next: impl Fn(&S) -> Vec<Next<S, L>>,
    is_end: impl Fn(&S) -> bool,
) -> Found {
    let mut seen = Seen { parents: Vec::new(), known: HashMap::new() };
    let mut calm: Vec<(u32, u32)> = Vec::new();
    let mut ends: Vec<u32> = Vec::new();
    let mut steps = 0;
    let (number, _) = seen.note(&first, 0, None);
    let mut layer = vec![(number, first)];
    while !layer.is_empty() {
        let mut following = Vec::new();
        for (number, state) in layer {
            if is_end(&state) {
                ends.push(number);
            }
            for step in next(&state) {
                steps += 1;
                match step.state {
                    Err(what) => {
                        let trace = seen.trace(number, Some(&step.label));
                        return Found::Wrong { what, trace, states: seen.parents.len() };
                    }
                    Ok(state) => {
                        let (to, is_new) = seen.note(&state, number, Some(step.label));
                        if !step.disturbs {
                            calm.push((to, number));
                        }
                        if is_new {
                            following.push((to, state));
                        }
                    }
                }
            }
        }
        if seen.parents.len() > most {
            return Found::TooMany { states: seen.parents.len() };
        }
        layer = following;
    }
    let states = seen.parents.len();
    match without_end(states, calm, &ends) {
        None => Found::Nothing { states, steps, ends: ends.len() },
        Some(number) => {
            let what = "nothing that may still happen by itself leads to an end".to_owned();
            Found::Wrong { what, trace: seen.trace(number, None), states }
        }
    }
}

/// The first state from which no end can be reached.
fn without_end(states: usize, mut calm: Vec<(u32, u32)>, ends: &[u32]) -> Option<u32> {
    calm.sort_unstable();
    let mut reaches = vec![false; states];
    let mut open = ends.to_vec();
    for end in ends {
        reaches[*end as usize] = true;
    }
    while let Some(at) = open.pop() {
        let first = calm.partition_point(|(to, _)| *to < at);
        for (_, from) in calm[first..].iter().take_while(|(to, _)| *to == at) {
            if !std::mem::replace(&mut reaches[*from as usize], true) {
                open.push(*from);
            }
        }
    }
    reaches.iter().position(|reaches| !reaches).map(|number| u32::try_from(number).unwrap())
}
