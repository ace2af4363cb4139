//! Answers the seat's verbs.
//!
//! In: calls, from whatever subject they came in on. Out: bodies of answers. Not here: subjects and queue groups
//! (`bus::seat`), or carrying out what is stored ([`crate::executor`]).
//!
//! A verb that changes something answers when its plan is stored. One that stands by, or is about to, changes
//! nothing: it says so, and the client asks again.

mod change;
mod ready;
mod snapshot;

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use mesh_protocol::bus::{Call, Handler, PlanLock};
use mesh_protocol::chain::chain;
use mesh_protocol::handover::Role;
use mesh_protocol::id::PlanId;
use mesh_protocol::plan::Plan;
use mesh_protocol::verb::{
    Answer, DeclarationAnswer, DeclarationRequest, HistoryAnswer, HistoryRequest, ModulesAnswer, NodesAnswer,
    Outcome, PlanRequest, PlansAnswer, RefusalCode, Verb, VerbRefusal,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::Mutex;

use crate::myself::Myself;
use crate::status::{self, About};
use crate::store::{Store, StoreError};
use snapshot::Snapshots;

/// So many plans are told at most, the newest.
const PLANS: usize = 100;

/// Whoever answers.
#[derive(Debug)]
pub struct Desk {
    myself: Arc<Myself>,
    about: About,
    store: Store,
    lock: PlanLock,
    snapshots: Arc<Snapshots>,
    /// Held while a plan is made and stored: what it was made from must not change meanwhile by this
    /// instance's own doing.
    planning: Mutex<()>,
    /// The plan that was told last, with its revision.
    told: std::sync::Mutex<Option<(PlanId, u64)>>,
}

impl Desk {
    /// Answers from `store`.
    #[must_use]
    pub fn new(myself: Arc<Myself>, about: About, store: Store, lock: PlanLock) -> Self {
        let snapshots = Snapshots::new(store.clone(), lock.clone());
        Self {
            myself,
            about,
            store,
            lock,
            snapshots,
            planning: Mutex::new(()),
            told: std::sync::Mutex::default(),
        }
    }

    async fn outcome(&self, verb: Verb, body: &Bytes) -> Result<Arc<RawValue>, VerbRefusal> {
        if verb.changes() && self.myself.role() != Role::Serving {
            return Err(standing_by());
        }
        // A host's check tells it nothing that it would look for here, and a plan looked at says itself what was new.
        if !matches!(verb, Verb::Status | Verb::Ready | Verb::Plan) {
            self.snapshots.forget();
        }
        match verb {
            Verb::Status => {
                let snapshot = self.snapshots.now().await?;
                snapshot.status(|known, lock| to_json(&status::status(known, &self.about, lock.clone())))
            }
            Verb::Nodes => {
                let nodes = status::nodes(&self.snapshots.now().await?.known);
                to_json(&NodesAnswer { nodes })
            }
            Verb::Modules => {
                let snapshot = self.snapshots.now().await?;
                to_json(&ModulesAnswer { modules: snapshot.known.modules.values().cloned().collect() })
            }
            Verb::Declaration => to_json(&self.declaration(parse(body)?).await?),
            Verb::Push => to_json(&Box::pin(self.push(parse(body)?)).await?),
            Verb::Rollback => to_json(&Box::pin(self.rollback(parse(body)?)).await?),
            Verb::Assign => to_json(&Box::pin(self.assign(parse(body)?, change::Direction::On)).await?),
            Verb::Unassign => to_json(&Box::pin(self.assign(parse(body)?, change::Direction::Off)).await?),
            Verb::Plan => to_json(&self.plan(parse(body)?).await?),
            Verb::Plans => {
                let mut plans = self.store.plans().await.map_err(unavailable)?;
                plans.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
                plans.truncate(PLANS);
                to_json(&PlansAnswer { plans })
            }
            Verb::Abort => to_json(&self.abort(parse(body)?).await?),
            Verb::History => {
                let request: HistoryRequest = parse(body)?;
                let revisions = self.store.history(&request.module).await.map_err(unavailable)?;
                if revisions.is_empty() {
                    return Err(not_found(format!("there is no module {}", request.module)));
                }
                let current =
                    self.snapshots.now().await?.known.modules.get(&request.module).map(|m| m.revision);
                to_json(&HistoryAnswer { revisions, current })
            }
            Verb::Ready => to_json(&self.ready().await),
            Verb::Noop => Err(refusal(RefusalCode::UnknownVerb, "noop is never answered".to_owned())),
        }
    }

    /// A plan is looked at many times a second by whoever follows it: only what is new in it makes what was read before
    /// too old to answer from.
    async fn plan(&self, request: PlanRequest) -> Result<Plan, VerbRefusal> {
        let Some(plan) = self.store.plan(&request.plan).await.map_err(unavailable)? else {
            return Err(not_found(format!("there is no plan {}", request.plan)));
        };
        let now = Some((request.plan, plan.revision));
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *told, now.clone()) != now {
            self.snapshots.forget();
        }
        Ok(plan.value)
    }

    async fn declaration(&self, request: DeclarationRequest) -> Result<DeclarationAnswer, VerbRefusal> {
        let declaration = self.store.declaration(&request.node).await.map_err(unavailable)?;
        if declaration.is_none() && !self.snapshots.now().await?.known.reports.contains_key(&request.node) {
            return Err(not_found(format!(
                "there is no node {}: none has reported by that name",
                request.node
            )));
        }
        Ok(DeclarationAnswer { declaration })
    }
}

impl Handler for Desk {
    async fn handle(&self, call: Call) -> Vec<u8> {
        let answered = Box::pin(self.outcome(call.verb, &call.body)).await;
        let outcome = match &answered {
            Ok(value) => Outcome::Answer(&**value),
            Err(refusal) => Outcome::Refused(refusal.clone()),
        };
        // Said last, so that the role is that of the moment in which the answer leaves.
        let answer = Answer { by: self.myself.by(), outcome };
        serde_json::to_vec(&answer).unwrap_or_default()
    }
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, VerbRefusal> {
    serde_json::from_slice(body)
        .map_err(|error| refusal(RefusalCode::InvalidRequest, format!("the request is not right: {error}")))
}

fn to_json<T: Serialize>(answer: &T) -> Result<Arc<RawValue>, VerbRefusal> {
    to_raw_value(answer)
        .map(Arc::from)
        .map_err(|error| refusal(RefusalCode::Unavailable, format!("the answer cannot be written: {error}")))
}

const fn refusal(code: RefusalCode, message: String) -> VerbRefusal {
    VerbRefusal { code, message, hint: None }
}

fn standing_by() -> VerbRefusal {
    VerbRefusal {
        code: RefusalCode::StandingBy,
        message: "this instance stands by, and changes nothing".to_owned(),
        hint: Some("ask again".to_owned()),
    }
}

const fn not_found(message: String) -> VerbRefusal {
    refusal(RefusalCode::NotFound, message)
}

#[allow(clippy::needless_pass_by_value, reason = "stands in map_err")]
fn unavailable(error: StoreError) -> VerbRefusal {
    VerbRefusal {
        code: RefusalCode::Unavailable,
        message: format!("the mesh's state cannot be had now: {}", chain(&error)),
        hint: Some("ask again".to_owned()),
    }
}
