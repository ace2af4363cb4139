//! Making and removing accounts, by the system's own tools.
//!
//! In: a name that was decided on. Out: done. Not here: whether it should be.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mesh_durable::checkpoint;

use super::{AccountError, Ids};

/// "can't update password file", which is also what another tool at work looks like; of both, useradd(8) and
/// userdel(8).
const LOCKED: [i32; 2] = [1, 10];
/// useradd(8): "username already in use".
const EXISTS: i32 = 9;
/// userdel(8), groupdel(8): "specified user (group) doesn't exist".
const DOES_NOT_EXIST: i32 = 6;

/// Makes it, with a group of its own, no home, no shell and no password. That it is there already is not
/// failed at: whose it is, is looked at afterwards.
pub(super) fn make(name: &str, mark: &str, limit: Duration) -> Result<(), AccountError> {
    let shell = ["/usr/sbin/nologin", "/sbin/nologin"]
        .into_iter()
        .find(|shell| Path::new(shell).exists())
        .unwrap_or("/bin/false");
    let arguments = [
        "--system",
        "--no-create-home",
        "--home-dir",
        "/nonexistent",
        "--user-group",
        "--shell",
        shell,
        "--comment",
        mark,
        name,
    ];
    run("useradd", name, &arguments, EXISTS, limit)
}

/// Removes it, and its group where that is left.
pub(super) fn remove(name: &str, ids: Ids, limit: Duration) -> Result<(), AccountError> {
    run("userdel", name, &[name], DOES_NOT_EXIST, limit)?;
    let groups = std::fs::read_to_string("/etc/group").map_err(AccountError::Observe)?;
    if has_group(&groups, name, ids.gid) {
        run("groupdel", name, &[name], DOES_NOT_EXIST, limit)?;
    }
    Ok(())
}

fn has_group(groups: &str, name: &str, gid: u32) -> bool {
    groups.lines().any(|line| {
        let mut fields = line.split(':');
        fields.next() == Some(name) && fields.nth(1) == Some(gid.to_string().as_str())
    })
}

fn run(
    tool: &'static str,
    name: &str,
    arguments: &[&str],
    already: i32,
    limit: Duration,
) -> Result<(), AccountError> {
    let begun = Instant::now();
    loop {
        let output = checkpoint::around(|| format!("{tool} {name}"), || once(tool, arguments))?;
        let code = output.status.code();
        if output.status.success() || code == Some(already) {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let locked = code.is_some_and(|code| LOCKED.contains(&code)) && words.contains("lock");
        if locked && begun.elapsed() < limit {
            sleep(Duration::from_millis(50));
            continue;
        }
        return Err(AccountError::Refused {
            tool,
            name: name.to_owned(),
            status: output.status.to_string(),
            words,
        });
    }
}

fn once(tool: &'static str, arguments: &[&str]) -> Result<Output, AccountError> {
    let path = ["/usr/sbin", "/sbin", "/usr/bin"]
        .into_iter()
        .map(|folder| Path::new(folder).join(tool))
        .find(|path| path.exists())
        .unwrap_or_else(|| Path::new("/usr/sbin").join(tool));
    Command::new(path)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|source| AccountError::Tool { tool, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_ours_by_name_and_number() {
        let groups = "root:x:0:\nmesh-a:x:102:\n";
        assert!(has_group(groups, "mesh-a", 102));
        assert!(!has_group(groups, "mesh-a", 103));
        assert!(!has_group(groups, "mesh", 102));
    }
}
