//! What this program is told on its command line, and nothing else: no environment, no file of its own.
//!
//! In: words. Out: a checked [`Config`]. Not here: reading the files it names.

use std::time::Duration;

use camino::Utf8PathBuf;
use clap::Parser;
use mesh_protocol::id::{MeshId, MeshName};

/// The controller of a mesh: answers the seat `mesh-controller`, and carries out plans while it serves.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "mesh-controller", version, about)]
pub struct Config {
    /// The mesh's id.
    #[arg(long, value_name = "ID")]
    pub mesh: MeshId,
    /// The mesh's name, for people.
    #[arg(long)]
    pub name: MeshName,
    /// Where the bus is, e.g. nats://127.0.0.1:4222.
    #[arg(long, value_name = "ADDRESS")]
    pub bus: String,
    /// The credential with which the seat is answered.
    #[arg(long, value_name = "FILE")]
    pub seat_credential: Utf8PathBuf,
    /// The credential with which the mesh's state is read and written.
    #[arg(long, value_name = "FILE")]
    pub state_credential: Utf8PathBuf,
    /// The run folder: `instance`, `role` and `role.ack`.
    #[arg(long, value_name = "FOLDER")]
    pub run_dir: Utf8PathBuf,
    /// How long the plan lock outlives a holder that is gone, in milliseconds.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 3000,
          value_parser = clap::value_parser!(u64).range(300..=60_000))]
    pub lease_ms: u64,
}

impl Config {
    /// How long the plan lock outlives a holder that is gone.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "./mesh-controller --mesh m1 --name lab --bus nats://127.0.0.1:4222 \
        --seat-credential /m/seat.creds --state-credential /m/state.creds --run-dir /run/p-1";

    #[test]
    fn the_words_of_the_manifest_are_understood() {
        let config = Config::try_parse_from(WORDS.split_whitespace()).unwrap();
        assert_eq!(config.run_dir, "/run/p-1");
        assert_eq!(config.lease(), Duration::from_secs(3));
    }

    #[test]
    fn what_is_not_right_is_refused() {
        let parse = |more: &str| {
            let words = format!("{WORDS} {more}");
            Config::try_parse_from(words.split_whitespace()).unwrap_err().to_string()
        };
        assert!(parse("--lease-ms 1").contains("300"));
        assert!(parse("--lessor").contains("--lessor"));
        let error = Config::try_parse_from(["c", "--mesh", "M1"]).unwrap_err().to_string();
        assert!(error.contains("a-z"), "{error}");
    }
}
