//! The deeds of a program of ours, listed; and the program killed or stopped just before or just after one of them.
//!
//! In: the file that the program looks at (`mesh_durable::checkpoint`). Out: its deeds, by name without what differs
//! from run to run. Not here: what must be so afterwards.

use std::fs;

use camino::Utf8PathBuf;
use mesh_durable::checkpoint::{Blow, Moment, Order};

/// What a program looks at.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    file: Utf8PathBuf,
}

/// One deed as it was listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deed {
    /// Its number in its program.
    pub number: u64,
    /// What is done, without what differs from run to run.
    pub name: String,
}

impl Checkpoints {
    /// Those that the program finds in `file`.
    #[must_use]
    pub const fn at(file: Utf8PathBuf) -> Self {
        Self { file }
    }

    /// Has the program list its deeds.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn list(&self) {
        self.put(&Order::default());
    }

    /// Has the program kill or stop itself at a deed.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn strike(&self, number: u64, moment: Moment, signal: Blow) {
        self.put(&Order { number: Some(number), moment: Some(moment), signal });
    }

    fn put(&self, order: &Order) {
        let _ = fs::remove_file(format!("{}.log", self.file));
        let _ = fs::remove_file(format!("{}.fired", self.file));
        let beside = format!("{}.new", self.file);
        fs::write(&beside, serde_json::to_vec(order).unwrap()).unwrap();
        fs::rename(beside, &self.file).unwrap();
    }

    /// Whether it has happened.
    #[must_use]
    pub fn has_struck(&self) -> bool {
        fs::exists(format!("{}.fired", self.file)).unwrap()
    }

    /// The process that it has happened to.
    #[must_use]
    pub fn struck_process(&self) -> Option<u32> {
        let text = fs::read_to_string(format!("{}.log", self.file)).ok()?;
        self.has_struck().then(|| text.lines().last()?.split(' ').nth(2)?.parse().ok())?
    }

    /// Ends it, and tells what was done since.
    ///
    /// # Panics
    /// When the list is none.
    #[must_use]
    pub fn end(&self) -> Vec<Deed> {
        let _ = fs::remove_file(&self.file);
        let text = fs::read_to_string(format!("{}.log", self.file)).unwrap_or_default();
        let deeds = text.lines().filter_map(|line| {
            let mut words = line.splitn(4, ' ');
            let (number, moment, _pid, deed) = (words.next()?, words.next()?, words.next()?, words.next()?);
            (moment == "before").then(|| Deed { number: number.parse().unwrap(), name: without_names(deed) })
        });
        deeds.collect()
    }
}

/// A deed's words, with what a run makes up in them taken out: ids of instances and containers, digests, temporary folders.
fn without_names(deed: &str) -> String {
    let word = |word: &str| {
        let parts = word.split('/').map(|part| {
            let is_instance = part.len() > 6 && (part.starts_with("p-") || part.starts_with("c-"));
            let is_digest = part.len() >= 12 && part.chars().all(|c| c.is_ascii_hexdigit());
            match part {
                _ if is_instance => "INSTANCE".to_owned(),
                _ if is_digest => "DIGEST".to_owned(),
                _ if part.starts_with("mt-") => "MESH".to_owned(),
                _ => part.to_owned(),
            }
        });
        parts.collect::<Vec<_>>().join("/")
    };
    deed.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_has_a_name_that_is_the_same_in_each_run() {
        let found = without_names("write /tmp/mt-Ab12/r/run/p-0123456789abcdef/role");
        assert_eq!(found, "write /tmp/MESH/r/run/INSTANCE/role");
        assert_eq!(without_names("stop container 0123456789ab"), "stop container DIGEST");
    }
}
