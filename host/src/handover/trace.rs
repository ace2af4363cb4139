//! The decisions of a host, as a test wants to see them: each with what it was decided from.
//!
//! In: a decision with its inputs. Out: one line of JSON for each, in a file that somebody made beforehand; where
//! there is none, nothing. And a check of such lines: each decision is what [`decide`] makes of its inputs, and
//! each step is one that a handover may take. Not here: what is decided.
//!
//! What the lines say is no secret: a record holds manifests and digests.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use camino::Utf8Path;
use mesh_protocol::handover::{Role, State};
use mesh_protocol::id::Token;
use mesh_protocol::verb::Check;
use serde::{Deserialize, Serialize};

use super::decide::{Action, Decision, Memory, Now, Which, decide};
use super::record::Record;
use super::seen::Seen;

/// No trace grows beyond this; a handover with short checks has some megabytes.
const MOST: u64 = 64 << 20;

/// One decision, and all that it was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    /// The highest token that this host has followed.
    pub token: Token,
    /// What survives a crash.
    pub record: Record,
    /// What begins again with the host.
    pub memory: Memory,
    /// What was seen.
    pub seen: Seen,
    /// When.
    pub now: Now,
    /// The time between two checks.
    pub interval: Duration,
    /// What was decided.
    pub decision: Decision,
}

/// Adds a decision to the trace, where somebody made one. That it cannot be added holds up nothing.
pub fn note(trace: &Utf8Path, make: impl FnOnce() -> Decided) {
    // Only what the host's own user made counts, as a file: whoever reads it believes it.
    let Ok(found) = std::fs::symlink_metadata(trace) else { return };
    if !found.is_file() || found.uid() != rustix::process::geteuid().as_raw() || found.len() > MOST {
        return;
    }
    let decided = make();
    let Ok(mut line) = serde_json::to_vec(&decided) else { return };
    line.push(b'\n');
    if let Ok(mut file) = OpenOptions::new().append(true).open(trace) {
        let _ = file.write_all(&line);
    }
}

/// What is wrong with a trace; none where it is one of a host that decides as this one does.
#[must_use]
pub fn fault(trace: &[Decided]) -> Option<String> {
    let mut proofs = Proofs::default();
    let mut expected: Option<&Record> = None;
    let mut highest = Token::default();
    for (number, decided) in trace.iter().enumerate() {
        let Decided { record, memory, seen, now, interval, decision, token } = decided;
        let wrong = (decide(record, memory, seen, now, *interval) != *decision)
            .then(|| "the decision is not what its inputs lead to".to_owned())
            .or_else(|| follows(expected, record))
            .or_else(|| (*token < highest).then(|| format!("the token {token} is older than {highest}")))
            .or_else(|| proofs.wrong(decided));
        if let Some(wrong) = wrong {
            return Some(format!("decision {}, in {}: {wrong}", number + 1, record.state.as_str()));
        }
        let written = decision.actions.iter().rev().find_map(|action| match action {
            Action::Write(next) => Some(&**next),
            _ => None,
        });
        expected = Some(written.unwrap_or(record));
        highest = *token;
    }
    None
}

/// A decision is made from what was written last. What the host adds when it writes (the log, the new run of an
/// old one) changes no state.
fn follows(before: Option<&Record>, record: &Record) -> Option<String> {
    let before = before?;
    let key = |record: &Record| (record.state, record.old_ended, record.tries, record.new.instance.clone());
    let begins = record.state == State::Planned && !before.is_open();
    (key(before) != key(record) && !begins)
        .then(|| format!("what was written last was {}", before.state.as_str()))
}

/// What the host was told so far, by the one that the record names, in this state.
#[derive(Debug, Default)]
struct Proofs {
    state: Option<State>,
    first_right: Option<Duration>,
    public: Option<Duration>,
    entered: Duration,
}

impl Proofs {
    fn wrong(&mut self, decided: &Decided) -> Option<String> {
        let Decided { record, seen, now, interval, decision, .. } = decided;
        if self.state != Some(record.state) {
            *self = Self { state: Some(record.state), entered: now.running, ..Self::default() };
        }
        let right = seen.new.ready.as_ref().is_some_and(|answered| {
            Some(&answered.ready.instance) == record.new.instance.as_ref()
                && answered.ready.state == Check::Passed
                && answered.ready.lock == Check::Passed
        });
        if right && seen.new.life.is_alive() {
            self.first_right.get_or_insert(now.running);
        }
        self.public = self.public.max(seen.new.public);
        let mut synced = false;
        let mut committed = false;
        for action in &decision.actions {
            synced |= *action == Action::SyncBus;
            committed |= *action == Action::CommitLedger;
            if let Some(wrong) =
                self.action(action, decided, synced && self.lasted(now, *interval * 2), committed)
            {
                return Some(wrong);
            }
        }
        None
    }

    fn lasted(&self, now: &Now, time: Duration) -> bool {
        self.first_right.is_some_and(|first| now.running >= first + time)
    }

    fn action(&self, action: &Action, decided: &Decided, checked: bool, committed: bool) -> Option<String> {
        use State::{Aborting, Alone, Done, Held, Joined, Planned, Removing, Trial};
        let Decided { record, seen, .. } = decided;
        let state = record.state;
        let heard = self.public.is_some_and(|asked| asked > self.entered);
        let (right, what) = match action {
            Action::Write(next) => {
                let known = match (state, next.state) {
                    (Planned, Trial | Aborting)
                    | (Trial, Aborting | Planned)
                    | (Joined, Aborting | Planned) => true,
                    (Trial, Joined) => checked,
                    (Joined, Alone) => heard,
                    (Alone, Removing) => committed && heard,
                    (Alone, Aborting | Planned) | (Aborting, Held) | (Held, Planned) => true,
                    (Removing, Aborting | Planned) => !record.old_ended,
                    (Removing, Done) => record.old_ended,
                    (one, other) => one == other,
                };
                let ended = record.old_ended
                    || !next.old_ended
                    || state == Removing && heard && !seen.old.life.is_alive();
                (known && ended && (next.old_ended || !record.old_ended), "is written without its proof")
            }
            Action::StartNew => (state == Trial && record.new.instance.is_some(), "is not on record"),
            Action::StartOld(_) => (!record.old_ended, "was ended for good"),
            Action::Order(Which::New, Role::Serving) => {
                (matches!(state, Joined | Alone | Removing), "is told to serve before it was checked")
            }
            Action::Order(..) | Action::SyncBus | Action::RestoreLedger => return None,
            Action::End(Which::Old, _) => {
                let silent = seen
                    .old
                    .ready
                    .as_ref()
                    .is_none_or(|answered| answered.asked + Duration::from_secs(1) < decided.now.running);
                (silent || state == Removing && heard, "is ended before the new one proved itself")
            }
            Action::End(Which::New, _) => (state == Aborting, "is ended, and nothing speaks against it"),
            Action::RemoveOld | Action::Bury => (record.old_ended, "goes before its end is on record"),
            Action::CommitLedger => (matches!(state, Alone | Removing), "gets the seat before its proof"),
        };
        (!right).then(|| format!("{action:?} {what}").chars().take(200).collect())
    }
}
