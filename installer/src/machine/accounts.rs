//! The machine's accounts.
//!
//! In: a passwd file. Out: who is there, and by whose mark. Not here: making and removing them.

use std::io;

use camino::Utf8Path;

/// Where the machine's own accounts are.
pub const PASSWD: &str = "/etc/passwd";

/// An account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// What is said of it: the mark of the mesh that made it.
    pub gecos: String,
}

/// The accounts of a passwd file. Lines that are none are left out.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Utf8Path) -> io::Result<Vec<Account>> {
    Ok(parse(&std::fs::read_to_string(path)?))
}

fn parse(text: &str) -> Vec<Account> {
    let account = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        let gecos = fields.nth(1)?.to_owned();
        Some(Account { name, uid, gecos })
    };
    text.lines().filter_map(account).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_a_name_a_number_and_a_mark() {
        let accounts =
            parse("root:x:0:0:root:/root:/bin/sh\nm:x:999:999:mesh a7:/nonexistent:/sbin/nologin\n+\n\n");
        assert_eq!(accounts.len(), 2);
        assert_eq!(accounts[1], Account { name: "m".to_owned(), uid: 999, gecos: "mesh a7".to_owned() });
    }
}
