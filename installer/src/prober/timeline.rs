//! Who answered when: the prober's outcomes, counted in bins of equal width.
//!
//! In: one outcome after another. Out: a [`Timeline`] whose size is bounded however long it gets: when it is full its
//! bins become twice as wide. Not here: drawing it.

use std::time::Duration;

use mesh_protocol::handover::Form;
use mesh_protocol::id::InstanceId;
use serde::{Deserialize, Serialize};

use super::figures::Outcome;

/// The width of a bin at first, in milliseconds: at 200 attempts a second two fall into each.
const BIN_MS: u64 = 10;

/// How many bins there are at most: five minutes of the narrowest, some hundred kilobytes of text.
const MOST_BINS: usize = 30_000;

/// How many instances have a lane: two take part in a handover, and one that dies and comes again is another.
const MOST_LANES: usize = 16;

/// Who answered when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The width of a bin, in milliseconds.
    pub bin_ms: u64,
    /// One for each instance that answered, in the order of their first answers.
    pub lanes: Vec<Lane>,
    /// How many attempts failed, by the bin in which they were due.
    pub failed: Vec<u32>,
}

/// The answers of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Which.
    pub instance: InstanceId,
    /// As what it runs.
    pub form: Form,
    /// How many answers came, by the bin in which they did.
    pub answers: Vec<u32>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { bin_ms: BIN_MS, lanes: Vec::new(), failed: Vec::new() }
    }
}

impl Timeline {
    /// One outcome more.
    pub fn count(&mut self, outcome: &Outcome) {
        let at = if outcome.answer.is_ok() { outcome.ended } else { outcome.due };
        let bin = loop {
            let bin = self.bin(at);
            if bin < MOST_BINS {
                break bin;
            }
            self.widen();
        };
        let bins = match &outcome.answer {
            Err(_) => Some(&mut self.failed),
            Ok(answerer) => {
                let place = self.lanes.iter().position(|lane| lane.instance == answerer.instance);
                if place.is_none() && self.lanes.len() < MOST_LANES {
                    let (instance, form) = (answerer.instance.clone(), answerer.form);
                    self.lanes.push(Lane { instance, form, answers: Vec::new() });
                }
                let place = place.unwrap_or(self.lanes.len() - 1);
                self.lanes
                    .get_mut(place)
                    .filter(|lane| lane.instance == answerer.instance)
                    .map(|lane| &mut lane.answers)
            }
        };
        if let Some(bins) = bins {
            if bins.len() <= bin {
                bins.resize(bin + 1, 0);
            }
            bins[bin] += 1;
        }
    }

    /// What lies between two moments, counted from the first of them; and that moment's exact place, in
    /// milliseconds since the prober began.
    #[must_use]
    pub fn between(&self, from: Duration, to: Duration) -> (Self, u64) {
        let (first, last) = (self.bin(from), self.bin(to).saturating_add(1));
        let cut = |bins: &[u32]| bins.get(first..last.min(bins.len())).unwrap_or_default().to_vec();
        let lane = |lane: &Lane| Lane { answers: cut(&lane.answers), ..lane.clone() };
        let lanes = self.lanes.iter().map(lane).filter(|lane| lane.answers.iter().any(|count| *count > 0));
        let cut_out = Self { bin_ms: self.bin_ms, lanes: lanes.collect(), failed: cut(&self.failed) };
        (cut_out, u64::try_from(first).unwrap_or_default() * self.bin_ms)
    }

    /// How many bins there are.
    #[must_use]
    pub fn bins(&self) -> usize {
        self.lanes.iter().map(|lane| lane.answers.len()).max().unwrap_or(0).max(self.failed.len())
    }

    fn bin(&self, at: Duration) -> usize {
        usize::try_from(at.as_millis() / u128::from(self.bin_ms.max(1))).unwrap_or(usize::MAX)
    }

    fn widen(&mut self) {
        self.bin_ms *= 2;
        let pairs = |bins: &[u32]| bins.chunks(2).map(|pair| pair.iter().sum()).collect::<Vec<u32>>();
        self.failed = pairs(&self.failed);
        for lane in &mut self.lanes {
            lane.answers = pairs(&lane.answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Answerer;
    use super::*;

    fn outcome(due: u64, ended: u64, instance: Option<&str>) -> Outcome {
        let answer = match instance {
            Some(instance) => Ok(Answerer { form: Form::Process, instance: instance.parse().unwrap() }),
            None => Err("timed out".to_owned()),
        };
        Outcome { due: Duration::from_millis(due), ended: Duration::from_millis(ended), answer }
    }

    fn timeline(outcomes: &[Outcome]) -> Timeline {
        let mut timeline = Timeline::default();
        outcomes.iter().for_each(|outcome| timeline.count(outcome));
        timeline
    }

    #[test]
    fn answers_count_when_they_come_and_failures_when_they_were_due() {
        let found = timeline(&[
            outcome(0, 1, Some("c-1")),
            outcome(5, 9, Some("c-1")),
            outcome(15, 1015, None),
            outcome(20, 35, Some("p-1")),
        ]);
        assert_eq!(found.failed, [0, 1]);
        let lanes: Vec<(&str, &[u32])> =
            found.lanes.iter().map(|lane| (lane.instance.as_str(), &lane.answers[..])).collect();
        assert_eq!(lanes, [("c-1", &[2][..]), ("p-1", &[0, 0, 0, 1][..])]);
        assert_eq!(found.bins(), 4);
    }

    #[test]
    fn its_size_is_bounded_and_nothing_is_lost() {
        let hour = 3_600_000;
        let outcomes: Vec<Outcome> =
            (0..hour / 100).map(|n| outcome(n * 100, n * 100 + 1, Some("p-1"))).collect();
        let found = timeline(&outcomes);
        assert!(found.bins() <= MOST_BINS, "{}", found.bins());
        assert_eq!(found.bin_ms, 160);
        assert_eq!(found.lanes[0].answers.iter().map(|count| u64::from(*count)).sum::<u64>(), hour / 100);
        let many: Vec<Outcome> = (0..100).map(|n| outcome(n, n, Some(&format!("p-{n}")))).collect();
        assert_eq!(timeline(&many).lanes.len(), MOST_LANES);
    }

    #[test]
    fn a_part_of_it_begins_at_its_first_moment() {
        let outcomes: Vec<Outcome> = (0..100).map(|n| outcome(n * 10, n * 10 + 1, Some("p-1"))).collect();
        let (found, from) =
            timeline(&outcomes).between(Duration::from_millis(205), Duration::from_millis(295));
        assert_eq!((from, found.bins()), (200, 10));
        let (nothing, _) = timeline(&outcomes).between(Duration::from_secs(5), Duration::from_secs(6));
        assert_eq!(nothing.lanes, []);
    }
}
