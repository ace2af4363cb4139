//! The names without a prefix are the machine's, for its accounts are: one test at a time has them, or looks at them.
//!
//! In: nothing. Out: a lock, which goes with its value or its process. Not here: names with a prefix, which are no other's.

use std::fs::{self, File};

use crate::parts::repository;

/// That nobody else has the names.
#[derive(Debug)]
pub struct Names {
    _lock: File,
}

/// Waits until nobody else has the names.
///
/// # Panics
/// When there is no place for the lock.
pub async fn without_prefix() -> Names {
    let folder = repository().join("target/mesh-tests");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("names.lock")).unwrap();
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap();
    Names { _lock: lock }
}
