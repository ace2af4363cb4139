//! Accounts of this machine: who is there, and one of a test's own.
//!
//! In: /etc/passwd, useradd, userdel. Out: accounts; the test's own goes when it ends. Not here: what they are for.

use std::process::Command;

use camino::Utf8Path;
use mesh_installer::machine::accounts::{self, Account};

/// The accounts of this machine.
///
/// # Panics
/// When they cannot be read.
#[must_use]
pub fn all() -> Vec<Account> {
    accounts::read(Utf8Path::new(accounts::PASSWD)).unwrap()
}

/// The account of this name.
#[must_use]
pub fn named(name: &str) -> Option<Account> {
    all().into_iter().find(|account| account.name == name)
}

/// Removes the account of this name, whosesoever it is.
pub fn remove(name: &str) {
    let removed = Command::new("userdel").arg(name).output();
    if !removed.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("account {name} could not be removed: {removed:?}");
    }
}

/// An account that no mesh made.
#[derive(Debug)]
pub struct Foreign(Account);

impl Foreign {
    /// Makes it.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn make(name: &str) -> Self {
        let words =
            ["--system", "--no-create-home", "--shell", "/usr/sbin/nologin", "--comment", "somebody", name];
        let made = Command::new("useradd").args(words).output().unwrap();
        assert!(made.status.success(), "useradd {name}: {}", String::from_utf8_lossy(&made.stderr));
        Self(named(name).unwrap())
    }

    /// As it was made.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.0
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        remove(&self.0.name);
    }
}
