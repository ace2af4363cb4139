//! The surroundings of one run of the command, as a value: arguments, environment, folder, terminal, clock.
//!
//! In: what the system gave this process. Out: a [`World`] that is handed down, so that nothing below reads a
//! variable, a clock or a source of randomness of its own. Not here: what follows from it; that is `config`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _};

use camino::Utf8PathBuf;
use jiff::Timestamp;
use mesh_engine::Environment;

/// What one run of the command was given.
#[derive(Debug, Clone)]
pub struct World {
    /// The arguments, the program's name first.
    pub arguments: Vec<OsString>,
    /// The environment's variables; those that are not UTF-8 are left out.
    pub environment: BTreeMap<String, String>,
    /// The user's home folder.
    pub home: Option<Utf8PathBuf>,
    /// The current folder.
    pub folder: Utf8PathBuf,
    /// This very program: what is found beside it belongs to it.
    pub program: Utf8PathBuf,
    /// The effective user.
    pub user: u32,
    /// Where answers are typed.
    pub input: Stream,
    /// Where data goes.
    pub output: Stream,
    /// Where talk goes.
    pub errors: Stream,
    /// The time.
    pub clock: fn() -> Timestamp,
    /// Bytes that nobody can guess.
    pub random: fn(&mut [u8]) -> std::io::Result<()>,
}

/// What a standard stream is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// A person.
    Terminal,
    /// A file, a pipe, nothing.
    Other,
}

impl World {
    /// What this process was given.
    ///
    /// # Errors
    /// When the current folder or this program cannot be told, or is not UTF-8.
    pub fn of_this_process() -> std::io::Result<Self> {
        let utf8 = |path: std::path::PathBuf| Utf8PathBuf::try_from(path).map_err(std::io::Error::other);
        let engine = Environment::of_this_process();
        Ok(Self {
            arguments: std::env::args_os().collect(),
            environment: engine.variables,
            home: engine.home.and_then(|home| Utf8PathBuf::try_from(home).ok()),
            folder: utf8(std::env::current_dir()?)?,
            program: utf8(std::env::current_exe()?)?,
            user: rustix::process::geteuid().as_raw(),
            input: Stream::of(std::io::stdin().is_terminal()),
            output: Stream::of(std::io::stdout().is_terminal()),
            errors: Stream::of(std::io::stderr().is_terminal()),
            clock: Timestamp::now,
            random: system_random,
        })
    }

    /// A variable's value. Empty counts as not set.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// What the engine's endpoint is found by.
    #[must_use]
    pub fn engine_environment(&self) -> Environment {
        Environment {
            variables: self.environment.clone(),
            home: self.home.clone().map(Utf8PathBuf::into_std_path_buf),
        }
    }

    /// `length` letters and digits that nobody can guess: a DNS label that begins with a letter.
    ///
    /// # Errors
    /// When the system has no randomness to give.
    pub fn random_label(&self, length: usize) -> std::io::Result<String> {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz234567";
        let mut bytes = vec![0_u8; length];
        (self.random)(&mut bytes)?;
        let text = bytes.iter().enumerate().map(|(place, byte)| {
            // 32 letters divide 256 evenly; the first is one of 26, a little uneven, and of no account.
            let choice = if place == 0 { usize::from(*byte) % 26 } else { usize::from(*byte) % 32 };
            char::from(LETTERS[choice])
        });
        Ok(text.collect())
    }
}

impl Stream {
    const fn of(is_terminal: bool) -> Self {
        if is_terminal { Self::Terminal } else { Self::Other }
    }
}

fn system_random(bytes: &mut [u8]) -> std::io::Result<()> {
    std::fs::File::open("/dev/urandom")?.read_exact(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_protocol::id::MeshId;

    #[test]
    fn a_random_label_is_a_mesh_id() {
        let mut world = World::of_this_process().unwrap();
        for _ in 0..100 {
            let label = world.random_label(10).unwrap();
            assert_eq!(label.len(), 10);
            label.parse::<MeshId>().unwrap();
        }
        world.random = |bytes| {
            bytes.fill(255);
            Ok(())
        };
        assert_eq!(world.random_label(3).unwrap(), "v77");
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        let mut world = World::of_this_process().unwrap();
        world.environment =
            BTreeMap::from([("A".to_owned(), String::new()), ("B".to_owned(), "b".to_owned())]);
        assert_eq!(world.variable("A"), None);
        assert_eq!(world.variable("B"), Some("b"));
    }
}
