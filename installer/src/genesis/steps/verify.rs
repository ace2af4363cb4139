//! verify: one controller, a process; no container of it; the seat answered by it.
//!
//! In: the mesh as it says it is. Out: that it is so, seen at the seat, at the host and in the engine. Not here:
//! mending what is not.

use std::time::Duration;

use super::super::Reached;
use super::super::context::{Context, Touch};
use super::super::parts::Parts;
use crate::output::Result;

/// A host that was just started brings back bus and controller first.
const LIMIT: Duration = Duration::from_secs(30);

const POLL: Duration = Duration::from_millis(50);

pub(super) async fn reach<P: Parts>(context: &mut Context<'_, P>) -> Result<Reached> {
    if context.touch == Touch::Nothing {
        // It only looks; and what there will be to look at is not there yet, or is looked at by the run that goes before.
        return Ok(Reached::Now(String::new()));
    }
    let deadline = tokio::time::Instant::now() + LIMIT;
    loop {
        let mesh = context.mesh()?.clone();
        let failure = match context.parts.verify(&mesh).await {
            Ok(text) => {
                let now = (context.world.clock)();
                context.change_mesh(|mesh| {
                    mesh.seat_answered.get_or_insert(now);
                    mesh.process_since.get_or_insert(now);
                })?;
                return Ok(Reached::Already(text));
            }
            Err(failure) => failure,
        };
        if tokio::time::Instant::now() > deadline {
            return Err(failure);
        }
        context.waits(&failure.what);
        tokio::time::sleep(POLL).await;
    }
}
