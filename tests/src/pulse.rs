//! How long the machine itself stood still: what then came late was not the mesh's doing.
//!
//! In: nothing. Out: by how much a thread that wants to be woken every few milliseconds was woken too late, at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// As often as the seat is asked.
const EVERY: Duration = Duration::from_millis(5);

/// A thread that looks at the clock.
#[derive(Debug)]
pub struct Pulse {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Pulse {
    /// Begins to look.
    #[must_use]
    pub fn begin() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let told = ended.clone();
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !told.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(EVERY);
                longest = longest.max(before.elapsed().saturating_sub(EVERY));
            }
            longest
        });
        Self { ended, thread }
    }

    /// The longest time that it stood still.
    ///
    /// # Panics
    /// When the thread did.
    #[must_use]
    pub fn end(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only sleeps")
    }
}
