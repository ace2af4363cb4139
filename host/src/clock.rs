//! The time: one place reads the clocks, everything else is told.

use std::time::{Duration, Instant};

use jiff::Timestamp;

use crate::handover::decide::Now;

/// The clocks of one run of the host.
#[derive(Debug, Clone)]
pub struct Clock {
    started: Instant,
    boot_id: String,
}

impl Clock {
    /// Starts now, in this boot.
    #[must_use]
    pub fn start(boot_id: String) -> Self {
        Self { started: Instant::now(), boot_id }
    }

    /// Since the host started. Stands still while the machine is suspended, and so does everything that is
    /// measured with it.
    #[must_use]
    pub fn running(&self) -> Duration {
        self.started.elapsed()
    }

    /// All of it.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { running: self.running(), wall: Timestamp::now(), boot_id: self.boot_id.clone() }
    }

    /// Which boot this is.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }
}
