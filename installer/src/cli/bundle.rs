//! `mesh bundle` as it is typed.
//!
//! In: arguments. Out: values, checked for form only. Not here: what they do.

use camino::Utf8PathBuf;
use clap::{Args, Subcommand};
use mesh_bundles::store::Repository;
use mesh_protocol::id::{Digest, ResourceName, System};

use crate::registry::Wanted;

/// Over the options that say which store, in each help.
const STORE: &str = "Which store";

/// Pack, look into, publish, fetch, list and prune bundles.
#[derive(Debug, Subcommand)]
pub enum Bundle {
    /// Pack a bundle of a module into a file
    Pack(Pack),
    /// Show what is in a bundle, and check it: of a file, or of one in the store
    Inspect(Inspect),
    /// Put a bundle into the mesh's artifact store, or another registry
    Publish(Publish),
    /// Fetch a bundle from the mesh's artifact store, or another registry
    Pull(Pull),
    /// Show the bundles in the store, and who uses them
    List(List),
    /// Remove the bundles from the mesh's store that nobody uses
    Prune(Prune),
}

/// Which store is spoken to.
#[derive(Debug, Clone, Default, Args)]
pub struct StoreOptions {
    /// Another registry than the mesh's: host:port, or https://host/path [default: the mesh's artifact store]
    #[arg(long, value_name = "URL", help_heading = STORE)]
    pub store: Option<String>,
    /// A file of logins, as docker login writes it [default: as for docker: DOCKER_CONFIG, ~/.docker, helpers]
    #[arg(long, value_name = "FILE", requires = "store", help_heading = STORE)]
    pub credentials: Option<Utf8PathBuf>,
    /// The certificates to trust, as PEM [default: SSL_CERT_FILE, else the system's]
    #[arg(long, value_name = "FILE", requires = "store", help_heading = STORE)]
    pub ca: Option<Utf8PathBuf>,
    /// Speak to it without encryption, although it is on another machine
    #[arg(long, requires = "store", help_heading = STORE)]
    pub plain_http: bool,
}

impl StoreOptions {
    /// As the store's client wants it.
    #[must_use]
    pub fn wanted(self, mount_from: Option<Repository>) -> Wanted {
        let Self { store, credentials, ca, plain_http } = self;
        Wanted { store, credentials, ca, plain_http, mount_from }
    }
}

/// Pack a bundle of a module into a file.
#[derive(Debug, Args)]
pub struct Pack {
    /// The folder of the module's module.toml
    pub dir: Utf8PathBuf,
    /// For which system
    #[arg(long, default_value_t = System::of_this_program())]
    pub system: System,
    /// Where to
    #[arg(long, short, value_name = "FILE")]
    pub output: Utf8PathBuf,
    /// Which bundle, where the module has more than one
    #[arg(long, value_name = "NAME")]
    pub bundle: Option<ResourceName>,
}

/// Show what is in a bundle, and check it.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The tar.gz; or NAME:VERSION or NAME@sha256:... in the store
    #[arg(value_name = "FILE|NAME:VERSION|NAME@DIGEST")]
    pub what: String,
    /// For which system, of a version in the store
    #[arg(long, default_value_t = System::of_this_program())]
    pub system: System,
    /// Which store.
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Put a bundle into a store.
#[derive(Debug, Args)]
pub struct Publish {
    /// The tar.gz
    pub file: Utf8PathBuf,
    /// Its name, which is its repository
    #[arg(long)]
    pub name: ResourceName,
    /// Which of its files is its program [default: the only one that may be run, or the one of its name]
    #[arg(long, value_name = "PATH")]
    pub program: Option<String>,
    /// The version to note with it
    #[arg(long, default_value = "0")]
    pub version: String,
    /// For which system
    #[arg(long, default_value_t = System::of_this_program())]
    pub system: System,
    /// Note what it was built from: the revision of the working tree in this folder, and its tools [default: nothing]
    #[arg(long, value_name = "DIR")]
    pub source: Option<Utf8PathBuf>,
    /// The time to note as that of its making, as 2026-01-02T03:04:05Z [default: none]
    #[arg(long, value_name = "TIME")]
    pub created: Option<jiff::Timestamp>,
    /// A repository of the store that may have its bytes: then they are taken from there, and not sent
    #[arg(long, value_name = "REPOSITORY")]
    pub mount_from: Option<Repository>,
    /// Which store.
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Fetch a bundle from a store.
#[derive(Debug, Args)]
pub struct Pull {
    /// Its name, which is its repository
    pub name: ResourceName,
    /// Of the tar.gz
    pub digest: Digest,
    /// Where to
    #[arg(long, short, value_name = "FILE")]
    pub output: Utf8PathBuf,
    /// Which store.
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Show the bundles in a store, and who uses them.
#[derive(Debug, Args)]
pub struct List {
    /// Of this name only; there are registries that do not tell their names [default: all]
    pub name: Option<ResourceName>,
    /// Which store.
    #[command(flatten)]
    pub store: StoreOptions,
}

/// Remove the bundles from the mesh's store that nobody uses.
#[derive(Debug, Args)]
pub struct Prune {
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
}
