//! `mesh status` and `mesh nodes`: how the mesh stands, from whoever can tell.
//!
//! In: the mesh's folder. Out: the seat's own status; where the seat does not answer, what the host knows; where no
//! host runs, what genesis wrote. So a mesh that is half done explains itself. Not here: mending it.

use std::time::Duration;

use mesh_protocol::door::{BusLink, Observed};
use mesh_protocol::handover::HandoverReport;
use mesh_protocol::layout::Layout;
use mesh_protocol::report::{InstanceReport, NodeState, ResourceReport};
use mesh_protocol::verb::{NodeStatus, NodesAnswer, StatusAnswer, Verb};
use serde::Serialize;

use super::half_done;
use super::mesh::{cells, moment};
use crate::door::Door;
use crate::journal::story::Story;
use crate::lock;
use crate::mesh_file::MeshFile;
use crate::output::table::columns;
use crate::output::{Code, Failure, Form, Printer, Result};
use crate::session::{Nothing, Session};

/// A bus that hangs must not keep the host's own word back for long.
const SEAT_LIMIT: Duration = Duration::from_secs(10);

/// What is known where the seat does not answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "told_by")]
enum Fallback<'a> {
    /// The host, and the journal where the mesh is half done.
    Host {
        mesh: MeshPart<'a>,
        /// Why the seat did not tell.
        seat_silent: &'a str,
        observed: &'a Observed,
        genesis: Option<&'a Story>,
    },
    /// The journal: no host runs.
    Journal {
        /// None where genesis did not come to make one.
        mesh: Option<MeshPart<'a>>,
        host_silent: &'a str,
        /// Who is at the mesh now.
        locked_by: Option<&'a str>,
        genesis: Option<&'a Story>,
    },
}

#[derive(Debug, Serialize)]
struct MeshPart<'a> {
    id: &'a str,
    name: &'a str,
}

impl<'a> MeshPart<'a> {
    fn of(mesh: &'a MeshFile) -> Self {
        Self { id: mesh.mesh.as_str(), name: mesh.inputs.name.as_str() }
    }
}

/// `mesh status`
pub(super) async fn status(layout: &Layout, printer: &Printer) -> Result<()> {
    let Some(mesh) = MeshFile::read(layout)? else {
        let missing = MeshFile::must_read(layout).map(|_| ());
        return match half_done::story(layout)? {
            None => missing,
            Some(_) => nothing_runs(layout, None, printer),
        };
    };
    let silent = match from_seat(layout, &mesh).await {
        Ok(status) => {
            printer.document(&status, || status_lines(&status));
            return Ok(());
        }
        Err(failure) => failure,
    };
    match Door::new(layout.door()).observe_if_there().await {
        Ok(Some(observed)) => {
            let story = half_done::story(layout)?.filter(|_| mesh.process_since.is_none());
            let document = Fallback::Host {
                mesh: MeshPart::of(&mesh),
                seat_silent: &silent.what,
                observed: &observed,
                genesis: story.as_ref(),
            };
            printer.document(&document, || {
                let mut lines = host_lines(&mesh, &silent, &observed);
                lines.extend(half_done::lines(layout, story.as_ref()));
                lines
            });
            let told = "what the host knows is above; see also: mesh logs host";
            let hint = match &story {
                Some(story) => format!("{told}; go on with: {}", story.goes_on_with()),
                None => told.to_owned(),
            };
            let what = format!("the controller does not answer: {}", silent.what);
            Err(Failure::new(Code::SeatUnreachable, what).hint(hint))
        }
        Ok(None) => nothing_runs(layout, Some(&mesh), printer),
        Err(failure) => Err(failure),
    }
}

/// Tells what the journal knows.
fn nothing_runs(layout: &Layout, mesh: Option<&MeshFile>, printer: &Printer) -> Result<()> {
    let story = half_done::story(layout)?;
    let holder = lock::holder(&layout.installer_lock());
    let host_silent = "no host runs";
    let document = Fallback::Journal {
        mesh: mesh.map(MeshPart::of),
        host_silent,
        locked_by: holder.as_deref(),
        genesis: story.as_ref(),
    };
    printer.document(&document, || {
        let mesh = mesh
            .map_or_else(|| "none yet".to_owned(), |mesh| format!("{} ({})", mesh.inputs.name, mesh.mesh));
        let mut lines = vec![format!("mesh   {mesh}"), "host   does not run".to_owned()];
        lines.extend(half_done::lines(layout, story.as_ref()));
        lines
    });
    Err(half_done::how_to_go_on(layout, mesh, story.as_ref()))
}

async fn from_seat(layout: &Layout, mesh: &MeshFile) -> Result<StatusAnswer> {
    let asking = async {
        let session = Session::open(layout, mesh).await?;
        session.ask(Verb::Status, &Nothing {}).await
    };
    tokio::time::timeout(SEAT_LIMIT, asking).await.unwrap_or_else(|_| {
        Err(Failure::new(Code::SeatUnreachable, "the controller's seat does not answer in time"))
    })
}

fn status_lines(status: &StatusAnswer) -> Vec<String> {
    let mut lines = vec![
        format!("mesh   {} ({})", status.mesh.name, status.mesh.id),
        format!("bus    {}", status.bus.url),
        format!("seat   {} at {}", status.seat.name, status.seat.subject),
    ];
    lines.extend(status.seat.instances.iter().map(|instance| format!("  {}", instance_line(instance))));
    lines.extend(status.seat.handovers.iter().flat_map(handover_lines));
    let lock = &status.plan_lock;
    lines.push(match (&lock.holder, &lock.plan) {
        (Some(holder), Some(plan)) => format!("lock   held by {holder}, carries out plan {plan}"),
        (Some(holder), None) => format!("lock   held by {holder}"),
        (None, _) => "lock   nobody holds it".to_owned(),
    });
    lines.push(String::new());
    lines.extend(node_rows(&status.nodes));
    lines.extend(status.nodes.iter().flat_map(|node| {
        let troubles = node.resources.iter().filter(|resource| !resource.state.is_right());
        troubles.map(|resource| format!("  {} {}", node.name, resource_text(resource)))
    }));
    lines
}

fn instance_line(instance: &InstanceReport) -> String {
    format!(
        "{} a {}, {}, version {}, since {}",
        instance.instance,
        instance.form.as_str(),
        instance.role.as_str(),
        instance.version,
        moment(instance.since)
    )
}

/// One line; of one that was handed back also why, and how to go on.
fn handover_lines(handover: &HandoverReport) -> Vec<String> {
    let mut line = format!(
        "  handover {} -> {}: {}",
        handover.old.resource,
        handover.new.resource,
        handover.state.as_str()
    );
    if let Some(waiting_for) = &handover.waiting_for {
        line.push_str(&format!(", waits for {waiting_for}"));
    }
    if let Some(pending) = &handover.cleanup_pending {
        line.push_str(&format!(", left to do: {pending}"));
    }
    let mut lines = vec![line];
    if handover.is_handed_back() {
        lines.extend(handover.failure_lines().into_iter().map(|line| format!("    {line}")));
    }
    lines
}

fn resource_text(resource: &ResourceReport) -> String {
    match resource.state.parts() {
        (state, Some(detail)) => format!("{}: {state}: {detail}", resource.id),
        (state, None) => format!("{}: {state}", resource.id),
    }
}

fn node_rows(nodes: &[NodeStatus]) -> Vec<String> {
    let mut rows = vec![cells(&["NODE", "SYSTEM", "DECLARED", "APPLIED", "STATE", "REPORTED"])];
    let number = |generation: Option<mesh_protocol::id::Generation>| {
        generation.map_or_else(|| "-".to_owned(), |generation| generation.to_string())
    };
    rows.extend(nodes.iter().map(|node| {
        vec![
            node.name.to_string(),
            node.system.to_string(),
            number(node.generation.declared),
            number(node.generation.applied),
            node_state(node.state).to_owned(),
            moment(node.reported),
        ]
    }));
    columns(&rows)
}

const fn node_state(state: NodeState) -> &'static str {
    match state {
        NodeState::Empty => "empty",
        NodeState::Working => "working",
        NodeState::Converged => "converged",
        NodeState::Troubled => "troubled",
        NodeState::Diverged => "diverged",
    }
}

fn host_lines(mesh: &MeshFile, silent: &Failure, observed: &Observed) -> Vec<String> {
    let mut lines = vec![
        format!("mesh   {} ({})", mesh.inputs.name, mesh.mesh),
        format!("seat   {}", silent.what),
        format!("host   pid {}, since {}", observed.pid, moment(observed.started)),
        match &observed.bus {
            BusLink::Up { since } => format!("bus    {} since {}", mesh.bus(), moment(*since)),
            BusLink::Down { since, error } => {
                format!("bus    {} not reached since {}: {error}", mesh.bus(), moment(*since))
            }
        },
    ];
    match &observed.declaration {
        Some(declaration) => lines.push(format!("holds  generation {}", declaration.generation)),
        None => lines.push("holds  no declaration yet".to_owned()),
    }
    lines.extend(observed.report.resources.iter().map(|resource| format!("  {}", resource_text(resource))));
    lines.extend(observed.report.instances.iter().map(|instance| format!("  {}", instance_line(instance))));
    lines.extend(observed.report.handovers.iter().flat_map(handover_lines));
    lines
}

/// `mesh nodes`
pub(super) async fn nodes(layout: &Layout, printer: &Printer) -> Result<()> {
    let mesh = MeshFile::must_read(layout)?;
    let session = Session::open(layout, &mesh).await?;
    let answer: NodesAnswer = session.ask(Verb::Nodes, &Nothing {}).await?;
    if printer.form() == Form::Json {
        printer.document(&answer, Vec::new);
        return Ok(());
    }
    for line in node_rows(&answer.nodes) {
        printer.data(&line);
    }
    for node in &answer.nodes {
        printer.data("");
        let mut rows = vec![cells(&["RESOURCE", "STATE", "DETAIL"])];
        rows.extend(node.resources.iter().map(|resource| {
            let (state, detail) = resource.state.parts();
            let adopted = if resource.adopted.is_some() { "adopted " } else { "" };
            vec![
                resource.id.to_string(),
                state.to_owned(),
                format!("{adopted}{}", detail.unwrap_or_default()),
            ]
        }));
        printer.data(node.name.as_str());
        columns(&rows).iter().for_each(|line| printer.data(&format!("  {line}")));
    }
    Ok(())
}
