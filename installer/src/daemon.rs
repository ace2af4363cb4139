//! Starts the host, so that it outlives this command and owes it nothing.
//!
//! In: the mesh's folder with the host's program and `host.json` in it. Out: a host that answers at its door. By
//! systemd where it runs the machine, else in a session of its own, under init. Not here: what the host then does.
//!
//! Detached means: this program starts itself as `mesh launch`, which makes a new session and starts the host there
//! with an empty environment and this command's pipe as standard output. The launcher ends at once, so the host's
//! parent is init; the host says `ready`, or what is wrong, into the pipe, and closes it.

use std::os::unix::process::CommandExt as _;
use std::process::{Command as StdCommand, Stdio};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_protocol::id::MeshId;
use mesh_protocol::layout::Layout;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use crate::config::HOST_PROGRAM;
use crate::door::Door;
use crate::machine;
use crate::output::{Code, Failure, Result};
use crate::world::World;
use mesh_durable::{self as durable, checkpoint};

/// A host is ready in milliseconds; a machine that swaps takes seconds.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// How often a host that systemd started is asked whether it answers.
const POLL: Duration = Duration::from_millis(20);

/// Where units are that an administrator, or we, put there.
const UNIT_FOLDER: &str = "/etc/systemd/system";

/// What became of a host that was to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It was started.
    Now,
    /// It ran already.
    Already,
}

/// Makes the host run, and returns when it answers.
///
/// # Errors
/// When it cannot be started: the failure has its own words.
pub async fn start(world: &World, layout: &Layout, mesh: &MeshId) -> Result<Started> {
    let door = Door::new(layout.door());
    if door.observe_if_there().await?.is_some() {
        return Ok(Started::Already);
    }
    let program = layout.programs().join(HOST_PROGRAM);
    if !program.is_file() {
        return Err(Failure::new(Code::ProgramMissing, "the host's program is not in the mesh's folder")
            .expected(program)
            .hint("run mesh genesis: it puts it there"));
    }
    let starting = async {
        if machine::has_systemd() {
            start_unit(layout, mesh, &program).await?;
            wait_for_door(&door).await
        } else {
            start_detached(world, layout, &program).await
        }
    };
    checkpoint::around_async(|| "start the host".to_owned(), starting).await?;
    door.observe().await?;
    Ok(Started::Now)
}

/// The name of the host's unit.
#[must_use]
pub fn unit_name(mesh: &MeshId) -> String {
    format!("mesh-{mesh}.service")
}

/// Where the host's unit lies.
#[must_use]
pub fn unit_path(mesh: &MeshId) -> Utf8PathBuf {
    Utf8Path::new(UNIT_FOLDER).join(unit_name(mesh))
}

/// `KillMode=process`: what the host runs outlives it, and it finds it again. `Restart=on-failure`: the host is the
/// one thing on the machine that nobody else starts again; one that was dissolved ends well, and stays away.
fn unit(root: &Utf8Path, program: &Utf8Path, mesh: &MeshId) -> String {
    format!(
        "[Unit]\n\
         Description=Host of the mesh {mesh} in {root}\n\
         After=network.target docker.service\n\
         \n\
         [Service]\n\
         ExecStart={program} serve --root {root}\n\
         KillMode=process\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

async fn start_unit(layout: &Layout, mesh: &MeshId, program: &Utf8Path) -> Result<()> {
    let path = unit_path(mesh);
    let text = unit(layout.root(), program, mesh);
    durable::write_unless_same(&path, text.as_bytes(), 0o644)
        .map_err(|error| Failure::of(Code::Io, &error))?;
    systemctl(&["daemon-reload"]).await?;
    systemctl(&["enable", "--now", &unit_name(mesh)]).await
}

/// Has systemd forget the host's unit. The unit must be that of this mesh.
///
/// # Errors
/// When it cannot be removed.
pub async fn remove_unit(mesh: &MeshId) -> Result<()> {
    let path = unit_path(mesh);
    if !path.is_file() {
        return Ok(());
    }
    if machine::has_systemd() {
        systemctl(&["disable", "--now", &unit_name(mesh)]).await?;
    }
    checkpoint::around(|| format!("remove {path}"), || std::fs::remove_file(&path))
        .map_err(|error| Failure::because(Code::Io, &format!("{path} cannot be removed"), &error))?;
    if machine::has_systemd() { systemctl(&["daemon-reload"]).await } else { Ok(()) }
}

async fn systemctl(words: &[&str]) -> Result<()> {
    let what = format!("systemctl {}", words.join(" "));
    let done = Command::new("systemctl").args(words).stdin(Stdio::null()).output().await;
    let done = done
        .map_err(|error| Failure::because(Code::HostNotStarted, &format!("{what} cannot be run"), &error))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(Failure::new(Code::HostNotStarted, format!("{what} failed")).found(said))
}

async fn wait_for_door(door: &Door) -> Result<()> {
    let answers = async {
        loop {
            match door.observe_if_there().await {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => tokio::time::sleep(POLL).await,
                Err(failure) => return Err(failure),
            }
        }
    };
    tokio::time::timeout(READY_LIMIT, answers).await.unwrap_or_else(|_| {
        Err(Failure::new(
            Code::HostNotStarted,
            "the host's unit was started, and no host answers at its door",
        )
        .hint("see journalctl -u 'mesh-*'"))
    })
}

async fn start_detached(world: &World, layout: &Layout, program: &Utf8Path) -> Result<()> {
    let failed = |what: &str, error: &std::io::Error| Failure::because(Code::HostNotStarted, what, error);
    let mut launcher = Command::new(&world.program)
        .arg("launch")
        .arg(program)
        .arg(layout.root())
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed("the host's launcher cannot be started", &error))?;
    let Some(mut pipe) = launcher.stdout.take() else {
        return Err(Failure::new(Code::Internal, "the host's launcher has no standard output"));
    };
    let mut said = String::new();
    let read = tokio::time::timeout(READY_LIMIT, pipe.read_to_string(&mut said)).await;
    let ended = launcher.wait().await.map_err(|error| failed("the host's launcher is lost", &error))?;
    let log = layout.log("host");
    match read {
        Err(_) => Err(Failure::new(Code::HostNotStarted, "the host did not get ready")
            .expected(format!("\"ready\" within {} s", READY_LIMIT.as_secs()))
            .hint(format!("see {log}"))),
        Ok(Err(error)) => Err(failed("the host cannot be heard", &error)),
        Ok(Ok(_)) if said.lines().any(|line| line.trim() == "ready") => Ok(()),
        Ok(Ok(_)) => {
            let said = said.trim().trim_start_matches("mesh-host: ");
            let found =
                if said.is_empty() { format!("nothing (launcher: {ended})") } else { said.to_owned() };
            Err(Failure::new(Code::HostNotStarted, "the host cannot be started")
                .found(found)
                .hint(format!("see {log}")))
        }
    }
}

/// What `mesh launch` does: a new session, then the host in it, and never a terminal for it. What the host has to say
/// before it has a log goes into the pipe, on whichever stream.
///
/// # Errors
/// When the host's program cannot be started.
pub fn launch(program: &Utf8Path, folder: &Utf8Path) -> std::io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let pipe = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 0)?;
    StdCommand::new(program)
        .arg0(HOST_PROGRAM)
        .args(["serve", "--root", folder.as_str()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::inherit())
        .stderr(Stdio::from(pipe))
        .spawn()
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_host_that_cannot_be_started_says_why() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        // What stands for this command: it says what a host would, and is none.
        let program = root.join("command");
        let script = "#!/bin/sh\necho 'mesh-host: the ledger cannot be read'\n";
        durable::write(&program, script.as_bytes(), 0o755).unwrap();
        let mut world = World::of_this_process().unwrap();
        world.program = program.clone();
        let failure = start_detached(&world, &Layout::new(root), &program).await.unwrap_err();
        assert_eq!(failure.code, Code::HostNotStarted);
        assert_eq!(failure.found.as_deref(), Some("the ledger cannot be read"));
    }

    #[test]
    fn the_unit_leaves_what_the_host_runs_alone() {
        let mesh = "a7".parse().unwrap();
        let text = unit(Utf8Path::new("/var/lib/mesh"), Utf8Path::new("/var/lib/mesh/bin/mesh-host"), &mesh);
        insta::assert_snapshot!(text, @r"
        [Unit]
        Description=Host of the mesh a7 in /var/lib/mesh
        After=network.target docker.service

        [Service]
        ExecStart=/var/lib/mesh/bin/mesh-host serve --root /var/lib/mesh
        KillMode=process
        Restart=on-failure
        RestartSec=1

        [Install]
        WantedBy=multi-user.target
        ");
        assert_eq!(unit_path(&mesh), "/etc/systemd/system/mesh-a7.service");
    }
}
