//! Which steps of genesis are to be done: decided from what was seen, and from nothing else.
//!
//! In: [`Seen`]. Out: for every step, whether it is done, and if not, why not. Not here: looking and doing.
//!
//! Later goals supersede earlier ones. Above all: a mesh whose controller is or was a process has every goal but the
//! last behind it, whatever else is broken; no step that raises a container is ever done on it.

use mesh_protocol::handover::{Form, State};
use mesh_protocol::id::{PlanId, ResourceId, ResourceKind, SeatName};

use super::parts::HostSeen;
use super::step::Step;

/// What was seen of a mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// What became of the controller.
    pub controller: Controller,
    /// Who answers its seat.
    pub seat: Option<Form>,
    /// A plan for the controller's module that has not ended.
    pub open_plan: Option<PlanId>,
}

/// What became of the controller on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Controller {
    /// The host never held one, or there is no host.
    #[default]
    None,
    /// The host holds the container.
    Container,
    /// It is a process, or was one when it was last seen.
    Process,
}

/// Whether a step is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It looks, and acts where its goal does not hold.
    Do,
    /// A later goal holds.
    Superseded {
        /// As it was seen.
        why: &'static str,
    },
    /// It was said to stop before.
    NotAsked,
}

/// What the host's own record says became of the controller. `container` is the resource that genesis raises.
#[must_use]
pub fn controller_of(seen: &HostSeen, container: &ResourceId, seat: &SeatName) -> Controller {
    let handed_over = seen
        .handovers
        .iter()
        .any(|report| &report.seat == seat && matches!(report.state, State::Removing | State::Done));
    let removed = seen.tombstones.iter().any(|tombstone| &tombstone.id == container);
    let holds = |kind: ResourceKind| {
        seen.ledger.iter().any(|entry| entry.id.kind() == kind && entry.section.seat.as_ref() == Some(seat))
    };
    match (handed_over || removed, holds(ResourceKind::Container), holds(ResourceKind::Process)) {
        (true, _, _) | (false, false, true) => Controller::Process,
        (false, true, _) => Controller::Container,
        (false, false, false) => Controller::None,
    }
}

/// Every step with its decision.
#[must_use]
pub fn plan(seen: &Seen, until: Step) -> Vec<(Step, Decision)> {
    let (first, why) = first(seen);
    let decide = |step: Step| match step {
        step if step > until => Decision::NotAsked,
        step if step >= first || is_needed(step, first) => Decision::Do,
        _ => Decision::Superseded { why },
    };
    Step::ALL.into_iter().map(|step| (step, decide(step))).collect()
}

/// The step behind the last goal that holds.
fn first(seen: &Seen) -> (Step, &'static str) {
    match (seen.controller, seen.seat, &seen.open_plan) {
        (Controller::Process, _, _) | (_, Some(Form::Process), None) => {
            (Step::Verify, "the controller is a process")
        }
        (_, _, Some(_)) => (Step::Handover, "the controller's manifest is pushed, and its plan is open"),
        (_, Some(Form::Container), None) => (Step::Store, "the controller answers as a container"),
        // What was begun is looked at again, step by step: each is quick where its goal holds.
        (Controller::Container | Controller::None, None, None) => (Step::Preflight, "nothing holds yet"),
    }
}

/// The bundle's digest is needed by whoever publishes and pushes it, and packing it again tells it.
fn is_needed(step: Step, first: Step) -> bool {
    step == Step::Bundles && first <= Step::Push
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(seen: &Seen, until: Step) -> Vec<Step> {
        plan(seen, until).into_iter().filter(|(_, d)| *d == Decision::Do).map(|(step, _)| step).collect()
    }

    #[test]
    fn an_empty_machine_gets_every_step() {
        assert_eq!(done(&Seen::default(), Step::Verify), Step::ALL);
        assert_eq!(done(&Seen::default(), Step::Identity), [Step::Preflight, Step::Identity]);
        let last = plan(&Seen::default(), Step::Identity).pop().unwrap();
        assert_eq!(last, (Step::Verify, Decision::NotAsked));
    }

    #[test]
    fn a_container_that_answers_is_gone_on_from() {
        let seen = Seen { controller: Controller::Container, seat: Some(Form::Container), open_plan: None };
        assert_eq!(
            done(&seen, Step::Verify),
            [Step::Bundles, Step::Store, Step::Publish, Step::Push, Step::Handover, Step::Verify]
        );
    }

    #[test]
    fn a_container_that_does_not_answer_is_raised_by_the_steps_that_raise_it() {
        let seen = Seen { controller: Controller::Container, seat: None, open_plan: None };
        assert_eq!(done(&seen, Step::Verify), Step::ALL);
    }

    #[test]
    fn an_open_plan_is_watched() {
        let seen = Seen {
            controller: Controller::Container,
            seat: Some(Form::Process),
            open_plan: Some("p1".parse().unwrap()),
        };
        assert_eq!(done(&seen, Step::Verify), [Step::Handover, Step::Verify]);
    }

    #[test]
    fn nothing_ever_raises_a_container_where_the_controller_is_or_was_a_process() {
        for seat in [None, Some(Form::Container), Some(Form::Process)] {
            for open_plan in [None, Some("p1".parse().unwrap())] {
                let seen = Seen { controller: Controller::Process, seat, open_plan };
                assert_eq!(done(&seen, Step::Verify), [Step::Verify], "{seen:?}");
            }
        }
    }

    mod host {
        use super::*;
        use jiff::Timestamp;
        use mesh_protocol::declaration::ModuleSection;
        use mesh_protocol::door::{LedgerEntry, Standing, Tombstone};
        use mesh_protocol::handover::{HandoverReport, Side};
        use mesh_protocol::id::{Digest, Generation};

        fn id(text: &str) -> ResourceId {
            text.parse().unwrap()
        }

        fn seen(ledger: &[&str]) -> HostSeen {
            let entry = |text: &&str| LedgerEntry {
                id: id(text),
                digest: Digest::of(b""),
                section: ModuleSection {
                    name: "mesh-controller".parse().unwrap(),
                    version: "1".to_owned(),
                    revision: 0,
                    seat: Some("mesh-controller".parse().unwrap()),
                    manifest: String::new(),
                    accounts: Vec::new(),
                    bundles: Vec::new(),
                    files: Vec::new(),
                    processes: Vec::new(),
                    containers: Vec::new(),
                },
                runtime: None,
                instance: None,
                run: None,
                standing: Standing::Declared,
                generation: Generation::FIRST,
            };
            HostSeen { ledger: ledger.iter().map(entry).collect(), ..HostSeen::default() }
        }

        fn handover(state: State) -> HandoverReport {
            let side =
                |resource: &str| Side { resource: id(resource), spec: Digest::of(b""), instance: None };
            HandoverReport {
                seat: "mesh-controller".parse().unwrap(),
                state,
                since: Timestamp::UNIX_EPOCH,
                old: side("container:mesh-controller"),
                new: side("process:mesh-controller"),
                generation: Generation(2),
                waiting_for: None,
                checks_passed: 2,
                failed_at: None,
                reason: None,
                log_tail: Vec::new(),
                next_try: None,
                tries: 1,
                cleanup_pending: None,
                passed: Vec::new(),
            }
        }

        fn controller(seen: &HostSeen) -> Controller {
            let seat = "mesh-controller".parse().unwrap();
            controller_of(seen, &id("container:mesh-controller"), &seat)
        }

        #[test]
        fn the_hosts_record_tells() {
            assert_eq!(controller(&seen(&[])), Controller::None);
            assert_eq!(controller(&seen(&["container:mesh-controller"])), Controller::Container);
            let both = ["container:mesh-controller", "process:mesh-controller"];
            assert_eq!(controller(&seen(&both)), Controller::Container);
            assert_eq!(controller(&seen(&["process:mesh-controller"])), Controller::Process);
        }

        #[test]
        fn a_handover_that_cannot_go_back_is_a_process() {
            let both = ["container:mesh-controller", "process:mesh-controller"];
            for (state, expected) in [
                (State::Trial, Controller::Container),
                (State::Alone, Controller::Container),
                (State::Held, Controller::Container),
                (State::Removing, Controller::Process),
                (State::Done, Controller::Process),
            ] {
                let mut seen = seen(&both);
                seen.handovers.push(handover(state));
                assert_eq!(controller(&seen), expected, "{state:?}");
            }
        }

        #[test]
        fn a_tombstone_outlives_everything() {
            let mut seen = seen(&[]);
            seen.tombstones.push(Tombstone {
                id: id("container:mesh-controller"),
                digest: Digest::of(b""),
                engine_id: None,
                generation: Generation(3),
                time: Timestamp::UNIX_EPOCH,
            });
            assert_eq!(controller(&seen), Controller::Process);
        }
    }
}
