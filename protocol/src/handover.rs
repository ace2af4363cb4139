//! The words of a handover: where one stands, what was found, why it was handed back.
//!
//! In and out: documents that the host writes and everyone else reads. Not here: what follows from them;
//! the state machine is the host's.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{Digest, Generation, InstanceId, ResourceId, ResourceKind, SeatName};

/// Where a handover stands. The host's `handover/decide/states.rs` says what each state does and where it may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// What the new one needs is being made.
    Planned,
    /// The new one runs, standing by, and is checked twice.
    Trial,
    /// Both serve.
    Joined,
    /// The new one serves alone; the old one is alive and standing by.
    Alone,
    /// The old one is being ended and removed.
    Removing,
    /// The new one holds the seat.
    Done,
    /// The old one serves; the new one is being ended.
    Aborting,
    /// Handed back: the old one serves on.
    Held,
}

impl State {
    /// As it is written: `planned`, `trial`, …
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Trial => "trial",
            Self::Joined => "joined",
            Self::Alone => "alone",
            Self::Removing => "removing",
            Self::Done => "done",
            Self::Aborting => "aborting",
            Self::Held => "held",
        }
    }
}

/// What an instance of a seat does; given by its host as the file `role` in the run folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Answers its own subject and the seat's fallback subject.
    StandingBy,
    /// Is in the seat's queue group too, and may take the plan lock.
    Serving,
}

impl Role {
    /// As it is written: `standing-by`, `serving`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StandingBy => "standing-by",
            Self::Serving => "serving",
        }
    }
}

/// The file `role`: one JSON line, replaced by rename.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleOrder {
    /// The instance it is for; an instance obeys no order for another.
    pub instance: InstanceId,
    /// What it shall do.
    pub role: Role,
    /// Raised with each order, so that an acknowledgement can be told from one of an earlier order.
    pub number: u64,
}

/// The file `role.ack`: one JSON line, written by the instance within 50 ms of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleAck {
    /// Who writes.
    pub instance: InstanceId,
    /// What it does now. Written when it is so, not when it is begun: `standing-by` after the queue group
    /// was left without loss, every handler has finished and the plan lock was given back.
    pub role: Role,
    /// The number of the order that this follows.
    pub number: u64,
    /// Why the order cannot be followed, where it cannot: the instance then does what `role` says.
    pub trouble: Option<String>,
}

/// In which form an instance runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// From a bundle, under the host's shim.
    Process,
    /// From an image, in the container engine.
    Container,
}

impl Form {
    /// As it is written.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
        }
    }
}

/// Why a new one was not given the seat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Reason {
    /// It ended by itself.
    Exited {
        /// Its exit status.
        code: i32,
    },
    /// A signal ended it.
    Signalled {
        /// The signal's number.
        signal: i32,
    },
    /// The kernel ended it for want of memory.
    OutOfMemory,
    /// It ran, and its `ready` was never right.
    NeverReady {
        /// Which part of `ready` was missing or wrong at last, or that it did not answer at all.
        part: String,
    },
    /// It had been ready, ran on, and answered no more.
    FellSilent {
        /// For how long, in milliseconds, when that was decided.
        milliseconds: u64,
    },
    /// It answered as something other than what was started.
    WrongAnswer {
        /// What was compared: `version`, `program`, …
        what: String,
        /// As declared.
        expected: String,
        /// As answered.
        found: String,
    },
    /// It could not be started.
    CouldNotStart {
        /// What was tried, and the system's word: path and errno.
        detail: String,
    },
    /// It stood by well, was told to serve, and could not: it may not join the queue group, was not seen to
    /// answer the public subject, or did not take the plan lock.
    NeverServed {
        /// Which, and its own word for it.
        detail: String,
    },
    /// Nothing that speaks against it: store, disk, engine, bus, a reboot, a kill from outside.
    Surroundings {
        /// Which, and what was seen.
        detail: String,
    },
    /// A newer declaration wants something else.
    Superseded {
        /// That declaration's number.
        generation: Generation,
    },
}

impl Reason {
    /// Whether this speaks against what was declared, so that trying the same again is for a person to ask.
    #[must_use]
    pub const fn is_evidence(&self) -> bool {
        !matches!(self, Self::Surroundings { .. } | Self::Superseded { .. })
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "it exited with status {code}"),
            Self::Signalled { signal } => write!(f, "signal {signal} ended it"),
            Self::OutOfMemory => write!(f, "it ran out of memory"),
            Self::NeverReady { part } => write!(f, "it was never ready: {part}"),
            Self::FellSilent { milliseconds } => write!(f, "it fell silent for {milliseconds} ms"),
            Self::WrongAnswer { what, expected, found } => {
                write!(f, "it answered as another {what}: expected {expected}, found {found}")
            }
            Self::CouldNotStart { detail } => write!(f, "it could not be started: {detail}"),
            Self::NeverServed { detail } => write!(f, "it did not come to serve: {detail}"),
            Self::Surroundings { detail } => write!(f, "the surroundings failed: {detail}"),
            Self::Superseded { generation } => {
                write!(f, "declaration {generation} wants something else")
            }
        }
    }
}

/// A handover as its host reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandoverReport {
    /// The seat.
    pub seat: SeatName,
    /// Where it stands.
    pub state: State,
    /// Since when.
    #[schemars(with = "crate::schema::Time")]
    pub since: Timestamp,
    /// The one that serves, or served, before.
    pub old: Side,
    /// The one that shall.
    pub new: Side,
    /// The declaration that asked for it.
    pub generation: Generation,
    /// What is waited for, in words.
    pub waiting_for: Option<String>,
    /// Which of the two checks passed so far, 0 to 2.
    pub checks_passed: u8,
    /// Which check or state failed, in words: "the first check", "never ready within 30 s".
    pub failed_at: Option<String>,
    /// Why it was handed back.
    pub reason: Option<Reason>,
    /// The last lines of the new one's log, where it was handed back.
    pub log_tail: Vec<String>,
    /// When it is tried again by itself, where it is.
    #[schemars(with = "Option<crate::schema::Time>")]
    pub next_try: Option<Timestamp>,
    /// How often this spec was tried.
    pub tries: u32,
    /// What is left to do that holds up nothing, e.g. a container that a hung engine did not remove.
    pub cleanup_pending: Option<String>,
    /// The states of this try that it passed, the present one last, as far back as the host remembers.
    #[serde(default)]
    pub passed: Vec<Passage>,
}

impl HandoverReport {
    /// Whether it was handed back, or is about to be.
    #[must_use]
    pub const fn is_handed_back(&self) -> bool {
        matches!(self.state, State::Aborting | State::Held)
    }

    /// How it goes on after it was handed back: by itself, or by what a person does. None where it was not.
    #[must_use]
    pub fn how_to_go_on(&self) -> Option<String> {
        let reason = self.reason.as_ref().filter(|_| self.state == State::Held)?;
        let id = &self.new.resource;
        Some(match (reason, self.next_try) {
            (Reason::Superseded { .. }, _) => "what was declared since goes on in its place".to_owned(),
            (_, Some(at)) => {
                format!("it is tried again by itself at {at:.0}, after {} so far", tries(self.tries))
            }
            (Reason::Surroundings { .. }, None) => format!(
                "it is not tried again by itself, after {}: mend the surroundings, then mesh retry {id}",
                tries(self.tries)
            ),
            // Before a container there was no version to go back to.
            (_, None) if self.old.resource.kind() == ResourceKind::Container => format!(
                "it is not tried again by itself: push a mended version, or try the same once more with mesh \
                 retry {id}"
            ),
            (_, None) => format!(
                "it is not tried again by itself: push a mended version, or go back to what served with mesh \
                 rollback, or try the same once more with mesh retry {id}"
            ),
        })
    }

    /// What there is to know of one that was handed back, line by line: where, why, how to go on, and the end of the
    /// log. Nothing where it was not.
    #[must_use]
    pub fn failure_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(failed_at) = &self.failed_at {
            lines.push(format!("failed at: {failed_at} ({} of 2 checks passed)", self.checks_passed));
        }
        if let Some(reason) = &self.reason {
            lines.push(format!("reason: {reason}"));
        }
        lines.extend(self.how_to_go_on().map(|how| format!("next: {how}")));
        if !self.log_tail.is_empty() {
            lines.push(format!("the last lines of {}:", self.new.resource));
            lines.extend(self.log_tail.iter().map(|line| format!("  {line}")));
        }
        lines
    }
}

fn tries(count: u32) -> String {
    if count == 1 { "one try".to_owned() } else { format!("{count} tries") }
}

/// A state that was entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Passage {
    /// Which.
    pub state: State,
    /// When, by the node's clock.
    #[schemars(with = "crate::schema::Time")]
    pub at: Timestamp,
}

/// One of the two in a handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// Which resource.
    pub resource: ResourceId,
    /// Its digest.
    pub spec: Digest,
    /// Its run, where it has one.
    pub instance: Option<InstanceId>,
}
