//! What happened, told from two looks at the same thing.
//!
//! In: a host's report as it was, and as it is. Out: events, each with the key by which the same event from two
//! instances of the controller is one. Not here: publishing them, or plans, which tell of themselves.

use std::collections::BTreeMap;

use mesh_protocol::event::What;
use mesh_protocol::handover::HandoverReport;
use mesh_protocol::id::{Digest, ResourceId, SeatName};
use mesh_protocol::report::{Report, ResourceState};

/// Something that happened, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noticed {
    /// What.
    pub what: What,
    /// The same for the same happening, whoever notices it.
    pub key: String,
}

/// What happened between two reports of one node.
#[must_use]
pub fn between(before: &Report, after: &Report) -> Vec<Noticed> {
    let mut noticed = Vec::new();
    let states: BTreeMap<&ResourceId, &ResourceState> =
        before.resources.iter().map(|resource| (&resource.id, &resource.state)).collect();
    for resource in &after.resources {
        if stands_otherwise(states.get(&resource.id).copied(), &resource.state) {
            let what = What::Resource {
                node: after.node.clone(),
                id: resource.id.clone(),
                state: resource.state.clone(),
            };
            noticed.push(keyed(what, after));
        }
    }
    let handovers: BTreeMap<&SeatName, &HandoverReport> =
        before.handovers.iter().map(|handover| (&handover.seat, handover)).collect();
    for handover in &after.handovers {
        if handovers.get(&handover.seat).is_none_or(|last| went_on(last, handover)) {
            let what = What::Handover { node: after.node.clone(), handover: Box::new(handover.clone()) };
            noticed.push(keyed(what, after));
        }
    }
    noticed
}

/// Whether there is something to tell. That a change settled (`changed`, then `converged`) is none.
fn stands_otherwise(before: Option<&ResourceState>, after: &ResourceState) -> bool {
    match before {
        Some(ResourceState::Changed) if *after == ResourceState::Converged => false,
        Some(before) => before != after,
        None => true,
    }
}

fn went_on(before: &HandoverReport, after: &HandoverReport) -> bool {
    let place = |handover: &HandoverReport| {
        (
            handover.state,
            handover.checks_passed,
            handover.since,
            handover.new.instance.clone(),
            handover.tries,
        )
    };
    place(before) != place(after)
}

fn keyed(what: What, report: &Report) -> Noticed {
    // Two instances look at different times, and mostly see the same report: its number keeps apart what came
    // back to where it was.
    let digest = Digest::of_json(&(&what, report.host_started, report.number));
    Noticed { key: format!("{}.{}", what.kind(), digest.short()), what }
}

#[cfg(test)]
mod tests;
