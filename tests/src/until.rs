//! Waiting for a condition with a deadline, the only kind of waiting that a test does.

use std::time::{Duration, Instant};

/// How often a condition is looked at: often enough that no test waits for its looking.
const LOOK: Duration = Duration::from_millis(5);

/// Looks until there is a value; for tests without a runtime.
///
/// # Panics
/// When there is none after `limit`.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not so after {limit:?}");
        std::thread::sleep(LOOK);
    }
}

/// Looks until there is a value.
///
/// # Panics
/// When there is none after `limit`.
pub async fn eventually<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(value) = look().await {
                return value;
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    match tokio::time::timeout(limit, looking).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not so after {limit:?}"),
    }
}
