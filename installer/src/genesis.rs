//! `mesh genesis`: from a machine to a mesh whose controller is a process.
//!
//! In: the options, the machine. Out: a mesh; what was done, how long it took, how the seat answered meanwhile. Each
//! step looks first, acts where its goal does not hold, and looks again; none is believed because a file says that
//! it was done. Not here: what the host and the controller do; they are asked.

mod context;
#[cfg(test)]
pub(crate) mod contract;
#[cfg(test)]
mod fakes;
mod observe;
pub mod origin;
pub mod parts;
pub mod plan;
pub mod step;
mod steps;

use std::time::{Duration, Instant};

use mesh_protocol::layout::Layout;

use crate::backup::begun;
use crate::cli;
use crate::journal::Journal;
use crate::lock::InstallerLock;
use crate::mesh_file::MeshFile;
use crate::output::event::StepTime;
use crate::output::{Code, Event, Extent, Failure, Form, Printer, Result, Volume};
use crate::world::World;
pub(crate) use context::engine_failure;
use context::{Context, Touch};
use mesh_durable as durable;
use parts::Parts;
use parts::real::Real;
use plan::Decision;
use step::Step;

/// How long the seat is probed when nothing goes on at it.
const PROBE: Duration = Duration::from_millis(500);

/// Raises a mesh, or goes on raising it.
///
/// # Errors
/// Why it stopped; the same command goes on from there.
pub async fn run(world: &World, layout: Layout, options: cli::Genesis, printer: &Printer) -> Result<()> {
    let parts = Real::new(world, layout.clone(), context::controller_seat()?, printer);
    run_with(world, layout, options, printer, parts).await
}

/// The same, from these parts.
///
/// # Errors
/// As [`run`].
pub async fn run_with<P: Parts>(
    world: &World,
    layout: Layout,
    options: cli::Genesis,
    printer: &Printer,
    parts: P,
) -> Result<()> {
    let mut context = Context::new(world, layout, options, printer, parts)?;
    raise(&mut context).await
}

/// Raises a mesh from these parts.
async fn raise<P: Parts>(context: &mut Context<'_, P>) -> Result<()> {
    let began = Instant::now();
    let printer = context.printer;
    let until = context.options.until.unwrap_or(Step::Verify);
    // Where nothing of a mesh is there, preflight comes first: it leaves nothing behind, not even a lock.
    let is_begun = context.layout.mesh_file().exists() || context.layout.installer_lock().exists();
    let lock = match context.touch {
        Touch::World if is_begun && context.world.user == 0 => Some(take_lock(context)?),
        _ => None,
    };
    context.holds_lock = lock.is_some();
    context.mesh = MeshFile::read(&context.layout)?;
    begun::no_restore(&context.layout)?;
    context.check_inputs()?;
    if lock.is_some() && context.mesh.is_some() {
        context.open_journal()?;
    }
    let seen = observe::observe(context).await?;
    let steps = plan::plan(&seen, until);
    let mut held = lock;
    let mut times = Vec::new();
    let done = do_steps(context, &steps, &mut held, &mut times).await;
    let changed = match done {
        Ok(changed) => changed,
        Err(failure) => {
            printer.event(&Event::Times { steps: times, total: milliseconds(began) });
            return Err(failure);
        }
    };
    finish(context, until, changed, times, began).await?;
    drop(held);
    Ok(())
}

/// Does what was decided, step by step, until one fails.
async fn do_steps<P: Parts>(
    context: &mut Context<'_, P>,
    steps: &[(Step, Decision)],
    held: &mut Option<InstallerLock>,
    times: &mut Vec<StepTime>,
) -> Result<Changed> {
    let mut changed = Changed::Nothing;
    for (step, decision) in steps {
        let began = Instant::now();
        match decision {
            Decision::Do => {}
            Decision::Superseded { why } => {
                if context.printer.volume() == Volume::Verbose || context.printer.form() == Form::Json {
                    context.printer.event(&Event::Skipped { step: step.to_string(), why: (*why).to_owned() });
                }
                continue;
            }
            Decision::NotAsked => continue,
        }
        if context.touch == Touch::World && *step > Step::Preflight {
            begin(context, held)?;
        }
        let done = do_step(context, *step, &changed).await;
        times.push(StepTime { step: step.to_string(), milliseconds: milliseconds(began) });
        if done? == Changed::Something {
            changed = Changed::Something;
        }
    }
    Ok(changed)
}

/// Whether this run changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changed {
    Nothing,
    Something,
}

/// The first that touches: the root, the lock in it, the journal.
fn begin<P: Parts>(context: &mut Context<'_, P>, held: &mut Option<InstallerLock>) -> Result<()> {
    if held.is_none() {
        durable::make_parents(context.layout.root())
            .and_then(|()| durable::ensure_folder(context.layout.root(), 0o711))
            .map_err(|error| Failure::of(Code::RootUnusable, &error))?;
        *held = Some(take_lock(context)?);
        // Somebody else may have begun between the look and the lock.
        if MeshFile::read(&context.layout)? != context.mesh {
            return Err(Failure::new(Code::Locked, "another genesis began in this root meanwhile")
                .hint("run this again"));
        }
    }
    if context.journal.is_none() {
        context.open_journal()?;
    }
    Ok(())
}

fn take_lock<P: Parts>(context: &Context<'_, P>) -> Result<InstallerLock> {
    InstallerLock::take(&context.layout.installer_lock(), "genesis", (context.world.clock)())
}

async fn do_step<P: Parts>(context: &mut Context<'_, P>, step: Step, changed: &Changed) -> Result<Changed> {
    let began = Instant::now();
    context.step = step;
    context.tell(&Event::Begun { step: step.to_string(), goal: step.goal().to_owned() })?;
    let reached = if context.touch == Touch::World && step > Step::Host {
        let gone = context.parts.host_gone();
        tokio::select! {
            // cancel safe: what is dropped has done whole effects only, and the same command goes on.
            reached = steps::reach(context, step) => reached,
            // cancel safe: it only looks
            failure = gone => Err(failure),
        }
    } else {
        steps::reach(context, step).await
    };
    context.waits_no_more();
    match reached {
        Ok(Reached::Already(why)) => {
            context.tell(&Event::Skipped { step: step.to_string(), why })?;
            Ok(Changed::Nothing)
        }
        // What it did, it said that it would do.
        Ok(Reached::Now(_)) if context.touch == Touch::Nothing && step > Step::Preflight => {
            Ok(Changed::Nothing)
        }
        Ok(Reached::Now(text)) => {
            let milliseconds = milliseconds(began);
            context.tell(&Event::Done { step: step.to_string(), text, milliseconds })?;
            // A look at the machine is no change of it.
            Ok(if step == Step::Preflight || step == Step::Verify {
                Changed::Nothing
            } else {
                Changed::Something
            })
        }
        Err(failure) => {
            let begun = step > Step::Preflight || *changed == Changed::Something;
            let failure = stopped_at(failure, step, begun);
            // What cannot be noted is not more important than what went wrong.
            let _ = context.note(Event::Failed { failure: failure.clone() });
            context.end_probe().await;
            if let Some(figures) = context.figures.take() {
                context.printer.event(&Event::Availability { figures: Some(figures) });
            }
            Err(failure)
        }
    }
}

/// A step that fails after something was done is safe to run again, and says so.
fn stopped_at(failure: Failure, step: Step, begun: bool) -> Failure {
    let mut failure = failure.in_step(step.as_str());
    if failure.code != Code::Preflight {
        failure.what = format!("{step}: {}", failure.what);
    }
    if begun {
        failure.extent = Extent::PartWay;
    }
    if failure.hint.is_none() && begun {
        failure.hint = Some("mend it and run the same command again: it goes on from here".to_owned());
    }
    failure
}

/// How a step's goal came to be true.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reached {
    /// It was, before anything was done.
    Already(String),
    /// This step made it so.
    Now(String),
}

async fn finish<P: Parts>(
    context: &mut Context<'_, P>,
    until: Step,
    changed: Changed,
    times: Vec<StepTime>,
    began: Instant,
) -> Result<()> {
    let printer = context.printer;
    if context.touch == Touch::Nothing {
        printer.event(&Event::Finished { text: "nothing was touched: this was a dry run".to_owned() });
        return Ok(());
    }
    let figures = match (context.figures.take(), &context.mesh) {
        (Some(figures), _) => Some(figures),
        (None, Some(mesh)) if mesh.seat_answered.is_some() => context.parts.probe_for(mesh, PROBE).await?,
        (None, _) => None,
    };
    printer.event(&Event::Availability { figures });
    printer.event(&Event::Times { steps: times, total: milliseconds(began) });
    context.tell(&Event::Finished { text: last_words(context, until, changed) })?;
    Ok(())
}

fn last_words<P: Parts>(context: &Context<'_, P>, until: Step, changed: Changed) -> String {
    let root = context.layout.root();
    let name = context.mesh.as_ref().map(|mesh| mesh.inputs.name.to_string()).unwrap_or_default();
    match (until, changed) {
        (Step::Verify, Changed::Nothing) => format!("mesh {name} is as it should be: nothing was changed"),
        (Step::Verify, Changed::Something) => {
            format!("mesh {name} runs in {root}; look at it: mesh status --root {root}")
        }
        (step, Changed::Nothing) => format!("stopped after {step}, as asked: nothing was changed"),
        (step, Changed::Something) => {
            format!("stopped after {step}, as asked; the same command without --until goes on")
        }
    }
}

fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl<P: Parts> Context<'_, P> {
    fn open_journal(&mut self) -> Result<()> {
        let mut journal = Journal::open(&self.layout.journal(), self.world.clock)?;
        let words = self.world.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        journal.note(Event::Command { words, version: env!("CARGO_PKG_VERSION").to_owned() })?;
        self.journal = Some(journal);
        Ok(())
    }
}

#[cfg(test)]
#[path = "genesis/dry_run_tests.rs"]
mod dry_run_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stopped_after_something_was_done_says_that_it_goes_on() {
        let failure = || Failure::new(Code::PortTaken, "x");
        assert_eq!(stopped_at(failure(), Step::Preflight, false).exit() as i32, 1);
        let stopped = stopped_at(failure(), Step::Images, true);
        assert_eq!(stopped.exit() as i32, 3);
        assert_eq!(stopped.what, "images: x");
        assert!(stopped.hint.as_deref().unwrap().contains("the same command again"));
        let handed_back = Failure::new(Code::HandedBack, "y").hint("z");
        assert_eq!(stopped_at(handed_back, Step::Handover, true).exit() as i32, 4);
    }
}
