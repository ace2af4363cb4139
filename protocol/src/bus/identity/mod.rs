//! Who is who on the bus: keys, tokens, rights, and the server's configuration.
//!
//! In: seeds, names. Out: texts of files: credentials, `nats.conf`. Not here: where the files go; only
//! [`MeshKeys`] knows how to keep itself, for it must be kept well.

pub mod inbox;
mod jwt;
mod keys;
mod rights;
mod server;

pub use keys::{IdentityError, MeshKeys};
pub use rights::{Account, Rights, User};
pub use server::{ServerSettings, credential, credential_with, server_configuration};
