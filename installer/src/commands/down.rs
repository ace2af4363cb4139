//! `mesh down`: removes what the mesh made on this machine, and nothing else.
//!
//! In: the mesh's folder. Out: what there is of the mesh, said; then, when it was confirmed, nothing of it. The host
//! is asked to dissolve what it holds; only what no host can be asked about is removed here, and only by this mesh's
//! own mark: a container by its label and id, an account by its GECOS field, a process by the program it runs. Not
//! here: anything without such a mark.

mod groups;
mod inventory;
mod own;
mod remove;

use std::collections::BTreeSet;

use camino::{Utf8DirEntry, Utf8Path, Utf8PathBuf};
use mesh_durable::checkpoint;
use mesh_protocol::id::MeshName;
use mesh_protocol::layout::Layout;

use crate::cli;
use crate::lock::{self, InstallerLock};
use crate::mesh_file::MeshFile;
use crate::output::{self, Code, Event, Failure, Printer, Result};
use crate::world::{Stream, World};
use inventory::Inventory;
use own::Own;

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    options: &cli::Down,
    printer: &Printer,
) -> Result<()> {
    let Some(mesh) = MeshFile::read(layout)? else {
        return without_mesh(world, layout, options, printer);
    };
    let inventory = inventory::look(world, layout, &mesh).await?;
    printer.document(&inventory, || inventory.lines());
    if options.dry_run {
        return Ok(());
    }
    confirm(world, options, &mesh.inputs.name, &inventory)?;
    let lock = InstallerLock::take(&layout.installer_lock(), "down", (world.clock)())?;
    // The record first: whoever raises this mesh again is told that it is half gone.
    let mut mesh = mesh;
    if mesh.down_since.is_none() {
        mesh.down_since = Some((world.clock)());
        mesh.write(layout)?;
    }
    let foreign = remove::all(world, layout, &mut mesh, printer).await.map_err(Failure::part_way)?;
    drop(lock);
    printer.event(&Event::Finished { text: last_words(&mesh.inputs.name, layout, &foreign) });
    Ok(())
}

/// What stays is no failure: nothing of the mesh is left.
fn last_words(name: &MeshName, layout: &Layout, foreign: &[Utf8PathBuf]) -> String {
    let gone = format!("mesh {name} is gone from this machine");
    if foreign.is_empty() { gone } else { format!("{gone}; {}", staying(layout, foreign)) }
}

fn staying(layout: &Layout, foreign: &[Utf8PathBuf]) -> String {
    format!("what is not the mesh's stays in {}: {}", layout.root(), listed(foreign))
}

fn listed(paths: &[Utf8PathBuf]) -> String {
    paths.iter().map(|path| path.as_str()).collect::<Vec<_>>().join(", ")
}

/// What genesis leaves when it is killed before there is a mesh; and no mesh at all.
fn without_mesh(world: &World, layout: &Layout, options: &cli::Down, printer: &Printer) -> Result<()> {
    let root = layout.root();
    if !root.exists() {
        printer.event(&Event::Finished { text: format!("there is nothing to remove: {root} is not there") });
        return Ok(());
    }
    let begun = [layout.installer_lock(), layout.journal(), layout.genesis_work()];
    let own = Own::of(layout, BTreeSet::new(), &[]);
    let mut foreign = own.foreign()?;
    let entries = root.read_dir_utf8().and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let entries = entries
        .map_err(|error| Failure::because(Code::Io, &format!("folder {root} cannot be read"), &error))?;
    // Whose the rest is cannot be told without the file that says which mesh it is.
    let is_begun = |entry: &Utf8DirEntry| {
        mesh_durable::is_beside(entry.file_name()) || begun.iter().any(|path| path == entry.path())
    };
    foreign.extend(entries.iter().filter(|entry| !is_begun(entry)).map(|entry| entry.path().to_owned()));
    foreign.sort();
    foreign.dedup();
    if !foreign.is_empty() {
        let lock = layout.installer_lock();
        if lock::is_left_by(&lock, "down") {
            return last_of_down(world, layout, &lock, &foreign, options.dry_run, printer);
        }
        return Err(Failure::new(Code::NoMesh, format!("there is no mesh in {root}"))
            .expected(layout.mesh_file().to_string())
            .found(listed(&foreign))
            .hint("say where the mesh is with --root"));
    }
    // Empty is what a down leaves that was killed at its last deed, and nothing is lost with it.
    let what =
        if entries.is_empty() { "which is empty" } else { "in which a genesis was begun and no mesh made" };
    if options.dry_run {
        printer.data(&format!("would remove {root}, {what}"));
        return Ok(());
    }
    own.remove()?;
    printer.event(&Event::Finished { text: format!("removed {root}, {what}") });
    Ok(())
}

/// A down that was killed at its last deed left its lock, beside what is not the mesh's.
fn last_of_down(
    world: &World,
    layout: &Layout,
    path: &Utf8Path,
    foreign: &[Utf8PathBuf],
    dry_run: bool,
    printer: &Printer,
) -> Result<()> {
    let stays = staying(layout, foreign);
    if dry_run {
        printer.data(&format!("would remove {path}, the last of a mesh that is gone; {stays}"));
        return Ok(());
    }
    let lock = InstallerLock::take(path, "down", (world.clock)())?;
    checkpoint::around(|| format!("remove {path}"), || std::fs::remove_file(path)).map_err(|error| {
        Failure::because(Code::LeftBehind, &format!("{path} cannot be removed"), &error).part_way()
    })?;
    drop(lock);
    printer.event(&Event::Finished {
        text: format!("removed {path}, the last of a mesh that is gone; {stays}"),
    });
    Ok(())
}

/// Where the seat ever answered this may be the last copy of somebody's mesh: its name is wanted, and nothing takes
/// its place.
fn confirm(world: &World, options: &cli::Down, name: &MeshName, inventory: &Inventory) -> Result<()> {
    let interactive = world.input == Stream::Terminal && world.errors == Stream::Terminal;
    let unread = |error: std::io::Error| Failure::because(Code::Io, "the answer cannot be read", &error);
    if let Some(said) = &options.destroy {
        return matches(said.as_str(), name);
    }
    if inventory.seat_answered {
        if interactive {
            let typed =
                output::ask(&format!("type the mesh's name to destroy it ({name}): ")).map_err(unread)?;
            return matches(&typed, name);
        }
        return Err(Failure::new(
            Code::DestroyNotConfirmed,
            format!("the seat of mesh {name} has answered: it is not removed without its name"),
        )
        .hint(format!("to destroy it for good: mesh down --destroy {name}")));
    }
    if options.yes {
        return Ok(());
    }
    if interactive {
        let typed = output::ask("remove all of this? [y/N] ").map_err(unread)?;
        if matches!(typed.as_str(), "y" | "Y" | "yes") {
            return Ok(());
        }
    }
    Err(Failure::new(Code::DestroyNotConfirmed, "nothing was removed, for nobody confirmed it")
        .hint("run it with --yes"))
}

fn matches(said: &str, name: &MeshName) -> Result<()> {
    if said == name.as_str() {
        return Ok(());
    }
    Err(Failure::new(Code::DestroyNotConfirmed, "nothing was removed: this is another mesh")
        .expected(name.to_string())
        .found(said.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Form, Volume};

    fn options(destroy: Option<&str>, yes: bool) -> cli::Down {
        cli::Down { destroy: destroy.map(|name| name.parse().unwrap()), yes, dry_run: false }
    }

    #[test]
    fn what_a_killed_down_left_beside_a_strangers_file_goes_and_that_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(folder.path()).unwrap());
        let (lock, theirs) = (layout.installer_lock(), layout.root().join("theirs"));
        let world = World::of_this_process().unwrap();
        let printer = Printer::new(&world, Form::Json, Volume::Quiet);
        let down = |dry_run| {
            let options = cli::Down { dry_run, ..options(None, true) };
            without_mesh(&world, &layout, &options, &printer)
        };
        std::fs::write(&theirs, "").unwrap();
        // One of a genesis may be somebody's who is told that this is no place for it.
        for (command, is_down) in [("genesis", false), ("down", true)] {
            drop(InstallerLock::take(&lock, command, (world.clock)()).unwrap());
            assert_eq!(down(true).is_ok(), is_down, "{command}");
            assert!(lock.exists());
            assert_eq!(down(false).is_ok(), is_down, "{command}");
            assert_eq!(lock.exists(), !is_down, "{command}");
        }
        assert!(theirs.exists());
        assert_eq!(down(false).unwrap_err().code, Code::NoMesh);
    }

    #[test]
    fn the_name_is_wanted_where_the_seat_ever_answered_and_yes_does_not_replace_it() {
        let mut world = World::of_this_process().unwrap();
        world.input = Stream::Other;
        let name: MeshName = "lab".parse().unwrap();
        let answered = Inventory { seat_answered: true, ..Inventory::default() };
        let silent = Inventory::default();
        let confirm = |options: cli::Down, inventory| confirm(&world, &options, &name, inventory);
        assert_eq!(
            confirm(options(None, true), &answered).unwrap_err().hint.as_deref(),
            Some("to destroy it for good: mesh down --destroy lab")
        );
        assert_eq!(
            confirm(options(Some("live"), true), &answered).unwrap_err().found.as_deref(),
            Some("live")
        );
        confirm(options(Some("lab"), false), &answered).unwrap();
        confirm(options(None, false), &silent).unwrap_err();
        confirm(options(None, true), &silent).unwrap();
        confirm(options(Some("live"), true), &silent).unwrap_err();
    }
}
