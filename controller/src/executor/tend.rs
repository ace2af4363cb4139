//! What a serving instance does besides the open plan: registers nodes, tells what hosts report, and finds hosts
//! that hold more than is known.
//!
//! In: reports. Out: registrations, events, and whose state is to be taken over. Not here: taking it over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::chain::chain;
use mesh_protocol::event::What;
use mesh_protocol::id::NodeName;
use mesh_protocol::report::Report;
use tokio::time::Instant;

use super::Means;
use crate::known::{Known, NODE_FORMAT, NodeRecord};
use crate::notice::between;
use crate::recover::{self, Standing};
use crate::store::StoreError;

/// How often all nodes are looked at.
const INTERVAL: Duration = Duration::from_millis(250);

pub(super) struct Tending {
    means: Means,
    due: Instant,
    registered: BTreeSet<NodeName>,
    /// Each node's report as it was last looked at. The first look is where the telling begins: what was before
    /// it, whoever served then has told.
    seen: BTreeMap<NodeName, Report>,
}

impl Tending {
    pub(super) fn new(means: Means) -> Self {
        Self { means, due: Instant::now(), registered: BTreeSet::new(), seen: BTreeMap::new() }
    }

    /// Looks at all nodes, when it is time to; answers what is known then.
    pub(super) async fn tend_when_due(&mut self) -> Result<Option<Known>, StoreError> {
        if Instant::now() < self.due {
            return Ok(None);
        }
        let known = self.means.store.load().await?.known;
        for node in known.reports.keys() {
            self.register(node).await?;
        }
        self.watch(&known).await;
        self.due = Instant::now() + INTERVAL;
        Ok(Some(known))
    }

    /// All nodes are looked at again with the next turn.
    pub(super) fn look_again(&mut self) {
        self.due = Instant::now();
    }

    async fn register(&mut self, node: &NodeName) -> Result<(), StoreError> {
        if self.registered.contains(node) {
            return Ok(());
        }
        let record = NodeRecord { format: NODE_FORMAT, node: node.clone(), registered: Timestamp::now() };
        if self.means.store.register(&record).await? {
            let what = What::NodeRegistered { node: node.clone() };
            say(&self.means, what, &format!("node.{node}.{}", record.registered)).await;
        }
        self.registered.insert(node.clone());
        Ok(())
    }

    /// Tells what has changed in these reports.
    pub(super) async fn watch(&mut self, known: &Known) {
        for (node, report) in &known.reports {
            let before = self.seen.get(node);
            if before.is_some_and(|before| {
                (before.host_started, before.number) == (report.host_started, report.number)
            }) {
                continue;
            }
            let noticed = before.map(|before| between(before, report)).unwrap_or_default();
            for noticed in noticed {
                say(&self.means, noticed.what, &noticed.key).await;
            }
            self.seen.insert(node.clone(), report.clone());
        }
    }
}

/// Says an event. One that cannot be said is lost, and nothing else.
pub(super) async fn say(means: &Means, what: What, key: &str) {
    match means.store.say(&means.myself, what, key).await {
        Ok(()) => means.log.clear("events"),
        Err(error) => means.log.once("events", &chain(&error)),
    }
}

/// The first node whose host holds what is not known, and for which something can be done about it now.
pub(super) fn next_recovery(known: &Known) -> Option<NodeName> {
    let can_be_done = |(node, report): &(&NodeName, &Report)| {
        let standing = recover::standing(known.declarations.get(*node), report);
        matches!(standing, Standing::Holds(_) | Standing::ToBeAsked(_))
    };
    known.reports.iter().find(can_be_done).map(|(node, _)| node.clone())
}
