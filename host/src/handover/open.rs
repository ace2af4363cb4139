//! When a handover begins, and when the record of an earlier one is history.
//!
//! In: the seat's holder, what is declared for the seat, the record. Out: what to do with the record. Pure.

use mesh_protocol::declaration::ModuleSection;
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::handover::State;
use mesh_protocol::id::{Generation, ResourceId};

use super::decide::Now;
use super::record::{FORMAT, Newcomer, Record};

/// What to do about a seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// A handover begins: this is its record.
    Begin(Box<Record>),
    /// The handover of the record goes on (or stays held).
    GoOn,
    /// The declared one holds the seat, or nothing is declared for it: no handover.
    Nothing,
    /// Nobody holds the seat: the declared one is simply started.
    Start,
    /// What is declared cannot take the seat, for a reason that the controller should have seen.
    Impossible(String),
}

/// What to do about the seat that `section` declares in declaration `generation`.
#[must_use]
pub fn open(
    holder: Option<&LedgerEntry>,
    section: &ModuleSection,
    generation: Generation,
    record: Option<&Record>,
    now: &Now,
) -> Opening {
    let (Some(seat), Some(id)) = (&section.seat, section.seat_holder()) else { return Opening::Nothing };
    let Some(digest) = section.spec_digest(&id) else { return Opening::Nothing };
    if record.is_some_and(Record::is_open) {
        return Opening::GoOn;
    }
    let Some(holder) = holder else { return Opening::Start };
    if holder.id == id && holder.digest == digest {
        return Opening::Nothing;
    }
    let held = record.is_some_and(|record| {
        record.state == State::Held && record.new.id == id && record.new.digest == digest
    });
    if held {
        return Opening::GoOn;
    }
    if id != holder.id && section.replaces(&id) != Some(&holder.id) {
        return Opening::Impossible(format!(
            "{id} neither is nor replaces {}, the present holder",
            holder.id
        ));
    }
    if id.kind() != mesh_protocol::id::ResourceKind::Process {
        return Opening::Impossible(format!("{id} is no process, and only a process takes a seat over"));
    }
    Opening::Begin(Box::new(Record {
        format: FORMAT,
        seat: seat.clone(),
        state: State::Planned,
        since: now.wall,
        boot_id: now.boot_id.clone(),
        generation,
        revision: section.revision,
        old: holder.clone(),
        new: newcomer(id, digest, section),
        tries: 1,
        surroundings: 0,
        failure: None,
        next_try: None,
        old_ended: false,
    }))
}

fn newcomer(id: ResourceId, digest: mesh_protocol::id::Digest, section: &ModuleSection) -> Newcomer {
    Newcomer { id, digest, section: section.clone(), instance: None, program: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container_section, held, process_section};
    use jiff::Timestamp;
    use mesh_protocol::door::Standing;
    use std::time::Duration;

    const GENERATION: Generation = Generation(7);

    fn now() -> Now {
        Now { running: Duration::ZERO, wall: Timestamp::UNIX_EPOCH, boot_id: "boot".to_owned() }
    }

    fn begun(holder: &LedgerEntry, section: &ModuleSection) -> Record {
        match open(Some(holder), section, GENERATION, None, &now()) {
            Opening::Begin(record) => *record,
            other => panic!("expected a handover, found {other:?}"),
        }
    }

    #[test]
    fn a_process_that_replaces_the_holder_begins_a_handover_that_pins_it() {
        let holder = held(&container_section("mesh-controller"), Standing::Adopted);
        let record = begun(&holder, &process_section("--a", Some("container:mesh-controller")));
        assert_eq!((record.state, record.generation, record.tries), (State::Planned, GENERATION, 1));
        assert_eq!((&record.old, record.new.id.to_string().as_str()), (&holder, "process:mesh-controller"));
        assert_eq!(record.new.instance, None);
    }

    #[test]
    fn another_version_of_the_holder_begins_one_without_any_word_of_it() {
        let holder = held(&process_section("--a", None), Standing::Declared);
        let record = begun(&holder, &process_section("--b", None));
        assert_eq!(record.old.id, record.new.id);
        assert_ne!(record.old.digest, record.new.digest);
    }

    #[test]
    fn the_holder_itself_is_left_alone_and_an_empty_seat_is_simply_taken() {
        let section = process_section("--a", Some("container:gone"));
        let holder = held(&section, Standing::Declared);
        assert_eq!(open(Some(&holder), &section, GENERATION, None, &now()), Opening::Nothing);
        assert_eq!(open(None, &section, GENERATION, None, &now()), Opening::Start);
    }

    #[test]
    fn what_was_handed_back_is_not_begun_again_by_itself_and_something_else_is() {
        let holder = held(&process_section("--a", None), Standing::Declared);
        let (bad, good) = (process_section("--bad", None), process_section("--good", None));
        let mut record = begun(&holder, &bad);
        record.state = State::Held;
        assert_eq!(open(Some(&holder), &bad, GENERATION, Some(&record), &now()), Opening::GoOn);
        assert!(matches!(open(Some(&holder), &good, GENERATION, Some(&record), &now()), Opening::Begin(_)));
        record.state = State::Trial;
        assert_eq!(open(Some(&holder), &good, GENERATION, Some(&record), &now()), Opening::GoOn);
    }

    #[test]
    fn while_held_the_old_one_is_the_run_that_serves_now_and_else_the_one_that_was_pinned() {
        let holder = held(&process_section("--a", None), Standing::Declared);
        let later = LedgerEntry { instance: Some("p-9".parse().unwrap()), ..holder.clone() };
        let mut record = begun(&holder, &process_section("--b", None));
        assert_eq!(record.clone().with_holder(Some(&later)).old, holder);
        record.state = State::Held;
        assert_eq!(record.clone().with_holder(Some(&later)).old, later);
        assert_eq!(record.clone().with_holder(None).old, holder);
        let other = LedgerEntry { id: "container:another".parse().unwrap(), ..later };
        assert_eq!(record.with_holder(Some(&other)).old, holder);
    }

    #[test]
    fn what_does_not_replace_the_holder_and_what_is_no_process_cannot_take_the_seat() {
        let holder = held(&container_section("mesh-controller"), Standing::Adopted);
        let stranger = process_section("--a", Some("container:another"));
        assert!(matches!(open(Some(&holder), &stranger, GENERATION, None, &now()), Opening::Impossible(_)));
        let holder = held(&process_section("--a", None), Standing::Declared);
        let mut container = container_section("mesh-controller");
        container.containers[0].replaces = Some(holder.id.clone());
        assert!(matches!(open(Some(&holder), &container, GENERATION, None, &now()), Opening::Impossible(_)));
    }
}
