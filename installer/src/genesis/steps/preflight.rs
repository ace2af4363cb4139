//! preflight: can this machine do it? Every check of `mesh doctor` is made, and all that fail are told at once.
//!
//! In: the machine. Out: nothing, or each obstacle with its remedy. What this mesh itself holds is no obstacle, so that a
//! genesis which was killed goes on; what is only worth knowing is said and stops nothing. In a dry run nothing is tried.

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::doctor::{Exercise, Intent, Lock};
use crate::output::{Event, Result};

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    let intent = Intent {
        world: context.world,
        layout: &context.layout,
        mesh: context.mesh.as_ref(),
        wanted: &context.options.wanted,
        skip: &context.options.wanted.skip,
        exercise: if context.touch == Touch::World { Exercise::Done } else { Exercise::NotDone },
        lock: if context.holds_lock { Lock::Ours } else { Lock::NotOurs },
    };
    let examined = context.parts.examine(&intent).await;
    for text in examined.report.warnings() {
        context.printer.event(&Event::Warning { text });
    }
    if let Some(failure) = examined.report.failure() {
        return Err(failure);
    }
    let tried = match intent.exercise {
        Exercise::Done => "",
        Exercise::NotDone => " (what has to be tried was left out: this is a dry run)",
    };
    let text = format!("{}{tried}; engine at {}", examined.report.summary(), examined.engine);
    context.controller = examined.controller;
    Ok(Reached::Now(text))
}
