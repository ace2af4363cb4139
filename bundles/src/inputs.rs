//! What a bundle was built from: the source's revision, whether it was changed since, the command and its tools.
//!
//! In: a module's folder, the command that was run. Out: [`BuildInputs`], which go into the bundle's configuration and
//! never into its archive: the same content has the same digest, whoever built it. Not here: building.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

/// What a bundle was built from, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInputs {
    /// Where the source is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Which revision of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Whether that is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<SourceTree>,
    /// The command that built it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The tools, by name, as they tell their versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, String>,
}

/// Whether a source tree is what its revision says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceTree {
    /// It is.
    Clean,
    /// Files were changed or added since.
    Dirty,
}

impl BuildInputs {
    /// What can be found out of a folder and these tools. What cannot is left out: a folder that is no working tree of
    /// git, a tool that is not there.
    #[must_use]
    pub fn observe(folder: &Path, command: &[String], tools: &[&str]) -> Self {
        let git = |arguments: &[&str]| said("git", arguments, Some(folder));
        let revision = git(&["rev-parse", "--verify", "HEAD"]).filter(|revision| !revision.is_empty());
        let tree = git(&["status", "--porcelain"]).filter(|_| revision.is_some());
        let version = |tool: &&str| {
            let first = said(tool, &["--version"], None)?.lines().next()?.trim().to_owned();
            Some(((*tool).to_owned(), first))
        };
        Self {
            source: git(&["config", "--get", "remote.origin.url"]).and_then(|url| without_login(&url)),
            revision,
            tree: tree.map(|changes| if changes.is_empty() { SourceTree::Clean } else { SourceTree::Dirty }),
            command: command.to_vec(),
            tools: tools.iter().filter_map(version).collect(),
        }
    }
}

/// What a program prints, if it is there and succeeds.
fn said(program: &str, arguments: &[&str], folder: Option<&Path>) -> Option<String> {
    let mut command = Command::new(program);
    // Looking must not change anything: git would refresh its index otherwise.
    command.args(arguments).env("GIT_OPTIONAL_LOCKS", "0").env("LC_ALL", "C");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// A source's address as it may be told to everybody: `https://user:token@host/x` is `https://host/x`. A path of this
/// machine tells nobody anything.
fn without_login(url: &str) -> Option<String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        // `git@host:path`, which has a user's name and no secret.
        return (url.contains(':') && !url.starts_with('/')).then(|| url.to_owned());
    };
    if scheme == "file" {
        return None;
    }
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    Some(format!("{scheme}://{host}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_told_without_its_login() {
        let told = |url: &str| without_login(url);
        assert_eq!(told("https://u:secret@h.example/a/b@c").unwrap(), "https://h.example/a/b@c");
        assert_eq!(told("https://h.example").unwrap(), "https://h.example");
        assert_eq!(told("git@h.example:a/b").unwrap(), "git@h.example:a/b");
        assert_eq!((told("/home/somebody/x"), told("file:///home/x")), (None, None));
    }

    #[test]
    fn a_working_tree_is_clean_until_something_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"];
            let mut git = Command::new("git");
            let output = git.current_dir(&folder).args(identity).args(arguments).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        };
        let command = ["make".to_owned()];
        let observed = || BuildInputs::observe(folder.path(), &command, &["git", "no-such-tool"]);
        assert_eq!((observed().revision, observed().tree), (None, None));
        git(&["init", "-q"]);
        git(&["commit", "-q", "--allow-empty", "-m", "first"]);
        let clean = observed();
        assert_eq!((clean.revision.unwrap().len(), clean.tree), (40, Some(SourceTree::Clean)));
        assert_eq!(clean.tools.keys().collect::<Vec<_>>(), ["git"]);
        assert_eq!(clean.command, command);
        std::fs::write(folder.path().join("f"), "").unwrap();
        assert_eq!(observed().tree, Some(SourceTree::Dirty));
    }
}
