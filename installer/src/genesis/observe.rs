//! Looks at what there is of the mesh, before anything is decided.
//!
//! In: the mesh's folder. Out: [`Seen`]. A host that was installed and does not run is started first: only its own
//! record tells what became of the controller, and running it is what it is there for. Not here: deciding.

use std::time::Duration;

use mesh_protocol::id::PlanId;
use mesh_protocol::plan::Action;
use mesh_protocol::verb::{PlansAnswer, Verb};
use serde::de::IgnoredAny;

use super::context::{Context, Touch};
use super::plan::{Controller, Seen, controller_of};
use crate::config::HOST_PROGRAM;
use crate::daemon::{self, Started};
use crate::output::Result;
use crate::session::{Nothing, Session};

/// A seat that is held answers in a millisecond or two.
const SEAT_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn observe(context: &mut Context<'_>) -> Result<Seen> {
    let Some(mesh) = context.mesh.clone() else { return Ok(Seen::default()) };
    let installed =
        context.layout.host_file().is_file() && context.layout.programs().join(HOST_PROGRAM).is_file();
    if installed && context.touch == Touch::World {
        let started = daemon::start(context.world, &context.layout, &mesh.mesh).await?;
        if started == Started::Now {
            context.say("the host did not run: started it");
        }
    }
    let observed = context.door.observe_if_there().await?;
    let mut controller = observed
        .as_ref()
        .map(|observed| controller_of(observed, &mesh.inputs.replaces, &context.seat))
        .unwrap_or_default();
    if mesh.process_since.is_some() {
        controller = Controller::Process;
    }
    let mut seen = Seen { controller, seat: None, open_plan: None };
    if observed.is_some() && controller != Controller::Process {
        // That nobody answers is an answer: what there is to say about it, the steps say.
        if let Ok(session) = Session::open(&context.layout, &mesh).await {
            let asked = session.ask_once::<_, IgnoredAny>(Verb::Status, &Nothing {}, SEAT_LIMIT).await;
            seen.seat = asked.ok().map(|(_, by)| by.form);
            if seen.seat.is_some() {
                seen.open_plan = open_plan(context, &session).await;
                context.session = Some(session);
            }
        }
    }
    Ok(seen)
}

/// A plan for the controller's own module that has not ended.
pub(super) async fn open_plan(context: &Context<'_>, session: &Session) -> Option<PlanId> {
    let module = context.controller().ok()?.module.manifest.name;
    let plans: PlansAnswer = session.ask(Verb::Plans, &Nothing {}).await.ok()?;
    let ours = |action: &Action| matches!(action, Action::Push { .. }) && action.module() == &module;
    plans.plans.into_iter().find(|plan| ours(&plan.action) && !plan.state.is_ended()).map(|plan| plan.id)
}
