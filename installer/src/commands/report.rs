//! `mesh report`: who answered the seat while it changed hands, as a picture.
//!
//! In: the recordings below the mesh's root. Out: an SVG, in a file or on standard output. Not here: recording.

use mesh_protocol::id::PlanId;
use mesh_protocol::layout::Layout;

use crate::cli;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Event, Failure, Form, Printer, Result};
use crate::{picture, recording};

pub(super) fn run(layout: &Layout, options: &cli::Report, printer: &Printer) -> Result<()> {
    MeshFile::must_read(layout)?;
    let found = choose(layout, options.plan.as_ref())?;
    if printer.form() == Form::Json && options.output.is_none() {
        // As it was kept, with the version of its own form.
        let text = serde_json::to_string(&found).map_err(|error| Failure::of(Code::Internal, &error))?;
        printer.data(&text);
        return Ok(());
    }
    let svg = picture::draw(&found);
    match &options.output {
        None => printer.data(svg.trim_end()),
        Some(path) => {
            std::fs::write(path, svg).map_err(|error| {
                Failure::because(Code::Io, &format!("picture {path} cannot be written"), &error)
            })?;
            let text = format!("{path} shows the {} of {:.0}", found.command, found.began);
            printer.event(&Event::Finished { text });
        }
    }
    Ok(())
}

/// The recording of a plan, or the newest.
fn choose(layout: &Layout, plan: Option<&PlanId>) -> Result<recording::Recording> {
    for path in recording::list(layout)?.iter().rev() {
        // One that a newer version wrote hides none that can be read.
        let Ok(found) = recording::read(path) else { continue };
        if plan.is_none_or(|plan| found.plan.as_ref() == Some(plan)) {
            return Ok(found);
        }
    }
    let what = match plan {
        Some(plan) => format!("there is no recording of plan {plan} on this machine"),
        None => "nothing was recorded on this machine yet".to_owned(),
    };
    Err(Failure::new(Code::NotFound, what)
        .expected(format!("a file in {}", layout.reports()))
        .hint("a push, rollback or genesis that was waited for records how the seat answered while it changed hands"))
}
