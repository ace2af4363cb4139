//! Whether the kernel ended something of a run for want of memory, where cgroup v1 counts memory and cgroup2 does not.
//!
//! In: a run. Out: the kernel's own count. Not here: holding a run together ([`super::group`]), and limits: a group of ours
//! has none of its own, it lies within the one that its maker is in, whose limits hold for it too.

use std::fs;
use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::id::InstanceId;

/// Where cgroup v1's memory is mounted.
const ROOT: &str = "/sys/fs/cgroup/memory";

/// The memory group of a run, within the one of whoever asks; it may not be there.
#[derive(Debug)]
pub(super) struct MemoryGroup {
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    own: Utf8PathBuf,
    folder: Utf8PathBuf,
}

impl MemoryGroup {
    /// Of this run, whether it was made or not; none where memory is not counted this way.
    pub(super) fn of(instance: &InstanceId) -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| own_group(&text));
        let own = own.filter(|own| own.join("memory.oom_control").is_file());
        Self { place: own.map(|own| Place { folder: own.join(format!("mesh-{instance}")), own }) }
    }

    /// Has what the calling program starts meanwhile be born in it. That it cannot be made is no reason not to
    /// start anything: then its end by the kernel is one by a signal.
    pub(super) fn around<T>(&self, start: impl FnOnce() -> T) -> T {
        let inside = self.place.as_ref().is_some_and(|place| {
            let made = match fs::create_dir(&place.folder) {
                Err(error) => error.kind() == io::ErrorKind::AlreadyExists,
                Ok(()) => true,
            };
            made && move_here(&place.folder).is_ok()
        });
        let started = start();
        if let Some(place) = self.place.as_ref().filter(|_| inside) {
            // A caller that stays is counted with what it started, and no more.
            let _ = move_here(&place.own);
        }
        started
    }

    /// Whether the kernel ended something in it for want of memory. Unknown is no.
    pub(super) fn ran_out(&self) -> bool {
        let text =
            self.place.as_ref().map(|place| fs::read_to_string(place.folder.join("memory.oom_control")));
        matches!(text, Some(Ok(text)) if has_kills(&text))
    }

    /// Where it is, or would be.
    pub(super) fn folder(&self) -> Option<&Utf8Path> {
        self.place.as_ref().map(|place| place.folder.as_path())
    }

    /// Removes it; it is empty.
    pub(super) fn remove(&self) {
        if let Some(folder) = self.folder() {
            remove(folder);
        }
    }
}

/// Removes the memory group of a run that has ended, whoever made it. Done twice, it is done.
pub(super) fn remove(folder: &Utf8Path) {
    // One that is not empty after all goes with the machine's next start; it costs nothing.
    let _ = fs::remove_dir(folder);
}

/// A line of `/proc/self/cgroup` is `hierarchy:controllers:path`, cgroups(7).
fn own_group(text: &str) -> Option<Utf8PathBuf> {
    text.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let counts_memory = controllers.split(',').any(|controller| controller == "memory");
        counts_memory.then(|| Utf8Path::new(ROOT).join(path.trim_start_matches('/')))
    })
}

fn has_kills(text: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
}

fn move_here(group: &Utf8Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_the_one_that_counts_memory() {
        let text = "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/x\n";
        assert_eq!(own_group(text), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(own_group("4:memory:/\n"), Some("/sys/fs/cgroup/memory/".into()));
        assert_eq!(own_group("0::/x\n"), None);
    }

    #[test]
    fn only_the_count_of_kills_tells() {
        assert!(has_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"));
        assert!(!has_kills("oom_kill_disable 1\nunder_oom 1\noom_kill 0\n"));
        assert!(!has_kills(""));
    }
}
