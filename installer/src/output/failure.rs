//! What went wrong, for people and for programs, and what exit status that is.
//!
//! In: an error that a room could not deal with. Out: a [`Failure`] that has a stable code, says what was expected
//! and found, and what to do; its exit status is decided here and nowhere else. Not here: how it is printed.

use std::error::Error;
use std::ops::{Deref, DerefMut};

use mesh_protocol::chain::chain;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::code::Code;

/// The command's exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Done.
    Done = 0,
    /// It failed in a way that was foreseen, and says what to do.
    Failed = 1,
    /// The command was not understood.
    Usage = 2,
    /// It stopped part-way; the same command goes on from there.
    PartWay = 3,
    /// The seat was handed back: the old one serves on.
    HandedBack = 4,
    /// Interrupted; the same command goes on from there, or a plan goes on without it.
    Interrupted = 130,
}

/// How much had been done when it went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// Nothing was changed.
    Nothing,
    /// Something was, and the same command goes on from there.
    PartWay,
}

/// What went wrong. Small, for it travels through every result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
#[error("{}", .0.what)]
#[serde(transparent)]
pub struct Failure(Box<Parts>);

/// The parts of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FailureParts")]
pub struct Parts {
    /// Stable, for programs.
    pub code: Code,
    /// The step in which it went wrong, where the command has steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What went wrong, with its object and its causes: one line, lower case.
    pub what: String,
    /// What would have been right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// What was there instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How much had been done.
    pub extent: Extent,
    /// More to know, line by line: a log's end, the other holder's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
    /// Where many things failed at once: each of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Failure>,
    /// Whether what was printed says it already, so that only the exit status is left to tell it.
    #[serde(skip)]
    pub told: bool,
}

impl Failure {
    /// A failure that changed nothing.
    #[must_use]
    pub fn new(code: Code, what: impl Into<String>) -> Self {
        Self(Box::new(Parts {
            code,
            step: None,
            what: what.into(),
            expected: None,
            found: None,
            hint: None,
            extent: Extent::Nothing,
            details: Vec::new(),
            parts: Vec::new(),
            told: false,
        }))
    }

    /// A failure whose words are an error's own, with its causes.
    #[must_use]
    pub fn of(code: Code, error: &(dyn Error + 'static)) -> Self {
        Self::new(code, chain(error))
    }

    /// `what: the error and its causes`.
    #[must_use]
    pub fn because(code: Code, what: &str, error: &(dyn Error + 'static)) -> Self {
        Self::new(code, format!("{what}: {}", chain(error)))
    }

    /// The step in which it went wrong.
    #[must_use]
    pub fn in_step(mut self, step: impl Into<String>) -> Self {
        self.step = Some(step.into());
        self
    }

    /// What would have been right.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    /// What was there instead.
    #[must_use]
    pub fn found(mut self, found: impl Into<String>) -> Self {
        self.found = Some(found.into());
        self
    }

    /// What to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What to do, where somebody knows.
    #[must_use]
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        if hint.is_some() {
            self.hint = hint;
        }
        self
    }

    /// More to know.
    #[must_use]
    pub fn details(mut self, details: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(details);
        self
    }

    /// Something had been done when it went wrong.
    #[must_use]
    pub fn part_way(mut self) -> Self {
        self.extent = Extent::PartWay;
        self
    }

    /// What was printed says it already.
    #[must_use]
    pub fn told(mut self) -> Self {
        self.told = true;
        self
    }

    /// Many failures as one; a single one is itself.
    #[must_use]
    pub fn all(code: Code, what: impl Into<String>, mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let mut whole = Self::new(code, what);
        whole.parts = parts;
        whole
    }

    /// Its exit status.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match (self.code, self.extent) {
            (Code::Usage, _) => Exit::Usage,
            (Code::Interrupted | Code::Detached, _) => Exit::Interrupted,
            (Code::HandedBack, _) => Exit::HandedBack,
            (_, Extent::PartWay) => Exit::PartWay,
            (_, Extent::Nothing) => Exit::Failed,
        }
    }

    /// For people: the sentence, what was expected and found, what to do; several lines, no colour.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![match self.code {
            // Nothing went wrong: somebody does not want to wait.
            Code::Detached => format!("detached: {}", self.what),
            code => format!("error[{}]: {}", code.as_str(), self.what),
        }];
        self.append(&mut lines);
        lines
    }

    fn append(&self, lines: &mut Vec<String>) {
        let labelled = [("expected", &self.expected), ("found", &self.found), ("hint", &self.hint)];
        for (label, text) in labelled {
            if let Some(text) = text {
                lines.push(format!("  {label}: {text}"));
            }
        }
        lines.extend(self.details.iter().map(|detail| format!("  | {detail}")));
        for part in &self.parts {
            lines.push(format!("- {}: {}", part.code.as_str(), part.what));
            part.append(lines);
        }
    }
}

impl Deref for Failure {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

/// What the rooms below return.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_status_follows_from_code_and_extent() {
        let exit = |failure: Failure| failure.exit() as i32;
        assert_eq!(exit(Failure::new(Code::PortTaken, "x")), 1);
        assert_eq!(exit(Failure::new(Code::Usage, "x")), 2);
        assert_eq!(exit(Failure::new(Code::NotReached, "x").part_way()), 3);
        assert_eq!(exit(Failure::new(Code::HandedBack, "x").part_way()), 4);
        assert_eq!(exit(Failure::new(Code::Interrupted, "x").part_way()), 130);
    }

    #[test]
    fn a_failure_says_what_was_expected_and_found_and_what_to_do() {
        let failure = Failure::new(Code::PortTaken, "port 4222 cannot be used")
            .expected("a free port")
            .found("held by nats-server (pid 7)")
            .hint("choose another with --bus-port")
            .details(["last line".to_owned()]);
        insta::assert_snapshot!(failure.lines().join("\n"), @r"
        error[port-taken]: port 4222 cannot be used
          expected: a free port
          found: held by nats-server (pid 7)
          hint: choose another with --bus-port
          | last line
        ");
        insta::assert_snapshot!(serde_json::to_string(&failure).unwrap(), @r#"{"code":"port-taken","what":"port 4222 cannot be used","expected":"a free port","found":"held by nats-server (pid 7)","hint":"choose another with --bus-port","extent":"nothing","details":["last line"]}"#);
    }

    #[test]
    fn many_failures_are_all_shown_and_one_is_itself() {
        let one = Failure::new(Code::NotRoot, "this user is not root").hint("use sudo");
        assert_eq!(Failure::all(Code::Preflight, "x", vec![one.clone()]), one);
        let both = Failure::all(
            Code::Preflight,
            "this machine cannot do it yet",
            vec![one, Failure::new(Code::DiskFull, "too little room").found("1 MB")],
        );
        insta::assert_snapshot!(both.lines().join("\n"), @r"
        error[preflight]: this machine cannot do it yet
        - not-root: this user is not root
          hint: use sudo
        - disk-full: too little room
          found: 1 MB
        ");
    }
}
