//! What a crash may not tear: files that are whole or not there, and the points between which a crash may come.
//!
//! In: paths and bytes; the names of deeds. Out: files written beside, synced, renamed, their folder synced; and, for
//! whoever tests what a crash leaves, a list of all deeds and a stop before or after any of them. Not here: what
//! is in the files, and what the deeds are.

pub mod checkpoint;
mod file;

pub use file::{
    DurableError, Ownership, Written, ensure_folder, is_beside, make_parents, open_plain, read, read_json,
    remove, remove_folder_of, remove_tree, sweep, sync_folder, sync_tree, write, write_by, write_json,
    write_owned, write_unless_same,
};
