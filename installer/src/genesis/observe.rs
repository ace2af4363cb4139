//! Looks at what there is of the mesh, before anything is decided.
//!
//! In: the mesh's folder. Out: [`Seen`]. A host that was installed and does not run is started first: only its own
//! record tells what became of the controller, and running it is what it is there for. In a dry run that record is read
//! where it lies. Not here: deciding.

use super::context::Context;
use super::parts::Parts;
use super::plan::{Controller, Seen, controller_of};
use super::step::Step;
use crate::config::HOST_PROGRAM;
use crate::output::Result;

pub(super) async fn observe<P: Parts>(context: &mut Context<'_, P>) -> Result<Seen> {
    let Some(mesh) = context.mesh.clone() else { return Ok(Seen::default()) };
    let installed =
        context.layout.host_file().is_file() && context.layout.programs().join(HOST_PROGRAM).is_file();
    let mut host = context.parts.host().await?;
    let ran = host.running.is_some();
    if installed && !ran {
        context.step = Step::Host;
        context.host_starts = true;
        if context.shall("start the host")? {
            context.parts.start_host(&mesh).await?;
            context.say("the host did not run: started it");
            host = context.parts.host().await?;
        }
    }
    let mut controller = controller_of(&host, &mesh.inputs.replaces, &context.seat);
    if mesh.process_since.is_some() {
        controller = Controller::Process;
    }
    let mut seen = Seen { controller, seat: None, open_plan: None };
    // What a host that was just started brings back, it brings back in its own time: each step looks for itself.
    if ran
        && controller != Controller::Process
        && let Some(module) = context.controller_module()
        && let Some(seat) = context.parts.seat(&mesh, &module).await
    {
        seen.seat = Some(seat.form);
        seen.open_plan = seat.open_plan;
    }
    Ok(seen)
}
