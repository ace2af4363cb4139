//! The prober's arithmetic.
//!
//! In: one outcome after another, in the order in which they came. Out: [`Figures`]. Not here: asking.

use std::collections::BTreeMap;
use std::time::Duration;

use mesh_protocol::handover::Form;
use mesh_protocol::id::InstanceId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// When it was due, since the prober began: the schedule's time, so that a seat which is slow to answer one
    /// attempt is not asked less often.
    pub due: Duration,
    /// When the answer came, or when it was given up.
    pub ended: Duration,
    /// Who answered, or why nobody did.
    pub answer: Result<Answerer, String>,
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answerer {
    /// As what it runs.
    pub form: Form,
    /// Which.
    pub instance: InstanceId,
}

/// How a seat answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// How often it was asked.
    pub asked: u64,
    /// How often it did not answer in time, or refused.
    pub failed: u64,
    /// Why, and how often.
    pub failures: BTreeMap<String, u64>,
    /// The longest time between two answers, from the first attempt on, in microseconds.
    pub longest_gap_us: u64,
    /// The longest time that one answer took since it was due, in microseconds.
    pub slowest_us: u64,
    /// How many answers came from a container, and how many from a process.
    pub forms: BTreeMap<String, u64>,
    /// How many answers came from each instance.
    pub instances: BTreeMap<String, u64>,
}

/// Counts as outcomes come.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    figures: Figures,
    last_answer: Option<Duration>,
}

impl Tally {
    /// One outcome more.
    pub fn count(&mut self, outcome: &Outcome) {
        let figures = &mut self.figures;
        figures.asked += 1;
        // The time before the first answer counts from the first attempt: a seat that never answers has a gap.
        let last = *self.last_answer.get_or_insert(outcome.due);
        figures.longest_gap_us = figures.longest_gap_us.max(microseconds(outcome.ended.saturating_sub(last)));
        match &outcome.answer {
            Ok(answerer) => {
                self.last_answer = Some(last.max(outcome.ended));
                let took = microseconds(outcome.ended.saturating_sub(outcome.due));
                figures.slowest_us = figures.slowest_us.max(took);
                *figures.forms.entry(answerer.form.as_str().to_owned()).or_default() += 1;
                *figures.instances.entry(answerer.instance.to_string()).or_default() += 1;
            }
            Err(reason) => {
                figures.failed += 1;
                *figures.failures.entry(reason.clone()).or_default() += 1;
            }
        }
    }

    /// The figures so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures.clone()
    }
}

impl Figures {
    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let by = |counts: &BTreeMap<String, u64>| {
            let parts: Vec<String> = counts.iter().map(|(who, count)| format!("{who} {count}")).collect();
            if parts.is_empty() { "nobody".to_owned() } else { parts.join(", ") }
        };
        let mut lines = vec![format!(
            "seat: asked {}, failed {}, longest gap {}, answered by {}",
            self.asked,
            self.failed,
            milliseconds(self.longest_gap_us),
            by(&self.forms)
        )];
        lines.extend(self.failures.iter().map(|(reason, count)| format!("seat: {count} times: {reason}")));
        lines
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn milliseconds(microseconds: u64) -> String {
    format!("{}.{} ms", microseconds / 1000, microseconds % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(due: u64, ended: u64, form: Form) -> Outcome {
        let instance = match form {
            Form::Container => "c-1",
            Form::Process => "p-1",
        };
        let answer = Ok(Answerer { form, instance: instance.parse().unwrap() });
        Outcome { due: Duration::from_millis(due), ended: Duration::from_millis(ended), answer }
    }

    fn failed(due: u64, ended: u64) -> Outcome {
        let answer = Err("timed out".to_owned());
        Outcome { due: Duration::from_millis(due), ended: Duration::from_millis(ended), answer }
    }

    fn figures(outcomes: &[Outcome]) -> Figures {
        let mut tally = Tally::default();
        outcomes.iter().for_each(|outcome| tally.count(outcome));
        tally.figures()
    }

    #[test]
    fn a_gap_is_the_time_between_two_answers_whoever_gave_them() {
        let found = figures(&[
            answered(0, 1, Form::Container),
            answered(5, 6, Form::Container),
            answered(10, 36, Form::Process),
            answered(15, 37, Form::Process),
        ]);
        assert_eq!((found.asked, found.failed, found.longest_gap_us), (4, 0, 30_000));
        assert_eq!(found.slowest_us, 26_000);
        insta::assert_snapshot!(found.lines().join("\n"), @"seat: asked 4, failed 0, longest gap 30.0 ms, answered by container 2, process 2");
    }

    #[test]
    fn an_attempt_that_fails_is_part_of_the_gap() {
        let found =
            figures(&[answered(0, 1, Form::Process), failed(5, 1005), answered(10, 1010, Form::Process)]);
        assert_eq!((found.asked, found.failed, found.longest_gap_us), (3, 1, 1_009_000));
        insta::assert_snapshot!(found.lines().join("\n"), @r"
        seat: asked 3, failed 1, longest gap 1009.0 ms, answered by process 2
        seat: 1 times: timed out
        ");
    }

    #[test]
    fn a_seat_that_never_answers_has_a_gap_as_long_as_the_probe() {
        let found = figures(&[failed(0, 1000), failed(5, 1005)]);
        assert_eq!(found.longest_gap_us, 1_005_000);
        assert!(found.lines()[0].ends_with("answered by nobody"), "{found:?}");
    }

    #[test]
    fn answers_that_come_out_of_order_make_no_gap() {
        let found = figures(&[
            answered(0, 10, Form::Process),
            answered(5, 9, Form::Process),
            answered(10, 12, Form::Process),
        ]);
        assert_eq!(found.longest_gap_us, 10_000);
    }
}
