//! What a change means for one node, resource by resource; and what it needs that must be there first.
//!
//! In: the declaration that the node has, the one it shall have, its report. Out: changes in the host's order,
//! and remarks. Not here: composing the one it shall have, or carrying it out.

use std::collections::{BTreeMap, BTreeSet};

use mesh_protocol::declaration::Declaration;
use mesh_protocol::id::{Digest, ModuleName, NodeName, ResourceId, ResourceName, System};
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::{Change, NodeChanges, Published, ResourceChange};
use mesh_protocol::report::{Report, ResourceState};
use mesh_protocol::verb::{BundleNeed, PlannedHandover};

use crate::known::Known;

/// Bundles that are published, by name and system.
pub type Bundles = BTreeMap<ResourceName, BTreeMap<System, Published>>;

/// What changes on a node, and what to say that changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// What changes.
    pub changes: NodeChanges,
    /// What to say.
    pub remarks: Vec<String>,
}

/// What `new` changes on its node. What is held or failed there and stays as it is gets one more try where it
/// is `module`'s own.
#[must_use]
pub fn changes(
    present: Option<&Declaration>,
    new: &Declaration,
    report: &Report,
    module: &ModuleName,
) -> NodePlan {
    let node = Node { report, declared: present.map(Declaration::resources).unwrap_or_default() };
    let wanted = new.resources();
    let mut resources = Vec::new();
    let mut remarks = Vec::new();
    let mut succeeded: BTreeSet<ResourceId> = BTreeSet::new();
    for section in &new.modules {
        let own = &section.name == module;
        for id in section.resource_ids() {
            let Some(digest) = wanted.get(&id) else { continue };
            let target = section.replaces(&id);
            if let Some(target) = target.filter(|target| own && !node.has(target)) {
                let name = &new.node;
                remarks.push(format!("{id} replaces {target}, which is not on {name}: nothing is replaced"));
            }
            let present_target = target.filter(|target| node.has(target));
            let holds_seat = section.seat_holder().as_ref() == Some(&id);
            let successor_of = match present_target {
                Some(target) => Some(target.clone()),
                None if holds_seat && (node.declared.contains_key(&id) || node.has(&id)) => Some(id.clone()),
                None => None,
            };
            succeeded.extend(present_target.cloned());
            if let Some(change) = node.change(&id, digest, successor_of, own) {
                resources.push(ResourceChange { id, change });
            }
        }
    }
    resources.sort_by(|a, b| a.id.cmp(&b.id));
    // What goes comes last, in the opposite order: a process before the account it runs as.
    let gone = node.declared.keys().rev().filter(|id| !wanted.contains_key(id) && !succeeded.contains(id));
    resources.extend(gone.map(|id| ResourceChange { id: id.clone(), change: Change::Remove }));
    NodePlan { changes: NodeChanges { node: new.node.clone(), resources }, remarks }
}

struct Node<'a> {
    report: &'a Report,
    declared: BTreeMap<ResourceId, Digest>,
}

impl Node<'_> {
    /// Whether something is there under this id.
    fn has(&self, id: &ResourceId) -> bool {
        let there = self.report.resources.iter().filter(|resource| &resource.id == id);
        there.into_iter().any(|resource| resource.digest.is_some() || resource.runtime.is_some())
    }

    fn change(
        &self,
        id: &ResourceId,
        digest: &Digest,
        successor_of: Option<ResourceId>,
        own: bool,
    ) -> Option<Change> {
        let reported = self.report.resources.iter().find(|resource| &resource.id == id);
        let troubled = reported
            .is_some_and(|found| matches!(found.state, ResourceState::Held(_) | ResourceState::Failed(_)));
        let adopted =
            reported.filter(|found| found.adopted.is_some()).and_then(|found| found.digest.as_ref());
        match (self.declared.get(id), adopted) {
            (Some(declared), _) if declared == digest => (own && troubled).then_some(Change::Retry),
            (None, Some(adopted)) if adopted == digest => Some(Change::TakeOver),
            (declared, adopted) => Some(match successor_of {
                Some(from) => Change::HandOver { from },
                None if declared.is_none() && adopted.is_none() => Change::Create,
                None => Change::Update,
            }),
        }
    }
}

/// Which bundles the nodes need. `nodes` are those that are assigned, with their systems; `known` are the
/// bundles of the request, or of the last push.
#[must_use]
pub fn needs(manifest: &Manifest, nodes: &BTreeMap<NodeName, System>, known: &Bundles) -> Vec<BundleNeed> {
    let mut needs: BTreeMap<(ResourceName, System), Vec<NodeName>> = BTreeMap::new();
    for name in manifest.bundle_names() {
        for (node, system) in nodes {
            needs.entry((name.clone(), *system)).or_default().push(node.clone());
        }
    }
    let published = |bundle: &ResourceName, system: System| {
        known.get(bundle).and_then(|systems| systems.get(&system)).map(|published| published.digest.clone())
    };
    needs
        .into_iter()
        .map(|((bundle, system), nodes)| BundleNeed {
            published: published(&bundle, system),
            bundle,
            system,
            nodes,
        })
        .collect()
}

/// The handovers that a plan takes: those that it plans, and those that it tries once more.
#[must_use]
pub fn handovers(changes: &[NodeChanges], manifest: &Manifest, known: &Known) -> Vec<PlannedHandover> {
    let Some(seat) = &manifest.seat else { return Vec::new() };
    let mut planned = Vec::new();
    for NodeChanges { node, resources } in changes {
        let report = known.reports.get(node);
        for ResourceChange { id, change } in resources {
            let from = match change {
                Change::HandOver { from } => Some(from.clone()),
                Change::Retry => report.and_then(|report| {
                    let tried = report.handovers.iter().find(|handover| &handover.new.resource == id);
                    tried.map(|handover| handover.old.resource.clone())
                }),
                _ => None,
            };
            planned.extend(from.map(|from| PlannedHandover {
                node: node.clone(),
                seat: seat.clone(),
                from,
                to: id.clone(),
                check_interval_ms: report.and_then(|report| report.check_interval_ms),
            }));
        }
    }
    planned
}

/// The bundles as they are known, and for what is not published yet a stand-in: so that a dry run can show what
/// would change before anything was packed. Where the manifest pins the digest, it is known already.
#[must_use]
pub fn with_stand_ins(manifest: &Manifest, known: &Bundles) -> Bundles {
    let mut bundles = known.clone();
    for bundle in &manifest.bundles {
        let digest = || bundle.pin.clone().unwrap_or_else(|| Digest::of(b"not published yet"));
        bundles
            .entry(bundle.name.clone())
            .or_default()
            .entry(bundle.system)
            .or_insert_with(|| Published { digest: digest(), size: 0 });
    }
    bundles
}

#[cfg(test)]
mod tests;
