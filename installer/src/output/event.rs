//! What is said while something takes its time: one vocabulary for bars, plain lines, JSON lines and the journal.
//!
//! In: what the commands do. Out: events; each renderer shows what it can. docs/events.schema.json is made from these
//! types. Not here: how they look.

use jiff::Timestamp;
use mesh_protocol::event::Event as MeshEvent;
use mesh_protocol::handover::HandoverReport;
use mesh_protocol::id::{ModuleName, PlanId};
use mesh_protocol::plan::PlanState;
use mesh_protocol::schema::Time;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::prober::Figures;

/// The version of the form of a line. It is raised when a field goes or changes its meaning; what is new may come
/// without.
pub const FORMAT: u32 = 1;

/// One line of JSON, on standard output with `--json` or in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "A line of mesh --json, or of its journal")]
pub struct Line {
    /// The version of this form: 1.
    #[schemars(range(min = 1, max = 1))]
    pub format: u32,
    /// When.
    #[schemars(with = "Time")]
    pub time: Timestamp,
    /// The process that says it.
    pub pid: u32,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// What this process says now.
    #[must_use]
    pub fn new(time: Timestamp, event: Event) -> Self {
        Self { format: FORMAT, time, pid: std::process::id(), event }
    }
}

/// The JSON Schema of a line.
#[must_use]
pub fn schema() -> serde_json::Value {
    SchemaGenerator::default().into_root_schema_for::<Line>().to_value()
}

/// Something that happened while a command ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// A command begins.
    Command {
        /// Its words.
        words: Vec<String>,
        /// This program's version.
        version: String,
    },
    /// A step begins: said before it does anything.
    Begun {
        /// Which.
        step: String,
        /// What it makes true.
        goal: String,
    },
    /// A step had nothing to do.
    Skipped {
        /// Which.
        step: String,
        /// Why: its goal is true already, as it was seen.
        why: String,
    },
    /// Something is about to be done: said before it is.
    Effect {
        /// In which step.
        step: String,
        /// What.
        what: String,
    },
    /// What a dry run would do.
    WouldDo {
        /// Which step.
        step: String,
        /// What.
        what: String,
    },
    /// A step did something, or saw something worth saying.
    Note {
        /// Which step.
        step: String,
        /// What.
        text: String,
    },
    /// A step, or a plan, waits for something.
    Waiting {
        /// The step, or the module that the plan is about.
        step: String,
        /// For what.
        waiting_for: String,
        /// Since when.
        #[schemars(with = "Time")]
        since: Timestamp,
        /// How far that is.
        stage: Stage,
        /// For how long it has been waited.
        milliseconds: u64,
    },
    /// Bytes went by.
    Bytes {
        /// Which step.
        step: String,
        /// What is read or sent.
        what: String,
        /// How many so far.
        done: u64,
        /// Of how many.
        total: Option<u64>,
        /// How many a second, once that can be told.
        rate: Option<u64>,
        /// How long the rest takes, in milliseconds, once that can be told.
        left_ms: Option<u64>,
    },
    /// A step's goal is true.
    Done {
        /// Which.
        step: String,
        /// What was reached.
        text: String,
        /// How long it took.
        milliseconds: u64,
    },
    /// It stopped: the last line of a command that failed.
    Failed {
        /// Why, with its stable code, and what to do.
        failure: Failure,
    },
    /// Something that does not stop the command, and should be known.
    Warning {
        /// What.
        text: String,
    },
    /// A handover went on, or waits for something else.
    Handover {
        /// The whole of it.
        handover: Box<HandoverReport>,
    },
    /// A plan stands otherwise than before.
    Plan {
        /// Which.
        plan: PlanId,
        /// The module it is about.
        module: ModuleName,
        /// How.
        #[serde(flatten)]
        state: PlanState,
    },
    /// Something that happened in the mesh, as its controller said it.
    Mesh {
        /// Its number in the mesh's stream of events.
        sequence: u64,
        /// It.
        mesh_event: Box<MeshEvent>,
    },
    /// How the seat answered.
    Availability {
        /// The figures; none where there was no seat to ask.
        figures: Option<Figures>,
    },
    /// Where the time went, in milliseconds.
    Times {
        /// Of each step that was done, in their order.
        steps: Vec<StepTime>,
        /// Altogether.
        total: u64,
    },
    /// The command's end.
    Finished {
        /// What is true now.
        text: String,
    },
}

/// How far a wait is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It begins.
    Begun,
    /// It takes longer than most.
    Lasting,
    /// It is over.
    Over,
}

/// How long a step took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepTime {
    /// Which.
    pub step: String,
    /// How long.
    pub milliseconds: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Code, Failure};
    use crate::testing::held_in;

    #[test]
    fn the_schema_in_the_documentation_is_that_of_the_types() {
        let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
        held_in("docs/events.schema.json", &schema);
    }

    #[test]
    fn a_line_reads_back_as_it_was_written() {
        let failure = Failure::new(Code::PortTaken, "port 4222 cannot be used").hint("choose another");
        for event in [
            Event::Begun { step: "pivot".to_owned(), goal: "raise".to_owned() },
            Event::Failed { failure: failure.in_step("pivot") },
            Event::Waiting {
                step: "pivot".to_owned(),
                waiting_for: "the bus".to_owned(),
                since: Timestamp::UNIX_EPOCH,
                stage: Stage::Begun,
                milliseconds: 0,
            },
            Event::Plan {
                plan: "p1".parse().unwrap(),
                module: "m1".parse().unwrap(),
                state: PlanState::Done { at: Timestamp::UNIX_EPOCH },
            },
        ] {
            let line = Line::new(Timestamp::UNIX_EPOCH, event);
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
    }

    #[test]
    fn a_line_looks_like_this() {
        let failure = Failure::new(Code::PortTaken, "port 4222 cannot be used").hint("choose another");
        let mut line = Line::new(Timestamp::UNIX_EPOCH, Event::Failed { failure });
        line.pid = 7;
        insta::assert_snapshot!(serde_json::to_string(&line).unwrap(), @r#"{"format":1,"time":"1970-01-01T00:00:00Z","pid":7,"event":"failed","failure":{"code":"port-taken","what":"port 4222 cannot be used","hint":"choose another","extent":"nothing"}}"#);
    }
}
