//! The verbs that change something: each makes a plan, stores it, and answers with it.
//!
//! In: requests. Out: plans, stored. Not here: what a plan says ([`crate::draft`]) or carrying it out.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::bus::Versioned;
use mesh_protocol::chain::chain;
use mesh_protocol::event::What;
use mesh_protocol::handover::Role;
use mesh_protocol::id::{NodeName, PlanId, System};
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::{Action, ModuleRecord, Plan, PlanState};
use mesh_protocol::verb::{
    AssignRequest, BundleNeed, Mode, PlanRequest, PlannedAnswer, PushRequest, RefusalCode, RollbackRequest,
    VerbRefusal,
};
use tokio::time::Instant;

use super::{Desk, not_found, refusal, standing_by, unavailable};
use crate::draft::draft;
use crate::known::Known;
use crate::plan::{Bundles, handovers, needs, with_stand_ins};
use crate::recover::{Standing, standing};
use crate::rollback;
use crate::store::{Claim, StoreError};

/// How long a change waits for what hosts hold to be taken over: less than the client waits.
const RECOVERED_WITHIN: Duration = Duration::from_millis(700);

/// How often a plan is marked as to be aborted before whoever asked is told to ask again: its holder may be
/// writing it.
const ROUNDS: u32 = 16;

/// On a node, or off it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    On,
    Off,
}

impl Desk {
    pub(super) async fn push(&self, request: PushRequest) -> Result<PlannedAnswer, VerbRefusal> {
        let manifest = Manifest::parse(&request.path, &request.manifest)
            .map_err(|errors| refusal(RefusalCode::InvalidManifest, errors.to_string()))?;
        let _planning = self.planning.lock().await;
        if let Some(plan) = self.own_plan(&request.request, request.mode).await? {
            return Ok(PlannedAnswer { plan, needs: Vec::new(), handovers: Vec::new() });
        }
        let known = self.known().await?;
        let record = record(&known, &request, &manifest)?;
        let systems: BTreeMap<NodeName, System> = record
            .nodes
            .iter()
            .filter_map(|node| Some((node.clone(), known.reports.get(node)?.system)))
            .collect();
        let last = known.modules.get(&manifest.name).map(|last| &last.bundles);
        let (record, needs) = match request.mode {
            Mode::Do => {
                let needs = needs(&manifest, &systems, &record.bundles);
                all_published(&needs)?;
                (record, needs)
            }
            Mode::DryRun => {
                let told = with_last(&record.bundles, last);
                let needs = needs(&manifest, &systems, &told);
                let bundles = with_stand_ins(&manifest, &told);
                (ModuleRecord { bundles, ..record }, needs)
            }
        };
        let plan = self.store_plan(&known, Action::Push { module: record }, request.request, request.mode);
        let plan = Box::pin(plan).await?;
        let handovers = handovers(&plan.changes, &manifest, &known);
        Ok(PlannedAnswer { plan, needs, handovers })
    }

    /// A push of what an earlier revision had.
    pub(super) async fn rollback(&self, request: RollbackRequest) -> Result<PlannedAnswer, VerbRefusal> {
        let _planning = self.planning.lock().await;
        if let Some(plan) = self.own_plan(&request.request, request.mode).await? {
            return Ok(PlannedAnswer { plan, needs: Vec::new(), handovers: Vec::new() });
        }
        let known = self.known().await?;
        let RollbackRequest { module, to, .. } = request;
        let Some(present) = known.modules.get(&module) else {
            return Err(not_found(format!("there is no module {module}: nothing of it was ever pushed")));
        };
        let history = self.store.history(&module).await.map_err(unavailable)?;
        let (target, manifest) = rollback::choose(present, &history, to).map_err(|unfit| VerbRefusal {
            code: unfit.code(),
            message: chain(&unfit),
            hint: Some(format!("see what there is: mesh history {module}")),
        })?;
        let record = ModuleRecord {
            revision: present.revision + 1,
            nodes: present.nodes.clone(),
            plan: Some(request.request.clone()),
            time: Timestamp::now(),
            again: Some(target.origin()),
            ..target.clone()
        };
        let plan = self.store_plan(&known, Action::Push { module: record }, request.request, request.mode);
        let plan = Box::pin(plan).await?;
        let handovers = handovers(&plan.changes, &manifest, &known);
        Ok(PlannedAnswer { plan, needs: Vec::new(), handovers })
    }

    pub(super) async fn assign(
        &self,
        request: AssignRequest,
        direction: Direction,
    ) -> Result<PlannedAnswer, VerbRefusal> {
        let _planning = self.planning.lock().await;
        if let Some(plan) = self.own_plan(&request.request, request.mode).await? {
            return Ok(PlannedAnswer { plan, needs: Vec::new(), handovers: Vec::new() });
        }
        let known = self.known().await?;
        let AssignRequest { module, node, .. } = request;
        let Some(record) = known.modules.get(&module) else {
            return Err(not_found(format!("there is no module {module}: push it first")));
        };
        if !known.reports.contains_key(&node) && !record.nodes.contains(&node) {
            return Err(not_found(format!("there is no node {node}: none has reported by that name")));
        }
        let action = match direction {
            Direction::On => Action::Assign { module, node },
            Direction::Off => Action::Unassign { module, node },
        };
        let plan = self.store_plan(&known, action, request.request, request.mode);
        let plan = Box::pin(plan).await?;
        Ok(PlannedAnswer { plan, needs: Vec::new(), handovers: Vec::new() })
    }

    /// Marks a plan as to be given up; whoever holds the lock ends it.
    pub(super) async fn abort(&self, request: PlanRequest) -> Result<Plan, VerbRefusal> {
        for _ in 0..ROUNDS {
            let Some(Versioned { value: mut plan, revision }) =
                self.store.plan(&request.plan).await.map_err(unavailable)?
            else {
                return Err(not_found(format!("there is no plan {}", request.plan)));
            };
            if plan.state.is_ended() || plan.abort_asked {
                return Ok(plan);
            }
            plan.abort_asked = true;
            match self.store.update_plan(&plan, revision).await {
                Ok(_) => {
                    // One that nobody knows of has nobody to end it.
                    self.store.claim(&plan.id).await.map_err(unavailable)?;
                    self.myself.wake.notify_one();
                    return Ok(plan);
                }
                Err(error) if error.is_stale() => {}
                Err(error) => return Err(unavailable(error)),
            }
        }
        Err(unavailable(StoreError::Contended { key: "the plan" }))
    }

    /// The plan that this request made when it was first sent.
    async fn own_plan(&self, request: &PlanId, mode: Mode) -> Result<Option<Plan>, VerbRefusal> {
        if mode == Mode::DryRun {
            return Ok(None);
        }
        let Some(plan) = self.store.plan(request).await.map_err(unavailable)? else { return Ok(None) };
        if plan.value.state == PlanState::Stored {
            // Whoever stored it may have died before anybody else could know of it.
            self.claim(&plan.value, plan.revision).await?;
        }
        Ok(Some(plan.value))
    }

    /// What is known, once every host is known to hold what the controller knows; or as it is after a while: a
    /// host that is gone must not keep the mesh from changing.
    async fn known(&self) -> Result<Known, VerbRefusal> {
        let until = Instant::now() + RECOVERED_WITHIN;
        loop {
            let known = self.store.load().await.map_err(unavailable)?.known;
            if known.reports.keys().all(|node| in_step(&known, node)) || Instant::now() >= until {
                return Ok(known);
            }
            self.myself.wake.notify_one();
            tokio::time::sleep(RECOVERED_WITHIN / 14).await;
        }
    }

    /// Makes the plan, and stores it unless this is a dry run.
    async fn store_plan(
        &self,
        known: &Known,
        action: Action,
        id: PlanId,
        mode: Mode,
    ) -> Result<Plan, VerbRefusal> {
        if let Some(behind) = Known::concerned(&action).iter().find(|node| !in_step(known, node)) {
            return Err(VerbRefusal {
                code: RefusalCode::Unavailable,
                message: format!(
                    "{behind} holds what the controller does not know yet, and it is being taken over"
                ),
                hint: Some("ask again".to_owned()),
            });
        }
        let open = self.store.open_plan().await.map_err(unavailable)?.map(|open| open.value.id);
        let mut plan = draft(known, action, id, self.myself.instance().clone(), Timestamp::now())?;
        if mode == Mode::DryRun {
            if let Some(open) = open {
                plan.remarks.push(format!("plan {open} is open: nothing else is done before it has ended"));
            }
            return Ok(plan);
        }
        if let (Some(open), false) = (open, plan.state.is_ended()) {
            return Err(plan_open(&open));
        }
        // Whatever has been said of the role since the request came: nothing new is begun while stepping down.
        if self.myself.role() != Role::Serving {
            return Err(standing_by());
        }
        match self.store.create_plan(&plan).await {
            Ok(_) if plan.state.is_ended() => {}
            Ok(revision) => self.claim(&plan, revision).await?,
            Err(error) if error.is_stale() => {
                // Another instance was sent the same request, and was quicker.
                let stored = self.store.plan(&plan.id).await.map_err(unavailable)?;
                return stored.map(|stored| stored.value).ok_or_else(|| {
                    refusal(RefusalCode::Unavailable, format!("plan {} came and went", plan.id))
                });
            }
            Err(error) => return Err(unavailable(error)),
        }
        let (module, state) = (plan.action.module().clone(), plan.state.clone());
        let what = What::Plan { plan: plan.id.clone(), module, state };
        // The plan is stored whether or not anybody hears of it.
        let _ = self.store.say(&self.myself, what, &format!("plan.{}.stored", plan.id)).await;
        Ok(plan)
    }

    /// Makes a stored plan the open one, or takes it back.
    async fn claim(&self, plan: &Plan, revision: u64) -> Result<(), VerbRefusal> {
        match self.store.claim(&plan.id).await.map_err(unavailable)? {
            Claim::Ours => {
                self.myself.wake.notify_one();
                Ok(())
            }
            Claim::Taken(other) => match self.store.withdraw_plan(&plan.id, revision).await {
                // Stale: somebody has begun it all the same.
                Err(error) if error.is_stale() => Ok(()),
                Ok(()) => Err(plan_open(&other)),
                Err(error) => Err(unavailable(error)),
            },
        }
    }
}

/// Whether the node's host holds what the controller knows. One that has not reported holds nothing yet.
fn in_step(known: &Known, node: &NodeName) -> bool {
    let standing = known.reports.get(node).map(|report| standing(known.declarations.get(node), report));
    standing.is_none_or(|standing| standing == Standing::InStep)
}

fn plan_open(open: &PlanId) -> VerbRefusal {
    VerbRefusal {
        code: RefusalCode::PlanOpen,
        message: format!("plan {open} is open: one plan is carried out at a time"),
        hint: Some(format!("wait for its end, or abort it: {open}")),
    }
}

/// The module's record as it shall be.
fn record(known: &Known, request: &PushRequest, manifest: &Manifest) -> Result<ModuleRecord, VerbRefusal> {
    let last = known.modules.get(&manifest.name);
    let mut nodes = last.map(|last| last.nodes.clone()).unwrap_or_default();
    for node in &request.assign {
        if !known.reports.contains_key(node) {
            return Err(not_found(format!("there is no node {node}: none has reported by that name")));
        }
        nodes.push(node.clone());
    }
    nodes.sort();
    nodes.dedup();
    let names = manifest.bundle_names();
    let bundles = request.bundles.iter().filter(|(name, _)| names.contains(name));
    Ok(ModuleRecord {
        name: manifest.name.clone(),
        revision: last.map_or(0, |last| last.revision) + 1,
        version: manifest.version.clone(),
        manifest: request.manifest.clone(),
        bundles: bundles.map(|(name, systems)| (name.clone(), systems.clone())).collect(),
        nodes,
        plan: Some(request.request.clone()),
        time: Timestamp::now(),
        again: None,
    })
}

/// What the request tells, and for the rest what the last push told.
fn with_last(told: &Bundles, last: Option<&Bundles>) -> Bundles {
    let mut all = last.cloned().unwrap_or_default();
    for (name, systems) in told {
        all.entry(name.clone()).or_default().extend(systems.iter().map(|(s, p)| (*s, p.clone())));
    }
    all
}

fn all_published(needs: &[BundleNeed]) -> Result<(), VerbRefusal> {
    let missing: Vec<String> = needs
        .iter()
        .filter(|need| need.published.is_none())
        .map(|need| {
            let nodes: Vec<&str> = need.nodes.iter().map(NodeName::as_str).collect();
            format!(
                "bundle {} for {} is not published, and {} needs it",
                need.bundle,
                need.system,
                nodes.join(", ")
            )
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(VerbRefusal {
        code: RefusalCode::Missing,
        message: missing.join("; "),
        hint: Some("publish it, and name it in the push".to_owned()),
    })
}
