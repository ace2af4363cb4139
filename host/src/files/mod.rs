//! The files of modules, and the secrets they are made of.
//!
//! In: a module's section, the numbers of its accounts, the secrets this node holds. Out: the module's folder,
//! complete, each file with its mode and owner. Not here: which folders something still runs from; the caller
//! says what to keep.
//!
//! One set of files lies in one folder, named by the set's digest: another set never touches it. Folders belong
//! to root, so nobody else can put a link into them. All of it blocks.

mod decide;
mod observe;
mod secrets;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::declaration::{FileSource, FileSpec, ModuleSection, Owner};
use mesh_protocol::id::{AccountName, Digest, ModuleName};
use mesh_protocol::layout::Layout;

pub use self::decide::{Action, Found, Wanted, decide};
pub use self::observe::observe;
pub use self::secrets::secrets_held;

use crate::accounts::{Change, Ids};
use mesh_durable::{self as durable, DurableError, Ownership};

/// Why a module's files are not as declared.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A secret is not on this node.
    #[error(
        "file {file} of module {module} needs secret {secret}, which this node does not hold: expected {path}"
    )]
    SecretMissing {
        /// The module.
        module: ModuleName,
        /// The file.
        file: String,
        /// The secret.
        secret: String,
        /// Where it would lie.
        path: Utf8PathBuf,
    },
    /// A secret is another one.
    #[error("secret {secret} of module {module} has another content: expected {expected}, found {found}")]
    SecretDiffers {
        /// The module.
        module: ModuleName,
        /// The secret.
        secret: String,
        /// As declared.
        expected: Digest,
        /// As it lies here.
        found: Digest,
    },
    /// Nobody knows whom a file shall belong to.
    #[error("file {file} of module {module} belongs to account {account}, which was not made")]
    AccountUnknown {
        /// The module.
        module: ModuleName,
        /// The file.
        file: String,
        /// The account.
        account: AccountName,
    },
    /// Something cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// Which.
        path: Utf8PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// Something cannot be written or removed.
    #[error("the files of module {module} cannot be written")]
    Write {
        /// The module.
        module: ModuleName,
        /// Which, and why.
        source: DurableError,
    },
    /// A folder that nothing needs cannot be removed.
    #[error("files that nothing needs cannot be removed")]
    Collect(#[source] DurableError),
}

impl FilesError {
    /// Whether it speaks against what was declared, or what this node was given for it: then trying again helps
    /// nothing until one of them is another.
    #[must_use]
    pub const fn is_declared(&self) -> bool {
        match self {
            Self::SecretMissing { .. } | Self::SecretDiffers { .. } | Self::AccountUnknown { .. } => true,
            Self::Read { .. } | Self::Write { .. } | Self::Collect(_) => false,
        }
    }
}

/// A module's folder that is as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    /// `${module.dir}`
    pub folder: Utf8PathBuf,
    /// Whether anything was written just now.
    pub change: Change,
}

/// Makes a module's folder complete. `accounts` are the numbers of the section's accounts, by their names
/// without prefix.
///
/// # Errors
/// When a secret is missing or another, or a file cannot be written.
pub fn ensure(
    layout: &Layout,
    section: &ModuleSection,
    accounts: &BTreeMap<AccountName, Ids>,
) -> Result<Ensured, FilesError> {
    let folder = layout.module(&section.name, &section.files_digest());
    let wanted: Vec<Wanted> = section
        .files
        .iter()
        .map(|file| wanted(layout, &section.name, file, accounts))
        .collect::<Result<_, _>>()?;
    let found = observe(&folder)?;
    let actions = decide(&wanted, &found);
    let failed = |source| FilesError::Write { module: section.name.clone(), source };
    for above in [layout.modules(), layout.modules().join(section.name.as_str()), folder.clone()] {
        durable::ensure_folder(&above, 0o711).map_err(failed)?;
    }
    let change = if actions.is_empty() { Change::None } else { Change::Done };
    for action in actions {
        carry_out(&folder, &action).map_err(failed)?;
    }
    Ok(Ensured { folder, change })
}

/// Whether a module's folder is complete, without changing anything.
///
/// # Errors
/// When a secret is missing or another, or something cannot be read.
pub fn pending(
    layout: &Layout,
    section: &ModuleSection,
    accounts: &BTreeMap<AccountName, Ids>,
) -> Result<Vec<Action>, FilesError> {
    let wanted: Vec<Wanted> = section
        .files
        .iter()
        .map(|file| wanted(layout, &section.name, file, accounts))
        .collect::<Result<_, _>>()?;
    let found = observe(&layout.module(&section.name, &section.files_digest()))?;
    Ok(decide(&wanted, &found))
}

/// Removes every module folder that is not in `keep`; returns those that were removed.
///
/// # Errors
/// When the folders cannot be read, or one cannot be removed.
pub fn collect(layout: &Layout, keep: &BTreeSet<Utf8PathBuf>) -> Result<Vec<Utf8PathBuf>, FilesError> {
    let mut removed = Vec::new();
    for module in folders(&layout.modules())? {
        for folder in folders(&module)? {
            if !keep.contains(&folder) {
                durable::remove_tree(&folder).map_err(FilesError::Collect)?;
                removed.push(folder);
            }
        }
        if folders(&module)?.is_empty() {
            durable::remove_tree(&module).map_err(FilesError::Collect)?;
        }
    }
    Ok(removed)
}

fn wanted(
    layout: &Layout,
    module: &ModuleName,
    file: &FileSpec,
    accounts: &BTreeMap<AccountName, Ids>,
) -> Result<Wanted, FilesError> {
    let ids = match &file.owner {
        Owner::User(number) => Ids { uid: *number, gid: *number },
        Owner::Account(account) => *accounts.get(account).ok_or_else(|| FilesError::AccountUnknown {
            module: module.clone(),
            file: file.name.clone(),
            account: account.clone(),
        })?,
    };
    let bytes = match &file.source {
        FileSource::Content(text) => text.clone().into_bytes(),
        FileSource::Secret { name, digest } => secrets::read(layout, module, &file.name, name, digest)?,
    };
    Ok(Wanted { name: file.name.clone(), bytes, mode: file.mode, ids })
}

fn carry_out(folder: &Utf8Path, action: &Action) -> Result<(), DurableError> {
    match action {
        Action::Remove { name } => {
            let path = folder.join(name);
            if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                durable::remove_tree(&path)
            } else {
                durable::remove(&path)
            }
        }
        Action::Write(wanted) => {
            let ids = Ownership::Ids { uid: wanted.ids.uid, gid: wanted.ids.gid };
            durable::write_owned(&folder.join(&wanted.name), &wanted.bytes, wanted.mode, ids)
        }
    }
}

/// The folders in a folder; none where that is not there. Links are not folders.
fn folders(folder: &Utf8Path) -> Result<Vec<Utf8PathBuf>, FilesError> {
    let failed = |source| FilesError::Read { path: folder.to_owned(), source };
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            found.push(entry.into_path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests;
