//! Control groups: what holds the programs of one run together, and limits containers.
//!
//! In: the file systems of the kernel, what the engine says. Out: findings. A group is made and removed, where that may be
//! done. Not here: running anything in it.

use camino::{Utf8Path, Utf8PathBuf};

use super::check::{Finding, Tried, expect, wrong};
use super::maker::Maker;
use super::place::Sweep;
use crate::output::Code;

/// Where cgroup2 is mounted: alone, or beside cgroup v1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// What the name of a group begins with that is made to see whether it can be.
const PREFIX: &str = "mesh-probe-";

/// Where the one hierarchy is; none where the machine has none.
pub(super) fn root() -> Option<Utf8PathBuf> {
    ROOTS.map(Utf8PathBuf::from).into_iter().find(|root| root.join("cgroup.controllers").is_file())
}

/// What is done where control groups are not.
const WITHOUT: &str = "a run is then held together by its session: one that leaves it is not ended with it";

/// One hierarchy, that a process cannot leave.
pub(super) fn version(root: Option<&Utf8Path>) -> Finding {
    let check = expect("cgroup2, alone or beside version 1");
    match root {
        Some(root) => check.met(format!("cgroup2 at {root}")),
        None => check.warned(wrong(
            Code::UnsupportedSystem,
            format!("there is no cgroup2 on this machine; {WITHOUT}"),
            format!("no cgroup.controllers in {}", ROOTS.join(" or ")),
            "mount it: mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified",
        )),
    }
}

/// Makes a group, and removes it.
pub(super) fn try_group(root: Option<&Utf8Path>, token: &str) -> Tried {
    let Some(root) = root else { return Tried::Not("there is no cgroup2".to_owned()) };
    let folder = root.join(format!("{PREFIX}{token}"));
    let tried = std::fs::create_dir(&folder).and_then(|()| std::fs::remove_dir(&folder));
    match tried {
        Ok(()) => Tried::Worked(format!("made and removed one in {root}")),
        Err(error) => Tried::Failed(format!("{folder}: {error}")),
    }
}

/// Removes the groups that an earlier look left, or only tells of them.
pub(super) fn sweep(root: Option<&Utf8Path>, sweep: Sweep) -> Vec<String> {
    let entries = root.and_then(|root| root.read_dir_utf8().ok()).into_iter().flatten().flatten();
    let left = entries.filter(|entry| {
        let token = entry.file_name().strip_prefix(PREFIX);
        token.is_some_and(|token| Maker::is_gone(token, None))
    });
    let removed = left.filter(|entry| sweep == Sweep::Told || std::fs::remove_dir(entry.path()).is_ok());
    removed.map(|entry| format!("control group {}", entry.path())).collect()
}

/// The host makes one for each run.
pub(super) fn group(tried: &Tried) -> Finding {
    let check = expect("a control group that can be made");
    match tried {
        Tried::Failed(why) => check.warned(wrong(
            Code::UnsupportedSystem,
            format!("no control group can be made; {WITHOUT}"),
            why.clone(),
            "have cgroup2 writable for root: in a container, mount it so",
        )),
        other => check.tried(other, |why| wrong(Code::UnsupportedSystem, "", why, "")),
    }
}

/// What the engine can limit; none where it does not answer.
pub(super) fn controllers(driver: &str, unlimited: &[&str]) -> Finding {
    let check = expect("an engine that can limit what a container takes");
    if driver == "none" || !unlimited.is_empty() {
        let found = if unlimited.is_empty() {
            "no driver".to_owned()
        } else {
            format!("not {}", unlimited.join(", "))
        };
        return check.warned(wrong(
            Code::UnsupportedSystem,
            "the engine cannot limit what containers take on this machine",
            format!("{found} (driver {driver})"),
            "enable these controllers of control groups when the kernel is started (cgroup_enable=memory)",
        ));
    }
    check.met(format!("memory, pids and cpu, by driver {driver}"))
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn a_group_that_was_made_is_gone_again() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        assert_eq!(group(&try_group(Some(root), "a")).state, State::Passed);
        assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
        std::fs::write(root.join(format!("{PREFIX}b")), "").unwrap();
        assert_eq!(group(&try_group(Some(root), "b")).state, State::Warned);
        assert_eq!(group(&try_group(None, "c")).state, State::Skipped);
    }

    #[test]
    fn a_group_that_a_killed_look_left_is_removed() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        let mine = root.join(format!("{PREFIX}{}", Maker::of_this_process().unwrap().token()));
        let killed = root.join(format!("{PREFIX}0-1-2-3"));
        for group in [&mine, &killed] {
            std::fs::create_dir(group).unwrap();
        }
        assert_eq!(sweep(Some(root), Sweep::Told).len(), 1);
        assert_eq!(sweep(Some(root), Sweep::Removed), [format!("control group {killed}")]);
        assert!(mine.exists() && !killed.exists());
    }
}
