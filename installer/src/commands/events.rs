//! `mesh events`: what happened, from the first event that is kept; where no bus can tell, what genesis wrote.
//!
//! In: the stream of events, the journal. Out: one line each, or one line of JSON each. Not here: who says them.

use futures_util::StreamExt as _;
use mesh_protocol::bus::{EventReader, Recorded};
use mesh_protocol::layout::Layout;

use super::half_done;
use super::mesh::moment;
use crate::cli;
use crate::door::Door;
use crate::mesh_file::MeshFile;
use crate::output::event::Stage;
use crate::output::{Code, Event, Failure, Form, Line, Printer, Result, lines};
use crate::session::Session;

pub(super) async fn run(layout: &Layout, options: &cli::Events, printer: &Printer) -> Result<()> {
    let Some(mesh) = MeshFile::read(layout)? else {
        let missing = MeshFile::must_read(layout).map(|_| ());
        return if half_done::journal(layout)?.is_empty() {
            missing
        } else {
            nothing_runs(layout, None, printer)
        };
    };
    let session = match Session::open(layout, &mesh).await {
        Ok(session) => session,
        Err(failure) => {
            // Where a host runs, what is wrong is with the bus.
            if Door::new(layout.door()).observe_if_there().await.is_ok_and(|observed| observed.is_some()) {
                show_journal(layout, printer)?;
                return Err(failure);
            }
            return nothing_runs(layout, Some(&mesh), printer);
        }
    };
    let reader = EventReader::new(session.connection().clone(), mesh.mesh);
    if !options.follow {
        let all = reader.read_from(1).await;
        let all =
            all.map_err(|error| Failure::because(Code::Unavailable, "events cannot be read", &error))?;
        all.into_iter().for_each(|recorded| show(recorded, printer));
        return Ok(());
    }
    let mut events = std::pin::pin!(reader.follow(1));
    while let Some(next) = events.next().await {
        match next {
            Ok(recorded) => show(recorded, printer),
            // The reader tries again by itself; whoever follows should know why nothing comes.
            Err(error) => printer.event(&Event::Warning { text: mesh_protocol::chain::chain(&error) }),
        }
    }
    Ok(())
}

fn show(recorded: Recorded, printer: &Printer) {
    let Recorded { sequence, event } = recorded;
    let time = event.time;
    show_line(&Line::new(time, Event::Mesh { sequence, mesh_event: Box::new(event) }), printer);
}

fn show_line(line: &Line, printer: &Printer) {
    match printer.form() {
        Form::Json => printer.line(line),
        Form::Text => {
            let told = match &line.event {
                // While a command runs, most waits are over before anybody could read of them.
                Event::Waiting { step, waiting_for, stage: Stage::Begun, .. } => {
                    vec![lines::row(step, &format!("waits for {waiting_for}"))]
                }
                event => lines::of(event),
            };
            for text in told {
                printer.data(&format!("{} {text}", moment(line.time)));
            }
        }
    }
}

/// What genesis and restore wrote: there is no bus that could tell more.
fn show_journal(layout: &Layout, printer: &Printer) -> Result<()> {
    half_done::journal(layout)?.iter().for_each(|line| show_line(line, printer));
    Ok(())
}

fn nothing_runs(layout: &Layout, mesh: Option<&MeshFile>, printer: &Printer) -> Result<()> {
    show_journal(layout, printer)?;
    let story = half_done::story(layout)?;
    Err(half_done::how_to_go_on(layout, mesh, story.as_ref()))
}
