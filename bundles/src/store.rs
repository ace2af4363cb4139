//! The artifact store: any OCI Distribution registry.
//!
//! In: bundles to publish, digests to fetch. Out: a bundle's manifest in the store, its bytes in a file, each
//! verified by digest. Not here: which store a mesh uses, and how long to go on trying (an error says whether
//! trying again can help: [`StoreError::trouble`]).

mod address;
mod auth;
mod challenge;
mod client;
mod comparing;
mod credentials;
mod digesting;
mod download;
mod error;
mod house;
mod index;
mod plan;
mod publish;
mod resolve;
mod sending;
mod upload;

pub use address::{AddressFault, PlainHttp, Reference, Repository, StoreAddress, Tag, Wanted};
pub use client::{Options, Store};
pub use credentials::{CredentialError, Credentials, Keychain, Login, Secret};
pub use error::{StoreError, Trouble};
pub use house::{PrunePlan, Stored};
pub use plan::{Action, Part, Presence, Seen, decide};
pub use publish::{Publication, Published};
pub use resolve::Resolved;

#[cfg(test)]
mod tests;
