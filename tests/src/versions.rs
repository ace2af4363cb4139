//! Version after version of the controller, each good, each another than the one before.
//!
//! In: nothing. Out: folders to push. Not here: pushing.

use std::fs;

use crate::source::Source;

/// Every so often it is another bundle, too.
const BUNDLE_EVERY: usize = 5;

/// The controller's folder, of which each version reads another file; every fifth is another bundle as well: the same
/// program with something behind its end.
#[derive(Debug)]
pub struct Versions {
    source: Source,
    number: usize,
}

impl Default for Versions {
    fn default() -> Self {
        let file = "[[file]]\npath = \"${module.dir}/number\"\ncontent = \"number 0\"\nmode = \"0444\"\naccount = \"mesh-controller\"";
        Self { source: Source::of_the_controller().append(file), number: 0 }
    }
}

impl Versions {
    /// The next one.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn next(self) -> Self {
        let number = self.number + 1;
        let (before, after) = (format!("\"number {}\"", self.number), format!("\"number {number}\""));
        let source = self.source.change(&before, &after);
        if number.is_multiple_of(BUNDLE_EVERY) {
            let binary = source.binaries().join("mesh-controller");
            let mut bytes = fs::read(&binary).unwrap();
            bytes.extend(after.as_bytes());
            fs::write(binary, bytes).unwrap();
        }
        Self { source, number }
    }

    /// The present one.
    #[must_use]
    pub const fn source(&self) -> &Source {
        &self.source
    }
}
