//! `mesh backup`: all that the mesh is on this machine, in one file, while it runs.
//!
//! In: the mesh's root, its images in the engine. Out: a file that is whole, or none. Not here: what is in it and why it is
//! of one instant (`crate::backup`).

use camino::{Utf8Path, Utf8PathBuf};
use mesh_engine::Engine;
use mesh_protocol::id::System;
use mesh_protocol::layout::Layout;

use crate::backup::{self, FORMAT, Gathered, Manifest, StoreContent};
use crate::genesis::engine_failure;
use crate::lock::InstallerLock;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Event, Failure, Printer, Result, amount};
use crate::world::World;
use crate::{cli, config, images};

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    options: &cli::Backup,
    printer: &Printer,
) -> Result<()> {
    let mesh = MeshFile::must_read(layout)?;
    let file = config::absolute(world, &options.file);
    check(layout, &mesh, &file)?;
    let _lock = InstallerLock::take(&layout.installer_lock(), "backup", (world.clock)())?;
    sweep(&file);
    let store = if options.without_store { StoreContent::Without } else { StoreContent::With };

    begin(printer, "state", "read all that the mesh is, as of one instant");
    let (root, began) = (layout.clone(), std::time::Instant::now());
    let created = (world.clock)();
    let gathered = beside(move || backup::gather(&root, store)).await?;
    done(printer, "state", format!("{} files", gathered.files.len()), began);

    begin(printer, "images", "take the images of its containers out of the engine");
    let began = std::time::Instant::now();
    let engine = images::engine(world).await?;
    let (_kept, work) = images::work_folder()?;
    let archives = save_images(&engine, &gathered, &work).await?;
    done(printer, "images", gathered.images.iter().cloned().collect::<Vec<_>>().join(", "), began);

    begin(printer, "file", "write it down");
    let began = std::time::Instant::now();
    let head = Manifest {
        format: FORMAT,
        mesh: mesh.mesh.clone(),
        name: mesh.inputs.name.clone(),
        node: mesh.inputs.node.clone(),
        system: System::of_this_program(),
        created,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        folders: Vec::new(),
        files: Vec::new(),
        links: Vec::new(),
        images: Vec::new(),
    };
    let path = file.clone();
    let manifest = beside(move || backup::write(&path, head, &gathered, &archives)).await?;
    let bytes = amount::bytes(manifest.contents().values().sum());
    done(printer, "file", format!("{bytes} in {file}"), began);
    printer.event(&Event::Finished {
        text: format!(
            "{file} has mesh {} as of {created:.0}; whoever has it has the mesh: keep it where root's things are kept",
            mesh.inputs.name
        ),
    });
    Ok(())
}

/// A mesh that is not whole yet, and a file that would be lost with the mesh.
fn check(layout: &Layout, mesh: &MeshFile, file: &Utf8Path) -> Result<()> {
    if mesh.process_since.is_none() {
        return Err(Failure::new(
            Code::NotReached,
            "this mesh is not whole yet: its controller was not seen to be a process",
        )
        .expected("a genesis that came to its end")
        .hint("go on with: mesh genesis"));
    }
    if file.starts_with(layout.root()) {
        return Err(Failure::new(
            Code::InvalidRequest,
            format!("{file} lies in the mesh's own folder, and is lost with it"),
        )
        .expected(format!("a file that is not below {}", layout.root())));
    }
    Ok(())
}

async fn save_images(
    engine: &Engine,
    gathered: &Gathered,
    work: &Utf8Path,
) -> Result<Vec<(String, Utf8PathBuf)>> {
    let mut archives = Vec::new();
    for (number, reference) in gathered.images.iter().enumerate() {
        let path = work.join(format!("{number}.tar"));
        let unwritten =
            |error: std::io::Error| Failure::because(Code::Io, &format!("{path} cannot be written"), &error);
        let mut file = tokio::fs::File::create(&path).await.map_err(unwritten)?;
        engine.save_image(reference, &mut file).await.map_err(|error| engine_failure(&error))?;
        archives.push((reference.clone(), path));
    }
    Ok(archives)
}

/// What a backup to this file that was killed left beside it.
fn sweep(file: &Utf8Path) {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return };
    let beginning = format!(".{name}.");
    for entry in folder.read_dir_utf8().into_iter().flatten().flatten() {
        let found = entry.file_name();
        let middle = found.strip_prefix(&beginning).and_then(|rest| rest.strip_suffix(".tmp"));
        if middle.is_some_and(|middle| middle.chars().all(|c| c.is_ascii_digit() || c == '.')) {
            // What cannot be removed stands in nobody's way.
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// What reads and writes much has a thread of its own.
pub(super) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Failure::of(Code::Internal, &error))?
}

fn begin(printer: &Printer, step: &str, goal: &str) {
    printer.event(&Event::Begun { step: step.to_owned(), goal: goal.to_owned() });
}

fn done(printer: &Printer, step: &str, text: String, began: std::time::Instant) {
    let milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    printer.event(&Event::Done { step: step.to_owned(), text, milliseconds });
}
