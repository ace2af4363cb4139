//! From an action to its plan: composed, checked and compared, node by node; nothing stored.
//!
//! In: what is known, the action. Out: the plan as it would be stored, or why it cannot be. Not here: reading
//! requests and storing plans ([`crate::serve`]).

use std::collections::BTreeMap;

use jiff::Timestamp;
use mesh_protocol::chain::chain;
use mesh_protocol::id::{InstanceId, PlanId, Token};
use mesh_protocol::plan::{Action, FORMAT, Plan, PlanState};
use mesh_protocol::verb::{RefusalCode, VerbRefusal};

use crate::check::check;
use crate::compose::{ComposeError, compose};
use crate::known::Known;
use crate::plan::changes;

/// The plan of an action.
///
/// # Errors
/// When a node lacks something, or what would be declared contradicts what there is.
pub fn draft(
    known: &Known,
    action: Action,
    id: PlanId,
    by: InstanceId,
    now: Timestamp,
) -> Result<Plan, VerbRefusal> {
    let nodes = Known::concerned(&action);
    let mut remarks = Vec::new();
    let mut node_changes = Vec::new();
    let mut next = BTreeMap::new();
    let mut lacks = Vec::new();
    for node in &nodes {
        let Some(report) = known.reports.get(node) else {
            remarks.push(format!("{node} has not reported: it is waited for"));
            continue;
        };
        match compose(known, &action, &id, node, Token::default()) {
            Ok(declaration) => {
                let plan = changes(known.declarations.get(node), &declaration, report, action.module());
                if !plan.changes.resources.is_empty() {
                    node_changes.push(plan.changes);
                }
                remarks.extend(plan.remarks);
                next.insert(node.clone(), declaration);
            }
            Err(error) => lacks.push(error),
        }
    }
    if !lacks.is_empty() {
        return Err(missing(&lacks));
    }
    check(known, &next).map_err(|contradiction| VerbRefusal {
        code: RefusalCode::Conflict,
        message: contradiction.to_string(),
        hint: None,
    })?;
    if nodes.is_empty() {
        let module = action.module();
        remarks.push(format!("{module} is assigned to no node: it is recorded, and runs nowhere"));
    }
    let unchanged = node_changes.is_empty() && is_recorded(known, &action);
    let action = match (action, unchanged) {
        // Nothing is recorded: what is recorded already is what the plan is about.
        (Action::Push { mut module }, true) => {
            if let Some(present) = known.modules.get(&module.name) {
                module = present.clone();
            }
            Action::Push { module }
        }
        (action, _) => action,
    };
    Ok(Plan {
        format: FORMAT,
        id,
        action,
        created: now,
        by,
        changes: node_changes,
        remarks,
        state: if unchanged { PlanState::Done { at: now } } else { PlanState::Stored },
        targets: BTreeMap::new(),
        abort_asked: false,
        token: None,
    })
}

/// Whether the records, and the declarations made from them, say already what the action would make them say.
fn is_recorded(known: &Known, action: &Action) -> bool {
    let module = action.module();
    let Some(present) = known.modules.get(module) else { return false };
    let recorded = match action {
        Action::Push { module } => {
            let content = |record: &mesh_protocol::plan::ModuleRecord| {
                (record.manifest.clone(), record.bundles.clone(), record.nodes.clone())
            };
            content(module) == content(present)
        }
        _ => known.records_after(action).get(module) == Some(present),
    };
    let declared = |node| {
        let section = known.declarations.get(node).and_then(|declaration| declaration.module(module));
        match (present.nodes.contains(node), section) {
            (true, Some(section)) => section.revision == present.revision,
            (assigned, section) => !assigned && section.is_none(),
        }
    };
    recorded && Known::concerned(action).iter().all(declared)
}

fn missing(lacks: &[ComposeError]) -> VerbRefusal {
    let texts: Vec<String> = lacks.iter().map(|error| chain(error)).collect();
    VerbRefusal { code: RefusalCode::Missing, message: texts.join("; "), hint: None }
}

#[cfg(test)]
mod tests;
