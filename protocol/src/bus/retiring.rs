//! Subscriptions that must not outlive the connection they were made for, and the moment in which they go.
//!
//! In: subscriptions, each with the number of its connection. Out: a wait, for the time between two
//! connections, until none is left of the one before. Not here: why they must not (`seat::membership`).
//!
//! The library makes every subscription again that is there when a connection comes back. One that was put
//! away just before is not made again, and so nothing is routed to it; one that is put away just after may
//! lose what was routed to it meanwhile. So a connection does not come back before the first is done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// All such subscriptions of one connection. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Retiring {
    made_for: watch::Sender<BTreeMap<u64, u64>>,
    next: Arc<AtomicU64>,
}

/// One such subscription, until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    all: Retiring,
    id: u64,
}

impl Retiring {
    pub(super) fn new() -> Self {
        Self { made_for: watch::channel(BTreeMap::new()).0, next: Arc::new(AtomicU64::new(0)) }
    }

    /// Notes a subscription that is made for the connection `made_for`.
    pub(super) fn register(&self, made_for: u64) -> Registration {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let registration = Registration { all: self.clone(), id };
        registration.renewed_for(made_for);
        registration
    }

    /// Returns when none is left that was made for the connection `count` or one before.
    pub(super) async fn none_left_of(&self, count: u64) {
        let mut made_for = self.made_for.subscribe();
        let past = |all: &BTreeMap<u64, u64>| all.values().all(|made_for| *made_for > count);
        // The sender is in `self`.
        let _ = made_for.wait_for(past).await;
    }
}

impl Registration {
    /// It was put away, and there is another in its place.
    pub(super) fn renewed_for(&self, made_for: u64) {
        self.all.made_for.send_modify(|all| {
            all.insert(self.id, made_for);
        });
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.all.made_for.send_modify(|all| {
            all.remove(&self.id);
        });
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn it_waits_for_each_that_is_left() {
        let retiring = Retiring::new();
        assert!(retiring.none_left_of(7).now_or_never().is_some());
        let (one, two) = (retiring.register(1), retiring.register(1));
        assert!(retiring.none_left_of(0).now_or_never().is_some());
        assert!(retiring.none_left_of(1).now_or_never().is_none());
        one.renewed_for(2);
        assert!(retiring.none_left_of(1).now_or_never().is_none());
        drop(two);
        assert!(retiring.none_left_of(1).now_or_never().is_some());
        assert!(retiring.none_left_of(2).now_or_never().is_none());
    }
}
