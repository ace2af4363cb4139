//! What the journal tells of the command that was last at a mesh: how far it came, what it did last, how it ended.
//!
//! In: the journal's lines. Out: a story, for people and for programs, and the command that goes on. Pure. Not here:
//! whether the command still runs; the lock tells that.

use jiff::Timestamp;
use serde::Serialize;

use crate::output::event::Stage;
use crate::output::lines::seconds;
use crate::output::{Event, Failure, Line};

/// What is known of the last command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Story {
    /// Its words.
    pub words: Vec<String>,
    /// When it began.
    pub began: Timestamp,
    /// Its process.
    pub pid: u32,
    /// The steps whose goals it saw to be true, in their order.
    pub reached: Vec<String>,
    /// The step that it was in, where it has not ended it.
    pub step: Option<StepStory>,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
}

/// A step that was begun and not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepStory {
    /// Which.
    pub step: String,
    /// What it makes true.
    pub goal: String,
    /// When it was begun.
    pub begun: Timestamp,
    /// The last thing that it set about.
    pub last_effect: Option<Moment>,
    /// What it waited for, where it did after that.
    pub waiting_for: Option<Moment>,
}

/// Something, and since when.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Moment {
    /// What.
    pub what: String,
    /// When it began.
    pub since: Timestamp,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "end")]
pub enum End {
    /// It came to its end.
    Finished {
        /// What was true then.
        text: String,
    },
    /// It failed.
    Failed {
        /// When.
        at: Timestamp,
        /// Why.
        failure: Box<Failure>,
    },
    /// It says no end: it was killed or interrupted, or it is at it.
    Open,
}

/// The story of the last command in a journal; none where it has none.
#[must_use]
pub fn tell(lines: &[Line]) -> Option<Story> {
    let (at, words) = lines.iter().enumerate().rev().find_map(|(at, line)| match &line.event {
        Event::Command { words, .. } => Some((at, words)),
        _ => None,
    })?;
    let first = &lines[at];
    let mut story = Story {
        words: words.clone(),
        began: first.time,
        pid: first.pid,
        reached: Vec::new(),
        step: None,
        end: End::Open,
    };
    for line in &lines[at + 1..] {
        story.hear(line);
    }
    Some(story)
}

impl Story {
    fn hear(&mut self, line: &Line) {
        match &line.event {
            Event::Begun { step, goal } => {
                self.step = Some(StepStory {
                    step: step.clone(),
                    goal: goal.clone(),
                    begun: line.time,
                    last_effect: None,
                    waiting_for: None,
                });
            }
            Event::Effect { what, .. } => {
                if let Some(step) = &mut self.step {
                    step.last_effect = Some(Moment { what: what.clone(), since: line.time });
                    step.waiting_for = None;
                }
            }
            Event::Waiting { waiting_for, since, stage: Stage::Begun, .. } => {
                if let Some(step) = &mut self.step {
                    step.waiting_for = Some(Moment { what: waiting_for.clone(), since: *since });
                }
            }
            Event::Skipped { step, .. } | Event::Done { step, .. } => {
                self.reached.push(step.clone());
                self.step = None;
            }
            Event::Failed { failure } => {
                self.end = End::Failed { at: line.time, failure: Box::new(failure.clone()) };
            }
            Event::Finished { text } => self.end = End::Finished { text: text.clone() },
            _ => {}
        }
    }

    /// For people. `holder` is who holds the mesh's lock now, where somebody does.
    #[must_use]
    pub fn lines(&self, holder: Option<&str>) -> Vec<String> {
        let mut lines = vec![format!("begun     {:.0}: {}", self.began, self.words.join(" "))];
        if !self.reached.is_empty() {
            lines.push(format!("reached   {}", self.reached.join(", ")));
        }
        if let Some(step) = &self.step {
            lines.push(format!("step      {}, begun {:.0}: {}", step.step, step.begun, step.goal));
            if let Some(effect) = &step.last_effect {
                lines.push(format!("did last  {} ({:.0})", effect.what, effect.since));
            }
            if let Some(waiting) = &step.waiting_for {
                lines.push(format!("waited    for {}, since {:.0}", waiting.what, waiting.since));
            }
        }
        match (&self.end, holder) {
            (End::Finished { text }, _) => lines.push(format!("ended     {text}")),
            (End::Failed { at, failure }, _) => {
                let after = at.duration_since(self.began).as_millis();
                let after = seconds(u64::try_from(after).unwrap_or(0));
                lines.push(format!("failed    {at:.0}, after {after}"));
                lines.extend(failure.lines().iter().map(|line| format!("  {line}")));
            }
            (End::Open, Some(holder)) => lines.push(format!("goes on   {holder}")),
            (End::Open, None) => {
                lines.push("cut off   it was killed or interrupted: it says no end".to_owned());
            }
        }
        lines
    }

    /// The command that goes on, as it is typed: the same, without the step after which it was to stop.
    #[must_use]
    pub fn goes_on_with(&self) -> String {
        let mut words = Vec::new();
        let mut given = self.words.iter().enumerate();
        while let Some((place, word)) = given.next() {
            match word.as_str() {
                "--until" => {
                    given.next();
                }
                word if word.starts_with("--until=") => {}
                // However this program was called, it is known by its name.
                _ if place == 0 => words.push("mesh".to_owned()),
                word => words.push(quoted(word)),
            }
        }
        words.join(" ")
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Code;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_323_045 + second).unwrap()
    }

    fn lines(events: Vec<Event>) -> Vec<Line> {
        let timed = |(second, event): (i64, Event)| Line { format: 1, time: at(second), pid: 7, event };
        (0..).zip(events).map(timed).collect()
    }

    fn command(words: &[&str]) -> Event {
        Event::Command { words: words.iter().map(ToString::to_string).collect(), version: "1".to_owned() }
    }

    fn begun(step: &str) -> Event {
        Event::Begun { step: step.to_owned(), goal: "a goal".to_owned() }
    }

    fn effect(what: &str) -> Event {
        Event::Effect { step: "pivot".to_owned(), what: what.to_owned() }
    }

    fn waiting(what: &str) -> Event {
        Event::Waiting {
            step: "pivot".to_owned(),
            waiting_for: what.to_owned(),
            since: at(7),
            stage: Stage::Begun,
            milliseconds: 0,
        }
    }

    fn done(step: &str) -> Event {
        Event::Done { step: step.to_owned(), text: "there".to_owned(), milliseconds: 1 }
    }

    fn shown(events: Vec<Event>, holder: Option<&str>) -> String {
        let story = tell(&lines(events)).unwrap();
        let mut lines = story.lines(holder);
        lines.push(format!("go on with: {}", story.goes_on_with()));
        lines.join("\n")
    }

    #[test]
    fn a_journal_without_a_command_has_no_story() {
        assert_eq!(tell(&lines(vec![begun("host")])), None);
    }

    #[test]
    fn one_that_was_killed_says_how_far_it_came_and_what_it_did_last() {
        let events = vec![
            command(&["mesh", "genesis", "--until", "identity"]),
            Event::Finished { text: "stopped after identity".to_owned() },
            command(&["/usr/bin/mesh", "genesis", "--name", "my mesh", "--until", "store"]),
            begun("host"),
            done("host"),
            begun("pivot"),
            effect("give the host generation 1"),
            waiting("the bus"),
        ];
        insta::assert_snapshot!(shown(events.clone(), None), @r"
        begun     2026-01-02T03:04:07Z: /usr/bin/mesh genesis --name my mesh --until store
        reached   host
        step      pivot, begun 2026-01-02T03:04:10Z: a goal
        did last  give the host generation 1 (2026-01-02T03:04:11Z)
        waited    for the bus, since 2026-01-02T03:04:12Z
        cut off   it was killed or interrupted: it says no end
        go on with: mesh genesis --name 'my mesh'
        ");
        assert!(shown(events, Some("mesh genesis, pid 7")).contains("goes on   mesh genesis, pid 7"));
    }

    #[test]
    fn one_that_failed_says_its_code_and_its_hint() {
        let failure = Failure::new(Code::PortTaken, "images: port 1 cannot be used").hint("choose another");
        let events = vec![
            command(&["mesh", "genesis"]),
            begun("images"),
            Event::Failed { failure: failure.in_step("images").part_way() },
        ];
        insta::assert_snapshot!(shown(events, None), @r"
        begun     2026-01-02T03:04:05Z: mesh genesis
        step      images, begun 2026-01-02T03:04:06Z: a goal
        failed    2026-01-02T03:04:07Z, after 2.00 s
          error[port-taken]: images: port 1 cannot be used
            hint: choose another
        go on with: mesh genesis
        ");
    }

    #[test]
    fn one_that_ended_where_it_was_to_says_so() {
        let text = "stopped after images, as asked".to_owned();
        let events = vec![
            command(&["mesh", "genesis", "--until=images"]),
            begun("images"),
            done("images"),
            Event::Finished { text },
        ];
        insta::assert_snapshot!(shown(events, None), @r"
        begun     2026-01-02T03:04:05Z: mesh genesis --until=images
        reached   images
        ended     stopped after images, as asked
        go on with: mesh genesis
        ");
    }
}
