//! Runs a program to its end, within a deadline, and keeps what it said.
//!
//! In: a program, words, an environment that begins empty. Out: [`Said`]. Not here: which program.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tokio::process::Command;

/// What a program said, and how it ended.
#[derive(Debug, Clone)]
pub struct Said {
    /// The words it was run with.
    pub words: Vec<String>,
    /// Its exit status; none when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it took.
    pub took: Duration,
}

/// A user of the machine, as a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// As the test itself.
    Myself,
    /// As this user and group, in no other group.
    User(u32),
}

/// Runs `program` with `words` in an environment of nothing but `environment`.
///
/// # Panics
/// When it cannot be run, or has not ended after `limit`; it is ended then.
pub async fn run<W: AsRef<OsStr>>(
    program: &Path,
    words: &[W],
    environment: &[(String, String)],
    user: As,
    limit: Duration,
) -> Said {
    let began = Instant::now();
    let texts: Vec<String> = std::iter::once(program.as_os_str())
        .chain(words.iter().map(AsRef::as_ref))
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    // Files, not pipes: what was said by one that is cut off can still be read.
    let (mut stdout, mut stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut command = Command::new(program);
    command.args(words).env_clear().envs(environment.iter().cloned()).current_dir("/").stdin(Stdio::null());
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap()).kill_on_drop(true);
    if let As::User(number) = user {
        command.uid(number).gid(number);
    }
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("{} cannot be run: {error}", texts.join(" ")));
    let ended = tokio::time::timeout(limit, child.wait()).await;
    let said = Said {
        words: texts,
        code: ended.as_ref().ok().and_then(|ended| ended.as_ref().unwrap().code()),
        stdout: read(&mut stdout),
        stderr: read(&mut stderr),
        took: began.elapsed(),
    };
    assert!(ended.is_ok(), "it has not ended after {limit:?}: {said}");
    said
}

fn read(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Said {
    /// It, if it ended with this exit status.
    ///
    /// # Panics
    /// When it ended otherwise, showing what it said.
    #[track_caller]
    #[must_use]
    pub fn exited(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self}");
        self
    }

    /// It, if it said each of these texts, on whichever stream.
    ///
    /// # Panics
    /// When one is missing, showing what it said.
    #[track_caller]
    #[must_use]
    pub fn says(self, texts: &[&str]) -> Self {
        for text in texts {
            let is_said = self.stdout.contains(text) || self.stderr.contains(text);
            assert!(is_said, "expected it to say {text:?}: {self}");
        }
        self
    }

    /// The document that it printed, behind whatever it said on the way.
    ///
    /// # Panics
    /// When what it printed is none, showing what it said.
    #[track_caller]
    #[must_use]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        let documents = serde_json::Deserializer::from_str(&self.stdout).into_iter::<serde_json::Value>();
        let last = documents.last().unwrap_or_else(|| panic!("no document: {self}"));
        last.and_then(serde_json::from_value)
            .unwrap_or_else(|error| panic!("no such document ({error}): {self}"))
    }
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let status = self.code.map_or_else(|| "a signal".to_owned(), |code| format!("exit status {code}"));
        let Self { words, stdout, stderr, took, .. } = self;
        write!(
            f,
            "{} ended with {status} after {took:?}\n--- stdout\n{stdout}--- stderr\n{stderr}---",
            words.join(" ")
        )
    }
}
