//! What there is to say of a plan that is looked at again and again: one line for each thing that was waited for, with
//! how long.
//!
//! In: the plan and its handover as they stand, the time. Out: events. Pure. Not here: looking.
//!
//! What is waited for often has a detail in parentheses that changes from look to look (the last error, say): it is
//! the same wait, and its detail is told when it lasts.

use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::handover::{HandoverReport, Passage, State};
use mesh_protocol::plan::{Plan, PlanState};

use crate::output::Event;
use crate::output::event::Stage;

/// After how long a wait is told though it is not over; then again each time as long as the last step.
const LASTS: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)];

/// What was said so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    began: Timestamp,
    wait: Option<Waiting>,
    handover: Option<(State, Option<String>)>,
    /// When the last state of a handover began that was told.
    passed: Option<Timestamp>,
}

#[derive(Debug)]
struct Waiting {
    /// Without its detail.
    what: String,
    since: Duration,
    /// How often it was told while it lasted.
    told: usize,
}

impl Watch {
    /// Looks that begin at this time.
    pub(crate) fn new(began: Timestamp) -> Self {
        Self { began, ..Self::default() }
    }

    /// One look more, at `now` since the first.
    pub(crate) fn see(
        &mut self,
        plan: &Plan,
        handover: Option<&HandoverReport>,
        now: Duration,
    ) -> Vec<Event> {
        let step = plan.action.module().to_string();
        let mut events = Vec::new();
        let open = handover.filter(|handover| is_under_way(handover.state));
        let text = match (&plan.state, open) {
            (PlanState::Stored, _) => Some("a controller to carry it out".to_owned()),
            (PlanState::Open { .. }, Some(handover)) => Some(stands(handover)),
            (PlanState::Open { waiting_for, .. }, None) => Some(waiting_for.clone()),
            _ => None,
        };
        self.see_wait(text.as_deref(), &step, now, &mut events);
        if let Some(handover) = handover {
            events.extend(self.passed_by(handover));
            let place = (handover.state, handover.waiting_for.as_deref().map(kind).map(str::to_owned));
            if self.handover.as_ref() != Some(&place) {
                self.handover = Some(place);
                events.push(Event::Handover { handover: Box::new(handover.clone()) });
            }
        }
        events
    }

    /// The states that a handover passed between two looks: some last for less than that.
    fn passed_by(&mut self, handover: &HandoverReport) -> Vec<Event> {
        let told = std::mem::replace(&mut self.passed, handover.passed.last().map(|passage| passage.at));
        let Some((_, earlier)) = handover.passed.split_last() else { return Vec::new() };
        let Some(told) = told else { return Vec::new() };
        let event = |(place, passage): (usize, &Passage)| Event::Handover {
            handover: Box::new(HandoverReport {
                state: passage.state,
                since: passage.at,
                waiting_for: None,
                passed: handover.passed[..=place].to_vec(),
                ..handover.clone()
            }),
        };
        earlier.iter().enumerate().filter(|(_, passage)| passage.at > told).map(event).collect()
    }

    /// Nothing is waited for any more, or something of which there is no plan.
    pub(crate) fn see_wait(
        &mut self,
        text: Option<&str>,
        step: &str,
        now: Duration,
        events: &mut Vec<Event>,
    ) {
        let began = self.began;
        let event = |waiting_for: &str, stage, since: Duration| Event::Waiting {
            step: step.to_owned(),
            waiting_for: waiting_for.to_owned(),
            since: began.checked_add(since).unwrap_or(began),
            stage,
            milliseconds: u64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(u64::MAX),
        };
        let goes_on = match (&self.wait, text) {
            (Some(wait), Some(text)) => wait.what == kind(text),
            _ => false,
        };
        if !goes_on {
            if let Some(over) = self.wait.take() {
                events.push(event(&over.what, Stage::Over, over.since));
            }
            if let Some(text) = text {
                events.push(event(text, Stage::Begun, now));
                self.wait = Some(Waiting { what: kind(text).to_owned(), since: now, told: 0 });
            }
            return;
        }
        if let (Some(wait), Some(text)) = (&mut self.wait, text)
            && now.saturating_sub(wait.since) >= due(wait.told)
        {
            wait.told += 1;
            events.push(event(text, Stage::Lasting, wait.since));
        }
    }
}

/// A handover that is under way, in words.
pub(crate) fn stands(handover: &HandoverReport) -> String {
    let state = handover.state.as_str();
    match &handover.waiting_for {
        Some(what) => format!("handover {state}: {what}"),
        None => format!("handover {state}"),
    }
}

const fn is_under_way(state: State) -> bool {
    !matches!(state, State::Done | State::Held)
}

fn kind(text: &str) -> &str {
    text.split_once(" (").map_or(text, |(what, _)| what)
}

/// When a wait that was told so often is told again, since its begin.
fn due(told: usize) -> Duration {
    let last = LASTS[LASTS.len() - 1];
    match LASTS.get(told) {
        Some(at) => *at,
        None => last + last * u32::try_from(told + 1 - LASTS.len()).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{handover, plan};
    use super::*;
    use crate::output::lines;

    fn open(waiting_for: &str) -> Plan {
        let waiting_for = waiting_for.to_owned();
        Plan { state: PlanState::Open { waiting_for, since: Timestamp::UNIX_EPOCH }, ..plan(Vec::new()) }
    }

    fn said(events: &[Event]) -> Vec<String> {
        events.iter().flat_map(lines::of).collect()
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn each_wait_is_one_line_with_its_time() {
        let mut watch = Watch::default();
        let mut all = Vec::new();
        for (at, what) in [
            (0, "n1: its host to take generation 4"),
            (50, "n1: its host to take generation 4"),
            (100, "n1: bundle:x: its turn (no answer)"),
            (150, "n1: bundle:x: its turn (another error)"),
            (350, "n1: process:x"),
        ] {
            all.extend(watch.see(&open(what), None, ms(at)));
        }
        let done = Plan { state: PlanState::Done { at: Timestamp::UNIX_EPOCH }, ..plan(Vec::new()) };
        all.extend(watch.see(&done, None, ms(400)));
        assert_eq!(
            said(&all),
            [
                "mesh-controller n1: its host to take generation 4 (0.10 s)",
                "mesh-controller n1: bundle:x: its turn (0.25 s)",
                "mesh-controller n1: process:x (0.05 s)",
            ]
        );
    }

    #[test]
    fn what_lasts_is_told_while_it_does() {
        let mut watch = Watch::default();
        let mut all = Vec::new();
        for second in 0..100 {
            all.extend(watch.see(&open("n1: bundle:x (the store is away)"), None, ms(second * 1000)));
        }
        assert_eq!(
            said(&all),
            [2, 10, 30, 60, 90].map(|second| format!(
                "mesh-controller waits for n1: bundle:x (the store is away), for {second}.00 s so far"
            ))
        );
    }

    #[test]
    fn a_state_that_lasted_for_less_than_a_look_is_told_all_the_same() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let passing = |states: &[(State, i64)]| {
            let mut report = handover(states[states.len() - 1].0);
            let passage = |(state, second): &(State, i64)| Passage { state: *state, at: at(*second) };
            report.passed = states.iter().map(passage).collect();
            report
        };
        let looks = [
            passing(&[(State::Planned, 1), (State::Done, 2)]),
            passing(&[(State::Planned, 5), (State::Trial, 6)]),
            passing(&[(State::Planned, 5), (State::Trial, 6), (State::Joined, 7), (State::Alone, 8)]),
        ];
        let mut watch = Watch::default();
        let all: Vec<Event> =
            looks.iter().flat_map(|look| watch.see(&open("n1"), Some(look), ms(0))).collect();
        let told: Vec<(State, usize)> = all
            .iter()
            .filter_map(|event| match event {
                Event::Handover { handover } => Some((handover.state, handover.passed.len())),
                _ => None,
            })
            .collect();
        assert_eq!(
            told,
            [(State::Done, 2), (State::Planned, 1), (State::Trial, 2), (State::Joined, 3), (State::Alone, 4)]
        );
    }

    #[test]
    fn a_handover_says_itself_what_it_waits_for() {
        let mut watch = Watch::default();
        let mut trial = handover(State::Trial);
        trial.waiting_for = Some("check 1 of 2".to_owned());
        let mut all = watch.see(&open("n1: handover planned"), Some(&trial), ms(0));
        let mut joined = handover(State::Joined);
        joined.waiting_for = Some("its word that it serves".to_owned());
        all.extend(watch.see(&open("n1: handover trial: check 1 of 2"), Some(&joined), ms(300)));
        all.extend(watch.see(&open("n1: handover trial: check 1 of 2"), Some(&joined), ms(350)));
        assert_eq!(said(&all), ["mesh-controller handover trial: check 1 of 2 (0.30 s)"]);
        let states: Vec<State> = all
            .iter()
            .filter_map(|event| match event {
                Event::Handover { handover } => Some(handover.state),
                _ => None,
            })
            .collect();
        assert_eq!(states, [State::Trial, State::Joined]);
    }
}
