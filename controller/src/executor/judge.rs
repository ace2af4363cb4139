//! Whether what a plan changes on one node came true: what the host reports, held against what was declared.
//!
//! In: the changes, the declaration, the report. Out: done, failed, or what is waited for, in words. Not here:
//! what follows for the plan ([`super::decide`]).
//!
//! Reports lag behind: one that was written before the host took the declaration must prove nothing. So a
//! resource is right only if the declaration was accepted and the thing that is there is the thing declared,
//! and wrong only if the declaration was carried out to its end.

use mesh_protocol::declaration::{Declaration, ModuleSection};
use mesh_protocol::handover::{HandoverReport, State};
use mesh_protocol::id::{Digest, Generation, NodeName, ResourceId};
use mesh_protocol::plan::{Change, FailureOutcome, PlanFailure, ResourceChange};
use mesh_protocol::report::{Report, ResourceReport, ResourceState};

/// How a plan stands on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeOutcome {
    /// Not yet: what is waited for.
    Pending(String),
    /// All that it changes there is true.
    Done,
    /// Something did not come true.
    Failed(Vec<PlanFailure>),
}

/// How one resource stands.
enum ResourceOutcome {
    Right,
    Pending(String),
    Failed(FailureOutcome, String),
}

/// How a plan stands on the node of `declaration`.
#[must_use]
pub fn judge(changes: &[ResourceChange], declaration: &Declaration, report: &Report) -> NodeOutcome {
    let node = &declaration.node;
    let target = declaration.generation;
    if let Err(outcome) = accepted(declaration, report) {
        return outcome;
    }
    let carried_out = report.applied.as_ref().is_some_and(|applied| applied.generation >= target);
    let look = Look { declaration, report, target, carried_out };
    let mut failures = Vec::new();
    let mut pending = None;
    for change in changes {
        match look.at(change) {
            ResourceOutcome::Right => {}
            ResourceOutcome::Pending(what) => {
                pending.get_or_insert(what);
            }
            ResourceOutcome::Failed(outcome, error) => {
                failures.push(failure(node, Some(&change.id), outcome, error));
            }
        }
    }
    let handed_back = failures.iter().any(|failure| failure.outcome == FailureOutcome::HandedBack);
    match pending {
        _ if !failures.is_empty() && (carried_out || handed_back) => NodeOutcome::Failed(failures),
        Some(what) => NodeOutcome::Pending(what),
        None if changes.is_empty() && !carried_out => {
            NodeOutcome::Pending(format!("generation {target} to be carried out"))
        }
        None => NodeOutcome::Done,
    }
}

fn failure(node: &NodeName, id: Option<&ResourceId>, outcome: FailureOutcome, error: String) -> PlanFailure {
    PlanFailure { node: node.clone(), resource: id.cloned(), outcome, error }
}

/// Whether the host took the declaration.
fn accepted(declaration: &Declaration, report: &Report) -> Result<(), NodeOutcome> {
    let target = declaration.generation;
    if report.accepted.as_ref().is_some_and(|accepted| accepted.generation >= target) {
        return Ok(());
    }
    let refused = report
        .refused
        .as_ref()
        .filter(|refused| refused.offered == declaration.issued() && refused.token >= declaration.token);
    Err(match refused {
        Some(refused) => {
            let error = format!("its host refused generation {target}: {}", refused.why);
            NodeOutcome::Failed(vec![failure(&declaration.node, None, FailureOutcome::Failed, error)])
        }
        None => NodeOutcome::Pending(format!("its host to take generation {target}")),
    })
}

struct Look<'a> {
    declaration: &'a Declaration,
    report: &'a Report,
    target: Generation,
    carried_out: bool,
}

impl Look<'_> {
    fn at(&self, change: &ResourceChange) -> ResourceOutcome {
        let id = &change.id;
        let found = self.report.resources.iter().find(|resource| &resource.id == id);
        if change.change == Change::Remove {
            return self.removal(id, found);
        }
        let section = self.declaration.section_of(id);
        let Some(digest) = section.and_then(|section| section.spec_digest(id)) else {
            // Declared when it was planned, and not any more: a recovery came between.
            return ResourceOutcome::Pending(format!("{id} to be declared"));
        };
        let handover = self
            .report
            .handovers
            .iter()
            .find(|handover| &handover.new.resource == id && handover.new.spec == digest);
        if let Some(outcome) = handover.and_then(|handover| self.handover(change, handover, found)) {
            return outcome;
        }
        let holds_seat = section.and_then(ModuleSection::seat_holder).as_ref() == Some(id);
        match found {
            Some(found) if found.state.is_right() => self.right(change, found, &digest),
            Some(ResourceReport { state: ResourceState::Held(why), .. }) if self.carried_out => {
                let back = matches!(change.change, Change::HandOver { .. }) || holds_seat;
                let outcome = if back { FailureOutcome::HandedBack } else { FailureOutcome::Failed };
                ResourceOutcome::Failed(outcome, format!("{id} is held: {why}"))
            }
            Some(ResourceReport { state: ResourceState::Failed(error), .. }) if self.carried_out => {
                ResourceOutcome::Failed(FailureOutcome::Failed, format!("{id} failed: {error}"))
            }
            Some(ResourceReport { state: ResourceState::Waiting(what), .. }) => {
                ResourceOutcome::Pending(format!("{id}: {what}"))
            }
            _ => ResourceOutcome::Pending(id.to_string()),
        }
    }

    fn right(&self, change: &ResourceChange, found: &ResourceReport, digest: &Digest) -> ResourceOutcome {
        let id = &change.id;
        let same = found.digest.as_ref() == Some(digest);
        let right = match change.change {
            Change::TakeOver => found.adopted.is_none(),
            Change::HandOver { .. } => same,
            _ => same || (self.carried_out && found.digest.is_none()),
        };
        if right { ResourceOutcome::Right } else { ResourceOutcome::Pending(id.to_string()) }
    }

    fn removal(&self, id: &ResourceId, found: Option<&ResourceReport>) -> ResourceOutcome {
        match found.map(|found| &found.state) {
            None => ResourceOutcome::Right,
            Some(ResourceState::Held(why) | ResourceState::Failed(why)) if self.carried_out => {
                ResourceOutcome::Failed(FailureOutcome::Failed, format!("{id} did not go: {why}"))
            }
            Some(_) => ResourceOutcome::Pending(format!("{id} to go")),
        }
    }

    /// What the handover to this very spec says; nothing where it is an earlier one's.
    fn handover(
        &self,
        change: &ResourceChange,
        handover: &HandoverReport,
        found: Option<&ResourceReport>,
    ) -> Option<ResourceOutcome> {
        match handover.state {
            State::Removing | State::Done if matches!(change.change, Change::HandOver { .. }) => {
                Some(ResourceOutcome::Right)
            }
            State::Removing | State::Done => None,
            State::Held => Some(match handover.next_try {
                Some(at) => ResourceOutcome::Pending(format!("handover held, next try at {at}")),
                None if handover.generation >= self.target || self.held_now(found) => {
                    ResourceOutcome::Failed(FailureOutcome::HandedBack, handed_back(handover))
                }
                None => ResourceOutcome::Pending("handover, one more try".to_owned()),
            }),
            _ => Some(ResourceOutcome::Pending(describe(handover))),
        }
    }

    /// Held after the declaration was carried out: the hold is not one that the declaration is about to clear.
    fn held_now(&self, found: Option<&ResourceReport>) -> bool {
        self.carried_out && found.is_some_and(|found| matches!(found.state, ResourceState::Held(_)))
    }
}

/// A handover under way, in words.
fn describe(handover: &HandoverReport) -> String {
    let state = handover.state.as_str();
    match &handover.waiting_for {
        Some(what) => format!("handover {state}: {what}"),
        None => format!("handover {state}"),
    }
}

/// A handover that was handed back, in words: which check failed, why, the last lines of the log.
fn handed_back(handover: &HandoverReport) -> String {
    let mut text = format!("{} was handed back to {}", handover.seat, handover.old.resource);
    if let Some(at) = &handover.failed_at {
        text.push_str(&format!(" at {at}"));
    }
    if let Some(reason) = &handover.reason {
        text.push_str(&format!(": {reason}"));
    }
    if !handover.log_tail.is_empty() {
        text.push_str(&format!("; the last lines of its log: {}", handover.log_tail.join(" | ")));
    }
    text
}

#[cfg(test)]
mod tests;
