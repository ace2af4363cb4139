//! Does what was decided: one write a step, each over the revision that was read.
//!
//! In: a step. Out: the store as it says, and events. Not here: any choice.

use mesh_protocol::event::What;
use mesh_protocol::plan::Plan;

use super::Means;
use super::decide::Step;
use crate::recover::TakenOver;
use crate::store::{Loaded, StoreError};

/// What a step is done with.
pub(super) struct Effects<'a> {
    pub(super) means: &'a Means,
    pub(super) loaded: &'a Loaded,
}

impl Effects<'_> {
    pub(super) async fn carry_out(&self, step: Step) -> Result<(), StoreError> {
        let store = &self.means.store;
        match step {
            // Neither is a write; the turn has done what is to be done.
            Step::Lost(_) | Step::Wait | Step::Store(_) => Ok(()),
            Step::PutAgain(again) => {
                for declaration in again {
                    store.put_declaration(&declaration, self.declaration(&declaration.node)).await?;
                }
                Ok(())
            }
            Step::Record(record) => {
                store.record(&record, self.loaded.modules.get(&record.name).copied()).await
            }
            Step::Declare(declaration) => {
                store.put_declaration(&declaration, self.declaration(&declaration.node)).await
            }
            Step::Recover(taken) => self.recover(&taken).await,
        }
    }

    fn declaration(&self, node: &mesh_protocol::id::NodeName) -> Option<u64> {
        self.loaded.declarations.get(node).copied()
    }

    /// The records first: once the declaration is there, nothing says any more that there was something to
    /// take over.
    async fn recover(&self, taken: &TakenOver) -> Result<(), StoreError> {
        for record in taken.records.values() {
            let over = self.loaded.modules.get(&record.name).copied();
            self.means.store.record(record, over).await?;
        }
        let declaration = &taken.declaration;
        self.means.store.put_declaration(declaration, self.declaration(&declaration.node)).await?;
        let node = &declaration.node;
        let line = format!("recovered from {node}: {}", taken.detail);
        self.means.log.line(&line);
        let what = What::Recovered { node: node.clone(), detail: taken.detail.clone() };
        let key = format!("recovered.{node}.{}", declaration.generation);
        self.say(what, &key).await;
        Ok(())
    }

    /// Stores the plan as it stands, and says so.
    pub(super) async fn store(&self, plan: &Plan, over: u64) -> Result<(), StoreError> {
        let revision = self.means.store.update_plan(plan, over).await?;
        let (module, state) = (plan.action.module().clone(), plan.state.clone());
        let what = What::Plan { plan: plan.id.clone(), module, state };
        self.say(what, &format!("plan.{}.{revision}", plan.id)).await;
        Ok(())
    }

    /// What was done stays done whether or not anybody hears of it.
    async fn say(&self, what: What, key: &str) {
        super::tend::say(self.means, what, key).await;
    }
}
