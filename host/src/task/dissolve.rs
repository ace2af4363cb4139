//! The end of a mesh on this machine: everything that this host made is ended and removed, in the order in
//! which nothing starts anything again.
//!
//! In: a request through the local door, with the mesh's id. Out: what was removed, and what of ours is left.
//! The root folder itself is the installer's. Killed anywhere, the same request goes on: each thing is looked
//! for again.

use std::time::Duration;

use mesh_durable as durable;
use mesh_engine::{ContainerId, Engine, LabelSelector};
use mesh_protocol::chain::chain;
use mesh_protocol::door::DoorAnswer;
use mesh_protocol::id::ResourceId;
use mesh_protocol::layout::label;

use super::Task;
use crate::containers::effect;
use crate::{log, processes};

/// A mesh that is dissolved answers nobody any more: its programs get a moment, not their whole grace.
const GRACE: Duration = Duration::from_secs(3);

/// A container, an account or a bundle is made in seconds; an engine that hangs holds up nothing for longer.
const JOBS: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(10);

impl Task {
    pub(super) async fn dissolve(&mut self) -> DoorAnswer {
        log::line("the mesh is dissolved");
        let mut removed: Vec<ResourceId> = Vec::new();
        let mut left = Vec::new();
        // A host that is started again would make anew what is gone.
        if let Err(error) = durable::write(&self.layout.dissolved(), b"", 0o600) {
            return DoorAnswer::Refused { why: chain(&error) };
        }
        self.dissolved = true;
        if !self.jobs_end().await {
            left.push(format!("what was begun has not ended within {} s", JOBS.as_secs()));
        }
        self.dissolve_processes(&mut removed, &mut left).await;
        self.dissolve_containers(&mut removed, &mut left).await;
        if left.is_empty() {
            self.remove_accounts(&mut left);
        }
        for line in &left {
            log::line(&format!("left: {line}"));
        }
        DoorAnswer::Dissolved { removed, left }
    }

    /// What is being made is made to its end first: it would come after what removes it.
    async fn jobs_end(&mut self) -> bool {
        let deadline = tokio::time::Instant::now() + JOBS;
        loop {
            self.collect_jobs();
            if !self.jobs.any() {
                return true;
            }
            if tokio::time::Instant::now() > deadline {
                return false;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn dissolve_processes(&mut self, removed: &mut Vec<ResourceId>, left: &mut Vec<String>) {
        let runs = match processes::list(&self.layout) {
            Ok(runs) => runs,
            Err(error) => {
                left.push(format!("the runs of processes cannot be listed: {error}"));
                return;
            }
        };
        for run in runs {
            let id = self.ledger.entries().find(|entry| entry.run.as_ref() == Some(&run));
            let id = id.map(|entry| entry.id.clone());
            let ended = match processes::end(&self.layout, &run, GRACE).await {
                Ok(_) => processes::forget(&self.layout, &run),
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) => removed.extend(id),
                Err(error) => left.push(format!("process run {run}: {}", chain(&error))),
            }
        }
    }

    /// By label, not by ledger: what a crash left between making and recording is found too.
    async fn dissolve_containers(&mut self, removed: &mut Vec<ResourceId>, left: &mut Vec<String>) {
        let Some(engine) = self.engine.engine() else {
            let held =
                self.ledger.entries().filter(|e| e.id.kind() == mesh_protocol::id::ResourceKind::Container);
            let error = self.engine.snapshot().error.unwrap_or_else(|| "it was not reached".to_owned());
            left.extend(held.map(|entry| format!("{}: the container engine: {error}", entry.id)));
            return;
        };
        let selector = LabelSelector::is(label::MESH, self.file.mesh.as_str());
        let containers = match engine.list(&selector).await {
            Ok(containers) => containers,
            Err(error) => {
                left.push(format!("the containers cannot be listed: {}", chain(&error)));
                return;
            }
        };
        for container in containers {
            let id = container.labels.get(label::RESOURCE).and_then(|id| id.parse::<ResourceId>().ok());
            match remove(engine.clone(), container.id).await {
                Ok(()) => removed.extend(id),
                Err(error) => left.push(format!("container {}: {error}", container.name)),
            }
        }
    }
}

async fn remove(engine: Engine, id: ContainerId) -> Result<(), String> {
    effect::end(engine.clone(), id.clone(), Some(GRACE)).await.map_err(|fault| fault.text)?;
    engine.remove(&id).await.map(|_| ()).map_err(|error| chain(&error))
}
