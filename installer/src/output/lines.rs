//! Events as plain lines.
//!
//! In: events. Out: lines without colour, the step first. Not here: where they go.

use std::time::Duration;

use mesh_protocol::event::What;
use mesh_protocol::plan::PlanState;

use super::amount;
use super::event::{Event, Stage};

/// An event as people read it.
#[must_use]
pub fn of(event: &Event) -> Vec<String> {
    match event {
        Event::Command { words, .. } => vec![words.join(" ")],
        Event::Begun { step, goal } => vec![row(step, goal)],
        Event::Skipped { step, why } => vec![row(step, &format!("already: {why}"))],
        Event::Effect { step, what } => vec![row(step, what)],
        Event::WouldDo { step, what } => vec![row(step, &format!("would {what}"))],
        Event::Note { step, text } => vec![row(step, text)],
        Event::Bytes { step, .. } => vec![row(step, &transfer(event).unwrap_or_default())],
        Event::Done { step, text, milliseconds } => {
            vec![row(step, &format!("{text} ({})", seconds(*milliseconds)))]
        }
        Event::Failed { failure } => failure.lines(),
        Event::Warning { text } => vec![format!("warning: {text}")],
        Event::Waiting { step, waiting_for, stage, milliseconds, .. } => match stage {
            // Most are over before anybody could read of them.
            Stage::Begun => Vec::new(),
            Stage::Lasting => {
                let so_far = seconds(*milliseconds);
                vec![row(step, &format!("waits for {waiting_for}, for {so_far} so far"))]
            }
            Stage::Over => vec![row(step, &format!("{waiting_for} ({})", seconds(*milliseconds)))],
        },
        // Its states are what is waited for.
        Event::Handover { .. } => Vec::new(),
        Event::Plan { plan, module, state } => plan_lines(plan.as_str(), module.as_str(), state),
        Event::Mesh { mesh_event, .. } => mesh_lines(&mesh_event.what),
        Event::Availability { figures: None } => vec!["seat: not asked, nobody holds it yet".to_owned()],
        Event::Availability { figures: Some(figures) } => figures.lines(),
        Event::Times { steps, total } => {
            let mut parts: Vec<String> =
                steps.iter().map(|time| format!("{} {}", time.step, seconds(time.milliseconds))).collect();
            parts.push(format!("in all {}", seconds(*total)));
            vec![format!("time: {}", parts.join(", "))]
        }
        Event::Finished { text } => vec![text.clone()],
    }
}

/// `sent 12.3 MB of 57.0 MB, 34.5 MB/s, 2 s left`; none of what is no transfer.
#[must_use]
pub fn transfer(event: &Event) -> Option<String> {
    let Event::Bytes { what, done, total, rate, left_ms, .. } = event else { return None };
    let mut text = format!("{what} {}", amount::bytes(*done));
    if let Some(total) = total.filter(|total| total != done) {
        text.push_str(&format!(" of {}", amount::bytes(total)));
    }
    if let Some(rate) = rate {
        text.push_str(&format!(", {}/s", amount::bytes(*rate)));
    }
    if let Some(left) = left_ms.filter(|_| total.is_some_and(|total| total > *done)) {
        text.push_str(&format!(", {} left", amount::about(Duration::from_millis(left))));
    }
    Some(text)
}

/// The step first, so that lines stand below each other.
#[must_use]
pub fn row(step: &str, text: &str) -> String {
    format!("{step:<10} {text}")
}

/// `0.42 s`
#[must_use]
pub fn seconds(milliseconds: u64) -> String {
    format!("{}.{:02} s", milliseconds / 1000, milliseconds % 1000 / 10)
}

fn plan_lines(plan: &str, module: &str, state: &PlanState) -> Vec<String> {
    let line = |text: &str| row(module, text);
    match state {
        PlanState::Stored => vec![line(&format!("plan {plan} stored"))],
        // What it waits for is told with how long it did.
        PlanState::Open { .. } => Vec::new(),
        PlanState::Done { .. } => vec![line("done")],
        PlanState::Aborted { .. } => vec![line("aborted")],
        PlanState::Failed { failures, .. } => failures
            .iter()
            .map(|failure| {
                let resource = failure.resource.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
                line(&format!("failed on {}{resource}: {}", failure.node, failure.error))
            })
            .collect(),
    }
}

fn mesh_lines(what: &What) -> Vec<String> {
    vec![what.line()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::event::StepTime;

    #[test]
    fn a_step_stands_first() {
        let event = Event::Done {
            step: "pivot".to_owned(),
            text: "the controller answers".to_owned(),
            milliseconds: 1234,
        };
        assert_eq!(of(&event), ["pivot      the controller answers (1.23 s)"]);
    }

    #[test]
    fn a_transfer_has_what_is_known_of_it() {
        let bytes = |done, total, rate, left_ms| Event::Bytes {
            step: "prog".to_owned(),
            what: "sent".to_owned(),
            done,
            total,
            rate,
            left_ms,
        };
        let lines = |event| of(&event);
        let known = bytes(12_300_000, Some(57_000_000), Some(34_500_000), Some(1300));
        assert_eq!(lines(known), ["prog       sent 12.3 MB of 57.0 MB, 34.5 MB/s, 2 s left"]);
        assert_eq!(lines(bytes(900, None, None, None)), ["prog       sent 900 B"]);
        let whole = bytes(1000, Some(1000), Some(2000), Some(0));
        assert_eq!(lines(whole), ["prog       sent 1.0 kB, 2.0 kB/s"]);
    }

    #[test]
    fn times_are_one_line() {
        let event = Event::Times {
            steps: vec![StepTime { step: "pivot".to_owned(), milliseconds: 1200 }],
            total: 4005,
        };
        assert_eq!(of(&event), ["time: pivot 1.20 s, in all 4.00 s"]);
    }
}
