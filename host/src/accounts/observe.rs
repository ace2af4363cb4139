//! Whether the system has an account.
//!
//! In: `/etc/passwd`; and, for accounts that come from elsewhere (LDAP and the like), `getent`, for a static
//! program cannot ask for those itself. Out: its numbers and its comment. Not here: what follows.

use std::fs;
use std::process::{Command, Stdio};

use super::{AccountError, Found, Ids};

/// Looks for an account.
///
/// # Errors
/// When the accounts cannot be read.
pub fn observe(name: &str) -> Result<Option<Found>, AccountError> {
    let local = fs::read_to_string("/etc/passwd").map_err(AccountError::Observe)?;
    Ok(find(&local, name).or_else(|| find(&elsewhere(name), name)))
}

/// A machine without `getent` has no accounts from elsewhere.
fn elsewhere(name: &str) -> String {
    Command::new("/usr/bin/getent")
        .args(["passwd", "--", name])
        .env_clear()
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// In lines as passwd(5) has them.
fn find(lines: &str, name: &str) -> Option<Found> {
    lines.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[..] {
            [found, _, uid, gid, comment, ..] if found == name => Some(Found {
                ids: Ids { uid: uid.parse().ok()?, gid: gid.parse().ok()? },
                comment: comment.to_owned(),
            }),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let text =
            "root:x:0:0:root:/root:/bin/sh\nmesh-a:x:101:102:mesh m1:/nonexistent:/usr/sbin/nologin\nbad\n";
        let expected = Found { ids: Ids { uid: 101, gid: 102 }, comment: "mesh m1".to_owned() };
        assert_eq!(find(text, "mesh-a"), Some(expected));
        assert_eq!(find(text, "mesh"), None);
        assert_eq!(find(text, "bad"), None);
    }

    #[test]
    fn root_is_there_and_nonsense_is_not() {
        assert_eq!(observe("root").unwrap().unwrap().ids, Ids { uid: 0, gid: 0 });
        assert_eq!(observe("no-such-account-of-any-mesh").unwrap(), None);
    }
}
