//! The commands that ask the controller's seat, or the local door, for one thing.
//!
//! In: what was typed. Out: an answer, printed. Not here: `status` and `nodes`, which have more to say.

use jiff::Timestamp;
use mesh_protocol::door::{DoorAnswer, DoorRequest};
use mesh_protocol::id::{ModuleName, NodeName, SeatName};
use mesh_protocol::layout::Layout;
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::{Action, Plan, PlanState};
use mesh_protocol::verb::{
    AssignRequest, DeclarationAnswer, DeclarationRequest, HistoryAnswer, HistoryRequest, Mode, ModulesAnswer,
    PlanRequest, PlannedAnswer, PlansAnswer, RollbackRequest, Verb,
};

use crate::carry::{Asked, Carried, Means, carry};
use crate::cli;
use crate::daemon::{self, Started};
use crate::door::{self, Door, unexpected};
use crate::follow::Wait;
use crate::interrupt::{Interrupts, interrupted};
use crate::mesh_file::MeshFile;
use crate::module::Build;
use crate::output::table::columns;
use crate::output::{Event, Failure, Printer, Result};
use crate::push;
use crate::session::{Nothing, Session};
use crate::world::World;

/// `mesh up`
pub(super) async fn up(world: &World, layout: &Layout, printer: &Printer) -> Result<()> {
    let mesh = MeshFile::must_read(layout)?;
    let started = daemon::start(world, layout, &mesh.mesh).await?;
    let observed = Door::new(layout.door()).observe().await?;
    let how = match started {
        Started::Now => "is started",
        Started::Already => "runs already",
    };
    printer.event(&Event::Finished {
        text: format!("the host of mesh {} {how} (pid {})", mesh.inputs.name, observed.pid),
    });
    Ok(())
}

async fn open(layout: &Layout) -> Result<(MeshFile, Session)> {
    let mesh = MeshFile::must_read(layout)?;
    let session = Session::open(layout, &mesh).await?;
    Ok((mesh, session))
}

async fn open_unless(layout: &Layout, interrupts: &mut Interrupts) -> Result<(MeshFile, Session)> {
    interrupts.unless(open(layout)).await.unwrap_or_else(|| Err(interrupted()))
}

/// `mesh modules`
pub(super) async fn modules(layout: &Layout, printer: &Printer) -> Result<()> {
    let (_, session) = open(layout).await?;
    let answer: ModulesAnswer = session.ask(Verb::Modules, &Nothing {}).await?;
    printer.document(&answer, || {
        let mut rows = vec![cells(&["MODULE", "VERSION", "REVISION", "NODES", "PUSHED"])];
        rows.extend(answer.modules.iter().map(|module| {
            let nodes: Vec<&str> = module.nodes.iter().map(NodeName::as_str).collect();
            vec![
                module.name.to_string(),
                module.version.clone(),
                module.revision.to_string(),
                nodes.join(","),
                moment(module.time),
            ]
        }));
        columns(&rows)
    });
    Ok(())
}

/// `mesh declaration`
pub(super) async fn declaration(
    layout: &Layout,
    options: &cli::Declaration,
    printer: &Printer,
) -> Result<()> {
    let (mesh, session) = open(layout).await?;
    let node = options.node.clone().unwrap_or(mesh.inputs.node);
    let answer: DeclarationAnswer =
        session.ask(Verb::Declaration, &DeclarationRequest { node: node.clone() }).await?;
    printer.document(&answer, || match &answer.declaration {
        None => vec![format!("node {node} was declared nothing yet")],
        Some(declaration) => {
            let mut lines = vec![format!(
                "node {node}, generation {}, token {}, digest {}",
                declaration.generation,
                declaration.token,
                declaration.digest().short()
            )];
            for module in &declaration.modules {
                lines.push(format!("{} {} (revision {})", module.name, module.version, module.revision));
                lines.extend(module.resource_ids().iter().map(|id| match module.replaces(id) {
                    Some(replaced) => format!("  {id}, replaces {replaced}"),
                    None => format!("  {id}"),
                }));
            }
            lines.extend(declaration.adopted.iter().map(|adopted| format!("adopted {}", adopted.id)));
            lines
        }
    });
    Ok(())
}

/// `mesh push`
pub(super) async fn push(
    world: &World,
    layout: &Layout,
    options: cli::Push,
    printer: &Printer,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let (mesh, session) = open_unless(layout, interrupts).await?;
    let means = Means { layout, mesh: &mesh, session: &session, printer };
    let pushed = push::Options {
        mode: mode(options.dry_run),
        assign: options.node,
        build: if options.no_build { Build::Never } else { Build::WhenMissing },
        wait: wait(options.detach, options.timeout),
    };
    push::push(world, means, &options.dir, &pushed, interrupts).await
}

/// Whether a node is added or taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// `assign`
    To,
    /// `unassign`
    From,
}

/// `mesh assign`, `mesh unassign`
pub(super) async fn assign(
    world: &World,
    layout: &Layout,
    options: cli::Assign,
    way: Way,
    printer: &Printer,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let (mesh, session) = open_unless(layout, interrupts).await?;
    let means = Means { layout, mesh: &mesh, session: &session, printer };
    let verb = match way {
        Way::To => Verb::Assign,
        Way::From => Verb::Unassign,
    };
    let mode = mode(options.dry_run);
    let request = AssignRequest {
        request: push::new_request(world)?,
        module: options.module,
        node: options.node,
        mode,
    };
    if mode == Mode::DryRun {
        let planned: PlannedAnswer = session.ask(verb, &request).await?;
        push::print_planned(means, &planned);
        return Ok(());
    }
    let command = if way == Way::To { "assign" } else { "unassign" };
    let asked = Asked { command, verb, body: &request, request: &request.request, seat: None };
    if carry(means, asked, wait(options.detach, options.timeout), interrupts).await? == Carried::Done {
        let text = match way {
            Way::To => format!("{} is on {}", request.module, request.node),
            Way::From => format!("{} is not on {} any more", request.module, request.node),
        };
        printer.event(&Event::Finished { text });
    }
    Ok(())
}

/// `mesh rollback`
pub(super) async fn rollback(
    world: &World,
    layout: &Layout,
    options: cli::Rollback,
    printer: &Printer,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let (mesh, session) = open_unless(layout, interrupts).await?;
    let means = Means { layout, mesh: &mesh, session: &session, printer };
    let request = RollbackRequest {
        request: push::new_request(world)?,
        module: options.module,
        to: options.to,
        mode: mode(options.dry_run),
    };
    if request.mode == Mode::DryRun {
        let planned: PlannedAnswer = session.ask(Verb::Rollback, &request).await?;
        push::print_planned(means, &planned);
        return Ok(());
    }
    // Which seat it holds, the controller's or none: that is known before anything is asked for.
    let seat = seat_of(&session, &request.module).await?;
    let asked = Asked {
        command: "rollback",
        verb: Verb::Rollback,
        body: &request,
        request: &request.request,
        seat: seat.as_ref(),
    };
    if carry(means, asked, wait(options.detach, options.timeout), interrupts).await? == Carried::Done {
        let plan: Plan = session.ask(Verb::Plan, &PlanRequest { plan: request.request }).await?;
        let text = match &plan.action {
            Action::Push { module } => {
                let origin = module.origin();
                format!("{} is as revision {origin} was, version {}", module.name, module.version)
            }
            action => format!("{} is as it was", action.module()),
        };
        printer.event(&Event::Finished { text });
    }
    Ok(())
}

/// The seat that a module holds as it is recorded now.
async fn seat_of(session: &Session, module: &ModuleName) -> Result<Option<SeatName>> {
    let known: ModulesAnswer = session.ask(Verb::Modules, &Nothing {}).await?;
    let record = known.modules.iter().find(|record| &record.name == module);
    let manifest = record.and_then(|record| Manifest::parse(module.as_str(), &record.manifest).ok());
    Ok(manifest.and_then(|manifest| manifest.seat))
}

fn mode(dry_run: bool) -> Mode {
    if dry_run { Mode::DryRun } else { Mode::Do }
}

fn wait(detach: bool, timeout: std::time::Duration) -> Wait {
    if detach { Wait::Detached } else { Wait::AtMost(timeout) }
}

/// `mesh plans`
pub(super) async fn plans(layout: &Layout, options: cli::Plans, printer: &Printer) -> Result<()> {
    let (_, session) = open(layout).await?;
    if let Some(plan) = options.plan {
        let verb = if options.abort { Verb::Abort } else { Verb::Plan };
        let plan: Plan = session.ask(verb, &PlanRequest { plan }).await?;
        printer.document(&plan, || plan_lines(&plan));
        return Ok(());
    }
    let answer: PlansAnswer = session.ask(Verb::Plans, &Nothing {}).await?;
    printer.document(&answer, || {
        let mut rows = vec![cells(&["PLAN", "MODULE", "CREATED", "STATE"])];
        rows.extend(answer.plans.iter().map(|plan| {
            vec![
                plan.id.to_string(),
                plan.action.module().to_string(),
                moment(plan.created),
                state(&plan.state),
            ]
        }));
        columns(&rows)
    });
    Ok(())
}

fn plan_lines(plan: &Plan) -> Vec<String> {
    let mut lines = vec![
        format!(
            "plan {} of {}, created {} by {}",
            plan.id,
            plan.action.module(),
            moment(plan.created),
            plan.by
        ),
        state(&plan.state),
    ];
    if plan.abort_asked && !plan.state.is_ended() {
        lines.push("to be given up, as somebody asked".to_owned());
    }
    lines.extend(push::plan_lines(plan).into_iter().map(|line| format!("  {line}")));
    if let PlanState::Failed { failures, .. } = &plan.state {
        lines.extend(failures.iter().map(|failure| {
            let resource = failure.resource.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
            format!("  failed: {}{resource}: {}", failure.node, failure.error)
        }));
    }
    lines
}

fn state(state: &PlanState) -> String {
    match state {
        PlanState::Stored => "stored".to_owned(),
        PlanState::Open { waiting_for, .. } => format!("waits for {waiting_for}"),
        PlanState::Done { at } => format!("done {}", moment(*at)),
        PlanState::Failed { at, .. } => format!("failed {}", moment(*at)),
        PlanState::Aborted { at } => format!("given up {}", moment(*at)),
    }
}

/// `mesh history`
pub(super) async fn history(layout: &Layout, options: cli::History, printer: &Printer) -> Result<()> {
    let (_, session) = open(layout).await?;
    let request = HistoryRequest { module: options.module };
    let answer: HistoryAnswer = session.ask(Verb::History, &request).await?;
    printer.document(&answer, || {
        let mut rows = vec![cells(&["", "REVISION", "VERSION", "PUSHED", "PLAN", "BUNDLES", "AGAIN"])];
        rows.extend(answer.revisions.iter().map(|record| {
            let systems = record.bundles.values().flat_map(|systems| systems.values());
            let bundles: Vec<&str> = systems.map(|published| published.digest.short()).collect();
            let plan = record.plan.as_ref().map(ToString::to_string).unwrap_or_default();
            let current = if answer.current == Some(record.revision) { "current" } else { "" };
            let again = record.again.map(|revision| format!("revision {revision}")).unwrap_or_default();
            vec![
                current.to_owned(),
                record.revision.to_string(),
                record.version.clone(),
                moment(record.time),
                plan,
                bundles.join(","),
                again,
            ]
        }));
        columns(&rows)
    });
    Ok(())
}

/// `mesh retry`
pub(super) async fn retry(layout: &Layout, options: cli::Retry, printer: &Printer) -> Result<()> {
    let request = DoorRequest::Retry { resource: options.resource.clone() };
    let text = match Door::new(layout.door()).ask(&request, door::QUICK).await.map_err(Failure::from)? {
        DoorAnswer::Accepted => format!("{} is tried once more", options.resource),
        DoorAnswer::Already => format!("{} is as declared: there is nothing to try", options.resource),
        other => return Err(unexpected("retry", &other)),
    };
    printer.event(&Event::Finished { text });
    Ok(())
}

/// Cells of a row.
pub(super) fn cells(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// A moment as people read it, to the second.
pub(super) fn moment(time: Timestamp) -> String {
    format!("{time:.0}")
}
