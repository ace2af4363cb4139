//! What must be possible where bundles will lie, really done: a file written and given away, a socket made, a program run.
//!
//! In: the root's path. Out: what came of each. All of it is done in a folder of its own, in the nearest folder above that
//! is there, and removed; the root itself is not made. The folder's name says who made it, so that one which a kill left
//! behind is known, and removed by the next look. Not here: what follows from it for a mesh.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::id::System;
use mesh_protocol::layout::Layout;
use rustix::process::{Pid, Signal, kill_process};

use super::check::{Finding, Tried, expect, wrong};
use super::maker::Maker;
use super::name::Name;
use super::program;
use crate::output::Code;

/// What the names of the folders begin with.
const PREFIX: &str = ".mesh-probe-";

/// The name of the program in it: what the kernel then calls the process.
pub(super) const PROGRAM: &str = "mesh-probe";

/// Nobody's account, to which a file is given.
const NOBODY: u32 = 65534;

/// A program of two hundred bytes ends at once when it is asked to.
const SOON: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(2);

/// The name of a look's folder.
pub(super) fn folder_name(token: &str) -> String {
    format!("{PREFIX}{token}")
}

/// Whether a name is that of a folder in which something was tried.
#[must_use]
pub fn is_probe(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The folder in which something is tried; it goes when this does.
#[derive(Debug)]
pub(super) struct Place {
    folder: Utf8PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next look.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// What came of each.
#[derive(Debug)]
pub(super) struct Trials {
    pub(super) write: Tried,
    pub(super) owner: Tried,
    pub(super) socket: Tried,
    pub(super) execute: Tried,
    /// Where the program lies, for what else is done with it.
    pub(super) place: Option<Place>,
}

/// The nearest folder above the bundles' that is there.
pub(super) fn nearest(layout: &Layout) -> Utf8PathBuf {
    let bundles = layout.bundles();
    bundles.ancestors().find(|folder| folder.is_dir()).unwrap_or(Utf8Path::new("/")).to_owned()
}

impl Place {
    /// Makes it, with the program in it: the first file that is written.
    pub(super) fn make(above: &Utf8Path, maker: &Maker) -> io::Result<Self> {
        let place = Self { folder: above.join(folder_name(maker.token())) };
        fs::create_dir(&place.folder)?;
        fs::set_permissions(&place.folder, fs::Permissions::from_mode(0o755))?;
        let beside = place.folder.join("new");
        let mut file = File::create(&beside)?;
        file.write_all(&program::program(System::of_this_program(), maker.token()))?;
        file.sync_all()?;
        drop(file);
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o755))?;
        fs::rename(&beside, place.program())?;
        Ok(place)
    }

    /// The folder.
    pub(super) fn folder(&self) -> &Utf8Path {
        &self.folder
    }

    /// The program in it.
    pub(super) fn program(&self) -> Utf8PathBuf {
        self.folder.join(PROGRAM)
    }
}

impl Trials {
    /// Of all the same.
    pub(super) fn all(tried: &Tried) -> Self {
        let [write, owner, socket, execute] = [(); 4].map(|()| tried.clone());
        Self { write, owner, socket, execute, place: None }
    }
}

/// Does all of it, but for what there is a reason not to do: writing, giving away, a socket, running.
pub(super) fn try_all(above: &Utf8Path, maker: &Maker, not: [Option<String>; 4]) -> Trials {
    let [not_write, not_owner, not_socket, not_execute] = not;
    if let Some(why) = not_write {
        return Trials::all(&Tried::Not(why));
    }
    let place = match Place::make(above, maker) {
        Ok(place) => place,
        Err(error) => {
            let write = Tried::Failed(format!("{above}: {error}"));
            return Trials { write, ..Trials::all(&Tried::without(Name::RootWritable)) };
        }
    };
    Trials {
        write: Tried::Worked(format!("a file was written, synced and renamed in {above}")),
        owner: tried(not_owner, || give_away(&place), "a file was given to another account"),
        socket: tried(not_socket, || connect(&place), "a socket was made and answered"),
        execute: tried(
            not_execute,
            || execute(&place.program()),
            "a program was run and ended when it was asked to",
        ),
        place: Some(place),
    }
}

fn tried(not: Option<String>, work: impl FnOnce() -> io::Result<()>, how: &str) -> Tried {
    match not {
        Some(why) => Tried::Not(why),
        None => match work() {
            Ok(()) => Tried::Worked(how.to_owned()),
            Err(error) => Tried::Failed(error.to_string()),
        },
    }
}

fn give_away(place: &Place) -> io::Result<()> {
    const MODE: u32 = 0o400;
    let path = place.folder.join("secret");
    File::create(&path)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(MODE))?;
    chown(&path, Some(NOBODY), Some(NOBODY))?;
    let facts = fs::metadata(&path)?;
    if (facts.uid(), facts.mode() & 0o777) == (NOBODY, MODE) {
        return Ok(());
    }
    let found = format!("the file has user {} and mode {:o}", facts.uid(), facts.mode() & 0o777);
    Err(io::Error::other(format!("{found} after it was given to user {NOBODY} with mode {MODE:o}")))
}

fn connect(place: &Place) -> io::Result<()> {
    // Relative to the folder it would be shorter, but the folder is this process's alone.
    let path = place.folder.join("s");
    let listener = UnixListener::bind(&path)?;
    UnixStream::connect(&path)?;
    listener.accept().map(drop)
}

/// Runs the program, and has it end.
fn execute(program: &Utf8Path) -> io::Result<()> {
    let mut child = Command::new(program)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut ended = kill_process(Pid::from_child(&child), Signal::TERM).map_err(io::Error::from);
    let deadline = std::time::Instant::now() + SOON;
    while ended.is_ok() && child.try_wait()?.is_none() {
        if std::time::Instant::now() > deadline {
            ended = Err(io::Error::other("it did not end when it was asked to"));
        } else {
            std::thread::sleep(POLL);
        }
    }
    if ended.is_err() {
        child.kill()?;
        child.wait()?;
    }
    ended
}

/// A file can be written.
pub(super) fn writable(tried: &Tried) -> Finding {
    expect("a folder that can be written").tried(tried, |why| {
        let what = format!("nothing can be written where the mesh shall lie: {why}");
        wrong(
            Code::RootUnusable,
            what,
            why,
            "choose another --root, or have its file system mounted writable",
        )
    })
}

/// Secrets are given to the accounts that read them.
pub(super) fn owners(tried: &Tried) -> Finding {
    expect("files that can be given to other accounts").tried(tried, |why| {
        let what = format!("a file cannot be given to another account where the mesh shall lie: {why}");
        wrong(
            Code::RootUnusable,
            what,
            why,
            "choose a --root on a file system that has owners and modes (not vfat, not some network's)",
        )
    })
}

/// The host's door is a socket.
pub(super) fn sockets(tried: &Tried) -> Finding {
    expect("sockets that can be made").tried(tried, |why| {
        let what = format!("no socket can be made where the mesh shall lie: {why}");
        wrong(Code::RootUnusable, what, why, "choose a --root on a file system of this machine")
    })
}

/// Bundles are run from where they lie.
pub(super) fn executable(tried: &Tried, mounted_noexec: bool) -> Finding {
    expect("programs that can be run").tried(tried, |why| {
        let cause = if mounted_noexec {
            "its file system is mounted noexec"
        } else {
            "a security policy may forbid it"
        };
        let what = format!("no program can be run where bundles shall lie ({cause}): {why}");
        let remedy = if mounted_noexec {
            "choose another --root, or mount its file system without noexec"
        } else {
            "choose another --root, or have the policy (SELinux, fapolicyd) permit programs below it"
        };
        wrong(Code::RootUnusable, what, why, remedy)
    })
}

/// Whether a folder's file system is mounted so that nothing is run from it.
pub(super) fn is_noexec(folder: &Utf8Path) -> bool {
    let facts = rustix::fs::statvfs(folder.as_std_path());
    facts.is_ok_and(|facts| facts.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}

/// What becomes of what an earlier look left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    /// It is removed.
    Removed,
    /// It is only told.
    Told,
}

/// Finds what an earlier look left in a folder.
pub(super) fn sweep(folder: &Utf8Path, sweep: Sweep) -> Vec<String> {
    let entries = folder.read_dir_utf8().into_iter().flatten().flatten();
    let mut found = Vec::new();
    for entry in entries {
        let Some(token) = entry.file_name().strip_prefix(PREFIX) else { continue };
        let age =
            entry.metadata().and_then(|facts| facts.modified()).ok().and_then(|time| time.elapsed().ok());
        if Maker::is_gone(token, age) && (sweep == Sweep::Told || fs::remove_dir_all(entry.path()).is_ok()) {
            found.push(format!("folder {}", entry.path()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn all_works_in_a_folder_of_this_machine_and_nothing_is_left() {
        let temp = tempfile::tempdir().unwrap();
        let above = Utf8Path::from_path(temp.path()).unwrap();
        let trials = try_all(above, &Maker::of_this_process().unwrap(), [const { None }; 4]);
        for finding in
            [writable(&trials.write), sockets(&trials.socket), executable(&trials.execute, is_noexec(above))]
        {
            assert_eq!(finding.state, State::Passed, "{finding:?}");
        }
        // Only root gives files away.
        let expected = if rustix::process::geteuid().is_root() { State::Passed } else { State::Failed };
        assert_eq!(owners(&trials.owner).state, expected);
        drop(trials);
        assert_eq!(fs::read_dir(above).unwrap().count(), 0);
    }

    #[test]
    fn where_nothing_can_be_written_the_rest_is_not_tried() {
        let trials = try_all(Utf8Path::new("/proc"), &Maker::of_this_process().unwrap(), [const { None }; 4]);
        assert_eq!(writable(&trials.write).state, State::Failed);
        assert_eq!(executable(&trials.execute, false).state, State::Skipped);
    }

    #[test]
    fn what_a_look_left_that_was_killed_is_removed_and_what_one_has_now_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let above = Utf8Path::from_path(temp.path()).unwrap();
        let mine = Maker::of_this_process().unwrap();
        let place = Place::make(above, &mine).unwrap();
        let killed = above.join(folder_name(&mine.token().replace(&std::process::id().to_string(), "0")));
        fs::create_dir(&killed).unwrap();
        assert_eq!(sweep(above, Sweep::Told), [format!("folder {killed}")]);
        assert_eq!(sweep(above, Sweep::Removed), [format!("folder {killed}")]);
        assert!(!killed.exists() && place.program().exists());
    }
}
