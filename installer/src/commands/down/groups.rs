//! The control groups of a mesh's runs, where no host ends and removes them.
//!
//! In: the records of the runs. Out: what is in their groups ended, whatever program it is by now, and the groups removed.
//! A group is the mesh's by the run that it is named after. Not here: the host's own processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mesh_durable::checkpoint;
use mesh_protocol::layout::Layout;

use super::own::is_run;
use super::remove::{GRACE, POLL};

/// Where groups are: cgroup2 alone, and beside version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// Ends and removes them; what is still there is told.
pub(super) async fn remove(layout: &Layout, say: &impl Fn(String)) -> Vec<String> {
    let mut left = Vec::new();
    for folder in groups(layout) {
        match end(&folder).await {
            Ok(()) => say(format!("removed control group {}", folder.display())),
            Err(error) => left.push(format!("control group {}: {error}", folder.display())),
        }
    }
    left
}

/// Those that are there.
fn groups(layout: &Layout) -> Vec<PathBuf> {
    let runs = layout.incarnations().read_dir_utf8().into_iter().flatten().flatten();
    let runs = runs.map(camino::Utf8DirEntry::into_path);
    let runs = runs.filter(|run| run.file_name().is_some_and(is_run));
    let mut found = Vec::new();
    for run in runs {
        let name = format!("mesh-{}", run.file_name().unwrap_or_default());
        found.extend(ROOTS.map(|root| Path::new(root).join(&name)));
        found.extend(memory_group(run.as_std_path()).filter(|group| group.ends_with(&name)));
    }
    found.retain(|group| group.is_dir());
    found
}

/// The group that counts a run's memory lies within that of whoever started it, as the run's record says.
fn memory_group(run: &Path) -> Option<PathBuf> {
    let bytes = fs::read(run.join("started.json")).ok()?;
    let started: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let group = PathBuf::from(started.get("memory_group")?.as_str()?);
    group.starts_with(ROOTS[0]).then_some(group)
}

/// What is in a group of a run is of that run, for only what it started is born there.
async fn end(folder: &Path) -> io::Result<()> {
    let ending = async {
        let deadline = tokio::time::Instant::now() + GRACE;
        loop {
            match kill_and_remove(folder) {
                // What was killed takes a moment to be gone.
                Err(_) if tokio::time::Instant::now() < deadline => tokio::time::sleep(POLL).await,
                removed => return removed,
            }
        }
    };
    checkpoint::around_async(|| format!("remove control group {}", folder.display()), ending).await
}

fn kill_and_remove(folder: &Path) -> io::Result<()> {
    let kill = folder.join("cgroup.kill");
    // Version 1 and kernels before 5.14 have it not: what then runs there keeps the group from being removed, and is told.
    if kill.exists() {
        fs::write(kill, "1")?;
    }
    remove_with_inner(folder)
}

/// A control group's files are the kernel's: only groups can be removed, the inner ones first.
fn remove_with_inner(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_with_inner(&entry.path())?;
        }
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
