//! Removes what there is of a mesh, in an order in which each kill leaves something that can be gone on with.
//!
//! In: the mesh. Out: nothing of it. The host first, for it would make again what is taken away under it; `mesh.json`
//! almost last, for it alone says what is the mesh's.

use std::fmt;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

use camino::Utf8PathBuf;
use mesh_bundles::image::BUNDLE_LABEL;
use mesh_durable::checkpoint;
use mesh_engine::{Engine, ImageRemoved, LabelSelector, Removed};
use mesh_protocol::door::{DoorAnswer, DoorRequest};
use mesh_protocol::layout::{Layout, label};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::Command;

use super::own::Own;
use super::{groups, inventory};
use crate::config::HOST_PROGRAM;
use crate::daemon;
use crate::door::{self, Door};
use crate::genesis::engine_failure;
use crate::machine;
use crate::mesh_file::{LoadedImage, MeshFile};
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::world::World;

/// What a program has to end by itself.
pub(super) const GRACE: Duration = Duration::from_secs(5);

pub(super) const POLL: Duration = Duration::from_millis(20);

/// Removes all of it, and returns what is in the root and not the mesh's, which stays.
pub(super) async fn all(
    world: &World,
    layout: &Layout,
    mesh: &mut MeshFile,
    printer: &Printer,
) -> Result<Vec<Utf8PathBuf>> {
    let say = |text: String| printer.event(&Event::Note { step: "down".to_owned(), text });
    // Whose a module's data is, is asked as long as the accounts are there.
    let users = inventory::users(mesh)?;
    let mut left = dissolve(world, layout, mesh, &say).await;
    daemon::remove_unit(&mesh.mesh).await?;
    left.extend(end_processes(layout, &say).await);
    left.extend(groups::remove(layout, &say).await);
    match engine(world).await {
        Ok(engine) => left.extend(from_engine(&engine, mesh, &say).await?),
        Err(failure) => left.push(format!("containers cannot be told: {}", failure.what)),
    }
    left.extend(remove_accounts(world, mesh, &say).await?);
    if !left.is_empty() {
        return Err(Failure::new(Code::LeftBehind, "not all of the mesh could be removed")
            .details(left)
            .hint("see what holds it, and run this again"));
    }
    let own = Own::of(layout, users.clone(), &mesh.foreign);
    let foreign = own.foreign()?;
    if foreign != mesh.foreign {
        // Before the records go by which it is told from what is the mesh's.
        mesh.foreign.clone_from(&foreign);
        mesh.write(layout)?;
    }
    Own::of(layout, users, &foreign).remove()?;
    for path in &foreign {
        say(format!("stays, for it is not the mesh's: {path}"));
    }
    if foreign.is_empty() {
        say(format!("removed folder {}", layout.root()));
    }
    Ok(foreign)
}

/// The host ends and removes what it holds. One that does not run is started for it: its record alone knows all.
async fn dissolve(world: &World, layout: &Layout, mesh: &MeshFile, say: &impl Fn(String)) -> Vec<String> {
    let installed = layout.host_file().is_file() && layout.programs().join(HOST_PROGRAM).is_file();
    if !installed {
        return Vec::new();
    }
    if let Err(failure) = daemon::start(world, layout, &mesh.mesh).await {
        say(format!("goes on without the host: {}", failure.lines().join("; ")));
        return Vec::new();
    }
    let door = Door::new(layout.door());
    match door.ask(&DoorRequest::Dissolve { mesh: mesh.mesh.clone() }, door::LONG).await {
        Ok(DoorAnswer::Dissolved { removed, left }) => {
            removed.iter().for_each(|id| say(format!("removed {id}")));
            left.iter().for_each(|what| say(format!("the host left {what}")));
        }
        Ok(other) => say(format!("goes on without the host: {}", door::unexpected("dissolve", &other).what)),
        Err(error) => say(format!("goes on without the host: {error}")),
    }
    // What the host left is looked at again below, by its mark; a host that still runs would get in the way.
    if host_ended(layout).await { Vec::new() } else { end_host(layout, say).await }
}

/// The host holds its lock for as long as it lives.
async fn host_ended(layout: &Layout) -> bool {
    let deadline = tokio::time::Instant::now() + GRACE;
    loop {
        let Ok(file) = fs::File::open(layout.host_lock()) else { return true };
        if file.try_lock().is_ok() {
            return true;
        }
        if tokio::time::Instant::now() > deadline {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn end_host(layout: &Layout, say: &impl Fn(String)) -> Vec<String> {
    let program = layout.programs().join(HOST_PROGRAM);
    let host = |process: &Running| process.program == program;
    end(running_from(layout).into_iter().filter(host).collect(), say).await
}

/// A process that runs a program of this mesh's own folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Running {
    pid: i32,
    program: Utf8PathBuf,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.pid, self.program)
    }
}

/// The processes whose program lies in the mesh's folder: its host, shims and bundles.
pub(super) fn running_from(layout: &Layout) -> Vec<Running> {
    let places = [layout.programs(), layout.bundles()];
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut found: Vec<Running> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let program = Utf8PathBuf::try_from(fs::read_link(entry.path().join("exe")).ok()?).ok()?;
            // The kernel says so of a program whose file is gone.
            let program =
                program.as_str().strip_suffix(" (deleted)").map_or(program.clone(), Utf8PathBuf::from);
            places.iter().any(|place| program.starts_with(place)).then_some(Running { pid, program })
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

async fn end_processes(layout: &Layout, say: &impl Fn(String)) -> Vec<String> {
    end(running_from(layout), say).await
}

/// SIGTERM, and SIGKILL after the grace; through a pidfd, which never means another process.
async fn end(processes: Vec<Running>, say: &impl Fn(String)) -> Vec<String> {
    let mut left = Vec::new();
    for process in processes {
        let Some(pid) = Pid::from_raw(process.pid) else { continue };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        // Looked at again through the handle: the number may have gone to another since.
        let link = fs::read_link(format!("/proc/{}/exe", process.pid));
        if link.is_ok_and(|link| {
            !link.starts_with(&process.program)
                && !link.to_string_lossy().starts_with(process.program.as_str())
        }) {
            continue;
        }
        let mut ended = false;
        for signal in [Signal::TERM, Signal::KILL] {
            let sent = checkpoint::around(
                || format!("end {}", process.program),
                || pidfd_send_signal(&handle, signal),
            );
            if sent.is_err() {
                ended = true;
                break;
            }
            let deadline = tokio::time::Instant::now() + GRACE;
            while tokio::time::Instant::now() < deadline && !ended {
                ended = is_over(&handle);
                if !ended {
                    tokio::time::sleep(POLL).await;
                }
            }
            if ended {
                break;
            }
        }
        if ended {
            say(format!("ended process {process}"));
        } else {
            left.push(format!("process {process} does not end"));
        }
    }
    left
}

/// A pidfd can be read when its process has ended, also before somebody waits for it.
fn is_over(handle: &rustix::fd::OwnedFd) -> bool {
    let mut polled = [rustix::event::PollFd::new(handle, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// The engine as it is found.
pub(super) async fn engine(world: &World) -> Result<Engine> {
    let endpoint = mesh_engine::endpoint::resolve(None, &world.engine_environment());
    let endpoint = endpoint.map_err(|error| Failure::of(Code::EngineEndpoint, &error))?;
    Engine::connect(&endpoint).await.map_err(|error| engine_failure(&error))
}

/// Containers by label and id; then the images that this mesh loaded, where nobody uses them.
async fn from_engine(engine: &Engine, mesh: &MeshFile, say: &impl Fn(String)) -> Result<Vec<String>> {
    let mut left = Vec::new();
    for container in inventory::list(engine, mesh).await? {
        let what = format!("container {} ({})", container.name, container.id.short());
        engine.stop(&container.id, GRACE).await.map_err(|error| engine_failure(&error))?;
        match engine.remove(&container.id).await.map_err(|error| engine_failure(&error))? {
            Removed::Removed | Removed::Gone => say(format!("removed {what}")),
            other => left.push(format!("{what}: {other:?}")),
        }
    }
    let others =
        engine.list(&LabelSelector::has(label::MESH)).await.map_err(|error| engine_failure(&error))?;
    let own_reference = format!("/{}/", mesh.mesh);
    let mut images = mesh.images.clone();
    // One that a kill kept from being written down.
    let worn = engine.list_images(&LabelSelector::has(BUNDLE_LABEL)).await;
    for image in worn.map_err(|error| engine_failure(&error))? {
        let own = image.references.iter().filter(|reference| reference.contains(&own_reference));
        images
            .extend(own.map(|reference| LoadedImage { reference: reference.clone(), id: image.id.clone() }));
    }
    for image in &images {
        // A mesh that is being raised may be about to run what both share; what bears this mesh's id is its own.
        if !others.is_empty() && !image.reference.contains(&own_reference) {
            say(format!("image {} stays: there are other meshes in the engine", image.reference));
            continue;
        }
        let found = engine.find_image(&image.reference).await.map_err(|error| engine_failure(&error))?;
        if found.is_none_or(|found| found.id != image.id) {
            continue;
        }
        match engine.remove_image(&image.reference).await.map_err(|error| engine_failure(&error))? {
            ImageRemoved::Removed => say(format!("removed image {}", image.reference)),
            ImageRemoved::Gone => {}
            ImageRemoved::InUse { .. } => {
                say(format!("image {} stays: somebody else uses it", image.reference));
            }
        }
    }
    Ok(left)
}

async fn remove_accounts(world: &World, mesh: &MeshFile, say: &impl Fn(String)) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let path = world.variable("PATH");
    for account in inventory::marked_accounts(mesh)? {
        let Some(program) = machine::find_program("userdel", path) else {
            left.push(format!("account {account}: program userdel is not on this machine"));
            continue;
        };
        let removing = Command::new(program).arg(&account).env_clear().stdin(Stdio::null()).output();
        let done = checkpoint::around_async(|| format!("remove account {account}"), removing).await;
        match done {
            Ok(done) if done.status.success() => say(format!("removed account {account}")),
            Ok(done) => {
                let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                left.push(format!("account {account}: userdel: {said}"));
            }
            Err(error) => left.push(format!("account {account}: userdel cannot be run: {error}")),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use camino::Utf8Path;

    use super::*;

    #[test]
    fn what_runs_from_the_folder_is_found_and_ended() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap().canonicalize_utf8().unwrap());
        fs::create_dir_all(layout.programs()).unwrap();
        let program = layout.programs().join("sleeper");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while running_from(&layout).is_empty() && std::time::Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        let left = runtime.block_on(end_processes(&layout, &|_| {}));
        let status = child.wait().unwrap();
        assert!(left.is_empty(), "{left:?}");
        assert!(!status.success());
        assert!(running_from(&layout).is_empty());
    }
}
