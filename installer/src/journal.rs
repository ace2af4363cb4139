//! The journal: what genesis and restore began, did, waited for and failed in, one line each, written before the effect.
//!
//! In: events, those that are printed too. Out: lines in `journal.jsonl`, of the same form as with `--json`, synced.
//! It explains (`story`); nothing is believed because it stands here. Not here: what cannot be observed and must be known
//! (`mesh_file`).

pub mod story;

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;

use crate::output::{Code, Event, Failure, Line, Result};
use mesh_durable::checkpoint;

/// The journal, open at its end.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: Utf8PathBuf,
    clock: fn() -> Timestamp,
}

impl Journal {
    /// Opens it, and begins it where there is none. A line that a kill cut off is ended.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(path: &Utf8Path, clock: fn() -> Timestamp) -> Result<Self> {
        let failed = |error: io::Error| failure(path, &error);
        let whole = match std::fs::read(path) {
            Ok(bytes) => bytes.last().is_none_or(|byte| *byte == b'\n'),
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(failed(error)),
        };
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(failed)?;
        if !whole {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self { file, path: path.to_owned(), clock })
    }

    /// Writes one line, and returns when the disk has it: what is begun or about to be done.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&mut self, event: Event) -> Result<()> {
        let text = self.line(event)?;
        let written = checkpoint::around(
            || format!("write a line to {}", self.path),
            || self.file.write_all(&text).and_then(|()| self.file.sync_data()),
        );
        written.map_err(|error| failure(&self.path, &error))
    }

    /// Writes one line that no deed follows: what is waited for.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn remark(&mut self, event: Event) -> Result<()> {
        let text = self.line(event)?;
        self.file.write_all(&text).map_err(|error| failure(&self.path, &error))
    }

    fn line(&self, event: Event) -> Result<Vec<u8>> {
        let line = Line::new((self.clock)(), event);
        let mut text = serde_json::to_vec(&line).map_err(|error| Failure::of(Code::Internal, &error))?;
        text.push(b'\n');
        Ok(text)
    }
}

/// Every line that can be read; none where there is no journal.
///
/// # Errors
/// When it is there and cannot be read at all.
pub fn read(path: &Utf8Path) -> io::Result<Vec<Line>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut lines = Vec::new();
    for line in BufReader::new(file).lines() {
        if let Ok(line) = serde_json::from_str(&line?) {
            lines.push(line);
        }
    }
    Ok(lines)
}

fn failure(path: &Utf8Path, error: &io::Error) -> Failure {
    Failure::because(Code::Io, &format!("journal {path} cannot be written"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_off_costs_only_itself() {
        let temp = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(temp.path()).unwrap().join("journal.jsonl");
        assert!(read(&path).unwrap().is_empty());
        let note = |step: &str| Event::Begun { step: step.to_owned(), goal: String::new() };
        Journal::open(&path, Timestamp::now).unwrap().note(note("host")).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend_from_slice(b"{\"time\":\"2026");
        std::fs::write(&path, bytes).unwrap();
        Journal::open(&path, Timestamp::now).unwrap().note(note("pivot")).unwrap();
        let notes: Vec<Event> = read(&path).unwrap().into_iter().map(|line| line.event).collect();
        assert_eq!(notes, [note("host"), note("pivot")]);
    }
}
