//! Bundles: a program and its files for one system, packed so that the same content gives the same bytes,
//! named by the sha256 of those bytes, kept in an artifact store, unpacked by a reader that believes nothing.
//!
//! In: folders, binaries, archives from anywhere. Out: archives, folders that are whole or not there, and
//! images made of the same bytes. Not here: who may run what, and where; which bundle a node needs; any
//! printing (callers are told of progress through a [`Progress`] function).
//!
//! All of it blocks, except [`store`], which is async.

pub mod archive;
pub mod config;
mod deflate;
pub mod depot;
pub mod elf;
pub mod entries;
pub mod files;
#[cfg(test)]
mod format_document;
mod gunzip;
pub mod image;
pub mod inputs;
pub mod manifest;
pub mod pace;
pub mod pack;
pub mod path;
mod sha256;
pub mod store;
#[cfg(test)]
mod testing;
mod tree;
pub mod unpack;
mod ustar;

/// Told as bytes go by: how many are done, and of how many, where that is known.
pub type Progress<'a> = &'a (dyn Fn(u64, Option<u64>) + Send + Sync);

/// A [`Progress`] for callers that do not want to know.
pub const SILENT: Progress<'static> = &|_, _| {};
