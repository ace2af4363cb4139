//! `mesh doctor`, and what comes first in genesis: can a mesh be raised here, or go on running, and what stands in its way?
//!
//! In: the surroundings, what is to be raised. Out: every check with what was expected and found and what to do, all at once,
//! in a second or two. What can be observed is observed; what only shows when it is done (a program run, a container
//! stopped) is done, and nothing of it is left behind. First all is looked at (`seen`), then all is judged, by functions
//! that see nothing but what was seen (`judge`). Not here: mending anything.

mod accounts;
mod begun;
mod check;
mod clocks;
mod container;
mod controller;
mod engine;
mod groups;
mod image;
mod intent;
mod judge;
mod machine;
mod maker;
mod meshes;
mod name;
mod network;
mod place;
mod ports;
mod program;
mod root;
mod seen;

#[cfg(test)]
mod faults;

use std::time::Instant;

use mesh_protocol::layout::Layout;

use crate::cli::Wanted;
use crate::controller_source::ControllerSource;
use crate::mesh_file::MeshFile;
use crate::output::{Form, Printer, Result, Volume};
use crate::world::World;
pub use check::{Finding, Report, State};
pub use intent::{Exercise, Intent, Lock};
pub use name::Name;
pub use place::is_probe;

/// What a look at this machine came to.
#[derive(Debug)]
pub struct Examined {
    /// What each check says.
    pub report: Report,
    /// The controller that is to be raised, where it could be read.
    pub controller: Option<ControllerSource>,
    /// Where the engine is, and what said so.
    pub engine: String,
}

/// Looks at this machine, and judges what was seen.
pub async fn examine(intent: &Intent<'_>) -> Examined {
    let seen = Box::pin(seen::Seen::look(intent)).await;
    let report = judge::all(intent, &seen);
    Examined { report, controller: seen.controller.get().cloned(), engine: seen.engine.place() }
}

/// `mesh doctor`
///
/// # Errors
/// When a check failed; what it says was printed.
pub async fn run(world: &World, layout: &Layout, wanted: &Wanted, printer: &Printer) -> Result<()> {
    let began = Instant::now();
    let (mesh, unreadable) = match MeshFile::read(layout) {
        Ok(mesh) => (mesh, None),
        Err(failure) => (None, Some(failure)),
    };
    let intent = Intent {
        world,
        layout,
        mesh: mesh.as_ref(),
        wanted,
        skip: &wanted.skip,
        exercise: Exercise::Done,
        lock: Lock::NotOurs,
    };
    let mut report = examine(&intent).await.report;
    if let Some(failure) = unreadable {
        report.replace(Name::Inputs, &begun::unreadable(failure));
    }
    let all = printer.volume() > Volume::Quiet;
    printer.document(&report.document(), || report.lines(all));
    if printer.form() == Form::Text && all {
        printer.data(&format!("{} in {:.1} s", report.summary(), began.elapsed().as_secs_f64()));
    }
    report.failure().map_or(Ok(()), |failure| Err(failure.told()))
}
