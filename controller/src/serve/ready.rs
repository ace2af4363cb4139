//! `ready`: what this instance says of itself, each part tried for this very answer.
//!
//! In: the state, the lock. Out: what worked. Not here: what follows from it; that is the host's.

use std::time::Duration;

use mesh_protocol::chain::chain;
use mesh_protocol::id::PlanId;
use mesh_protocol::verb::{Check, PROTOCOL, Ready};
use mesh_protocol::{declaration, plan};
use tokio::time::timeout;

use super::Desk;
use crate::myself::VERSION;

/// How long each part may take: longer than that is as good as not at all.
const WITHIN: Duration = Duration::from_secs(1);

impl Desk {
    /// What this instance says of itself. All parts at once.
    pub(super) async fn ready(&self) -> Ready {
        let state = async {
            timeout(WITHIN, self.store.state().check()).await.unwrap_or_else(|_| too_slow("the buckets"))
        };
        let lock = async {
            match timeout(WITHIN, self.lock.holder()).await {
                Ok(Ok(_)) => Check::Passed,
                Ok(Err(error)) => Check::Failed(chain(&error)),
                Err(_) => too_slow("the plan lock's bucket"),
            }
        };
        let (state, lock, open_plan) = tokio::join!(state, lock, self.open_plan_id());
        let state = match (state, &open_plan) {
            (Check::Passed, Err(error)) => Check::Failed(error.clone()),
            (state, _) => state,
        };
        Ready {
            instance: self.myself.instance().clone(),
            role: self.myself.role(),
            version: VERSION.to_owned(),
            program: self.myself.program().clone(),
            protocol: PROTOCOL,
            formats: vec![declaration::FORMAT.max(plan::FORMAT)],
            state,
            lock,
            lock_taken: self.myself.lock_taken(),
            open_plan: open_plan.unwrap_or_default(),
        }
    }

    async fn open_plan_id(&self) -> Result<Option<PlanId>, String> {
        match timeout(WITHIN, self.store.open_plan()).await {
            Ok(Ok(plan)) => Ok(plan.map(|plan| plan.value.id)),
            Ok(Err(error)) => Err(chain(&error)),
            Err(_) => Err("the open plan cannot be read: no answer within 1 s".to_owned()),
        }
    }
}

fn too_slow(what: &str) -> Check {
    Check::Failed(format!("{what} did not answer within {} ms", WITHIN.as_millis()))
}
