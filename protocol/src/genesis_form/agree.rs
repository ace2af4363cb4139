//! What is mounted becomes what is declared: the genesis form held against the manifest.
//!
//! In: both. Out: every point in which the process would be given something else than the container was, and the
//! table of what is given, for people. Not here: how either is carried out.

use std::collections::BTreeSet;

use super::{GenesisForm, Given, RUN_DIR};
use crate::manifest::{File, FileBytes, MODULE_DIR, Manifest, ModulePath, module_paths};

/// A point in which the two forms of the controller are not given the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Disagreement {
    /// The manifest has no process, so there is nothing to agree with.
    #[error("module.toml has no [[process]]: expected the one that takes the container's place")]
    NoProcess,
    /// The container is given a file that the manifest does not declare.
    #[error("genesis.toml mounts {path}: expected a [[file]] of that path in module.toml, found none")]
    Undeclared {
        /// Its path.
        path: String,
    },
    /// The two files are made of different things.
    #[error(
        "{path} is made of the secret {mounted} in genesis.toml and of {declared} in module.toml: expected the same"
    )]
    Secret {
        /// Their path.
        path: String,
        /// As genesis.toml says.
        mounted: String,
        /// As module.toml says.
        declared: String,
    },
    /// The two files have different modes.
    #[error(
        "{path} has mode {mounted:04o} in genesis.toml and {declared:04o} in module.toml: expected the same"
    )]
    Mode {
        /// Their path.
        path: String,
        /// As genesis.toml says.
        mounted: u32,
        /// As module.toml says.
        declared: u32,
    },
    /// The process may not read the file, for it is another account's.
    #[error(
        "{path} belongs to the account {found} in module.toml: expected {expected}, which the process runs as"
    )]
    Account {
        /// Its path.
        path: String,
        /// As the file says.
        found: String,
        /// As the process says.
        expected: String,
    },
    /// The two are run with different words.
    #[error(
        "word {number} of `run` is {mounted} in genesis.toml and {declared} in module.toml: expected the same"
    )]
    Word {
        /// Counted from 1.
        number: usize,
        /// As genesis.toml says.
        mounted: String,
        /// As module.toml says.
        declared: String,
    },
    /// The process reads a path that no file declares.
    #[error("the process reads {path}: expected a [[file]] of that path in module.toml, found none")]
    ProcessReads {
        /// The path.
        path: String,
    },
    /// The container reads a path that is not mounted.
    #[error("the container reads {path}: expected a [[mount]] of that path in genesis.toml, found none")]
    ContainerReads {
        /// The path.
        path: String,
    },
    /// A declared file that the container is not given.
    #[error("module.toml declares {path}: expected a [[mount]] of that path in genesis.toml, found none")]
    Unmounted {
        /// Its path.
        path: String,
    },
}

/// Every point in which form and manifest disagree.
#[must_use]
pub fn agree(form: &GenesisForm, manifest: &Manifest) -> Vec<Disagreement> {
    let mut found = BTreeSet::new();
    let Some(process) = manifest.processes.first() else {
        return vec![Disagreement::NoProcess];
    };
    for mount in &form.mounts {
        let Given::Secret { secret, mode, .. } = &mount.given else { continue };
        let path = mount.path();
        match manifest.files.iter().find(|file| file.path() == path) {
            Some(file) => found.extend(file_differs(file, secret, *mode, process.account.as_str())),
            None => {
                found.insert(Disagreement::Undeclared { path });
            }
        }
    }
    let mounted: BTreeSet<String> = form.mounts.iter().map(super::GenesisMount::path).collect();
    let declared: BTreeSet<String> = manifest.files.iter().map(File::path).collect();
    found.extend(declared.difference(&mounted).map(|path| Disagreement::Unmounted { path: path.clone() }));
    for path in process.run.iter().flat_map(|word| paths_read(word)) {
        if path != RUN_DIR && !declared.contains(&path) {
            found.insert(Disagreement::ProcessReads { path });
        }
    }
    for path in form.run.iter().flat_map(|word| paths_read(word)) {
        if !mounted.contains(&path) {
            found.insert(Disagreement::ContainerReads { path });
        }
    }
    for index in 0..form.run.len().max(process.run.len()) {
        let (mounted, declared) = (form.run.get(index), process.run.get(index));
        if mounted != declared {
            let word =
                |word: Option<&String>| word.map_or_else(|| "missing".to_owned(), |word| format!("{word:?}"));
            let (mounted, declared) = (word(mounted), word(declared));
            found.insert(Disagreement::Word { number: index + 1, mounted, declared });
        }
    }
    found.into_iter().collect()
}

fn file_differs(file: &File, secret: &str, mode: u32, account: &str) -> Vec<Disagreement> {
    let path = file.path();
    let mut found = Vec::new();
    let declared = match &file.bytes {
        FileBytes::Secret(declared) if declared == secret => None,
        FileBytes::Secret(declared) => Some(format!("the secret {declared}")),
        FileBytes::Content(_) => Some("a content".to_owned()),
    };
    if let Some(declared) = declared {
        found.push(Disagreement::Secret { path: path.clone(), mounted: secret.to_owned(), declared });
    }
    if file.mode != mode {
        found.push(Disagreement::Mode { path: path.clone(), mounted: mode, declared: file.mode });
    }
    if file.account.as_str() != account {
        let (found_account, expected) = (file.account.to_string(), account.to_owned());
        found.push(Disagreement::Account { path, found: found_account, expected });
    }
    found
}

/// The paths on the node that a word of a command line names: below `${module.dir}`, the two other folders, and
/// whatever begins at the root.
fn paths_read(word: &str) -> Vec<String> {
    let mut paths: Vec<String> = module_paths(word)
        .into_iter()
        .map(|path| match path {
            ModulePath::Folder => MODULE_DIR.to_owned(),
            ModulePath::File(name) => format!("{MODULE_DIR}/{name}"),
        })
        .collect();
    paths.extend(
        [RUN_DIR, "${data.dir}"].into_iter().filter(|folder| word.contains(folder)).map(str::to_owned),
    );
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    if value.starts_with('/') {
        paths.push(value.to_owned());
    }
    paths
}

/// What the container is given and the process is then declared with, as a table in Markdown.
#[must_use]
pub fn mounts_table(form: &GenesisForm, manifest: &Manifest) -> String {
    let mut table = String::from("| mount | path | account | mode | read by |\n|---|---|---|---|---|\n");
    for mount in &form.mounts {
        let path = mount.path();
        let file = manifest.files.iter().find(|file| file.path() == path);
        let (account, mode) = match file {
            Some(file) => (format!("{}, was {}", file.account, super::USER), format!("{:04o}", file.mode)),
            None => ("root".to_owned(), "0755".to_owned()),
        };
        let mut readers = Vec::new();
        for process in &manifest.processes {
            for (index, word) in process.run.iter().enumerate() {
                if paths_read(word).contains(&path) {
                    let option = index.checked_sub(1).map(|index| process.run[index].as_str());
                    let option = option.filter(|option| option.starts_with("--")).unwrap_or(word);
                    readers.push(format!("`{option}`"));
                }
            }
        }
        let line =
            [mount.meaning.as_str(), &format!("`{path}`"), &account, &mode, &readers.join(", ")].join(" | ");
        table.push_str(&format!("| {line} |\n"));
    }
    table
}
