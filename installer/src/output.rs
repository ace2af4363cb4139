//! The one mouth: data goes to standard output, talk to standard error, and each in the form that was asked for.
//!
//! In: data, events, failures. Out: text on the two streams. Not here: what is worth saying; the rooms tell it as
//! [`Event`]s, and this decides whether it is a bar, a plain line or a line of JSON.

pub mod amount;
mod bars;
pub mod code;
pub mod event;
pub mod failure;
pub mod lines;
pub mod meter;
pub mod table;

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::world::{Stream, World};
use bars::Bars;
pub use event::Event;
pub use event::Line;
pub use failure::{Code, Exit, Extent, Failure, Result};
pub use meter::Meter;

/// In which form data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people.
    Text,
    /// JSON, a line a document or event.
    Json,
}

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volume {
    /// Failures alone.
    Quiet,
    /// What happens.
    Normal,
    /// And how.
    Verbose,
}

/// Prints. Cheap to clone; all clones are the same mouth.
#[derive(Debug, Clone)]
pub struct Printer {
    form: Form,
    volume: Volume,
    colour: Colour,
    bars: Option<Arc<Mutex<Bars>>>,
    clock: fn() -> jiff::Timestamp,
}

/// The version of the form of all documents.
const DOCUMENT_FORMAT: u32 = 1;

/// A document, with the version of its form before it.
#[derive(Debug, Serialize)]
struct Formatted<'a, T> {
    format: u32,
    #[serde(flatten)]
    document: &'a T,
}

/// Whether talk is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Colour {
    Some,
    None,
}

impl Printer {
    /// A printer for these surroundings. Colours and bars are for terminals, and `NO_COLOR` takes the colours away.
    #[must_use]
    pub fn new(world: &World, form: Form, volume: Volume) -> Self {
        let terminal = world.errors == Stream::Terminal && world.variable("TERM") != Some("dumb");
        let colour =
            if terminal && world.variable("NO_COLOR").is_none() { Colour::Some } else { Colour::None };
        let wants_bars = terminal && form == Form::Text && volume != Volume::Quiet;
        let bars = wants_bars.then(|| Arc::new(Mutex::new(Bars::new(colour == Colour::Some))));
        Self { form, volume, colour, bars, clock: world.clock }
    }

    /// The time by which events are told.
    #[must_use]
    pub fn now(&self) -> jiff::Timestamp {
        (self.clock)()
    }

    /// In which form data is printed.
    #[must_use]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// How much is said.
    #[must_use]
    pub const fn volume(&self) -> Volume {
        self.volume
    }

    /// One line of data.
    pub fn data(&self, line: &str) {
        self.around_bars(|| write_line(&mut std::io::stdout().lock(), line));
    }

    /// Whether progress is shown as something that moves.
    #[must_use]
    pub const fn moves(&self) -> bool {
        self.bars.is_some()
    }

    /// A document: as one line of JSON where that was asked for, for events may have come before it; else as these lines.
    /// Each says of which form it is, for programs that outlive a version of this one.
    pub fn document<T: Serialize>(&self, document: &T, lines: impl FnOnce() -> Vec<String>) {
        match self.form {
            Form::Json => match serde_json::to_string(&Formatted { format: DOCUMENT_FORMAT, document }) {
                Ok(text) => self.data(&text),
                Err(error) => self.talk(&format!("error[internal]: a document cannot be written: {error}")),
            },
            Form::Text => lines().iter().for_each(|line| self.data(line)),
        }
    }

    /// One line of JSON, as it was said before.
    pub fn line(&self, line: &Line) {
        match serde_json::to_string(line) {
            Ok(text) => self.data(&text),
            Err(error) => self.talk(&format!("error[internal]: an event cannot be written: {error}")),
        }
    }

    /// One line of talk, whatever the volume.
    pub fn talk(&self, line: &str) {
        self.around_bars(|| write_line(&mut std::io::stderr().lock(), line));
    }

    /// Something that happened.
    pub fn event(&self, event: &Event) {
        match self.form {
            Form::Json => self.line(&Line::new(self.now(), event.clone())),
            Form::Text => self.event_as_text(event),
        }
    }

    fn event_as_text(&self, event: &Event) {
        if let Event::Availability { .. } | Event::Times { .. } | Event::Finished { .. } = event {
            self.clear();
            lines::of(event).iter().for_each(|line| self.data(line));
            return;
        }
        if let Some(bars) = &self.bars {
            bars.lock().unwrap_or_else(PoisonError::into_inner).show(event);
            return;
        }
        let wanted = match event {
            Event::Bytes { .. } | Event::Effect { .. } => Volume::Verbose,
            _ => Volume::Normal,
        };
        if self.volume >= wanted {
            lines::of(event).iter().for_each(|line| self.talk(line));
        }
    }

    /// A failure, which is the last event: with JSON it is a line of it, and talk in any form.
    pub fn failure(&self, failure: &Failure) {
        self.clear();
        if failure.told {
            return;
        }
        let event = Event::Failed { failure: failure.clone() };
        if self.form == Form::Json {
            self.event(&event);
        }
        for (place, line) in lines::of(&event).iter().enumerate() {
            match (self.colour, place) {
                (Colour::Some, 0) => self.talk(&format!("\x1b[31m{line}\x1b[0m")),
                _ => self.talk(line),
            }
        }
    }

    /// Takes what moves off the terminal.
    pub fn clear(&self) {
        if let Some(bars) = &self.bars {
            bars.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    fn around_bars(&self, write: impl FnOnce()) {
        match &self.bars {
            Some(bars) => bars.lock().unwrap_or_else(PoisonError::into_inner).suspend(write),
            None => write(),
        }
    }
}

/// A reader that went away (`mesh events | head`) is nobody's failure.
fn write_line(stream: &mut impl std::io::Write, line: &str) {
    let _ = stream.write_all(line.as_bytes());
    let _ = stream.write_all(b"\n");
    let _ = stream.flush();
}

/// Asks on the terminal, and reads one line.
///
/// # Errors
/// When the terminal cannot be read.
pub fn ask(question: &str) -> std::io::Result<String> {
    let mut errors = std::io::stderr().lock();
    errors.write_all(question.as_bytes())?;
    errors.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().to_owned())
}

/// A failure before there is anything to print with.
#[must_use]
pub fn no_world(error: &std::io::Error) -> Exit {
    let failure = Failure::because(Code::Io, "the surroundings cannot be read", error);
    failure.lines().iter().for_each(|line| write_line(&mut std::io::stderr().lock(), line));
    failure.exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_begins_with_the_version_of_its_form() {
        #[derive(Serialize)]
        #[serde(rename_all = "kebab-case", tag = "told_by")]
        enum Document {
            Host { name: &'static str },
        }
        let document = Formatted { format: DOCUMENT_FORMAT, document: &Document::Host { name: "n1" } };
        insta::assert_snapshot!(serde_json::to_string(&document).unwrap(), @r#"{"format":1,"told_by":"host","name":"n1"}"#);
    }
}
