//! What one check says.
//!
//! In: what was observed. Out: a [`Finding`]: its state, what was expected and found, and what to do; the same for people,
//! for programs, and as a failure of genesis. Not here: what is checked.

use serde::Serialize;

use super::name::Name;
use crate::output::{Code, Failure};

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is as it should be.
    Passed,
    /// It is not, and no mesh can be raised here before it is.
    Failed,
    /// It is not, and a mesh can be raised all the same.
    Warned,
    /// It was not looked at.
    Skipped,
}

impl State {
    /// As it is printed.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Warned => "warned",
            Self::Skipped => "skipped",
        }
    }
}

/// What one check says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How it ended.
    pub state: State,
    /// What would be right.
    pub expected: String,
    /// What was there; for one that was not looked at, why not.
    pub found: String,
    /// What is wrong, with its code and what to do.
    pub problem: Option<Failure>,
}

/// A check, as far as it is known before anything was looked at: what would be right.
#[derive(Debug, Clone)]
pub(super) struct Expected(String);

/// Begins a finding.
pub(super) fn expect(what: impl Into<String>) -> Expected {
    Expected(what.into())
}

impl Expected {
    /// It is so.
    pub(super) fn met(self, found: impl Into<String>) -> Finding {
        Finding { state: State::Passed, expected: self.0, found: found.into(), problem: None }
    }

    /// It was not looked at.
    pub(super) fn skipped(self, why: impl Into<String>) -> Finding {
        Finding { state: State::Skipped, expected: self.0, found: why.into(), problem: None }
    }

    /// It is not so, and stops genesis. What the failure does not say is added.
    pub(super) fn failed(self, failure: Failure) -> Finding {
        self.problem(State::Failed, failure)
    }

    /// It is not so, and is only worth knowing.
    pub(super) fn warned(self, failure: Failure) -> Finding {
        self.problem(State::Warned, failure)
    }

    fn problem(self, state: State, failure: Failure) -> Finding {
        let parts: Vec<&str> = failure.parts.iter().map(|part| part.what.as_str()).collect();
        let what = || if parts.is_empty() { failure.what.clone() } else { parts.join("; ") };
        let found = failure.found.clone().unwrap_or_else(what);
        let problem = if failure.expected.is_none() { failure.expected(self.0.clone()) } else { failure };
        let expected = problem.expected.clone().unwrap_or(self.0);
        Finding { state, expected, found, problem: Some(problem) }
    }

    /// Of what was tried: it worked, did not, or was not tried.
    pub(super) fn tried(self, tried: &Tried, failure: impl FnOnce(&str) -> Failure) -> Finding {
        match tried {
            Tried::Worked(how) => self.met(how.clone()),
            Tried::Failed(why) => self.failed(failure(why)),
            Tried::Not(why) => self.skipped(why.clone()),
        }
    }
}

/// What came of something that was really done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tried {
    /// It worked.
    Worked(String),
    /// It did not.
    Failed(String),
    /// It was not done.
    Not(String),
}

impl Tried {
    /// Not done, for want of what comes before it.
    pub(super) fn without(name: Name) -> Self {
        Self::Not(format!("needs what {name} looks at"))
    }
}

/// A failure with all that a problem has: the words of a check.
pub(super) fn wrong(
    code: Code,
    what: impl Into<String>,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Failure {
    Failure::new(code, what).found(found).hint(remedy)
}

/// One check, as a document.
#[derive(Debug, Serialize)]
struct Document<'a> {
    name: Name,
    state: State,
    expected: &'a str,
    found: &'a str,
    remedy: Option<&'a str>,
}

impl<'a> Document<'a> {
    fn of((name, finding): &'a (Name, Finding)) -> Self {
        Self {
            name: *name,
            state: finding.state,
            expected: &finding.expected,
            found: &finding.found,
            remedy: finding.problem.as_ref().and_then(|problem| problem.hint.as_deref()),
        }
    }
}

/// All checks, as a document.
#[derive(Debug, Serialize)]
struct Documents<'a> {
    checks: Vec<Document<'a>>,
}

/// What all checks say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report(Vec<(Name, Finding)>);

impl Report {
    /// Of these findings, in their order.
    pub(super) const fn new(findings: Vec<(Name, Finding)>) -> Self {
        Self(findings)
    }

    /// Has another finding in a check's place.
    pub(super) fn replace(&mut self, name: Name, finding: &Finding) {
        self.0.iter_mut().filter(|(other, _)| *other == name).for_each(|(_, old)| *old = finding.clone());
    }

    /// All that it says, in its order.
    #[must_use]
    pub fn findings(&self) -> &[(Name, Finding)] {
        &self.0
    }

    /// How many ended so.
    #[must_use]
    pub fn count(&self, state: State) -> usize {
        self.0.iter().filter(|(_, finding)| finding.state == state).count()
    }

    /// `61 passed, 1 failed, 2 skipped`
    #[must_use]
    pub fn summary(&self) -> String {
        let states = [State::Passed, State::Failed, State::Warned, State::Skipped];
        let counts = states.map(|state| (self.count(state), state.as_str()));
        let said = counts.iter().filter(|(count, _)| *count > 0);
        said.map(|(count, state)| format!("{count} {state}")).collect::<Vec<_>>().join(", ")
    }

    /// What stops genesis, as one failure; none where nothing does.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        let failed = self.0.iter().filter(|(_, finding)| finding.state == State::Failed);
        let parts: Vec<Failure> = failed.filter_map(|(_, finding)| finding.problem.clone()).collect();
        // One that has parts of its own is told part by part, beside the others.
        let parts: Vec<Failure> = parts
            .into_iter()
            .flat_map(|failure| if failure.parts.is_empty() { vec![failure] } else { failure.parts.clone() })
            .collect();
        (!parts.is_empty()).then(|| Failure::all(Code::Preflight, "this machine cannot do it yet", parts))
    }

    /// What is worth knowing, a line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warned = self.0.iter().filter(|(_, finding)| finding.state == State::Warned);
        let line = |(name, finding): &(Name, Finding)| {
            let problem = finding.problem.as_ref()?;
            let remedy = problem.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
            Some(format!("{name}: {}{remedy}", problem.what))
        };
        warned.filter_map(line).collect()
    }

    /// For programs.
    #[must_use]
    pub fn document(&self) -> impl Serialize {
        Documents { checks: self.0.iter().map(Document::of).collect() }
    }

    /// For people: a line each, and of what is not right all that there is to say; or of what is not right alone.
    #[must_use]
    pub fn lines(&self, all: bool) -> Vec<String> {
        let shown = self.0.iter().filter(|(_, finding)| all || finding.problem.is_some());
        shown.flat_map(|(name, finding)| lines(*name, finding)).collect()
    }
}

fn lines(name: Name, finding: &Finding) -> Vec<String> {
    let row = |text: &str| format!("{:<8} {:<20} {text}", finding.state.as_str(), name.as_str());
    let Some(problem) = &finding.problem else { return vec![row(&finding.found)] };
    let mut lines = vec![row(&problem.what)];
    let mut add = |label: &str, text: &str| lines.push(format!("         {label}: {text}"));
    add("expected", &finding.expected);
    if finding.found != problem.what {
        add("found", &finding.found);
    }
    if let Some(remedy) = &problem.hint {
        add("remedy", remedy);
    }
    let parts = problem.parts.iter().map(|part| {
        let found = part.found.as_ref().map(|found| format!(" ({found})")).unwrap_or_default();
        format!("{}{found}", part.what)
    });
    lines.extend(problem.details.iter().cloned().chain(parts).map(|line| format!("         | {line}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let port =
            wrong(Code::PortTaken, "port 4222 cannot be had for the bus", "held by x (pid 7)", "end x");
        Report(vec![
            (Name::User, expect("root").met("root")),
            (Name::BusPort, expect("127.0.0.1:4222 to be free").failed(port)),
            (
                Name::Memory,
                expect("512 MB").warned(wrong(Code::MemoryShort, "little memory", "1 MB", "add some")),
            ),
            (Name::EngineDisk, expect("room").skipped("no engine answers")),
        ])
    }

    #[test]
    fn people_see_a_line_each_and_what_to_do_about_the_rest() {
        insta::assert_snapshot!(report().lines(true).join("\n"));
        assert_eq!(report().lines(false).len(), 8, "what is not right alone");
        assert_eq!(report().summary(), "1 passed, 1 failed, 1 warned, 1 skipped");
    }

    #[test]
    fn programs_get_the_same() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&report().document()).unwrap());
    }

    #[test]
    fn genesis_fails_with_what_failed_and_says_the_rest() {
        let failure = report().failure().unwrap();
        assert_eq!(
            (failure.code, failure.what.as_str()),
            (Code::PortTaken, "port 4222 cannot be had for the bus")
        );
        assert_eq!(report().warnings(), ["memory: little memory; add some"]);
    }
}
