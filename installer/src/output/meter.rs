//! Bytes that go by, told as often as somebody can read of them.
//!
//! In: how many are done, at each portion. Out: events with rate and time left: ten a second where they move a bar, else
//! one a second, and one at the end. Not here: how they look.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mesh_bundles::pace::{Figures, Pace};

use super::Printer;
use super::event::Event;

/// Between two movements of a bar.
const MOVING: Duration = Duration::from_millis(100);
/// Between two lines.
const LINES: Duration = Duration::from_secs(1);

/// One transfer, from its beginning.
#[derive(Debug)]
pub struct Meter {
    printer: Printer,
    step: String,
    what: &'static str,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    rarely: Rarely,
}

/// When something is worth telling.
#[derive(Debug)]
struct Rarely {
    every: Duration,
    last: Instant,
    ended: bool,
}

impl Rarely {
    /// After a while, and once at the end; an end may come twice, and a transfer that was started afresh has another.
    fn is_due(&mut self, now: Instant, is_end: bool) -> bool {
        let due = if is_end { !self.ended } else { now.saturating_duration_since(self.last) >= self.every };
        self.ended = is_end;
        if due {
            self.last = now;
        }
        due
    }
}

impl Meter {
    /// A transfer that begins now.
    #[must_use]
    pub fn new(printer: &Printer, step: impl Into<String>, what: &'static str) -> Self {
        let now = Instant::now();
        let every = if printer.moves() { MOVING } else { LINES };
        let rarely = Rarely { every, last: now, ended: false };
        let state = Mutex::new(State { pace: Pace::new(now, 0), rarely });
        Self { printer: printer.clone(), step: step.into(), what, state }
    }

    /// So many are done, of so many where that is known.
    pub fn told(&self, done: u64, total: Option<u64>) {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Figures { rate, left } = state.pace.at(now, done, total);
        if !state.rarely.is_due(now, total == Some(done)) {
            return;
        }
        drop(state);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a rate is a small number, and none is negative
        let rate = rate.map(|rate| rate.round() as u64);
        let left_ms = left.and_then(|left| u64::try_from(left.as_millis()).ok());
        let (step, what) = (self.step.clone(), self.what.to_owned());
        self.printer.event(&Event::Bytes { step, what, done, total, rate, left_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_a_second_and_once_at_the_end() {
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let mut rarely = Rarely { every: LINES, last: begin, ended: false };
        let told: Vec<u64> = (0..3500).step_by(10).filter(|ms| rarely.is_due(at(*ms), false)).collect();
        assert_eq!(told, [1000, 2000, 3000]);
        assert!(rarely.is_due(at(3500), true));
        assert!(!rarely.is_due(at(3501), true));
        // Started afresh.
        assert!(!rarely.is_due(at(3502), false));
        assert!(rarely.is_due(at(3503), true));
    }
}
