//! What this machine has, looked at and not touched: ports and their holders, accounts, room on the disk, programs.
//!
//! In: names and numbers. Out: what is there. Not here: whether that is right.

pub mod accounts;
pub mod ports;

use std::os::unix::fs::PermissionsExt as _;

use camino::{Utf8Path, Utf8PathBuf};

/// The name the machine goes by.
#[must_use]
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What is free on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes, for others than root.
    pub bytes: u64,
    /// Files (inodes); none where there is no limit to them.
    pub files: Option<u64>,
}

/// What is free on the file system of the nearest folder above `path` that is there.
///
/// # Errors
/// When the system does not say.
pub fn room(path: &Utf8Path) -> std::io::Result<Room> {
    let there = path.ancestors().find(|folder| folder.exists()).unwrap_or(Utf8Path::new("/"));
    let facts = rustix::fs::statvfs(there.as_std_path())?;
    // Some file systems make inodes as they need them, and say that they have none.
    let files = (facts.f_files > 0).then_some(facts.f_favail);
    Ok(Room { bytes: facts.f_bavail.saturating_mul(facts.f_frsize), files })
}

/// Where system programs are beside what `PATH` says: root's own may leave them out.
const SYSTEM_FOLDERS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A program by its name, in the folders of `path` (a `PATH`) and then in the system's.
#[must_use]
pub fn find_program(name: &str, path: Option<&str>) -> Option<Utf8PathBuf> {
    let said = path.unwrap_or_default().split(':').filter(|folder| !folder.is_empty());
    let is_program = |path: &Utf8PathBuf| {
        std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    said.chain(SYSTEM_FOLDERS).map(|folder| Utf8Path::new(folder).join(name)).find(is_program)
}

/// Whether systemd runs this machine, as `sd_booted(3)` tells it.
#[must_use]
pub fn has_systemd() -> bool {
    Utf8Path::new("/run/systemd/system").is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_told_for_a_folder_that_is_not_there_yet() {
        assert!(room(Utf8Path::new("/no/such/folder/yet")).unwrap().bytes > 0);
    }

    #[test]
    fn a_program_is_found_where_path_says_and_then_where_systems_have_them() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        std::fs::write(folder.join("sh"), "").unwrap();
        let shell = find_program("sh", Some(folder.as_str())).unwrap();
        assert_ne!(shell.parent(), Some(folder), "a file that may not be run is no program");
        assert_eq!(find_program("no-such-program-here", None), None);
    }
}
