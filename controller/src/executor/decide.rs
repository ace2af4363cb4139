//! What the holder of the plan lock does next for the open plan: one step, from what is stored and reported.
//!
//! In: the plan, what is known, the holder's token, the time. Out: one step. Not here: doing it
//! ([`super::effect`]).
//!
//! Every step is idempotent and leaves a mark in what is stored, so that whoever holds the lock next goes on
//! where the last one stopped, whenever that was: the plan is open, the module is recorded, a node's declaration
//! names the plan, the plan names its targets.

use jiff::Timestamp;
use mesh_protocol::chain::chain;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::id::{NodeName, Token};
use mesh_protocol::plan::{Action, FailureOutcome, ModuleRecord, Plan, PlanFailure, PlanState};

use super::judge::{NodeOutcome, judge};
use crate::compose::{ComposeError, as_it_is, compose};
use crate::known::Known;
use crate::recover::{self, Standing, TakenOver};

/// What there is to decide from.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What is known.
    pub known: &'a Known,
    /// What the holder writes under.
    pub token: Token,
    /// The time.
    pub now: Timestamp,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Somebody holds a higher token: the lock is lost, whatever it seems.
    Lost(Token),
    /// Put these declarations again, word for word, under the own token: whoever wrote for this plan
    /// before finds each revision gone.
    PutAgain(Vec<Declaration>),
    /// Take over what a host holds.
    Recover(Box<TakenOver>),
    /// Record the module.
    Record(Box<ModuleRecord>),
    /// Put a node's declaration.
    Declare(Box<Declaration>),
    /// Store the plan as it stands now.
    Store(Box<Plan>),
    /// Nothing but to wait.
    Wait,
}

/// What to do next.
#[must_use]
pub fn decide(view: &View<'_>) -> Step {
    if view.plan.state.is_ended() {
        return Step::Wait;
    }
    let nodes = Known::concerned(&view.plan.action);
    let declared = nodes.iter().filter_map(|node| view.known.declarations.get(node));
    let tokens = declared.map(|declaration| declaration.token).chain(view.plan.token);
    if let Some(higher) = tokens.filter(|token| *token > view.token).max() {
        return Step::Lost(higher);
    }
    // Somebody else may have begun it, and may wake up late.
    if view.plan.state != PlanState::Stored && view.plan.token != Some(view.token) {
        return view.fence(&nodes);
    }
    if view.plan.abort_asked {
        return view.end(PlanState::Aborted { at: view.now });
    }
    if view.plan.state == PlanState::Stored {
        return view.wait_for("the module to be recorded".to_owned());
    }
    for node in &nodes {
        if let Some(step) = view.recover(node) {
            return step;
        }
    }
    if let Some(step) = view.record() {
        return step;
    }
    view.declare_and_wait(&nodes)
}

/// What to do about a host that may hold what is not known; none where there is nothing to do, or the host is
/// about to tell.
#[must_use]
pub fn recovery(known: &Known, node: &NodeName, token: Token, now: Timestamp) -> Option<Step> {
    let report = known.reports.get(node)?;
    match recover::standing(known.declarations.get(node), report) {
        Standing::InStep | Standing::AboutToTell => None,
        Standing::Holds(held) => {
            let taken = recover::take_over(known, held, report.system, token, now);
            Some(Step::Recover(Box::new(taken)))
        }
        Standing::ToBeAsked(accepted) => {
            Some(Step::Declare(Box::new(recover::question(known, node, &accepted, token))))
        }
    }
}

impl View<'_> {
    /// Takes the place of all that somebody else may still write for this plan: the declarations that are there, the
    /// first one of a node that has none, and at last the plan itself, which says by its token that this is done.
    fn fence(&self, nodes: &[NodeName]) -> Step {
        let declared = nodes.iter().filter_map(|node| self.known.declarations.get(node));
        let old = declared.filter(|declaration| declaration.token < self.token);
        let again = |declaration: &Declaration| Declaration { token: self.token, ..declaration.clone() };
        let old: Vec<Declaration> = old.map(again).collect();
        if !old.is_empty() {
            return Step::PutAgain(old);
        }
        let undeclared = nodes.iter().filter(|node| !self.known.declarations.contains_key(*node));
        // To a node that has not reported, nobody declares anything.
        if let Some(report) = undeclared.filter_map(|node| self.known.reports.get(node)).next() {
            let taken_over = recovery(self.known, &report.node, self.token, self.now);
            return taken_over
                .unwrap_or_else(|| Step::Declare(Box::new(as_it_is(self.known, report, self.token))));
        }
        self.store(self.plan.clone())
    }

    fn store(&self, plan: Plan) -> Step {
        Step::Store(Box::new(Plan { token: Some(self.token), ..plan }))
    }

    fn end(&self, state: PlanState) -> Step {
        self.store(Plan { state, ..self.plan.clone() })
    }

    fn fail(&self, node: &NodeName, error: String) -> Step {
        let failure =
            PlanFailure { node: node.clone(), resource: None, outcome: FailureOutcome::Failed, error };
        self.end(PlanState::Failed { at: self.now, failures: vec![failure] })
    }

    /// Stores what is waited for, unless that is stored already.
    fn wait_for(&self, what: String) -> Step {
        match &self.plan.state {
            PlanState::Open { waiting_for, .. } if *waiting_for == what => Step::Wait,
            _ => self.end(PlanState::Open { waiting_for: what, since: self.now }),
        }
    }

    fn recover(&self, node: &NodeName) -> Option<Step> {
        let report = self.known.reports.get(node)?;
        match recover::standing(self.known.declarations.get(node), report) {
            Standing::AboutToTell => Some(self.wait_for(format!("{node}: its host to tell what it holds"))),
            _ => recovery(self.known, node, self.token, self.now),
        }
    }

    /// Records the module, unless it is recorded already.
    fn record(&self) -> Option<Step> {
        let module = self.plan.action.module();
        let present = self.known.modules.get(module);
        let Action::Push { module: wanted } = &self.plan.action else {
            let after = self.known.records_after(&self.plan.action).remove(module);
            return match (present, after) {
                (Some(present), Some(after)) if *present == after => None,
                (Some(_), Some(after)) => Some(Step::Record(Box::new(after))),
                _ => {
                    let node = Known::concerned(&self.plan.action).into_iter().next()?;
                    Some(self.fail(&node, format!("module {module} is not known any more")))
                }
            };
        };
        match present {
            Some(present) if present.revision == wanted.revision && present.plan == wanted.plan => None,
            Some(present) if present.revision >= wanted.revision => {
                let error = format!(
                    "module {module} has revision {} already, and this plan would make revision {}: push it again",
                    present.revision, wanted.revision
                );
                let failures = wanted.nodes.iter().map(|node| PlanFailure {
                    node: node.clone(),
                    resource: None,
                    outcome: FailureOutcome::Failed,
                    error: error.clone(),
                });
                Some(self.end(PlanState::Failed { at: self.now, failures: failures.collect() }))
            }
            _ => Some(Step::Record(Box::new(wanted.clone()))),
        }
    }

    fn declare_and_wait(&self, nodes: &[NodeName]) -> Step {
        let mut plan = self.plan.clone();
        let mut failures = Vec::new();
        let mut pending = None;
        for node in nodes {
            let outcome = match self.declare(node) {
                Err(step) => return step,
                Ok(None) => self.without_declaration(node),
                Ok(Some(declaration)) => {
                    plan.targets.insert(node.clone(), declaration.generation);
                    self.judge(node, declaration)
                }
            };
            match outcome {
                NodeOutcome::Done => {}
                NodeOutcome::Failed(found) => failures.extend(found),
                NodeOutcome::Pending(what) => {
                    pending.get_or_insert(format!("{node}: {what}"));
                }
            }
        }
        let state = match pending {
            Some(waiting_for) => match &plan.state {
                PlanState::Open { waiting_for: same, .. } if *same == waiting_for => plan.state.clone(),
                _ => PlanState::Open { waiting_for, since: self.now },
            },
            None if failures.is_empty() => PlanState::Done { at: self.now },
            None => PlanState::Failed { at: self.now, failures },
        };
        plan.state = state;
        if &plan == self.plan { Step::Wait } else { self.store(plan) }
    }

    /// The declaration that the node has for this plan; none where there is nothing to declare, or nobody to
    /// declare it to.
    fn declare(&self, node: &NodeName) -> Result<Option<&Declaration>, Step> {
        let present = self.known.declarations.get(node);
        if let Some(present) = present.filter(|present| present.plan.as_ref() == Some(&self.plan.id)) {
            return Ok(Some(present));
        }
        match compose(self.known, &self.plan.action, &self.plan.id, node, self.token) {
            Err(ComposeError::NoReport { .. }) => Ok(None),
            Err(error) => Err(self.fail(node, chain(&error))),
            Ok(new) => match present {
                None if new.modules.is_empty() => Ok(None),
                Some(present) if present.modules == new.modules => Ok(Some(present)),
                _ => Err(Step::Declare(Box::new(new))),
            },
        }
    }

    fn without_declaration(&self, node: &NodeName) -> NodeOutcome {
        if self.known.reports.contains_key(node) {
            NodeOutcome::Done
        } else {
            NodeOutcome::Pending("its host's first report".to_owned())
        }
    }

    fn judge(&self, node: &NodeName, declaration: &Declaration) -> NodeOutcome {
        let changes = self.plan.changes.iter().find(|changes| &changes.node == node);
        let changes = changes.map_or(&[][..], |changes| &changes.resources);
        match self.known.reports.get(node) {
            Some(report) => judge(changes, declaration, report),
            None => NodeOutcome::Pending("its host's report".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests;
