//! The engine, looked at again and again by a task of its own, so that an engine that hangs keeps nobody
//! waiting: everyone else reads the last snapshot, which says how old it is.

use std::sync::Arc;
use std::time::Duration;

use mesh_engine::{Container, Endpoint, Engine, Environment, LabelSelector, endpoint};
use mesh_protocol::chain::chain;
use mesh_protocol::id::{InstanceId, MeshId, ResourceId};
use mesh_protocol::layout::label;
use tokio::sync::{Notify, watch};

use crate::clock::Clock;

/// How often the engine is asked. A listing of a mesh's few containers costs it some milliseconds.
const EVERY: Duration = Duration::from_millis(300);

/// What there was when it was last looked.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// When that was; none before the first time.
    pub at: Option<Duration>,
    /// This mesh's containers, running or not.
    pub containers: Vec<Container>,
    /// Why the latest attempt to look failed.
    pub error: Option<String>,
}

impl Snapshot {
    /// The container of this engine id.
    #[must_use]
    pub fn by_engine_id(&self, engine_id: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.id.as_str() == engine_id)
    }

    /// The container that was made for this resource and run folder.
    #[must_use]
    pub fn made_for(&self, id: &ResourceId, run: &InstanceId) -> Option<&Container> {
        self.containers.iter().find(|container| {
            let is = |name: &str, value: &str| container.labels.get(name).is_some_and(|found| found == value);
            is(label::RESOURCE, &id.to_string()) && is(label::INSTANCE, run.as_str())
        })
    }
}

/// The engine as the host has it.
#[derive(Debug, Clone)]
pub struct EngineWatch {
    snapshot: watch::Receiver<Snapshot>,
    engine: watch::Receiver<Option<Engine>>,
    look: Arc<Notify>,
}

impl EngineWatch {
    /// Begins to look at the engine at `address`; `wake` is notified when something changed.
    #[must_use]
    pub fn start(address: &str, mesh: &MeshId, clock: Clock, wake: Arc<Notify>) -> Self {
        let (snapshots, snapshot) = watch::channel(Snapshot::default());
        let (engines, engine) = watch::channel(None);
        let look = Arc::new(Notify::new());
        let address = address.to_owned();
        let selector = LabelSelector::is(label::MESH, mesh.as_str());
        let looking = look.clone();
        tokio::spawn(async move {
            loop {
                let connected: Option<Engine> = engines.borrow().clone();
                let connected = match connected {
                    Some(engine) => Ok(engine),
                    None => connect(&address).await,
                };
                // Before it is looked: what a job did meanwhile is newer than what is seen here.
                let at = clock.running();
                let seen = match connected {
                    Ok(engine) => {
                        engines.send_if_modified(|held| {
                            let new = held.is_none();
                            *held = Some(engine.clone());
                            new
                        });
                        engine.list(&selector).await.map_err(|error| chain(&error))
                    }
                    Err(error) => Err(error),
                };
                let changed = snapshots.send_if_modified(|snapshot| match seen {
                    Ok(containers) => {
                        let changed = snapshot.at.is_none() || snapshot.containers != containers;
                        *snapshot = Snapshot { at: Some(at), containers, error: None };
                        changed
                    }
                    Err(error) => {
                        let changed = snapshot.error.is_none();
                        snapshot.error = Some(error);
                        changed
                    }
                });
                if changed {
                    wake.notify_one();
                }
                // cancel safe: a notification that comes while nobody waits is kept
                tokio::select! {
                    () = tokio::time::sleep(EVERY) => {}
                    () = looking.notified() => {}
                }
            }
        });
        Self { snapshot, engine, look }
    }

    /// What there was when it was last looked.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.borrow().clone()
    }

    /// The engine, once it was reached.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        self.engine.borrow().clone()
    }

    /// Looks again now.
    pub fn look(&self) {
        self.look.notify_one();
    }
}

async fn connect(address: &str) -> Result<Engine, String> {
    let nothing = Environment::default();
    let endpoint: Endpoint = endpoint::resolve(Some(address), &nothing).map_err(|error| chain(&error))?;
    Engine::connect(&endpoint).await.map_err(|error| chain(&error))
}
