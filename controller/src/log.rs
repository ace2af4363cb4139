//! What this program says to whoever reads its log: plain lines on stderr, and the only place that prints.
//!
//! In: texts. Out: lines. A fault that lasts is said once, and again when it changes or comes back. Not here:
//! events of the mesh, which go over the bus.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    said: Arc<Mutex<BTreeMap<&'static str, String>>>,
}

impl Log {
    /// Says a line.
    #[allow(clippy::print_stderr, reason = "the log is stderr, and this is its one mouth")]
    pub fn line(&self, text: &str) {
        eprintln!("{text}");
    }

    /// Says what is wrong with `part`, unless that was the last thing said of it.
    pub fn once(&self, part: &'static str, text: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(part).is_none_or(|last| last != text) {
            said.insert(part, text.to_owned());
            drop(said);
            self.line(&format!("{part}: {text}"));
        }
    }

    /// `part` is right again: says so, if anything else was said of it.
    pub fn clear(&self, part: &'static str) {
        let removed = self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(part);
        if removed.is_some() {
            self.line(&format!("{part}: right again"));
        }
    }
}
