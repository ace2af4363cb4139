//! The shim: parent of one program, from its start to its end, whatever becomes of the host.
//!
//! In: an incarnation's folder. Out: its `started.json` and `exit.json`, and the program's log. Not here: a
//! second start, or any opinion; a single thread, no runtime.
//!
//! The host runs itself as `launch`, which runs itself as `shim` and ends: so the shim is nobody's child and
//! outlives every host.

use std::fs::File;
use std::io::{self, PipeReader, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, WaitOptions, WaitStatus};

use super::gate::{Held, Opened};
use super::group::{self, Group, Left};
use super::log::Log;
use super::memory::MemoryGroup;
use super::record::{self, Exit, ExitKind, Grouping, Launch, Started};
use crate::machine::{Handle, ProcessIdentity};
use mesh_durable::DurableError;

/// The word by which the host's binary is asked to start a shim and end.
pub const LAUNCH: &str = "launch";
/// The word by which it is asked to be one.
pub const SHIM: &str = "shim";

/// How long the shim sleeps at most before it reaps what was orphaned into its care.
const REAP: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// How long what the program left behind may take to die.
const KILL: Duration = Duration::from_secs(10);

/// Why a shim ended without a program.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// Its record cannot be used.
    #[error("the record in {folder} cannot be used")]
    Record {
        /// The incarnation's folder.
        folder: Utf8PathBuf,
        /// Which file, and why.
        source: DurableError,
    },
    /// There is nothing to run.
    #[error("{folder} holds no launch.json")]
    NotPrepared {
        /// The incarnation's folder.
        folder: Utf8PathBuf,
    },
    /// The system refused a step before the program was started.
    #[error("the shim of {folder} cannot {step}")]
    Step {
        /// The incarnation's folder.
        folder: Utf8PathBuf,
        /// Which.
        step: &'static str,
        /// The system's word.
        source: io::Error,
    },
}

/// Starts the shim of an incarnation as a program of its own, which has inherited nothing.
///
/// # Errors
/// When it cannot be started.
pub fn launch(folder: &Utf8Path) -> Result<(), ShimError> {
    close_fds::set_fds_cloexec(3, &[]);
    // By this name it is the running program itself, also where its file was replaced or removed.
    Command::new("/proc/self/exe")
        .arg0("mesh-host")
        .args([SHIM, folder.as_str()])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
        .map_err(|source| ShimError::Step { folder: folder.to_owned(), step: "be started", source })
}

/// Runs the program of an incarnation to its end; returns at once where its gate does not let one through.
///
/// # Errors
/// When it cannot come so far as to record why the program could not be started.
pub fn run(folder: &Utf8Path) -> Result<(), ShimError> {
    let recorded = |source| ShimError::Record { folder: folder.to_owned(), source };
    let step = |step: &'static str| {
        let folder = folder.to_owned();
        move |source: io::Error| ShimError::Step { folder, step, source }
    };
    let launch = record::launch(folder)
        .map_err(recorded)?
        .ok_or_else(|| ShimError::NotPrepared { folder: folder.to_owned() })?;
    become_a_shim().map_err(step("take its place"))?;
    let mut gate = Held::wait(folder).map_err(step("lock its gate"))?;
    if gate.written.closed || gate.written.opened != Opened::No {
        return Ok(());
    }
    let shim = ProcessIdentity::of_this_program().map_err(step("identify itself"))?;
    gate.write_opened(&shim).map_err(step("write to its gate"))?;
    let end = |kind| {
        let exit = Exit { kind, at: Timestamp::now() };
        record::write_exit(folder, &exit).map_err(recorded)
    };
    let group = Group::of(&launch.instance);
    let memory = MemoryGroup::of(&launch.instance);
    let mut child = match start(&launch, &group, &memory) {
        Ok(child) => child,
        Err(failure) => {
            memory.remove();
            return end(failure);
        }
    };
    let program = ProcessIdentity::of(child.pid).map_err(step("identify the program"));
    let begun = program.and_then(|program| {
        let (shim, at) = (shim.clone(), Timestamp::now());
        let memory_group = memory.folder().map(Utf8Path::to_owned);
        record::write_started(folder, &Started { program, shim, at, memory_group }).map_err(recorded)
    });
    if let Err(error) = begun {
        // What no record tells of must not run.
        end_the_rest(&group, &shim);
        return Err(error);
    }
    drop(gate);
    let status = child.watch().map_err(step("watch the program"))?;
    let ran_out_of_memory = group.ran_out_of_memory() || memory.ran_out();
    end_the_rest(&group, &shim);
    memory.remove();
    child.take_output();
    end(kind_of(status, ran_out_of_memory))
}

fn become_a_shim() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_no_new_privs(true)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    std::env::set_current_dir("/")?;
    rustix::thread::set_name(c"mesh-shim")?;
    Ok(())
}

/// The program, as its shim has it.
struct Child {
    pid: u32,
    handle: Handle,
    output: Option<PipeReader>,
    log: Log,
}

fn start(launch: &Launch, group: &Group, memory: &MemoryGroup) -> Result<Child, ExitKind> {
    let could_not = |path: &Utf8Path, error: &dyn std::fmt::Display| ExitKind::CouldNotStart {
        path: path.to_owned(),
        error: error.to_string(),
    };
    let of_the_program = |error: io::Error| could_not(&launch.program, &error);
    let log =
        Log::open(&launch.log, launch.log_limit_bytes).map_err(|error| could_not(&launch.log, &error))?;
    let (output, input) = io::pipe().map_err(of_the_program)?;
    rustix::fs::fcntl_setfl(&output, OFlags::NONBLOCK).map_err(|error| of_the_program(error.into()))?;
    let mut command = Command::new(&launch.program);
    command
        .args(&launch.arguments)
        .current_dir(&launch.working_directory)
        .env_clear()
        .gid(launch.gid)
        // The user last: std then drops every supplementary group, for the caller is root.
        .uid(launch.uid)
        .stdin(Stdio::null())
        .stdout(input.try_clone().map_err(of_the_program)?)
        .stderr(input);
    check_format(&launch.program).map_err(|error| could_not(&launch.program, &error))?;
    let inside = match launch.grouping {
        Grouping::ControlGroup if group.make() => group.enter().ok(),
        Grouping::ControlGroup | Grouping::Session => None,
    };
    let spawned = memory.around(|| command.spawn());
    let left = inside.map_or(Ok(()), group::Entered::leave);
    let child = spawned.map_err(|error| {
        let (path, error) = explain(launch, &error);
        could_not(path, &error)
    })?;
    let handle = Handle::of(child.id());
    match (left, handle) {
        (Ok(()), Some(handle)) => Ok(Child { pid: child.id(), handle, output: Some(output), log }),
        (left, handle) => {
            // A shim that stayed in the group would be killed with it, or that cannot watch: no program.
            if let Some(handle) = handle {
                let _ = handle.signal(rustix::process::Signal::KILL);
            }
            let error = left.err().unwrap_or_else(|| io::Error::other("it has no handle"));
            Err(could_not(&launch.program, &format!("its shim cannot keep it: {error}")))
        }
    }
}

/// A file that the kernel does not know would be run as a shell's script by the C library: it is refused.
fn check_format(program: &Utf8Path) -> Result<(), String> {
    let head = |path: &Utf8Path| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(20).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // One that cannot be read may still be run; the system says if it cannot.
    let (Ok(found), Ok(own)) = (head(program), head(Utf8Path::new("/proc/self/exe"))) else {
        return Ok(());
    };
    if found.starts_with(b"#!") {
        return Ok(());
    }
    match (found.get(..4) == Some(b"\x7fELF"), found.get(18..20) == own.get(18..20)) {
        (true, true) => Ok(()),
        (true, false) => Err("exec format error: it is a program for another kind of processor".to_owned()),
        (false, _) => Err("exec format error: it is neither a program nor a script".to_owned()),
    }
}

/// What stood in the way of a start, and in which words.
fn explain<'a>(launch: &'a Launch, error: &io::Error) -> (&'a Utf8Path, String) {
    if !launch.working_directory.is_dir() {
        return (&launch.working_directory, "there is no such folder to run in".to_owned());
    }
    if error.kind() == io::ErrorKind::NotFound && launch.program.is_file() {
        let words =
            format!("{error}: the file is there, what its first line or header names to run it is not");
        return (&launch.program, words);
    }
    (&launch.program, error.to_string())
}

impl Child {
    /// Until the program has ended; its output goes to the log meanwhile.
    fn watch(&mut self) -> io::Result<WaitStatus> {
        loop {
            let mut polled = vec![PollFd::new(self.handle.fd(), PollFlags::IN)];
            if let Some(output) = &self.output {
                polled.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN));
            }
            match poll(&mut polled, Some(&REAP)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if polled.get(1).is_some_and(|output| !output.revents().is_empty()) {
                self.take_output();
            }
            while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
                if Pid::as_raw(Some(pid)).cast_unsigned() == self.pid {
                    return Ok(status);
                }
            }
        }
    }

    /// Takes what there is of the program's output. A log that cannot be written loses it: a full disk is no
    /// reason for the program to stand still.
    fn take_output(&mut self) {
        let mut bytes = [0; 64 * 1024];
        while let Some(output) = &mut self.output {
            match output.read(&mut bytes) {
                Ok(0) => self.output = None,
                Ok(count) => drop(self.log.append(&bytes[..count])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.output = None,
            }
        }
    }
}

/// Ends what the program left running.
fn end_the_rest(group: &Group, shim: &ProcessIdentity) {
    let begun = Instant::now();
    loop {
        let in_group = group.kill().unwrap_or(Left::Something);
        let in_session = group::kill_session(shim, &shim.boot_id);
        if (in_group, in_session) == (Left::Nothing, Left::Nothing) || begun.elapsed() > KILL {
            return;
        }
        // What died of it is reaped, or it would be seen as a child for ever.
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kind_of(status: WaitStatus, ran_out_of_memory: bool) -> ExitKind {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ExitKind::Exited { code },
        (None, Some(9)) if ran_out_of_memory => ExitKind::OutOfMemory,
        (None, signal) => ExitKind::Signalled { signal: signal.unwrap_or_default() },
    }
}
