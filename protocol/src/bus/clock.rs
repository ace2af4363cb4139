//! Time since the machine booted, suspend included.
//!
//! In: nothing. Out: a duration. Not here: the time of day. `std::time::Instant` stands still while a machine
//! sleeps, and a lease does not.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Now, since boot.
pub(super) fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}
