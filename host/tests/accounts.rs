//! Accounts, made and removed by the system's real tools. They run as root, as the host does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests may stop too

use mesh_host::accounts::{AccountError, Change, Removal, ensure, observe, remove};
use mesh_protocol::declaration::AccountOrigin;
use mesh_protocol::id::MeshId;

/// Accounts of one test, which go with it.
struct Accounts {
    mesh: MeshId,
    names: Vec<String>,
}

impl Accounts {
    fn new(tag: &str, count: usize) -> Self {
        let names = (0..count).map(|n| format!("mtest-{tag}-{}-{n}", std::process::id())).collect();
        Self { mesh: format!("test-{tag}").parse().unwrap(), names }
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = remove(&self.mesh, name);
        }
    }
}

#[test]
fn an_account_is_made_once_and_removed_once() {
    let accounts = Accounts::new("once", 1);
    let (mesh, name) = (&accounts.mesh, &accounts.names[0]);
    let made = ensure(mesh, name, AccountOrigin::Made).unwrap();
    assert_eq!(made.change, Change::Done);
    assert!(made.ids.uid > 0 && made.ids.gid > 0);
    let again = ensure(mesh, name, AccountOrigin::Made).unwrap();
    assert_eq!((again.change, again.ids), (Change::None, made.ids));
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = passwd.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    assert!(line.ends_with("/nologin"), "{line}");
    assert_eq!(remove(mesh, name).unwrap(), Removal::Remove(made.ids));
    assert_eq!(remove(mesh, name).unwrap(), Removal::Gone);
    let group = std::fs::read_to_string("/etc/group").unwrap();
    assert!(!group.lines().any(|line| line.starts_with(&format!("{name}:"))));
}

#[test]
fn what_another_mesh_made_is_neither_taken_nor_removed() {
    let accounts = Accounts::new("other", 1);
    let name = &accounts.names[0];
    ensure(&accounts.mesh, name, AccountOrigin::Made).unwrap();
    let stranger: MeshId = "test-stranger".parse().unwrap();
    let error = ensure(&stranger, name, AccountOrigin::Made).unwrap_err();
    assert!(matches!(error, AccountError::Foreign { .. }), "{error}");
    assert!(ensure(&stranger, name, AccountOrigin::Existing).is_ok());
    assert_eq!(remove(&stranger, name).unwrap(), Removal::NotOurs);
    assert!(observe(name).unwrap().is_some());
    assert_eq!(remove(&stranger, "root").unwrap(), Removal::NotOurs);
}

#[test]
fn many_at_once_take_turns() {
    let accounts = Accounts::new("many", 8);
    std::thread::scope(|scope| {
        for name in &accounts.names {
            scope.spawn(|| ensure(&accounts.mesh, name, AccountOrigin::Made).unwrap());
            scope.spawn(|| ensure(&accounts.mesh, name, AccountOrigin::Made).unwrap());
        }
    });
    for name in &accounts.names {
        assert!(observe(name).unwrap().is_some());
    }
}

#[test]
fn a_name_that_the_tools_refuse_is_told_in_their_words() {
    let accounts = Accounts::new("refused", 0);
    let error = ensure(&accounts.mesh, "mtest refused", AccountOrigin::Made).unwrap_err();
    assert!(matches!(&error, AccountError::Refused { words, .. } if !words.is_empty()), "{error}");
}
