//! The `mesh` command.
//!
//! In: what the system gives a process. Out: an exit status. Not here: anything else; see the library.

use std::process::ExitCode;

use mesh_installer::world::World;

fn main() -> ExitCode {
    let status = match World::of_this_process() {
        Ok(world) => mesh_installer::run(&world),
        Err(error) => mesh_installer::output::no_world(&error),
    };
    ExitCode::from(status as u8)
}
