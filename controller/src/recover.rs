//! Whether a host holds more than the controller knows, and what to take over from it.
//!
//! The controller's state may go backwards, or be lost altogether: a power cut takes the last minute of the
//! bus's store. A host keeps what it accepted. So before the controller composes for a node, it looks at
//! what that node's host accepted last; if that was never issued by what the controller knows, it takes over
//! what the host holds (manifests, revisions, generation) and goes on from there.
//!
//! In: the declaration the controller knows, and the report. Out: a finding; records and a declaration. Not
//! here: writing them, which is done under the plan lock.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mesh_protocol::declaration::{Adopted, Declaration, FORMAT, Issued, ModuleSection};
use mesh_protocol::id::{Generation, ModuleName, NodeName, ResourceId, System, Token};
use mesh_protocol::plan::{ModuleRecord, Published};
use mesh_protocol::report::Report;

use crate::known::Known;

/// How a host stands to what the controller knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing<'a> {
    /// What it accepted last is known: composing may go on.
    InStep,
    /// It holds what is not known, and has said all of it.
    Holds(&'a Declaration),
    /// It holds what is not known, and has been shown a declaration that does not know of it: it is about to
    /// report all of it.
    AboutToTell,
    /// It holds what is not known, and nothing has made it say so: it is to be shown a declaration that does
    /// not know of what it holds, which it will not carry out, and will answer with all that it has.
    ToBeAsked(Issued),
}

/// How a host stands to what the controller knows. The report must have been read before the declaration:
/// the other way round, a host that is quick looks as if it were ahead.
#[must_use]
pub fn standing<'a>(declared: Option<&Declaration>, report: &'a Report) -> Standing<'a> {
    let Some(accepted) = &report.accepted else { return Standing::InStep };
    match declared {
        // Genesis's own declaration comes from nobody's state.
        None if accepted.generation <= Generation::FIRST => return Standing::InStep,
        Some(declared) if declared.issued.contains(accepted) => return Standing::InStep,
        _ => {}
    }
    if let Some(held) = report.diverged.as_deref().filter(|held| &held.issued() == accepted) {
        return Standing::Holds(held);
    }
    match declared {
        Some(declared) if declared.generation > accepted.generation => Standing::AboutToTell,
        _ => Standing::ToBeAsked(accepted.clone()),
    }
}

/// A declaration that does not know of what the host holds. It says nothing else either: a host keeps what
/// it has, and answers with all of it.
#[must_use]
pub fn question(known: &Known, node: &NodeName, accepted: &Issued, token: Token) -> Declaration {
    let declared = known.declarations.get(node).map_or(Generation::default(), |d| d.generation);
    let mut question = Declaration {
        format: FORMAT,
        mesh: known.mesh.clone(),
        node: node.clone(),
        generation: declared.max(accepted.generation).next(),
        token,
        issued: Vec::new(),
        plan: None,
        modules: Vec::new(),
        adopted: Vec::new(),
    };
    question.issued = vec![question.issued()];
    question
}

/// What is written when a node's declaration is taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// The records that are new or changed, by name.
    pub records: BTreeMap<ModuleName, ModuleRecord>,
    /// The same content as the host holds, under a number and a token of our own.
    pub declaration: Declaration,
    /// What was taken over, in words.
    pub detail: String,
}

/// Takes over what a host holds.
#[must_use]
pub fn take_over(
    known: &Known,
    held: &Declaration,
    system: System,
    token: Token,
    now: Timestamp,
) -> TakenOver {
    let node = &held.node;
    let declared = known.declarations.get(node).map_or(Generation::default(), |d| d.generation);
    let mut declaration = held.clone();
    declaration.generation = declared.max(held.generation).next();
    declaration.token = token;
    declaration.plan = None;
    // What genesis raised (revision 0) is no module: it stays adopted.
    declaration.modules.retain(|section| section.revision > 0);
    for section in held.modules.iter().filter(|section| section.revision == 0) {
        let adopted = |id: ResourceId| Some(Adopted { digest: section.spec_digest(&id)?, id });
        declaration.adopted.extend(section.resource_ids().into_iter().filter_map(adopted));
    }
    declaration.adopted.sort();
    declaration.adopted.dedup();
    declaration.issued = vec![held.issued(), declaration.issued()];

    let mut records = BTreeMap::new();
    for section in held.modules.iter().filter(|section| section.revision > 0) {
        let record = rebuilt(known.modules.get(&section.name), section, node, system, now);
        if known.modules.get(&section.name) != Some(&record) {
            records.insert(section.name.clone(), record);
        }
    }
    // What the records assign to the node and the host does not have was taken from it in what was lost.
    for record in known.modules.values().filter(|record| record.nodes.contains(node)) {
        if held.module(&record.name).is_none() {
            let mut record = record.clone();
            record.nodes.retain(|assigned| assigned != node);
            records.insert(record.name.clone(), record);
        }
    }
    let names: Vec<&str> = held.modules.iter().map(|section| section.name.as_str()).collect();
    let detail = format!(
        "generation {} with {}, which the controller did not know of (it knew {declared})",
        held.generation,
        if names.is_empty() { "no module".to_owned() } else { names.join(", ") },
    );
    TakenOver { records, declaration, detail }
}

/// The record of a module as one node's section tells it, put together with what is known.
fn rebuilt(
    known: Option<&ModuleRecord>,
    section: &ModuleSection,
    node: &NodeName,
    system: System,
    now: Timestamp,
) -> ModuleRecord {
    let mut record = match known {
        Some(known) if known.revision >= section.revision => known.clone(),
        _ => ModuleRecord {
            name: section.name.clone(),
            revision: section.revision,
            version: section.version.clone(),
            manifest: section.manifest.clone(),
            bundles: BTreeMap::new(),
            nodes: known.map(|known| known.nodes.clone()).unwrap_or_default(),
            plan: None,
            time: now,
            again: None,
        },
    };
    if record.revision == section.revision {
        for bundle in &section.bundles {
            let published = Published { digest: bundle.digest.clone(), size: bundle.size };
            record.bundles.entry(bundle.name.clone()).or_default().entry(system).or_insert(published);
        }
    }
    if !record.nodes.contains(node) {
        record.nodes.push(node.clone());
        record.nodes.sort();
    }
    record
}

#[cfg(test)]
mod tests;
