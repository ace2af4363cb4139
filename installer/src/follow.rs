//! Follows a plan to its end.
//!
//! In: a plan's id. Out: what is waited for as it comes and how long it took, and at the end the plan, or why it did
//! not come true. Not here: carrying it out, which is the controller's.

pub(crate) mod watch;

use std::time::Duration;

use mesh_protocol::handover::{HandoverReport, State};
use mesh_protocol::id::{PlanId, ResourceKind};
use mesh_protocol::plan::{Change, FailureOutcome, Plan, PlanFailure, PlanState};
use mesh_protocol::verb::{PlanRequest, StatusAnswer, Verb};
use tokio::time::Instant;

use self::watch::Watch;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::session::{Nothing, Session};

/// How often a plan is looked at: often enough that nobody waits for us, seldom enough that nobody notices.
const POLL: Duration = Duration::from_millis(50);

/// How long what is left of the old one is waited for once the plan has ended: its grace, and some more.
const REMOVAL_LIMIT: Duration = Duration::from_secs(20);

/// Whether to wait for a plan's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// No.
    Detached,
    /// For this long at most.
    AtMost(Duration),
}

/// Waits until a plan has ended, and says how it goes.
///
/// # Errors
/// When it fails, is given up, or is still open after `limit`.
pub async fn follow(session: &Session, plan: &PlanId, limit: Duration, printer: &Printer) -> Result<Plan> {
    let mut current: Option<Plan> = None;
    let watching = async {
        let mut watch = Watch::new(printer.now());
        let mut shown = None;
        let began = Instant::now();
        loop {
            let found: Plan = session.ask(Verb::Plan, &PlanRequest { plan: plan.clone() }).await?;
            let handover = if changes_hands(&found) { handover_of(session, &found).await } else { None };
            for event in watch.see(&found, handover.as_ref(), began.elapsed()) {
                printer.event(&event);
            }
            if shown.as_ref() != Some(&found.state) {
                shown = Some(found.state.clone());
                show(&found, printer);
            }
            if found.state.is_ended() {
                return Ok(found);
            }
            current = Some(found);
            tokio::time::sleep(POLL).await;
        }
    };
    let ended: Result<Plan> = match tokio::time::timeout(limit, watching).await {
        Ok(ended) => ended,
        Err(_) => return Err(still_open(plan, current.as_ref(), limit)),
    };
    let ended = ended?;
    match &ended.state {
        PlanState::Failed { failures, .. } => {
            let status = session.ask(Verb::Status, &Nothing {}).await.ok();
            Err(failed(&ended, failures, status.as_ref()))
        }
        PlanState::Aborted { .. } => Err(given_up(plan)),
        _ => Ok(ended),
    }
}

/// Whether a seat may change hands in a plan: it is to, or what was handed back is tried once more.
#[must_use]
pub fn changes_hands(plan: &Plan) -> bool {
    let mut changes = plan.changes.iter().flat_map(|node| &node.resources);
    changes.any(|resource| match resource.change {
        Change::HandOver { .. } => true,
        Change::Retry => resource.id.kind() == ResourceKind::Process,
        _ => false,
    })
}

/// The handover that a plan asked for, as far as it is reported. One that cannot be had now is had at the next look.
pub async fn handover_of(session: &Session, plan: &Plan) -> Option<HandoverReport> {
    let status: StatusAnswer = session.ask(Verb::Status, &Nothing {}).await.ok()?;
    let target = plan.targets.values().min()?;
    // One that is tried once more keeps the generation that it had at first.
    let is_its = |handover: &HandoverReport| handover.generation >= *target || handover.since >= plan.created;
    status.seat.handovers.into_iter().find(is_its)
}

/// Waits until the old one is gone, or the host says that it goes on without. Its last report, where there is one.
pub async fn removal(session: &Session, plan: &Plan, printer: &Printer) -> Option<HandoverReport> {
    let step = plan.action.module().to_string();
    let mut watch = Watch::new(printer.now());
    let began = Instant::now();
    let mut last = None;
    while began.elapsed() < REMOVAL_LIMIT {
        last = handover_of(session, plan).await.or(last);
        let open = last
            .as_ref()
            .filter(|handover| handover.state == State::Removing && handover.cleanup_pending.is_none());
        let mut events = Vec::new();
        let text = open.map(|handover| format!("the end and removal of {}", handover.old.resource));
        watch.see_wait(text.as_deref(), &step, began.elapsed(), &mut events);
        events.iter().for_each(|event| printer.event(event));
        if open.is_none() {
            break;
        }
        tokio::time::sleep(POLL).await;
    }
    last
}

/// Says how a plan stands.
pub fn show(plan: &Plan, printer: &Printer) {
    let event = Event::Plan {
        plan: plan.id.clone(),
        module: plan.action.module().clone(),
        state: plan.state.clone(),
    };
    printer.event(&event);
}

/// How to follow a plan that goes on by itself.
#[must_use]
pub fn how_to_follow(plan: &PlanId) -> String {
    format!(
        "see how it goes: mesh plans {plan}, mesh events --follow; to give it up: mesh plans {plan} --abort"
    )
}

fn given_up(plan: &PlanId) -> Failure {
    Failure::new(Code::PlanAborted, format!("plan {plan} was given up, as somebody asked"))
        .hint("push again where it is wanted after all")
        .part_way()
}

fn still_open(plan: &PlanId, current: Option<&Plan>, limit: Duration) -> Failure {
    let failure =
        Failure::new(Code::PlanStillOpen, format!("plan {plan} is still open, and goes on by itself"))
            .expected(format!("its end within {limit:?}"))
            .hint(how_to_follow(plan));
    match current.map(|plan| &plan.state) {
        Some(PlanState::Open { waiting_for, .. }) => failure.found(format!("it waits for {waiting_for}")),
        _ => failure.found("nobody has begun to carry it out"),
    }
    .part_way()
}

/// What a failed plan is to the person who asked for it.
#[must_use]
pub fn failed(plan: &Plan, failures: &[PlanFailure], status: Option<&StatusAnswer>) -> Failure {
    let handed_back = failures.iter().any(|failure| failure.outcome == FailureOutcome::HandedBack);
    let module = plan.action.module();
    let mut result = if handed_back {
        Failure::new(
            Code::HandedBack,
            format!("{module} was handed back: the one that served before serves on"),
        )
        .hint("see what failed, mend it, and push again; the same once more: push it again, or mesh retry")
    } else {
        Failure::new(Code::PlanFailed, format!("plan {} of {module} failed", plan.id))
            .hint(format!("mend what failed and push again; see mesh nodes and mesh plans {}", plan.id))
    };
    let report = if handed_back { status.and_then(held) } else { None };
    for failure in failures {
        let resource = failure.resource.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
        // The host's own report has the same, part by part.
        if report.is_none() || failure.outcome != FailureOutcome::HandedBack {
            result = result.details([format!("{}{resource}: {}", failure.node, failure.error)]);
        }
    }
    match report {
        Some(report) => result.details(report.failure_lines()),
        None => result,
    }
}

fn held(status: &StatusAnswer) -> Option<&HandoverReport> {
    status.seat.handovers.iter().find(|report| report.is_handed_back())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use jiff::Timestamp;
    use mesh_protocol::handover::{Reason, Side};
    use mesh_protocol::id::{Digest, Generation};
    use mesh_protocol::plan::Action;

    pub(crate) fn plan(failures: Vec<PlanFailure>) -> Plan {
        Plan {
            format: 1,
            id: "p1".parse().unwrap(),
            action: Action::Assign {
                module: "mesh-controller".parse().unwrap(),
                node: "n1".parse().unwrap(),
            },
            created: Timestamp::UNIX_EPOCH,
            by: "c-1".parse().unwrap(),
            changes: Vec::new(),
            remarks: Vec::new(),
            state: PlanState::Failed { at: Timestamp::UNIX_EPOCH, failures },
            targets: std::collections::BTreeMap::new(),
            abort_asked: false,
            token: None,
        }
    }

    fn failure(outcome: FailureOutcome) -> PlanFailure {
        PlanFailure {
            node: "n1".parse().unwrap(),
            resource: Some("process:mesh-controller".parse().unwrap()),
            outcome,
            error: "it exited with status 7".to_owned(),
        }
    }

    #[test]
    fn a_seat_that_was_handed_back_has_an_exit_status_of_its_own() {
        let failures = vec![failure(FailureOutcome::HandedBack)];
        let found = failed(&plan(failures.clone()), &failures, None);
        assert_eq!(found.exit() as i32, 4);
        let failures = vec![failure(FailureOutcome::Failed)];
        assert_eq!(failed(&plan(failures.clone()), &failures, None).exit() as i32, 1);
        assert_eq!(failed(&plan(failures.clone()), &failures, None).code, Code::PlanFailed);
    }

    #[test]
    fn a_plan_that_has_no_end_yet_and_one_that_was_given_up_are_not_failed() {
        let open = PlanState::Open { waiting_for: "n1: bundle:x".to_owned(), since: Timestamp::UNIX_EPOCH };
        let current = Plan { state: open, ..plan(Vec::new()) };
        let found = still_open(&current.id, Some(&current), Duration::from_secs(1));
        assert_eq!((found.code, found.exit() as i32), (Code::PlanStillOpen, 3));
        assert_eq!(found.found.as_deref(), Some("it waits for n1: bundle:x"));
        let found = given_up(&current.id);
        assert_eq!((found.code, found.exit() as i32), (Code::PlanAborted, 3));
    }

    pub(crate) fn handover(state: State) -> HandoverReport {
        let side = |resource: &str| Side {
            resource: resource.parse().unwrap(),
            spec: Digest::of(b""),
            instance: None,
        };
        HandoverReport {
            seat: "mesh-controller".parse().unwrap(),
            state,
            since: Timestamp::UNIX_EPOCH,
            old: side("container:mesh-controller"),
            new: side("process:mesh-controller"),
            generation: Generation(2),
            waiting_for: None,
            checks_passed: 1,
            failed_at: None,
            reason: None,
            log_tail: Vec::new(),
            next_try: None,
            tries: 1,
            cleanup_pending: None,
            passed: Vec::new(),
        }
    }

    #[test]
    fn the_check_the_reason_how_to_go_on_and_the_log_are_told() {
        let mut report = handover(State::Held);
        report.failed_at = Some("the second check".to_owned());
        report.reason = Some(Reason::Exited { code: 7 });
        report.log_tail = vec!["oh no".to_owned()];
        insta::assert_snapshot!(report.failure_lines().join("\n"), @r"
        failed at: the second check (1 of 2 checks passed)
        reason: it exited with status 7
        next: it is not tried again by itself: push a mended version, or try the same once more with mesh retry process:mesh-controller
        the last lines of process:mesh-controller:
          oh no
        ");
        report.reason = Some(Reason::Surroundings { detail: "the bus was away".to_owned() });
        report.next_try = Some(Timestamp::UNIX_EPOCH);
        insta::assert_snapshot!(report.how_to_go_on().unwrap(), @"it is tried again by itself at 1970-01-01T00:00:00Z, after one try so far");
        report.next_try = None;
        report.tries = 5;
        insta::assert_snapshot!(report.how_to_go_on().unwrap(), @"it is not tried again by itself, after 5 tries: mend the surroundings, then mesh retry process:mesh-controller");
    }
}
