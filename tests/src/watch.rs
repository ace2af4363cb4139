//! Watches the engine for containers that must never be there, not even for a moment.
//!
//! In: labels. Out: whether one that carries them was ever seen. Not here: whose labels they are.

use std::collections::BTreeSet;
use std::time::Duration;

use mesh_engine::{Engine, LabelSelector};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Making a container takes a tenth of a second, and one that serves stays for seconds.
const LOOK: Duration = Duration::from_millis(20);

/// A watch that goes on until it is ended.
#[derive(Debug)]
pub struct Watch {
    stop: oneshot::Sender<()>,
    task: JoinHandle<BTreeSet<String>>,
}

impl Watch {
    /// Begins to watch.
    #[must_use]
    pub fn begin(engine: Engine, selector: LabelSelector) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut seen = BTreeSet::new();
            while stopped.try_recv().is_err() {
                for container in engine.list(&selector).await.unwrap() {
                    seen.insert(format!("{} ({})", container.name, container.id.short()));
                }
                tokio::time::sleep(LOOK).await;
            }
            seen
        });
        Self { stop, task }
    }

    /// Ends it, and tells what was seen.
    ///
    /// # Panics
    /// When the engine did not answer meanwhile.
    pub async fn end(self) -> BTreeSet<String> {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }
}
