//! What is done next about one process or container that is not part of a handover: pure.
//!
//! In: what is wanted, what is held, whether it lives. Out: one step; `Nothing` means it is as it shall be. Not
//! here: the step's effect, back-off times (the task keeps them and says whether one is over).

use std::time::Duration;

use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::handover::Reason;
use mesh_protocol::id::Digest;

use crate::handover::seen::{Life, Needs};

/// How long a seat's holder that answered before may be silent. As in a handover.
const SILENCE: Duration = Duration::from_millis(2000);
/// How long one may be silent that ran already when this host began to look, and has not been heard yet. As in a
/// handover.
const UNHEARD: Duration = Duration::from_millis(4000);
/// How long one that this host started may take to its first answer. As in a handover; a controller answers
/// within a tenth of a second here.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// A host that looked at nothing for so long was stopped itself: that is nobody's silence. It looks once a
/// second at the least.
const LOOKED_AWAY: Duration = Duration::from_millis(2500);

/// What is known of the answers of a seat's holder, in times since the host started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hearing {
    /// When its last answer had been asked for.
    pub asked: Option<Duration>,
    /// When this host started it; none where it ran already.
    pub started: Option<Duration>,
    /// Since when the bus is there.
    pub connected: Duration,
    /// Since when this host has been looking without a gap.
    pub looking: Duration,
}

/// Whether a seat's holder that is alive has been silent for too long.
#[must_use]
pub fn is_silent(hearing: &Hearing, now: Duration) -> bool {
    let (from, limit) = match (hearing.asked, hearing.started) {
        (Some(asked), _) => (asked, SILENCE),
        (None, Some(started)) => (started, FIRST_ANSWER),
        (None, None) => (Duration::ZERO, UNHEARD),
    };
    now.saturating_sub(from.max(hearing.connected).max(hearing.looking)) > limit
}

/// Since when a host has been looking without a gap, when it looked last at `looked` and does so again now.
#[must_use]
pub fn looking(since: Duration, looked: Duration, now: Duration) -> Duration {
    if now.saturating_sub(looked) > LOOKED_AWAY { now } else { since }
}

/// What the declaration wants of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want<'a> {
    /// It runs, made from this.
    Run {
        /// Its spec digest.
        digest: &'a Digest,
        /// How it is held once it runs: genesis's own is adopted from the start.
        standing: Standing,
        /// Whether a declaration at least as new removed it.
        buried: Buried,
    },
    /// Nothing is declared, and it stays: it is adopted, or it holds a seat.
    Stay,
    /// It goes.
    Go,
}

/// Whether something has a tombstone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buried {
    /// A declaration at least as new removed it: it is not made again.
    Yes,
    /// It may be made.
    No,
}

/// What is seen of it.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// As the ledger holds it.
    pub entry: Option<&'a LedgerEntry>,
    /// Whether it lives.
    pub life: Life,
    /// Whether a job of it is under way.
    pub busy: bool,
    /// Whether it answered before and has been silent for too long since.
    pub silent: bool,
    /// Whether the pause after its last end or fault is over.
    pub due: bool,
    /// Account, files, bundle.
    pub needs: Needs,
}

/// What is done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It is as it shall be.
    Nothing,
    /// Not now: what is waited for.
    Wait(String),
    /// Not by itself: why.
    Hold(String),
    /// It is held as declared from now on; it stays untouched.
    TakeOver,
    /// It is made, and started.
    Create,
    /// What is there is started again, as a new run.
    StartAgain,
    /// It is ended at once, for it is alive and silent; it is then started again.
    Kill,
    /// It is ended, with its grace.
    End,
    /// What is left of it goes, and it gets its tombstone.
    Remove,
}

/// What is done next.
#[must_use]
pub fn decide(want: &Want<'_>, facts: &Facts<'_>) -> Step {
    if facts.busy {
        return Step::Wait("what was begun".to_owned());
    }
    match (want, facts.entry) {
        (Want::Go | Want::Stay, None) => Step::Nothing,
        (Want::Go, Some(_)) => leave(facts),
        (Want::Stay, Some(entry)) => keep(entry, facts),
        (Want::Run { buried: Buried::Yes, .. }, None) => {
            Step::Hold("a declaration at least as new removed it".to_owned())
        }
        (Want::Run { .. }, None) => create(facts),
        (Want::Run { digest, standing, .. }, Some(entry)) => {
            if &entry.digest != *digest {
                return leave(facts);
            }
            if entry.standing != *standing && *standing == Standing::Declared {
                return Step::TakeOver;
            }
            keep(entry, facts)
        }
    }
}

/// Removal goes before addition: the new one is made when nothing is held any more.
fn leave(facts: &Facts<'_>) -> Step {
    if facts.life.is_alive() { Step::End } else { Step::Remove }
}

fn create(facts: &Facts<'_>) -> Step {
    match &facts.needs {
        Needs::Met if facts.due => Step::Create,
        Needs::Met => Step::Wait("the pause after the last attempt".to_owned()),
        Needs::Waiting(what) => Step::Wait(what.clone()),
        Needs::Failed(reason) => Step::Hold(reason.to_string()),
    }
}

fn keep(entry: &LedgerEntry, facts: &Facts<'_>) -> Step {
    match &facts.life {
        Life::Running if facts.silent => Step::Kill,
        Life::Running => Step::Nothing,
        Life::Starting => Step::Wait("its start".to_owned()),
        Life::Gone(_) if entry.standing == Standing::Adopted && is_container(entry) => {
            // What is adopted was made once, by genesis; it is never made again.
            Step::Hold("it was removed from outside, and what is adopted is not made again".to_owned())
        }
        Life::Gone(_) if is_container(entry) => create(facts),
        Life::NotStarted | Life::Ended(_) | Life::Gone(_) if !facts.due => {
            Step::Wait("the pause before it is started again".to_owned())
        }
        Life::Ended(Reason::CouldNotStart { detail }) if !facts.due => Step::Wait(detail.clone()),
        Life::NotStarted | Life::Ended(_) | Life::Gone(_) => match &facts.needs {
            Needs::Met => Step::StartAgain,
            Needs::Waiting(what) => Step::Wait(what.clone()),
            Needs::Failed(reason) => Step::Hold(reason.to_string()),
        },
    }
}

fn is_container(entry: &LedgerEntry) -> bool {
    entry.id.kind() == mesh_protocol::id::ResourceKind::Container
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_protocol::declaration::ModuleSection;
    use mesh_protocol::id::Generation;

    fn entry(id: &str, standing: Standing) -> LedgerEntry {
        LedgerEntry {
            id: id.parse().unwrap(),
            digest: Digest::of(b"one"),
            section: ModuleSection {
                name: "m".parse().unwrap(),
                version: "1".to_owned(),
                revision: 1,
                seat: None,
                manifest: String::new(),
                accounts: vec![],
                bundles: vec![],
                files: vec![],
                processes: vec![],
                containers: vec![],
            },
            runtime: None,
            instance: None,
            run: None,
            standing,
            generation: Generation(1),
        }
    }

    fn facts<'a>(entry: Option<&'a LedgerEntry>, life: Life) -> Facts<'a> {
        Facts { entry, life, busy: false, silent: false, due: true, needs: Needs::Met }
    }

    fn run(digest: &Digest) -> Want<'_> {
        Want::Run { digest, standing: Standing::Declared, buried: Buried::No }
    }

    const ENDED: Life = Life::Ended(Reason::Exited { code: 1 });

    #[test]
    fn what_is_as_it_shall_be_is_left_alone() {
        let held = entry("process:a", Standing::Declared);
        assert_eq!(decide(&run(&held.digest), &facts(Some(&held), Life::Running)), Step::Nothing);
        assert_eq!(decide(&Want::Go, &facts(None, Life::NotStarted)), Step::Nothing);
    }

    #[test]
    fn what_ended_is_started_again_after_its_pause() {
        let held = entry("process:a", Standing::Declared);
        assert_eq!(decide(&run(&held.digest), &facts(Some(&held), ENDED)), Step::StartAgain);
        let early = Facts { due: false, ..facts(Some(&held), ENDED) };
        assert!(matches!(decide(&run(&held.digest), &early), Step::Wait(_)));
    }

    #[test]
    fn another_spec_removes_before_it_adds() {
        let held = entry("container:a", Standing::Declared);
        let other = Digest::of(b"two");
        assert_eq!(decide(&run(&other), &facts(Some(&held), Life::Running)), Step::End);
        assert_eq!(decide(&run(&other), &facts(Some(&held), ENDED)), Step::Remove);
        assert_eq!(decide(&run(&other), &facts(None, Life::NotStarted)), Step::Create);
    }

    #[test]
    fn a_tombstone_keeps_it_from_being_made_again() {
        let digest = Digest::of(b"one");
        let want = Want::Run { digest: &digest, standing: Standing::Declared, buried: Buried::Yes };
        assert!(matches!(decide(&want, &facts(None, Life::NotStarted)), Step::Hold(_)));
    }

    #[test]
    fn what_is_adopted_is_taken_over_untouched_and_never_made_again() {
        let held = entry("container:a", Standing::Adopted);
        assert_eq!(decide(&run(&held.digest), &facts(Some(&held), Life::Running)), Step::TakeOver);
        assert_eq!(decide(&Want::Stay, &facts(Some(&held), ENDED)), Step::StartAgain);
        let gone = facts(Some(&held), Life::Gone("not in the engine".to_owned()));
        assert!(matches!(decide(&Want::Stay, &gone), Step::Hold(_)));
        let declared = entry("container:a", Standing::Declared);
        let gone = facts(Some(&declared), Life::Gone("not in the engine".to_owned()));
        assert_eq!(decide(&run(&declared.digest), &gone), Step::Create);
    }

    #[test]
    fn what_is_alive_and_silent_is_ended_at_once() {
        let held = entry("process:a", Standing::Declared);
        let silent = Facts { silent: true, ..facts(Some(&held), Life::Running) };
        assert_eq!(decide(&run(&held.digest), &silent), Step::Kill);
    }

    #[test]
    fn silence_is_counted_while_it_could_have_been_heard() {
        let second = Duration::from_secs;
        let heard = |asked, started| Hearing { asked, started, connected: second(1), looking: second(0) };
        let heard_at = |at| heard(Some(second(at)), None);
        assert!(!is_silent(&heard_at(10), second(12)));
        assert!(is_silent(&heard_at(10), second(13)));
        // Never heard: found frozen by a host that was started again; or on its way up.
        assert!(!is_silent(&heard(None, None), second(5)));
        assert!(is_silent(&heard(None, None), second(6)));
        assert!(!is_silent(&heard(None, Some(second(10))), second(20)));
        assert!(is_silent(&heard(None, Some(second(10))), second(21)));
        // The bus was away, or this host was.
        assert!(!is_silent(&Hearing { connected: second(12), ..heard_at(10) }, second(13)));
        assert!(!is_silent(&Hearing { looking: second(12), ..heard_at(10) }, second(13)));
        assert_eq!(looking(second(3), second(9), second(10)), second(3));
        assert_eq!(looking(second(3), second(5), second(10)), second(10));
    }

    #[test]
    fn nothing_is_decided_while_something_is_under_way() {
        let held = entry("process:a", Standing::Declared);
        let busy = Facts { busy: true, ..facts(Some(&held), ENDED) };
        assert!(matches!(decide(&Want::Go, &busy), Step::Wait(_)));
    }
}
