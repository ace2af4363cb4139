//! Ctrl-C and SIGTERM, heard from the begin of a command to its end.
//!
//! In: signals. Out: work that was dropped where it waited. What that means to the person who interrupted is for the
//! command to say: most go on when they are run again, and a plan goes on without anybody.

use camino::Utf8Path;
use jiff::Timestamp;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::journal::{self, Journal};
use crate::output::{Code, Event, Failure, Result};

/// The signals that end a command. One value a command: a signal that comes while nothing waits for it is heard by
/// the next that does.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Begins to listen.
    ///
    /// # Errors
    /// When signals cannot be heard.
    pub fn listen() -> Result<Self> {
        let failed =
            |error: std::io::Error| Failure::because(Code::Internal, "signals cannot be heard", &error);
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// What work comes to; none where it was interrupted first.
    pub async fn unless<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            // cancel safe: what is dropped has done whole effects only, and whoever is interrupted is told what
            // goes on without this command.
            result = work => Some(result),
            // cancel safe: a signal's stream
            _ = self.interrupt.recv() => None,
            // cancel safe: a signal's stream
            _ = self.terminate.recv() => None,
        }
    }
}

/// What an interrupted command is that goes on when it is run again.
#[must_use]
pub fn interrupted() -> Failure {
    Failure::new(Code::Interrupted, "interrupted")
        .hint("run the same command again: it goes on from here")
        .part_way()
}

/// The same, of a command that writes down what it does: says where it was, and writes that it was interrupted there.
#[must_use]
pub fn interrupted_at(journal: &Utf8Path, clock: fn() -> Timestamp) -> Failure {
    let mut failure = interrupted();
    let lines = journal::read(journal).unwrap_or_default();
    let own = lines.iter().rev().take_while(|line| line.pid == std::process::id());
    let mut step = own.filter_map(|line| match &line.event {
        Event::Begun { step, .. } => Some(step.clone()),
        _ => None,
    });
    if let Some(step) = step.next() {
        failure.what = format!("interrupted in step {step}");
        // What cannot be noted is said all the same.
        let noted = Journal::open(journal, clock);
        let _ = noted.and_then(|mut journal| journal.note(Event::Failed { failure: failure.clone() }));
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_and_written_in_which_step_it_was() {
        let temp = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(temp.path()).unwrap().join("journal.jsonl");
        assert_eq!(interrupted_at(&path, Timestamp::now).what, "interrupted");
        assert!(!path.exists(), "a command that wrote nothing leaves nothing");
        let mut journal = Journal::open(&path, Timestamp::now).unwrap();
        for step in ["identity", "images"] {
            journal.note(Event::Begun { step: step.to_owned(), goal: String::new() }).unwrap();
        }
        let failure = interrupted_at(&path, Timestamp::now);
        assert_eq!((failure.what.as_str(), failure.exit() as i32), ("interrupted in step images", 130));
        let last = journal::read(&path).unwrap().pop().unwrap();
        assert_eq!(last.event, Event::Failed { failure });
    }

    #[tokio::test]
    async fn work_that_is_interrupted_comes_to_nothing_and_goes_on_when_it_is_run_again() {
        let mut interrupts = Interrupts::listen().unwrap();
        let own = rustix::process::getpid();
        let waiting = async {
            rustix::process::kill_process(own, rustix::process::Signal::TERM).unwrap();
            std::future::pending::<()>().await;
        };
        assert!(interrupts.unless(waiting).await.is_none());
        assert_eq!(interrupts.unless(async { 1 }).await, Some(1));
        let failure = interrupted();
        assert_eq!((failure.code, failure.exit() as i32), (Code::Interrupted, 130));
    }
}
