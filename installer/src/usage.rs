//! Who uses which bundle of the mesh: what is declared, what was pushed and may be gone back to, what an open plan brings,
//! what a host holds or would bring a seat back to.
//!
//! In: the controller's answers, the local host's. Out: for each bundle its uses; a bundle without any may go. Pure, but
//! for the asking. Not here: what is in the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use mesh_protocol::declaration::{Declaration, ModuleSection};
use mesh_protocol::door::Observed;
use mesh_protocol::id::{Digest, ModuleName, NodeName};
use mesh_protocol::layout::Layout;
use mesh_protocol::plan::{Action, ModuleRecord, Plan};
use mesh_protocol::verb::{
    DeclarationAnswer, DeclarationRequest, HistoryAnswer, HistoryRequest, ModulesAnswer, NodesAnswer,
    PlansAnswer, Verb,
};
use serde::{Deserialize, Serialize};

use crate::door::Door;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};
use crate::session::{Nothing, Session};

/// One use of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "use")]
pub enum Use {
    /// A node was declared it.
    Declared {
        /// The node.
        node: NodeName,
        /// The module.
        module: ModuleName,
        /// The module's revision.
        revision: u64,
    },
    /// A node's host holds something of it, or would bring a seat back to it.
    Held {
        /// The node.
        node: NodeName,
        /// The module.
        module: ModuleName,
        /// The module's version.
        version: String,
    },
    /// A revision of a module has it, which a rollback may go back to.
    Revision {
        /// The module.
        module: ModuleName,
        /// Which.
        revision: u64,
    },
    /// A plan that is not carried out yet brings it.
    Planned {
        /// The module.
        module: ModuleName,
        /// Which revision it will be.
        revision: u64,
    },
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Declared { node, module, revision } => write!(f, "{module} revision {revision} on {node}"),
            Self::Held { node, module, version } => write!(f, "held by {node} ({module} {version})"),
            Self::Revision { module, revision } => write!(f, "{module} revision {revision}"),
            Self::Planned { module, revision } => write!(f, "{module} revision {revision}, planned"),
        }
    }
}

/// All that is known of who uses what.
#[derive(Debug, Default)]
pub struct Known {
    /// The modules' records and their revisions.
    pub records: Vec<ModuleRecord>,
    /// What each node was declared.
    pub declarations: Vec<Declaration>,
    /// The plans.
    pub plans: Vec<Plan>,
    /// What the hosts hold, as far as they can be asked: of this machine.
    pub held: Vec<(NodeName, ModuleSection)>,
}

/// The uses of each bundle that has any.
#[must_use]
pub fn uses(known: &Known) -> BTreeMap<Digest, BTreeSet<Use>> {
    let mut uses: BTreeMap<Digest, BTreeSet<Use>> = BTreeMap::new();
    let mut add = |digest: &Digest, one: Use| {
        uses.entry(digest.clone()).or_default().insert(one);
    };
    for Declaration { node, modules, .. } in &known.declarations {
        for ModuleSection { name, revision, bundles, .. } in modules {
            for bundle in bundles {
                let (node, module) = (node.clone(), name.clone());
                add(&bundle.digest, Use::Declared { node, module, revision: *revision });
            }
        }
    }
    for (node, ModuleSection { name, version, bundles, .. }) in &known.held {
        for bundle in bundles {
            let (node, module, version) = (node.clone(), name.clone(), version.clone());
            add(&bundle.digest, Use::Held { node, module, version });
        }
    }
    let digests = |record: &ModuleRecord| {
        let published = record.bundles.values().flat_map(BTreeMap::values);
        published.map(|published| published.digest.clone()).collect::<Vec<_>>()
    };
    for record in &known.records {
        let (module, revision) = (&record.name, record.revision);
        for digest in digests(record) {
            add(&digest, Use::Revision { module: module.clone(), revision });
        }
    }
    for plan in known.plans.iter().filter(|plan| !plan.state.is_ended()) {
        let Action::Push { module: record } = &plan.action else { continue };
        let (module, revision) = (&record.name, record.revision);
        for digest in digests(record) {
            add(&digest, Use::Planned { module: module.clone(), revision });
        }
    }
    uses
}

/// Asks all who know. Nothing is left out: a host of this machine that cannot be asked is a failure, for what it would
/// go back to is known to nobody else.
///
/// # Errors
/// When somebody does not answer.
pub async fn ask(layout: &Layout, mesh: &MeshFile, session: &Session) -> Result<Known> {
    let modules: ModulesAnswer = session.ask(Verb::Modules, &Nothing {}).await?;
    let mut records = Vec::new();
    for record in modules.modules {
        let request = HistoryRequest { module: record.name.clone() };
        let history: HistoryAnswer = session.ask(Verb::History, &request).await?;
        records.push(record);
        records.extend(history.revisions);
    }
    let nodes: NodesAnswer = session.ask(Verb::Nodes, &Nothing {}).await?;
    let mut declarations = Vec::new();
    for node in nodes.nodes {
        let answer: DeclarationAnswer =
            session.ask(Verb::Declaration, &DeclarationRequest { node: node.name }).await?;
        declarations.extend(answer.declaration);
    }
    let plans: PlansAnswer = session.ask(Verb::Plans, &Nothing {}).await?;
    let observed = Door::new(layout.door()).observe().await?;
    let held = held(layout, observed)?.into_iter().map(|section| (mesh.inputs.node.clone(), section));
    Ok(Known { records, declarations, plans: plans.plans, held: held.collect() })
}

/// What the host of this machine holds, was told, and would bring its seats back to.
fn held(layout: &Layout, observed: Observed) -> Result<Vec<ModuleSection>> {
    let mut sections: Vec<ModuleSection> = observed.ledger.into_iter().map(|entry| entry.section).collect();
    sections.extend(observed.declaration.into_iter().flat_map(|declaration| declaration.modules));
    for folder in [layout.steadies(), layout.recoveries(), layout.handovers()] {
        let unread = |error: &dyn std::error::Error| {
            Failure::new(Code::Io, format!("the host's records in {folder} cannot be read: {error}"))
        };
        let entries = match folder.read_dir_utf8() {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unread(&error)),
        };
        for entry in entries {
            let path = entry.map_err(|error| unread(&error))?.into_path();
            if path.extension() != Some("json") {
                continue;
            }
            let bytes = match std::fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(unread(&error)),
            };
            let record: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| unread(&error))?;
            sections_in(&record, &mut sections);
        }
    }
    Ok(sections)
}

/// Every section that the records of this machine's host name, where no host may run that could be asked. What cannot be
/// read names none.
pub fn sections_on_disk(layout: &Layout) -> Vec<ModuleSection> {
    let folders = [layout.steadies(), layout.recoveries(), layout.handovers()];
    let entries = folders.iter().flat_map(|folder| folder.read_dir_utf8().into_iter().flatten().flatten());
    let records = entries.map(camino::Utf8DirEntry::into_path);
    let mut sections = Vec::new();
    for path in records.chain([layout.ledger(), layout.declaration()]) {
        let bytes = std::fs::read(path).unwrap_or_default();
        let Ok(record) = serde_json::from_slice::<serde_json::Value>(&bytes) else { continue };
        sections_in(&record, &mut sections);
        // A declaration has its modules in a list.
        let declared = record.pointer("/declaration/modules").and_then(serde_json::Value::as_array);
        sections
            .extend(declared.into_iter().flatten().filter_map(|one| ModuleSection::deserialize(one).ok()));
    }
    sections
}

/// Every section in a document, wherever it stands: these records are the host's own, and change with it.
fn sections_in(document: &serde_json::Value, found: &mut Vec<ModuleSection>) {
    match document {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                match ModuleSection::deserialize(value) {
                    Ok(section) if name == "section" => found.push(section),
                    _ => sections_in(value, found),
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| sections_in(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use mesh_protocol::declaration::BundleSpec;
    use mesh_protocol::id::System;
    use mesh_protocol::plan::{PlanState, Published};

    fn record(revision: u64, content: &[u8]) -> ModuleRecord {
        let published = Published { digest: Digest::of(content), size: 1 };
        let systems = BTreeMap::from([(System::LinuxAmd64, published)]);
        ModuleRecord {
            name: "m".parse().unwrap(),
            revision,
            version: "1".to_owned(),
            manifest: String::new(),
            bundles: BTreeMap::from([("b".parse().unwrap(), systems)]),
            nodes: vec![],
            plan: None,
            time: Timestamp::UNIX_EPOCH,
            again: None,
        }
    }

    fn section(content: &[u8]) -> ModuleSection {
        ModuleSection {
            name: "m".parse().unwrap(),
            version: "0.9".to_owned(),
            revision: 3,
            seat: None,
            manifest: String::new(),
            accounts: vec![],
            bundles: vec![BundleSpec { name: "b".parse().unwrap(), digest: Digest::of(content), size: 1 }],
            files: vec![],
            processes: vec![],
            containers: vec![],
        }
    }

    fn plan(state: PlanState, content: &[u8]) -> Plan {
        Plan {
            format: 1,
            id: "p1".parse().unwrap(),
            action: Action::Push { module: record(4, content) },
            created: Timestamp::UNIX_EPOCH,
            by: "i-1".parse().unwrap(),
            changes: vec![],
            remarks: vec![],
            state,
            targets: BTreeMap::new(),
            abort_asked: false,
            token: None,
        }
    }

    #[test]
    fn every_kind_of_use_is_found_and_an_ended_plan_is_none() {
        let node: NodeName = "n1".parse().unwrap();
        let mut declaration = Declaration {
            format: 1,
            mesh: "m1".parse().unwrap(),
            node: node.clone(),
            generation: mesh_protocol::id::Generation(1),
            token: mesh_protocol::id::Token { epoch: 0, revision: 0 },
            issued: vec![],
            plan: None,
            modules: vec![section(b"declared")],
            adopted: vec![],
        };
        declaration.issued = vec![declaration.issued()];
        let ended = PlanState::Aborted { at: Timestamp::UNIX_EPOCH };
        let known = Known {
            records: vec![record(1, b"old"), record(2, b"old")],
            declarations: vec![declaration],
            plans: vec![plan(PlanState::Stored, b"coming"), plan(ended, b"given up")],
            held: vec![(node, section(b"steady"))],
        };
        let uses = uses(&known);
        let shown = |content: &[u8]| {
            let uses = uses.get(&Digest::of(content)).into_iter().flatten();
            uses.map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(shown(b"old"), ["m revision 1", "m revision 2"]);
        assert_eq!(shown(b"declared"), ["m revision 3 on n1"]);
        assert_eq!(shown(b"steady"), ["held by n1 (m 0.9)"]);
        assert_eq!(shown(b"coming"), ["m revision 4, planned"]);
        assert!(shown(b"given up").is_empty());
    }

    #[test]
    fn the_sections_of_a_host_s_records_are_found_wherever_they_stand() {
        let one = serde_json::to_value(section(b"one")).unwrap();
        let two = serde_json::to_value(section(b"two")).unwrap();
        let document = serde_json::json!({
            "seat": "s", "versions": [{ "section": one, "at": 1 }], "old": { "section": two }, "section": "no",
        });
        let mut found = Vec::new();
        sections_in(&document, &mut found);
        found.sort_by_key(|section| section.bundles[0].digest.clone());
        let mut expected = vec![section(b"one"), section(b"two")];
        expected.sort_by_key(|section| section.bundles[0].digest.clone());
        assert_eq!(found, expected);
    }
}
