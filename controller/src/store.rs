//! The controller's documents, by their names, with the revisions that writing them needs.
//!
//! In: the state's buckets. Out: what is known, plans, the one open plan. Not here: deciding what to write.
//!
//! At most one plan is open at a time: its id stands in one key, which is taken and freed by compare-and-set. A
//! plan is stored first and then put there, so whatever stands there is stored; one that is stored and stands
//! nowhere (whoever stored it died in between) is found by [`Store::forgotten_plan`].

use std::collections::BTreeMap;

use mesh_protocol::bus::{State, StateError, Versioned};
use mesh_protocol::declaration::Declaration;
use mesh_protocol::event::{Event, FORMAT, What};
use mesh_protocol::id::{InvalidId, ModuleName, NodeName, PlanId};
use mesh_protocol::plan::{ModuleRecord, Plan};
use mesh_protocol::report::Report;
use mesh_protocol::subject::bucket;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::known::{Known, NodeRecord};
use crate::myself::Myself;

/// Where the open plan's id stands, in the bucket of numbers.
const OPEN_PLAN: &str = "open-plan";

/// How often a compare-and-set is tried before whoever asked is told to ask again.
const ROUNDS: u32 = 8;

/// Why a document cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state says so.
    #[error(transparent)]
    State(#[from] StateError),
    /// A key that is no name.
    #[error("the bucket {bucket} has a key that is no name")]
    Key {
        /// Where.
        bucket: &'static str,
        /// Which.
        #[source]
        error: InvalidId,
    },
    /// Others write the same key all the time.
    #[error("others keep changing {key}: tried {ROUNDS} times")]
    Contended {
        /// Which.
        key: &'static str,
    },
}

impl StoreError {
    /// Whether somebody else wrote first: what was decided was decided from what is no more.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::State(StateError::Stale { .. } | StateError::AlreadyExists { .. }))
    }
}

/// What is known, with the revisions under which it may be written.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What is known.
    pub known: Known,
    /// Of the declarations.
    pub declarations: BTreeMap<NodeName, u64>,
    /// Of the modules' records.
    pub modules: BTreeMap<ModuleName, u64>,
}

/// Whether the place of the open plan is this plan's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// It is.
    Ours,
    /// Another plan is open.
    Taken(PlanId),
}

#[derive(Debug, Serialize, Deserialize)]
struct OpenPlan {
    plan: Option<PlanId>,
}

/// The controller's documents.
#[derive(Debug, Clone)]
pub struct Store {
    state: State,
}

impl Store {
    /// Over the mesh's state.
    #[must_use]
    pub const fn new(state: State) -> Self {
        Self { state }
    }

    /// The mesh's state.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// All that is known. Reports are read before declarations: the other way round, a host that is quick would
    /// look as if it were ahead.
    ///
    /// # Errors
    /// When it cannot be read now.
    pub async fn load(&self) -> Result<Loaded, StoreError> {
        let reports = self.all::<NodeName, Report>(bucket::REPORTS).await?;
        let declarations = self.all::<NodeName, Declaration>(bucket::DECLARATIONS).await?;
        self.loaded(reports, declarations).await
    }

    /// The same, of some nodes only.
    ///
    /// # Errors
    /// When it cannot be read now.
    pub async fn load_nodes(&self, nodes: &[NodeName]) -> Result<Loaded, StoreError> {
        let reports = self.some(bucket::REPORTS, nodes).await?;
        let declarations = self.some(bucket::DECLARATIONS, nodes).await?;
        self.loaded(reports, declarations).await
    }

    async fn loaded(
        &self,
        reports: BTreeMap<NodeName, Versioned<Report>>,
        declarations: BTreeMap<NodeName, Versioned<Declaration>>,
    ) -> Result<Loaded, StoreError> {
        let modules = self.all::<ModuleName, ModuleRecord>(bucket::MODULES).await?;
        let (declarations, declaration_revisions) = apart(declarations);
        let (modules, module_revisions) = apart(modules);
        let (reports, _) = apart(reports);
        Ok(Loaded {
            known: Known { mesh: self.state.mesh().clone(), modules, declarations, reports },
            declarations: declaration_revisions,
            modules: module_revisions,
        })
    }

    async fn some<T: DeserializeOwned>(
        &self,
        bucket: &'static str,
        nodes: &[NodeName],
    ) -> Result<BTreeMap<NodeName, Versioned<T>>, StoreError> {
        let mut found = BTreeMap::new();
        for node in nodes {
            if let Some(value) = self.state.read(bucket, node.as_str()).await? {
                found.insert(node.clone(), value);
            }
        }
        Ok(found)
    }

    async fn all<K, T>(&self, bucket: &'static str) -> Result<BTreeMap<K, Versioned<T>>, StoreError>
    where
        K: Ord + std::str::FromStr<Err = InvalidId>,
        T: DeserializeOwned,
    {
        let mut found = BTreeMap::new();
        for (key, value) in self.state.list(bucket).await? {
            let key = key.parse().map_err(|error| StoreError::Key { bucket, error })?;
            found.insert(key, value);
        }
        Ok(found)
    }

    /// One declaration.
    ///
    /// # Errors
    /// When it cannot be read now.
    pub async fn declaration(&self, node: &NodeName) -> Result<Option<Declaration>, StoreError> {
        let found = self.state.read(bucket::DECLARATIONS, node.as_str()).await?;
        Ok(found.map(|found| found.value))
    }

    /// Puts a declaration over the revision that was read; none: there was no declaration.
    ///
    /// # Errors
    /// When it is another by now, or cannot be written.
    pub async fn put_declaration(
        &self,
        declaration: &Declaration,
        over: Option<u64>,
    ) -> Result<(), StoreError> {
        self.put(bucket::DECLARATIONS, declaration.node.as_str(), declaration, over).await
    }

    /// Records a module over the revision that was read, and in its history. The history first: what is the
    /// latest is always in it.
    ///
    /// # Errors
    /// When it is another by now, or cannot be written.
    pub async fn record(&self, record: &ModuleRecord, over: Option<u64>) -> Result<(), StoreError> {
        let key = format!("{}.{}", record.name, record.revision);
        let before = self.state.read::<ModuleRecord>(bucket::REVISIONS, &key).await?;
        if before.as_ref().is_none_or(|before| &before.value != record) {
            self.put(bucket::REVISIONS, &key, record, before.map(|before| before.revision)).await?;
        }
        self.put(bucket::MODULES, record.name.as_str(), record, over).await
    }

    async fn put<T: Serialize>(
        &self,
        bucket: &'static str,
        key: &str,
        value: &T,
        over: Option<u64>,
    ) -> Result<(), StoreError> {
        match over {
            Some(revision) => self.state.update(bucket, key, value, revision).await?,
            None => self.state.create(bucket, key, value).await?,
        };
        Ok(())
    }

    /// A module's revisions, newest first.
    ///
    /// # Errors
    /// When they cannot be read now.
    pub async fn history(&self, module: &ModuleName) -> Result<Vec<ModuleRecord>, StoreError> {
        let all = self.state.list::<ModuleRecord>(bucket::REVISIONS).await?;
        let mut records: Vec<ModuleRecord> =
            all.into_values().map(|found| found.value).filter(|record| &record.name == module).collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.revision));
        Ok(records)
    }

    /// Registers a node; true when it was not.
    ///
    /// # Errors
    /// When it cannot be written now.
    pub async fn register(&self, record: &NodeRecord) -> Result<bool, StoreError> {
        match self.state.create(bucket::NODES, record.node.as_str(), record).await {
            Ok(_) => Ok(true),
            Err(StateError::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// A plan.
    ///
    /// # Errors
    /// When it cannot be read now.
    pub async fn plan(&self, id: &PlanId) -> Result<Option<Versioned<Plan>>, StoreError> {
        Ok(self.state.read(bucket::PLANS, id.as_str()).await?)
    }

    /// Every plan.
    ///
    /// # Errors
    /// When they cannot be read now.
    pub async fn plans(&self) -> Result<Vec<Plan>, StoreError> {
        let all = self.all::<PlanId, Plan>(bucket::PLANS).await?;
        Ok(all.into_values().map(|found| found.value).collect())
    }

    /// Stores a new plan, and answers its revision.
    ///
    /// # Errors
    /// When there is one of that id, or it cannot be written.
    pub async fn create_plan(&self, plan: &Plan) -> Result<u64, StoreError> {
        Ok(self.state.create(bucket::PLANS, plan.id.as_str(), plan).await?)
    }

    /// Stores a plan over the revision that was read, and answers the new one.
    ///
    /// # Errors
    /// When it is another by now, or cannot be written.
    pub async fn update_plan(&self, plan: &Plan, over: u64) -> Result<u64, StoreError> {
        Ok(self.state.update(bucket::PLANS, plan.id.as_str(), plan, over).await?)
    }

    /// Takes back a plan that nobody began.
    ///
    /// # Errors
    /// When it is another by now, or cannot be written.
    pub async fn withdraw_plan(&self, id: &PlanId, over: u64) -> Result<(), StoreError> {
        Ok(self.state.delete(bucket::PLANS, id.as_str(), over).await?)
    }

    /// The plan that is open.
    ///
    /// # Errors
    /// When it cannot be read now.
    pub async fn open_plan(&self) -> Result<Option<Versioned<Plan>>, StoreError> {
        let Some(id) = self.open_plan_place().await?.and_then(|place| place.value.plan) else {
            return Ok(None);
        };
        Ok(self.plan(&id).await?.filter(|plan| !plan.value.state.is_ended()))
    }

    async fn open_plan_place(&self) -> Result<Option<Versioned<OpenPlan>>, StoreError> {
        Ok(self.state.read(bucket::NUMBERS, OPEN_PLAN).await?)
    }

    /// Makes a stored plan the open one, unless another is.
    ///
    /// # Errors
    /// When it cannot be read or written now.
    pub async fn claim(&self, id: &PlanId) -> Result<Claim, StoreError> {
        for _ in 0..ROUNDS {
            let place = self.open_plan_place().await?;
            if let Some(other) = place.as_ref().and_then(|place| place.value.plan.as_ref()) {
                if other == id {
                    return Ok(Claim::Ours);
                }
                if self.plan(other).await?.is_some_and(|plan| !plan.value.state.is_ended()) {
                    return Ok(Claim::Taken(other.clone()));
                }
            }
            let open = OpenPlan { plan: Some(id.clone()) };
            match self.put(bucket::NUMBERS, OPEN_PLAN, &open, place.map(|place| place.revision)).await {
                Ok(()) => return Ok(Claim::Ours),
                Err(error) if error.is_stale() => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Contended { key: OPEN_PLAN })
    }

    /// The oldest plan that has not ended. Where no plan is open, whoever stored it died before it was.
    ///
    /// # Errors
    /// When they cannot be read now.
    pub async fn forgotten_plan(&self) -> Result<Option<PlanId>, StoreError> {
        let mut plans: Vec<Plan> =
            self.plans().await?.into_iter().filter(|plan| !plan.state.is_ended()).collect();
        plans.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(plans.into_iter().next().map(|plan| plan.id))
    }

    /// Says an event, under a key by which the same one said twice is one.
    ///
    /// # Errors
    /// When it cannot be written now.
    pub async fn say(&self, myself: &Myself, what: What, key: &str) -> Result<(), StoreError> {
        let (time, by) = (jiff::Timestamp::now(), myself.instance().clone());
        let event = Event { format: FORMAT, time, by, what };
        Ok(self.state.publish_event(&event, key).await?)
    }
}

fn apart<K: Ord + Clone, T>(all: BTreeMap<K, Versioned<T>>) -> (BTreeMap<K, T>, BTreeMap<K, u64>) {
    let revisions = all.iter().map(|(key, found)| (key.clone(), found.revision)).collect();
    let values = all.into_iter().map(|(key, found)| (key, found.value)).collect();
    (values, revisions)
}
