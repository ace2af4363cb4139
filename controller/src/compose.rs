//! What a node shall have, put together from the modules' records and from what the node holds.
//!
//! In: what is known, the change in question, the node. Out: the node's next declaration, complete, numbered
//! and with the list of what was issued. Not here: whether it contradicts anything ([`crate::check`]), what it
//! changes ([`crate::plan`]), or putting it.
//!
//! A change composes anew the section of its own module only. Every other section that the node was given for
//! the present revision of its module stays word for word: a plan touches what it says, and nothing else.

use mesh_protocol::declaration::{Adopted, Declaration, FORMAT, Issued, ModuleSection};
use mesh_protocol::id::{Generation, ModuleName, NodeName, PlanId, Token};
use mesh_protocol::manifest::{Manifest, ManifestErrors};
use mesh_protocol::plan::{Action, ModuleRecord};
use mesh_protocol::report::Report;
use mesh_protocol::section::{self, Missing, NodeContext};

use crate::known::Known;

/// Why a node's declaration cannot be composed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// Its host has never reported: neither its system nor its secrets are known.
    #[error("node {node} has not reported yet: expected a first report of its host")]
    NoReport {
        /// Which.
        node: NodeName,
    },
    /// The node lacks something that a module needs.
    #[error("on {node}: {}", lines(missing))]
    Missing {
        /// Which node.
        node: NodeName,
        /// What it lacks.
        missing: Vec<Missing>,
    },
    /// A manifest that was accepted once is not right any more.
    #[error("the manifest of module {module} revision {revision}, as it is recorded, cannot be read")]
    Manifest {
        /// Whose.
        module: ModuleName,
        /// Which.
        revision: u64,
        /// What is wrong with it.
        #[source]
        errors: ManifestErrors,
    },
}

fn lines(missing: &[Missing]) -> String {
    let texts: Vec<String> = missing.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// The node's next declaration, as it is once `action` was done.
///
/// # Errors
/// When the node is not known, or lacks something.
pub fn compose(
    known: &Known,
    action: &Action,
    plan: &PlanId,
    node: &NodeName,
    token: Token,
) -> Result<Declaration, ComposeError> {
    let report = known.reports.get(node).ok_or_else(|| ComposeError::NoReport { node: node.clone() })?;
    let present = known.declarations.get(node);
    let mut modules = Vec::new();
    for record in known.records_after(action).values().filter(|record| record.nodes.contains(node)) {
        let kept = present
            .and_then(|present| present.module(&record.name))
            .filter(|section| section.revision == record.revision && &record.name != action.module());
        match kept {
            Some(section) => modules.push(section.clone()),
            None => modules.push(section(record, report)?),
        }
    }
    Ok(numbered(known, report, modules, Some(plan.clone()), token))
}

/// What a node has to which nothing was declared yet: what its host holds, and no module. Put before anything else is
/// decided about the node, it takes the place that a first declaration by somebody else would need.
#[must_use]
pub fn as_it_is(known: &Known, report: &Report, token: Token) -> Declaration {
    numbered(known, report, Vec::new(), None, token)
}

fn numbered(
    known: &Known,
    report: &Report,
    modules: Vec<ModuleSection>,
    plan: Option<PlanId>,
    token: Token,
) -> Declaration {
    let present = known.declarations.get(&report.node);
    let adopted = adopted(report, &modules);
    let mut declaration = Declaration {
        format: FORMAT,
        mesh: known.mesh.clone(),
        node: report.node.clone(),
        generation: next_generation(present, report),
        token,
        issued: Vec::new(),
        plan,
        modules,
        adopted,
    };
    declaration.issued = issued(present, report);
    declaration.issued.push(declaration.issued());
    declaration
}

/// One module's section for the node of a report.
fn section(record: &ModuleRecord, report: &Report) -> Result<ModuleSection, ComposeError> {
    let path = format!("{} revision {}", record.name, record.revision);
    let manifest = Manifest::parse(&path, &record.manifest).map_err(|errors| ComposeError::Manifest {
        module: record.name.clone(),
        revision: record.revision,
        errors,
    })?;
    let context = NodeContext {
        system: report.system,
        bundles: &record.bundles,
        secrets: &report.secrets,
        revision: record.revision,
    };
    section::compose(&manifest, &context)
        .map_err(|missing| ComposeError::Missing { node: report.node.clone(), missing })
}

/// What the node holds that no module declares, less what one declares now, and less what one replaces now: that
/// goes by its handover, and stays for as long as it holds the seat without being listed.
fn adopted(report: &Report, modules: &[ModuleSection]) -> Vec<Adopted> {
    let ids = modules.iter().flat_map(|module| {
        let ids = module.resource_ids();
        let replaced: Vec<_> = ids.iter().filter_map(|id| module.replaces(id).cloned()).collect();
        ids.into_iter().chain(replaced)
    });
    let declared: Vec<_> = ids.collect();
    let mut adopted: Vec<Adopted> = report
        .resources
        .iter()
        .filter(|resource| resource.adopted.is_some() && !declared.contains(&resource.id))
        .filter_map(|resource| Some(Adopted { id: resource.id.clone(), digest: resource.digest.clone()? }))
        .collect();
    adopted.sort();
    adopted
}

/// Higher than anything that the node was given or has.
fn next_generation(present: Option<&Declaration>, report: &Report) -> Generation {
    let declared = present.map(|present| present.generation);
    let accepted = report.accepted.as_ref().map(|accepted| accepted.generation);
    declared.max(accepted).unwrap_or_default().next()
}

/// What was issued to the node since the last that it reported, that one included.
fn issued(present: Option<&Declaration>, report: &Report) -> Vec<Issued> {
    let mut list: Vec<Issued> = present.map(|present| present.issued.clone()).unwrap_or_default();
    let Some(accepted) = &report.accepted else { return list };
    match list.iter().position(|issued| issued == accepted) {
        Some(place) => list.drain(..place),
        None if present.is_none() => {
            list.push(accepted.clone());
            return list;
        }
        None => return list,
    };
    list
}

#[cfg(test)]
mod tests;
