//! What an earlier genesis left at the root: the inputs it was begun with, its lock, how far it came.
//!
//! In: the mesh's own file, its journal, the kernel's table of locks. Out: findings. Takes no lock itself, not for a moment.

use std::os::unix::fs::MetadataExt as _;

use mesh_protocol::layout::Layout;

use super::check::{Finding, expect, wrong};
use super::intent::{Intent, Lock};
use super::machine::Origin;
use crate::journal;
use crate::mesh_file::{self, Asked, MeshFile};
use crate::output::{Code, Event, Failure, Line};

/// Who holds the lock of this root, by the kernel's table: proc_locks(5).
pub(super) fn lock_holder(layout: &Layout) -> Option<u32> {
    let inode = std::fs::metadata(layout.installer_lock()).ok()?.ino();
    holder_in(&std::fs::read_to_string("/proc/locks").ok()?, inode)
}

fn holder_in(table: &str, inode: u64) -> Option<u32> {
    let end = format!(":{inode}");
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        // One that waits has an arrow before its kind.
        let holds = words.get(1) == Some(&"FLOCK") && words.get(5)?.ends_with(&end);
        holds.then(|| words.get(4)?.parse().ok())?
    })
}

/// One command at a time changes a mesh.
pub(super) fn lock(whose: Lock, holder: Option<u32>) -> Finding {
    let check = expect("nothing else that changes this mesh");
    match (whose, holder) {
        (Lock::Ours, _) => check.met("locked by this command"),
        (Lock::NotOurs, None) => check.met("not locked"),
        (Lock::NotOurs, Some(pid)) => check.failed(wrong(
            Code::Locked,
            "something else is changing this mesh",
            format!("its lock is held by process {pid}"),
            "wait until it has ended, or end it",
        )),
    }
}

/// The same inputs as when the mesh was begun.
pub(super) fn inputs(intent: &Intent<'_>) -> Finding {
    let check = expect("the options that the mesh was begun with, or none");
    let Some(mesh) = intent.mesh else { return check.met("no mesh was begun here") };
    let differences = mesh_file::differences(&mesh.inputs, &Asked::of(intent.wanted));
    if differences.is_empty() {
        return check.met(format!("those of mesh {} ({})", mesh.inputs.name, mesh.mesh));
    }
    check.failed(mesh_file::refusal(intent.layout.root(), &differences))
}

/// What of a genesis is there.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Attempt {
    /// Nothing.
    None,
    /// It got to its end.
    Finished,
    /// It did not, yet.
    Begun {
        /// The last that it wrote down.
        last: Option<Line>,
    },
}

impl Attempt {
    /// As it is.
    pub(super) fn of(layout: &Layout, mesh: Option<&MeshFile>) -> Self {
        match mesh {
            Some(mesh) if mesh.process_since.is_some() => Self::Finished,
            None if !layout.installer_lock().exists() => Self::None,
            _ => {
                Self::Begun { last: journal::read(&layout.journal()).ok().and_then(|mut lines| lines.pop()) }
            }
        }
    }
}

/// One that was killed goes on when it is called again: nothing has to be cleaned up first.
pub(super) fn attempt(whose: Lock, attempt: &Attempt) -> Finding {
    let check = expect("no genesis that was begun and not finished");
    match attempt {
        Attempt::None => check.met("none was begun"),
        Attempt::Finished => check.met("the one that was begun was finished"),
        Attempt::Begun { .. } if whose == Lock::Ours => check.met("this one goes on with what was begun"),
        Attempt::Begun { last } => {
            let last = last.as_ref().map_or_else(|| "nothing was written down".to_owned(), text);
            let what = format!("a genesis was begun here and not finished; the last of its journal: {last}");
            let remedy =
                "run the same command again: it goes on from there; or remove what was begun: mesh down";
            check.warned(wrong(Code::NotReached, what, last, remedy))
        }
    }
}

fn text(line: &Line) -> String {
    let what = match &line.event {
        Event::Command { words, .. } => words.join(" "),
        Event::Begun { step, .. } => format!("{step}: begun"),
        Event::Effect { step, what } => format!("{step}: {what}"),
        event => crate::output::lines::of(event).into_iter().next().unwrap_or_default(),
    };
    format!("{:.0} {what}", line.time)
}

/// Whether the node's name was said when the mesh was begun, or taken over from the machine.
pub(super) fn origin_of_the_node(layout: &Layout) -> Origin {
    let lines = journal::read(&layout.journal()).unwrap_or_default();
    let first = lines.iter().find_map(|line| match &line.event {
        Event::Command { words, .. } => Some(words),
        _ => None,
    });
    let said =
        first.is_none_or(|words| words.iter().any(|word| word == "--node" || word.starts_with("--node=")));
    if said { Origin::Said } else { Origin::HostName }
}

/// What the mesh's own file is, where it cannot be read.
pub(super) fn unreadable(failure: Failure) -> Finding {
    expect("the file that genesis wrote, or none").failed(failure)
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;
    use crate::journal::Journal;
    use crate::lock::InstallerLock;
    use camino::Utf8Path;
    use jiff::Timestamp;

    #[test]
    fn whoever_holds_the_lock_is_seen_without_touching_it() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap());
        assert_eq!(lock_holder(&layout), None);
        let held = InstallerLock::take(&layout.installer_lock(), "genesis", Timestamp::UNIX_EPOCH).unwrap();
        let holder = lock_holder(&layout);
        assert_eq!(holder, Some(std::process::id()));
        assert_eq!(lock(Lock::NotOurs, holder).state, State::Failed);
        assert_eq!(lock(Lock::Ours, holder).state, State::Passed);
        drop(held);
        assert_eq!(lock_holder(&layout), None);
    }

    #[test]
    fn one_who_waits_does_not_hold() {
        let table =
            "1: FLOCK  ADVISORY  WRITE 7 fe:00:42 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 8 fe:00:43 0 EOF\n";
        assert_eq!(holder_in(table, 42), Some(7));
        assert_eq!(holder_in(table, 43), None);
        assert_eq!(holder_in(table, 2), None);
    }

    #[test]
    fn what_was_begun_tells_how_far_it_came_and_whether_the_node_was_named() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap());
        assert_eq!(Attempt::of(&layout, None), Attempt::None);
        std::fs::write(layout.installer_lock(), "").unwrap();
        let mut journal = Journal::open(&layout.journal(), || Timestamp::UNIX_EPOCH).unwrap();
        let words = ["mesh", "genesis", "--node=n1"].map(str::to_owned).to_vec();
        journal.note(Event::Command { words, version: "1".to_owned() }).unwrap();
        assert_eq!(origin_of_the_node(&layout), Origin::Said);
        let finding = attempt(Lock::NotOurs, &Attempt::of(&layout, None));
        assert_eq!(finding.state, State::Warned);
        assert_eq!(finding.found, "1970-01-01T00:00:00Z mesh genesis --node=n1");
    }
}
