//! Where the real programs lie: the bus's and the store's, unpacked by scripts/test; our own, built by
//! scripts/build; and the test's own, built by scripts/test.

use std::path::{Path, PathBuf};

use mesh_protocol::id::System;

/// A third party's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The bus.
    NatsServer,
    /// The store.
    DockerRegistry,
}

/// A program of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Binary {
    /// The command.
    Mesh,
    /// The host.
    Host,
    /// The controller.
    Controller,
    /// A controller that does not stay up, as it is told: the tests' own.
    FaultyController,
}

impl Part {
    /// Its path.
    ///
    /// # Panics
    /// When it is not there, saying what to run.
    #[must_use]
    pub fn path(self) -> PathBuf {
        let below = match self {
            Self::NatsServer => "nats-server/usr/sbin/nats-server",
            Self::DockerRegistry => "docker-registry/usr/bin/docker-registry",
        };
        there(folder("MESH_PARTS", Path::new("target/parts")).join(below), "MESH_PARTS")
    }
}

impl Binary {
    /// Its path.
    ///
    /// # Panics
    /// When it is not there, saying what to run.
    #[must_use]
    pub fn path(self) -> PathBuf {
        match self {
            Self::FaultyController => there(test_binaries().join(self.name()), "MESH_TEST_BINARIES"),
            Self::Mesh | Self::Host | Self::Controller => {
                there(binaries().join(self.name()), "MESH_BINARIES")
            }
        }
    }

    /// The name of its file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mesh => "mesh",
            Self::Host => "mesh-host",
            Self::Controller => "mesh-controller",
            Self::FaultyController => "faulty-controller",
        }
    }
}

/// The folder of our programs for this machine's system.
#[must_use]
pub fn binaries() -> PathBuf {
    folder("MESH_BINARIES", &Path::new("target/mesh").join(System::of_this_program().dashed()))
}

/// The folder of the tests' own programs, built as ours are.
fn test_binaries() -> PathBuf {
    let name = format!("{}-tests", System::of_this_program().dashed());
    folder("MESH_TEST_BINARIES", &Path::new("target/mesh").join(name))
}

/// The `PATH` with which the command finds the bus's and the store's programs on this machine.
///
/// # Panics
/// When one of them is not there.
#[must_use]
pub fn search_path() -> String {
    let folders = [Part::NatsServer, Part::DockerRegistry].map(|part| {
        let path = part.path();
        path.parent().expect("a program lies in a folder").display().to_string()
    });
    format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", folders.join(":"))
}

/// The repository's folder.
#[must_use]
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("this crate is a folder of the repository").to_owned()
}

fn folder(variable: &str, default: &Path) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| repository().join(default), PathBuf::from)
}

fn there(path: PathBuf, variable: &str) -> PathBuf {
    assert!(
        path.is_file(),
        "{} is missing: run scripts/test (or scripts/build), or set {variable}",
        path.display()
    );
    path
}
