//! From the command line to what does it, and the exit status that it makes.
//!
//! In: the world. Out: an exit status. Interruption is heard here, once: whatever is under way is dropped where it
//! waits, for every effect is whole or not there, and the same command goes on from it; only what follows a plan has
//! more to say of it. Not here: the commands.

mod backup;
mod bundle;
mod down;
mod events;
mod half_done;
mod image;
mod logs;
mod man;
mod mesh;
mod recover;
mod report;
mod restore;
mod status;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use mesh_protocol::layout::Layout;
use tokio::runtime::Builder;

use crate::cli::{Cli, Command};
use crate::interrupt::{Interrupts, interrupted_at};
use crate::output::{Code, Event, Exit, Failure, Form, Printer, Result};
use crate::world::World;
use crate::{config, daemon, doctor, genesis};

/// Does what the command line says.
#[must_use]
pub fn run(world: &World) -> Exit {
    let cli = match Cli::try_parse_from(&world.arguments) {
        Ok(cli) => cli,
        Err(error) => return not_understood(world, &error),
    };
    if let Command::Launch { program, folder } = &cli.command {
        return match daemon::launch(program, folder) {
            Ok(()) => Exit::Done,
            Err(_) => Exit::Failed,
        };
    }
    if let Some(file) = world.variable("MESH_CHECKPOINTS") {
        mesh_durable::checkpoint::watch(file.into());
    }
    let printer = config::printer(world, &cli.common);
    match with_runtime(world, cli, &printer) {
        Ok(()) => {
            printer.clear();
            Exit::Done
        }
        Err(failure) => {
            printer.failure(&failure);
            failure.exit()
        }
    }
}

/// Help and version are data; anything else is a usage error.
fn not_understood(world: &World, error: &clap::Error) -> Exit {
    // Where it cannot be printed, nobody listens.
    let _ = error.print();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Exit::Done,
        _ => {
            if world.arguments.iter().any(|argument| argument == "--json") {
                let printer = Printer::new(world, Form::Json, crate::output::Volume::Quiet);
                let what = error.to_string().lines().next().unwrap_or_default().to_owned();
                printer.event(&Event::Failed { failure: Failure::new(Code::Usage, what) });
            }
            Exit::Usage
        }
    }
}

fn with_runtime(world: &World, cli: Cli, printer: &Printer) -> Result<()> {
    // The store's client and the bus's share one provider; a second call has nothing to do.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match cli.command {
        // Hashing and packing have threads of their own; a second one for the sockets would be woken for each small request
        // in vain, which takes as long as the program's own work.
        Command::Bundle { .. } | Command::Image { .. } => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    };
    let runtime =
        runtime.map_err(|error| Failure::because(Code::Internal, "the runtime cannot be started", &error))?;
    let result = runtime.block_on(Box::pin(dispatch(world, cli, printer)));
    // What still packs or waits in a thread is not worth waiting for.
    runtime.shutdown_background();
    result
}

/// Commands that follow a plan say themselves what an interruption means; all others are dropped where they wait.
async fn dispatch(world: &World, cli: Cli, printer: &Printer) -> Result<()> {
    let layout = config::layout(world, &cli.common);
    let mut interrupts = Interrupts::listen()?;
    match cli.command {
        Command::Push(options) => {
            Box::pin(mesh::push(world, &layout, options, printer, &mut interrupts)).await
        }
        Command::Assign(options) => {
            Box::pin(mesh::assign(world, &layout, options, mesh::Way::To, printer, &mut interrupts)).await
        }
        Command::Unassign(options) => {
            Box::pin(mesh::assign(world, &layout, options, mesh::Way::From, printer, &mut interrupts)).await
        }
        Command::Rollback(options) => {
            Box::pin(mesh::rollback(world, &layout, options, printer, &mut interrupts)).await
        }
        Command::Recover(options) => {
            Box::pin(recover::run(world, &layout, options, printer, &mut interrupts)).await
        }
        other => {
            let journal = layout.journal();
            let work = Box::pin(unless_interrupted(world, layout, other, printer));
            interrupts.unless(work).await.unwrap_or_else(|| Err(interrupted_at(&journal, world.clock)))
        }
    }
}

async fn unless_interrupted(
    world: &World,
    layout: Layout,
    command: Command,
    printer: &Printer,
) -> Result<()> {
    match command {
        Command::Genesis(options) => genesis::run(world, layout, options, printer).await,
        Command::Doctor(wanted) => Box::pin(doctor::run(world, &layout, &wanted, printer)).await,
        Command::Down(options) => down::run(world, &layout, &options, printer).await,
        Command::Bundle { command } => bundle::run(world, &layout, command, printer).await,
        Command::Image { command } => image::run(world, command, printer).await,
        Command::Backup(options) => backup::run(world, &layout, &options, printer).await,
        Command::Restore(options) => Box::pin(restore::run(world, &layout, &options, printer)).await,
        Command::Report(options) => report::run(&layout, &options, printer),
        Command::Man(options) => man::run(world, &options, printer),
        Command::Completions { shell } => {
            completions(shell, printer);
            Ok(())
        }
        other => speak(world, &layout, other, printer).await,
    }
}

/// The commands that speak to a mesh that is there.
async fn speak(world: &World, layout: &Layout, command: Command, printer: &Printer) -> Result<()> {
    match command {
        Command::Up => mesh::up(world, layout, printer).await,
        Command::Status => status::status(layout, printer).await,
        Command::Nodes => status::nodes(layout, printer).await,
        Command::Modules => mesh::modules(layout, printer).await,
        Command::Declaration(options) => mesh::declaration(layout, &options, printer).await,
        Command::Plans(options) => mesh::plans(layout, options, printer).await,
        Command::Events(options) => events::run(layout, &options, printer).await,
        Command::Logs(options) => logs::run(world, layout, &options, printer).await,
        Command::History(options) => mesh::history(layout, options, printer).await,
        Command::Retry(options) => mesh::retry(layout, options, printer).await,
        Command::Genesis(_)
        | Command::Doctor(_)
        | Command::Down(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Report(_)
        | Command::Bundle { .. }
        | Command::Image { .. }
        | Command::Push(_)
        | Command::Assign(_)
        | Command::Unassign(_)
        | Command::Rollback(_)
        | Command::Recover(_)
        | Command::Man(_)
        | Command::Completions { .. }
        | Command::Launch { .. } => Err(Failure::new(Code::Internal, "a command was sent the wrong way")),
    }
}

fn completions(shell: clap_complete::Shell, printer: &Printer) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mesh", &mut script);
    printer.data(String::from_utf8_lossy(&script).trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_that_was_sent_the_wrong_way_is_a_defect_and_says_so() {
        let world = World::of_this_process().unwrap();
        let printer = Printer::new(&world, Form::Text, crate::output::Volume::Quiet);
        let command = Command::Completions { shell: clap_complete::Shell::Bash };
        let failure = speak(&world, &Layout::new("/no/such/mesh"), command, &printer).await.unwrap_err();
        assert_eq!(failure.code, Code::Internal);
    }
}
