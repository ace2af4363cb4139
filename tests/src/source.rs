//! The controller's folder as its author has it, with something changed: what a test pushes or raises a mesh from.
//!
//! In: the repository's own `controller/`, changes of its text. Out: a folder with module.toml, genesis.toml and the
//! binary that they name. Not here: what becomes of it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::parts::{Binary, repository};

const SLEEPER: &str = r#"
[module]
name = "sleeper"
version = "1"
source = ".."

[[account]]
name = "sleeper"

[[bundle]]
name = "sleeper"
system = "linux/amd64"
binary = "target/mesh/linux-amd64/faulty-controller"

[[process]]
name = "sleeper"
bundle = "sleeper"
account = "sleeper"
run = ["./faulty-controller", "--fault", "never-ready"]
"#;

/// A controller's folder of a test's own.
#[derive(Debug)]
pub struct Source {
    folder: TempDir,
}

impl Source {
    /// A copy of the controller's folder.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn of_the_controller() -> Self {
        let source = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(source.folder()).unwrap();
        for name in ["module.toml", "genesis.toml"] {
            fs::copy(repository().join("controller").join(name), source.folder().join(name)).unwrap();
        }
        source.with_binary(&Binary::Controller.path())
    }

    /// A controller that does not stay up, in the way of `fault`.
    #[must_use]
    pub fn of_a_faulty_controller(fault: &str) -> Self {
        let name = Binary::FaultyController.name();
        let words = format!("\"./{name}\",\n    \"--fault\", \"{fault}\",");
        Self::of_the_controller()
            .with_binary(&Binary::FaultyController.path())
            .change("target/mesh/linux-amd64/mesh-controller", &format!("target/mesh/linux-amd64/{name}"))
            .change("\"./mesh-controller\",", &words)
    }

    /// A controller that goes wrong in the way of `fault`, of the name and with the words of a good one: what is wrong is
    /// in the bundle.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn of_a_bad_bundle(fault: &str) -> Self {
        let source = Self::of_the_controller();
        fs::copy(Binary::FaultyController.path(), source.binaries().join("mesh-controller")).unwrap();
        fs::write(source.folder.path().join("fault"), fault).unwrap();
        let build = "build  = [\"scripts/build\", \"linux/amd64\"]";
        source.change(build, &format!("{build}\nfiles  = {{ fault = \"fault\" }}"))
    }

    /// A module of one process that runs, asks for nothing and answers nothing.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn of_a_sleeper() -> Self {
        let source = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir_all(source.folder()).unwrap();
        fs::write(source.folder().join("module.toml"), SLEEPER).unwrap();
        source.with_binary(&Binary::FaultyController.path())
    }

    /// Where module.toml lies.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join("controller")
    }

    /// Where its binaries lie.
    #[must_use]
    pub fn binaries(&self) -> PathBuf {
        self.folder.path().join("target/mesh/linux-amd64")
    }

    /// With a binary more, under the name of its file.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn with_binary(self, path: &Path) -> Self {
        fs::create_dir_all(self.binaries()).unwrap();
        fs::copy(path, self.binaries().join(path.file_name().unwrap())).unwrap();
        self
    }

    /// With `from` in module.toml become `to`, wherever it stands.
    ///
    /// # Panics
    /// When it does not stand there: the test would test something else than it says.
    #[must_use]
    pub fn change(self, from: &str, to: &str) -> Self {
        let path = self.folder().join("module.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from:?} does not stand in module.toml any more:\n{text}");
        fs::write(path, text.replace(from, to)).unwrap();
        self
    }

    /// With lines at the end of module.toml.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn append(self, lines: &str) -> Self {
        let path = self.folder().join("module.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{text}\n{lines}\n")).unwrap();
        self
    }
}
