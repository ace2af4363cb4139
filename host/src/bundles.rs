//! Bundles on this node: fetched from the artifact store by digest, unpacked once, kept while something needs
//! them.
//!
//! In: what a module declares, the store's address. Out: the folder to run from; or whether what went wrong
//! speaks against the bundle. Not here: the store's protocol and the archive's rules, which are the bundles'
//! own room, and what is needed, which the caller says.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::SILENT;
use mesh_bundles::archive::Limits;
use mesh_bundles::depot::{Depot, DepotError, Outcome, unused};
use mesh_bundles::store::{
    self, AddressFault, Options, PlainHttp, Repository, Store, StoreAddress, StoreError,
};
use mesh_bundles::unpack::UnpackError;
use mesh_protocol::declaration::BundleSpec;
use mesh_protocol::id::{Digest, ResourceName};
use mesh_protocol::layout::Layout;

use crate::accounts::Change;
use mesh_durable::{self as durable, DurableError};

/// Why a bundle is not there.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The store's address is none.
    #[error("the address of the artifact store cannot be used")]
    Address(#[from] AddressFault),
    /// The store does not give it.
    #[error("bundle {name} ({digest}) cannot be fetched")]
    Store {
        /// The bundle.
        name: ResourceName,
        /// Its digest.
        digest: Digest,
        /// Why.
        source: Box<StoreError>,
    },
    /// It cannot be unpacked.
    #[error("bundle {name} ({digest}) cannot be unpacked")]
    Unpack {
        /// The bundle.
        name: ResourceName,
        /// Its digest.
        digest: Digest,
        /// Why.
        source: Box<DepotError>,
    },
    /// The folder of unpacked bundles cannot be used.
    #[error("the unpacked bundles cannot be used")]
    Depot(#[source] Box<DepotError>),
    /// The folder of fetched archives cannot be used.
    #[error("the folder for fetched bundles cannot be used")]
    Folder(#[source] DurableError),
    /// What somebody gave cannot be read, or kept.
    #[error("the bundle in {path} cannot be taken")]
    Given {
        /// The file.
        path: Utf8PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// What somebody gave is another.
    #[error("the bundle in {path} is another: expected {expected}, found {found}")]
    Another {
        /// The file.
        path: Utf8PathBuf,
        /// As it was said.
        expected: Digest,
        /// As it is.
        found: Digest,
    },
    /// The work was cut off, as when the program ends.
    #[error("bundle {name} was not unpacked to the end")]
    CutOff {
        /// The bundle.
        name: ResourceName,
        /// How.
        source: tokio::task::JoinError,
    },
}

impl BundleError {
    fn depot(error: DepotError) -> Self {
        Self::Depot(Box::new(error))
    }

    /// Whether it is store, network or disk that fails, so that trying again may help; else it speaks against
    /// the bundle as it was declared: it is not there, is damaged, or is no bundle.
    #[must_use]
    pub fn is_surroundings(&self) -> bool {
        match self {
            Self::Store { source, .. } => !matches!(
                (&**source, source.trouble()),
                (_, store::Trouble::Missing | store::Trouble::Corrupted)
                    | (StoreError::TooLarge { .. } | StoreError::NotBundle { .. }, _)
            ),
            Self::Unpack { source, .. } => match **source {
                DepotError::Unpack(
                    UnpackError::FileTooLarge { .. }
                    | UnpackError::Digest { .. }
                    | UnpackError::Archive { .. },
                ) => false,
                DepotError::Unpack(
                    UnpackError::Read { .. } | UnpackError::Write { .. } | UnpackError::Exists { .. },
                )
                | DepotError::Disk { .. } => true,
            },
            Self::Another { .. } => false,
            Self::Address(_)
            | Self::Depot(_)
            | Self::Folder(_)
            | Self::Given { .. }
            | Self::CutOff { .. } => true,
        }
    }
}

/// A bundle that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ensured {
    /// Where it is unpacked.
    pub folder: Utf8PathBuf,
    /// Whether it was unpacked just now.
    pub change: Change,
}

/// Makes a bundle be there; of one that is, the store is not asked.
///
/// # Errors
/// When it cannot be fetched or unpacked; [`BundleError::is_surroundings`] says what that speaks against.
pub async fn ensure(layout: &Layout, store: &str, spec: &BundleSpec) -> Result<Ensured, BundleError> {
    let folder = layout.bundle(&spec.digest);
    let depot = Depot::open(layout.bundles().as_std_path()).map_err(BundleError::depot)?;
    if depot.holds(&spec.digest) {
        return Ok(Ensured { folder, change: Change::None });
    }
    durable::ensure_folder(&fetched(layout), 0o700).map_err(BundleError::Folder)?;
    let archive = fetched(layout).join(archive_name(&spec.digest));
    // One that was fetched and for which the disk had no room is not fetched again; unpacking verifies it.
    if archive.metadata().map(|found| found.len()).ok() != Some(spec.size) {
        fetch(store, spec, archive.as_std_path()).await?;
    }
    let outcome = {
        let (digest, archive) = (spec.digest.clone(), archive.clone());
        let unpacking = move || depot.unpack(&digest, archive.as_std_path(), Limits::default());
        tokio::task::spawn_blocking(unpacking)
            .await
            .map_err(|source| BundleError::CutOff { name: spec.name.clone(), source })?
    };
    let outcome = outcome.map_err(|source| BundleError::Unpack {
        name: spec.name.clone(),
        digest: spec.digest.clone(),
        source: Box::new(source),
    });
    if !outcome.as_ref().is_err_and(BundleError::is_surroundings) {
        durable::remove(&archive).map_err(BundleError::Folder)?;
    }
    let change = match outcome? {
        Outcome::AlreadyThere => Change::None,
        Outcome::Unpacked | Outcome::Replaced => Change::Done,
    };
    Ok(Ensured { folder, change })
}

/// Takes a bundle that somebody has on this machine, as if it had been fetched: whoever needs it then unpacks it.
///
/// # Errors
/// When it cannot be read or kept, or is another than was said.
pub fn take(layout: &Layout, archive: &Utf8Path, digest: &Digest) -> Result<(), BundleError> {
    durable::ensure_folder(&fetched(layout), 0o700).map_err(BundleError::Folder)?;
    let given = |source| BundleError::Given { path: archive.to_owned(), source };
    let bytes = std::fs::read(archive).map_err(given)?;
    let found = Digest::of(&bytes);
    if &found != digest {
        return Err(BundleError::Another { path: archive.to_owned(), expected: digest.clone(), found });
    }
    let path = fetched(layout).join(archive_name(digest));
    durable::write(&path, &bytes, 0o600).map_err(BundleError::Folder)
}

/// Whether a bundle is there, whole.
#[must_use]
pub fn holds(layout: &Layout, digest: &Digest) -> bool {
    layout.bundles().is_dir()
        && Depot::open(layout.bundles().as_std_path()).is_ok_and(|depot| depot.holds(digest))
}

/// Removes every bundle that is not in `keep`, and every archive of one; returns those that were removed. An archive
/// that is to be unpacked yet, as somebody gave it, is one of `keep`. Nothing is being fetched meanwhile.
///
/// # Errors
/// When one cannot be removed.
pub fn collect(layout: &Layout, keep: &BTreeSet<Digest>) -> Result<Vec<Digest>, BundleError> {
    sweep(layout, keep)?;
    if !layout.bundles().is_dir() {
        return Ok(Vec::new());
    }
    let depot = Depot::open(layout.bundles().as_std_path()).map_err(BundleError::depot)?;
    depot.sweep().map_err(BundleError::depot)?;
    let unused = unused(&depot.list().map_err(BundleError::depot)?, keep);
    for digest in &unused {
        depot.remove(digest).map_err(BundleError::depot)?;
    }
    Ok(unused)
}

/// Removes what was fetched or begun and is of no use to anybody. Nothing is being fetched meanwhile.
fn sweep(layout: &Layout, keep: &BTreeSet<Digest>) -> Result<(), BundleError> {
    let kept: BTreeSet<String> = keep.iter().map(archive_name).collect();
    let folder = fetched(layout);
    let files = crate::paths::files_in(&folder).map_err(BundleError::Folder)?;
    for file in files.iter().filter(|file| !file.file_name().is_some_and(|name| kept.contains(name))) {
        durable::remove(file).map_err(BundleError::Folder)?;
    }
    Ok(())
}

fn archive_name(digest: &Digest) -> String {
    format!("{}.tar.gz", digest.hex())
}

async fn fetch(store: &str, spec: &BundleSpec, archive: &Path) -> Result<(), BundleError> {
    // Whoever wrote `http://` into the host's file meant it.
    let plain = if store.starts_with("http://") { PlainHttp::Allowed } else { PlainHttp::LoopbackOnly };
    let address = StoreAddress::parse(store, plain)?;
    let failed = |source| BundleError::Store {
        name: spec.name.clone(),
        digest: spec.digest.clone(),
        source: Box::new(source),
    };
    let store = Store::new(address, &Options::default()).map_err(failed)?;
    match std::fs::remove_file(archive) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(failed(StoreError::File { path: archive.to_owned(), source }));
        }
        Ok(()) | Err(_) => {}
    }
    let repository = Repository::from(&spec.name);
    let fetched = store.fetch(&repository, &spec.digest, archive, spec.size, SILENT);
    fetched.await.map(drop).map_err(failed)
}

fn fetched(layout: &Layout) -> Utf8PathBuf {
    layout.host().join("fetch")
}
