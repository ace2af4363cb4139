//! Work that takes its time, beside the task that decides: one job a key, at most one at a time.
//!
//! In: a key and a future. Out: what became of it, picked up by the task at its next pass, which is woken. Not
//! here: what the work is, or whether it is done again. Nothing of this survives the host: each job is such that
//! it can be begun again.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

/// Jobs by key, with results of type `T`.
#[derive(Debug)]
pub struct Jobs<K, T> {
    running: BTreeSet<K>,
    sender: mpsc::UnboundedSender<(K, T)>,
    finished: mpsc::UnboundedReceiver<(K, T)>,
    wake: Arc<Notify>,
}

impl<K: Ord + Clone + Send + 'static, T: Send + 'static> Jobs<K, T> {
    /// None yet; `wake` is notified when one ends.
    #[must_use]
    pub fn new(wake: Arc<Notify>) -> Self {
        let (sender, finished) = mpsc::unbounded_channel();
        Self { running: BTreeSet::new(), sender, finished, wake }
    }

    /// Begins a job, unless one of this key is under way.
    pub fn begin(&mut self, key: K, work: impl Future<Output = T> + Send + 'static) {
        if !self.running.insert(key.clone()) {
            return;
        }
        let (sender, wake) = (self.sender.clone(), self.wake.clone());
        tokio::spawn(async move {
            let outcome = work.await;
            // The task is gone only when the host is.
            let _ = sender.send((key, outcome));
            wake.notify_one();
        });
    }

    /// Whether a job of this key is under way.
    #[must_use]
    pub fn is_running(&self, key: &K) -> bool {
        self.running.contains(key)
    }

    /// Whether any job is under way.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.running.is_empty()
    }

    /// What ended since the last call.
    pub fn finished(&mut self) -> Vec<(K, T)> {
        let mut all = Vec::new();
        while let Ok((key, outcome)) = self.finished.try_recv() {
            self.running.remove(&key);
            all.push((key, outcome));
        }
        all
    }
}
