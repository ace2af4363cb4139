//! The folder that the mesh lies in, or will: its path, what is in it, who gets to it, and the room around it.
//!
//! In: a path. Out: findings. Touches nothing; what has to be tried is tried in `place`.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::layout::Layout;

use super::check::{Finding, expect, wrong};
use super::place;
use crate::machine::Room;
use crate::output::{Code, Failure};

/// Images, bundles and the bus's store of a fresh mesh take some two hundred megabytes.
const ROOM: u64 = 512 << 20;

/// A fresh mesh has some hundred files and folders; its store some more for each bundle.
const FILES: u64 = 10_000;

/// A unix socket's path has at most 107 bytes: unix(7).
const LONGEST_SOCKET: usize = 107;

/// The mesh's sockets lie below it, and the engine is told of it as it is.
pub(super) fn path(layout: &Layout) -> Finding {
    let (root, door) = (layout.root(), layout.door());
    let check = expect(format!(
        "a path without blanks, commas and quotes, so short that a socket's has at most {LONGEST_SOCKET} bytes"
    ));
    let fault = || Failure::new(Code::RootUnusable, format!("folder {root} cannot be a mesh's root"));
    let length = door.as_std_path().as_os_str().as_bytes().len();
    if length > LONGEST_SOCKET {
        let failure = fault()
            .expected(format!("a path so short that {door} has at most {LONGEST_SOCKET} bytes"))
            .found(format!("{length} bytes"));
        return check.failed(failure.hint("choose a shorter --root"));
    }
    // The engine's mount options and sockets take no such paths.
    if root.as_str().contains([',', ' ', '\n', '"', '\'']) {
        let failure = fault().expected("a path without blanks, commas and quotes").found(format!("{root:?}"));
        return check.failed(failure.hint("choose another --root"));
    }
    check.met(root.to_string())
}

/// What there is at the root's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Folder {
    /// Nothing.
    Nothing,
    /// A folder with this in it that is no mesh's.
    There {
        /// At most some of it.
        foreign: Vec<String>,
    },
    /// Something else.
    Other,
    /// It cannot be seen.
    Unseen(String),
}

impl Folder {
    /// As it is.
    pub(super) fn of(layout: &Layout) -> Self {
        let root = layout.root();
        match std::fs::symlink_metadata(root) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::Nothing,
            Err(error) => Self::Unseen(error.to_string()),
            Ok(facts) if !facts.is_dir() => Self::Other,
            Ok(_) => Self::There { foreign: foreign_entries(layout) },
        }
    }
}

fn foreign_entries(layout: &Layout) -> Vec<String> {
    let ours = [layout.installer_lock(), layout.journal(), layout.genesis_work()];
    let entries = layout.root().read_dir_utf8().into_iter().flatten().flatten();
    let foreign = entries.filter(|entry| !ours.iter().any(|path| path == entry.path()));
    let names = foreign.map(|entry| entry.file_name().to_owned());
    let mut names: Vec<String> =
        names.filter(|name| !place::is_probe(name) && !mesh_durable::is_beside(name)).take(5).collect();
    names.sort();
    names
}

/// It must be nobody else's.
pub(super) fn folder(root: &Utf8Path, there: &Folder, is_mesh: bool) -> Finding {
    let check = expect("no folder, an empty one, or this mesh's");
    let fault = || Failure::new(Code::RootUnusable, format!("folder {root} cannot be a mesh's root"));
    match there {
        Folder::Nothing => check.met("no folder yet"),
        Folder::Unseen(why) => check.failed(wrong(
            Code::RootUnusable,
            format!("folder {root} cannot be seen: {why}"),
            why.clone(),
            "choose another --root, or mend the folders above it",
        )),
        Folder::Other => check.failed(
            fault().expected("a folder").found("something else").hint("choose another --root, or remove it"),
        ),
        Folder::There { .. } if is_mesh => check.met("this mesh's folder"),
        Folder::There { foreign } if foreign.is_empty() => check.met("an empty folder"),
        Folder::There { foreign } => check.failed(
            Failure::new(
                Code::RootUnusable,
                format!("folder {root} cannot be a mesh's root: {} is in it", foreign.join(", ")),
            )
            .expected("no folder, or an empty one")
            .found(foreign.join(", "))
            .hint("choose another --root, or empty it"),
        ),
    }
}

/// The lowest folder above the root that lets no other account through.
pub(super) fn closed_above(root: &Utf8Path) -> Option<Utf8PathBuf> {
    const THROUGH: u32 = 0o001;
    let closed = |folder: &&Utf8Path| {
        std::fs::metadata(folder)
            .is_ok_and(|facts| facts.is_dir() && facts.permissions().mode() & THROUGH == 0)
    };
    root.ancestors().skip(1).find(closed).map(Utf8Path::to_owned)
}

/// Processes run under accounts of their own from below the root: each folder above it must let them through.
pub(super) fn passage(root: &Utf8Path, closed: Option<&Utf8Path>) -> Finding {
    let check = expect("folders that others may pass through, for processes run under accounts of their own");
    let Some(folder) = closed else { return check.met(format!("all above {root} are open")) };
    check.failed(wrong(
        Code::RootUnusable,
        format!("no account but root's gets through {folder} to {root}"),
        format!("{folder} is closed to others"),
        format!("choose another --root, or: chmod o+x {folder}"),
    ))
}

/// Whose room is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For<'a> {
    /// The mesh's root.
    Root(&'a Utf8Path),
    /// The engine's own folder.
    Engine(&'a str),
}

impl For<'_> {
    fn what(self) -> String {
        match self {
            Self::Root(root) => root.to_string(),
            Self::Engine(folder) => format!("the engine's folder {folder}"),
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Root(_) => "free some, or choose another --root",
            Self::Engine(_) => "free some (docker system df shows what takes it)",
        }
    }
}

/// The room for what will come; `room` is none where there is no such folder on this machine.
pub(super) fn disk(whose: For<'_>, room: &Result<Room, String>) -> Finding {
    let mega = |bytes: u64| format!("{} MB", bytes >> 20);
    let check = expect(format!("{} of room", mega(ROOM)));
    match room {
        Err(why) => unknown(check, whose, why),
        Ok(room) if room.bytes < ROOM => {
            let what = format!("there is too little room for {}: {}", whose.what(), mega(room.bytes));
            let failure = Failure::new(Code::DiskFull, what).expected(mega(ROOM)).found(mega(room.bytes));
            check.failed(failure.hint(whose.hint()))
        }
        Ok(room) => check.met(mega(room.bytes)),
    }
}

/// The same for files: a file system can be full of them with room left.
pub(super) fn inodes(whose: For<'_>, room: &Result<Room, String>) -> Finding {
    let check = expect(format!("room for {FILES} files"));
    match room {
        Err(why) => unknown(check, whose, why),
        Ok(Room { files: None, .. }) => check.met("a file system without such a limit"),
        Ok(Room { files: Some(files), .. }) if *files < FILES => check.failed(wrong(
            Code::DiskFull,
            format!("there is room for too few files (inodes) for {}", whose.what()),
            format!("{files}"),
            whose.hint(),
        )),
        Ok(Room { files: Some(files), .. }) => check.met(format!("{files}")),
    }
}

fn unknown(check: super::check::Expected, whose: For<'_>, why: &str) -> Finding {
    match whose {
        For::Root(root) => check.failed(wrong(
            Code::Io,
            format!("the room for {root} cannot be told: {why}"),
            why,
            "choose another --root",
        )),
        For::Engine(folder) => check.skipped(format!("{folder} is not to be seen from here: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn what_a_killed_genesis_or_look_left_is_not_foreign() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap());
        std::fs::write(layout.installer_lock(), "").unwrap();
        std::fs::write(layout.journal(), "").unwrap();
        std::fs::write(layout.root().join(".mesh.json.7.0.tmp"), "{").unwrap();
        std::fs::create_dir(layout.root().join(place::folder_name("x"))).unwrap();
        let finding = folder(layout.root(), &Folder::of(&layout), false);
        assert_eq!(finding.state, State::Passed, "{finding:?}");
        std::fs::write(layout.root().join("notes"), "").unwrap();
        let finding = folder(layout.root(), &Folder::of(&layout), false);
        assert_eq!((finding.state, finding.found.as_str()), (State::Failed, "notes"));
        assert_eq!(folder(layout.root(), &Folder::of(&layout), true).state, State::Passed);
    }

    #[test]
    fn a_long_path_and_one_with_a_blank_are_refused() {
        let state = |root: &str| path(&Layout::new(root)).state;
        assert_eq!(state("/var/lib/mesh"), State::Passed);
        assert_eq!(state(&format!("/{}", "a".repeat(100))), State::Failed);
        assert_eq!(state("/var/my mesh"), State::Failed);
    }

    #[test]
    fn a_file_in_the_roots_place_is_said() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap().join("r");
        std::fs::write(&root, "").unwrap();
        let layout = Layout::new(root);
        assert_eq!(folder(layout.root(), &Folder::of(&layout), false).state, State::Failed);
        let below = Layout::new(layout.root().join("below"));
        assert!(matches!(Folder::of(&below), Folder::Unseen(_)));
    }
}
