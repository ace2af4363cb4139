//! What holds a program together with all that it starts: a control group where the machine lets us make one,
//! else its session and its shim's descendants.
//!
//! In: a run. Out: whether something of it is left, and the end of it. Not here: politeness; what is done here
//! is SIGKILL.
//!
//! A process leaves its session or its parent as it likes, but never its control group: so a session is the
//! lesser way, for machines without a writable cgroup2.

use std::fs;
use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::id::InstanceId;
use rustix::process::Signal;

use crate::machine::{Handle, ProcessIdentity, Status, all_pids};

/// Where cgroup2 is mounted: alone, or beside cgroup v1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The control group of a run; it may not be there.
#[derive(Debug)]
pub(super) struct Group(Option<Utf8PathBuf>);

/// Whether something is left in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing that lives.
    Nothing,
    /// Something.
    Something,
}

impl Group {
    /// Of this run, whether it was made or not.
    pub(super) fn of(instance: &InstanceId) -> Self {
        Self(root().map(|root| root.join(format!("mesh-{instance}"))))
    }

    /// Makes it; false where the machine does not let us.
    pub(super) fn make(&self) -> bool {
        let Some(folder) = &self.0 else { return false };
        match fs::create_dir(folder) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
        }
    }

    /// Moves the calling program into it, so that what it then starts is born inside.
    pub(super) fn enter(&self) -> io::Result<Entered> {
        let (Some(folder), Some(root)) = (&self.0, root()) else {
            return Err(io::Error::other("there is no control group"));
        };
        let from = own_group(&root).unwrap_or_else(|| root.clone());
        move_here(folder)?;
        Ok(Entered { from, root })
    }

    /// Kills all that is in it, once; what is left is told. What it kills may take a moment to be gone.
    pub(super) fn kill(&self) -> io::Result<Left> {
        let Some(folder) = self.there() else {
            return Ok(Left::Nothing);
        };
        if self.left()? == Left::Nothing {
            return Ok(Left::Nothing);
        }
        match fs::write(folder.join("cgroup.kill"), "1") {
            Ok(()) => {}
            // A kernel before 5.14.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                for pid in members(folder)? {
                    kill(pid);
                }
            }
            Err(error) => return Err(error),
        }
        self.left()
    }

    /// Whether something in it lives.
    pub(super) fn left(&self) -> io::Result<Left> {
        let Some(folder) = self.there() else {
            return Ok(Left::Nothing);
        };
        match fs::read_to_string(folder.join("cgroup.events")) {
            Ok(text) if text.lines().any(|line| line == "populated 1") => Ok(Left::Something),
            Ok(_) => Ok(Left::Nothing),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Left::Nothing),
            Err(error) => Err(error),
        }
    }

    /// Whether the kernel killed something in it for want of memory. Unknown is no.
    pub(super) fn ran_out_of_memory(&self) -> bool {
        let Some(folder) = &self.0 else { return false };
        let Ok(text) = fs::read_to_string(folder.join("memory.events")) else {
            return false;
        };
        text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Removes it, with the groups that were made within; it is empty.
    pub(super) fn remove(&self) -> io::Result<()> {
        self.there().map_or(Ok(()), remove)
    }

    fn there(&self) -> Option<&Utf8Path> {
        self.0.as_deref().filter(|folder| folder.is_dir())
    }
}

/// The way back out of a group.
#[derive(Debug)]
pub(super) struct Entered {
    from: Utf8PathBuf,
    root: Utf8PathBuf,
}

impl Entered {
    /// Moves the calling program back to where it was, or, where that is gone, to the root.
    pub(super) fn leave(self) -> io::Result<()> {
        move_here(&self.from).or_else(|_| move_here(&self.root))
    }
}

/// Kills what is in the session of a shim or descends from it, once, the shim itself excepted.
pub(super) fn kill_session(shim: &ProcessIdentity, boot_id: &str) -> Left {
    let found = session(shim, boot_id);
    for pid in &found {
        kill(*pid);
    }
    if found.is_empty() { Left::Nothing } else { Left::Something }
}

/// What is alive in the session of a shim or descends from it, the shim itself excepted.
pub(super) fn session(shim: &ProcessIdentity, boot_id: &str) -> Vec<u32> {
    // The number of a session is not given to another process while something is in it. So when another
    // process has the number, nothing of ours is left; and what there is in it began after the shim.
    let taken_by_another = Status::of(shim.pid).is_some_and(|status| status.start_time != shim.start_time);
    if shim.boot_id != boot_id || taken_by_another {
        return Vec::new();
    }
    let all: Vec<(u32, Status)> =
        all_pids().into_iter().filter_map(|pid| Some((pid, Status::of(pid)?))).collect();
    members_of_session(shim, &all)
        .into_iter()
        .filter(|pid| Handle::of(*pid).is_some_and(|handle| handle.is_alive()))
        .collect()
}

fn members_of_session(shim: &ProcessIdentity, all: &[(u32, Status)]) -> Vec<u32> {
    let shim_is_there =
        all.iter().any(|(pid, status)| *pid == shim.pid && status.start_time == shim.start_time);
    let mut ours: Vec<u32> = all
        .iter()
        .filter(|(pid, status)| {
            let of_session = status.session == shim.pid && status.start_time >= shim.start_time;
            *pid != shim.pid && (of_session || (shim_is_there && status.parent == shim.pid))
        })
        .map(|(pid, _)| *pid)
        .collect();
    // Then their children, and so on.
    let mut next = 0;
    while next < ours.len() {
        let parent = ours[next];
        for (pid, status) in all {
            if status.parent == parent && *pid != shim.pid && !ours.contains(pid) {
                ours.push(*pid);
            }
        }
        next += 1;
    }
    ours
}

fn kill(pid: u32) {
    // What cannot be killed is still there when it is looked for next, and told then.
    let _ = Handle::of(pid).map(|handle| handle.signal(Signal::KILL));
}

fn root() -> Option<Utf8PathBuf> {
    ROOTS
        .into_iter()
        .map(Utf8PathBuf::from)
        .find(|root| root.join("cgroup.procs").is_file() && root.join("cgroup.subtree_control").is_file())
}

fn own_group(root: &Utf8Path) -> Option<Utf8PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(root.join(path))
}

fn move_here(group: &Utf8Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

fn members(group: &Utf8Path) -> io::Result<Vec<u32>> {
    let text = fs::read_to_string(group.join("cgroup.procs"))?;
    let mut found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    for inner in inner_groups(group)? {
        found.extend(members(&inner)?);
    }
    Ok(found)
}

fn remove(group: &Utf8Path) -> io::Result<()> {
    for inner in inner_groups(group)? {
        remove(&inner)?;
    }
    match fs::remove_dir(group) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn inner_groups(group: &Utf8Path) -> io::Result<Vec<Utf8PathBuf>> {
    let mut found = Vec::new();
    for entry in group.read_dir_utf8()? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, session: u32, start_time: u64) -> (u32, Status) {
        (pid, Status { parent, session, start_time })
    }

    fn shim() -> ProcessIdentity {
        ProcessIdentity { pid: 10, start_time: 100, boot_id: "b".to_owned() }
    }

    #[test]
    fn session_and_descendants_are_found_and_strangers_are_not() {
        let all = [
            process(1, 0, 1, 1),
            process(10, 1, 10, 100),
            process(11, 10, 10, 101),
            process(12, 11, 12, 102),
            process(13, 12, 13, 103),
            process(14, 10, 14, 104),
            process(20, 1, 20, 105),
        ];
        assert_eq!(members_of_session(&shim(), &all), [11, 14, 12, 13]);
    }

    #[test]
    fn of_a_shim_that_is_gone_only_the_session_is_ours() {
        let all = [process(11, 1, 10, 101), process(12, 10, 12, 102), process(9, 1, 10, 50)];
        assert_eq!(members_of_session(&shim(), &all), [11]);
    }

    #[test]
    fn another_process_of_the_same_number_is_not_the_shim() {
        let me = ProcessIdentity::of_this_program().unwrap();
        let other = ProcessIdentity { start_time: me.start_time + 1, ..me.clone() };
        assert_eq!(session(&other, &me.boot_id), Vec::<u32>::new());
    }
}
