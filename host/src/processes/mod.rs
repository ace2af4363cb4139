//! Processes: one run (incarnation) of a program from a bundle, under a small shim, found again by any later
//! host.
//!
//! In: what to run, as whom, where. Out: what became of it, observed from files and the kernel. Not here: when
//! something is started again, and what for; this room knows one run, from its start to its end.
//!
//! An incarnation is a root-only folder:
//!
//! | file | written by | says |
//! |---|---|---|
//! | `launch.json` | the host, before anything is spawned | [`Launch`] |
//! | `gate` | first line by the shim, last by the host | whether a program was or may be started; locked while one is being started |
//! | `started.json` | the shim, once the program runs | [`Started`] |
//! | `exit.json` | the shim, once nothing of the run is left | [`Exit`] |
//!
//! What is here blocks for milliseconds, except where it is async.

mod end;
mod gate;
mod group;
mod log;
mod memory;
mod observe;
mod record;
pub mod shim;

use std::io;
use std::process::{Command, Stdio};

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use mesh_durable::{self as durable, DurableError, checkpoint};
use mesh_protocol::id::InstanceId;
use mesh_protocol::layout::Layout;

pub use self::end::{Signalled, close, end, signal};
pub use self::log::log_tail;
pub use self::observe::{ProcessState, bundle_of, observe};
pub use self::record::{Exit, ExitKind, Grouping, Launch, Started};
pub use rustix::process::Signal;

use self::group::Group;

/// Why something could not be done about a run.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// A file of the incarnation cannot be written or read.
    #[error("the record of run {instance} cannot be used")]
    Record {
        /// The run.
        instance: InstanceId,
        /// Which file, and why.
        source: DurableError,
    },
    /// There is a record of this run already, of something else.
    #[error("run {instance} was prepared before, for something else")]
    PreparedOtherwise {
        /// The run.
        instance: InstanceId,
    },
    /// The shim could not be started.
    #[error("the shim of run {instance} cannot be started from {program}")]
    Spawn {
        /// The run.
        instance: InstanceId,
        /// The program that is its own shim.
        program: Utf8PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// The gate stayed locked.
    #[error("the gate of run {instance} stayed locked for {milliseconds} ms: a shim hangs in its start")]
    GateHeld {
        /// The run.
        instance: InstanceId,
        /// How long that was waited for.
        milliseconds: u128,
    },
    /// The gate cannot be used.
    #[error("the gate of run {instance} cannot be used")]
    Gate {
        /// The run.
        instance: InstanceId,
        /// The system's word.
        source: io::Error,
    },
    /// A signal could not be sent.
    #[error("run {instance} cannot be signalled")]
    Signal {
        /// The run.
        instance: InstanceId,
        /// The system's word.
        source: io::Error,
    },
    /// Something of it is still there.
    #[error("run {instance} has not ended: expected nothing left of it, found {found}")]
    StillThere {
        /// The run.
        instance: InstanceId,
        /// What is left, in words.
        found: String,
    },
    /// The machine does not say what is needed to observe anything.
    #[error("run {instance} cannot be observed: the machine's boot id cannot be read")]
    Machine {
        /// The run.
        instance: InstanceId,
        /// The system's word.
        source: io::Error,
    },
}

impl ProcessError {
    fn record(instance: &InstanceId) -> impl FnOnce(DurableError) -> Self + use<> {
        let instance = instance.clone();
        move |source| Self::Record { instance, source }
    }

    fn gate(instance: &InstanceId) -> impl FnOnce(io::Error) -> Self + use<> {
        let instance = instance.clone();
        move |source| Self::Gate { instance, source }
    }
}

/// Records durably what is going to be run, so that whatever is spawned later is known. Done twice with the
/// same words, it is done once.
///
/// # Errors
/// When it cannot be written, or this run was prepared for something else.
pub fn prepare(layout: &Layout, launch: &Launch) -> Result<(), ProcessError> {
    let instance = &launch.instance;
    let failed = || ProcessError::record(instance);
    let folder = layout.incarnation(instance);
    if let Some(there) = record::launch(&folder).map_err(failed())? {
        return if &there == launch {
            Ok(())
        } else {
            Err(ProcessError::PreparedOtherwise { instance: instance.clone() })
        };
    }
    durable::ensure_folder(&folder, 0o700).map_err(failed())?;
    if let Some(logs) = launch.log.parent() {
        durable::ensure_folder(logs, 0o700).map_err(failed())?;
    }
    durable::write(&record::gate_file(&folder), b"", 0o600).map_err(failed())?;
    durable::write_json(&record::launch_file(&folder), launch, 0o600).map_err(failed())
}

/// Starts the shim of a run that was prepared. Started twice, the program runs once.
///
/// `program` is the host's own binary: [`own_program`].
///
/// # Errors
/// When the shim cannot be started. What becomes of the program is observed: [`observe`].
pub fn spawn(layout: &Layout, instance: &InstanceId, program: &Utf8Path) -> Result<(), ProcessError> {
    let failed =
        |source| ProcessError::Spawn { instance: instance.clone(), program: program.to_owned(), source };
    let mut launcher = Command::new(program);
    launcher
        .arg(shim::LAUNCH)
        .arg(layout.incarnation(instance))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let spawned = checkpoint::around(|| format!("spawn {instance}"), || launcher.status());
    let status = spawned.map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(io::Error::other(format!("its launcher ended with {status}"))))
    }
}

/// This program's own file; also while a newer one has taken its place on disk.
#[must_use]
pub fn own_program() -> Utf8PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|path| Utf8PathBuf::from_path_buf(path).ok())
        .filter(|path| path.exists())
        .unwrap_or_else(|| Utf8PathBuf::from("/proc/self/exe"))
}

/// Every run that there is a record of, in no order.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(layout: &Layout) -> io::Result<Vec<InstanceId>> {
    let entries = match layout.incarnations().read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        found.extend(entry?.file_name().parse::<InstanceId>());
    }
    Ok(found)
}

/// What a run was prepared for; nothing where there is no record of it.
///
/// # Errors
/// When the record cannot be read.
pub fn launch_of(layout: &Layout, instance: &InstanceId) -> Result<Option<Launch>, ProcessError> {
    record::launch(&layout.incarnation(instance)).map_err(ProcessError::record(instance))
}

/// When the program of a run was started; nothing before it was, or where there is no readable record of it.
#[must_use]
pub fn started_at(layout: &Layout, instance: &InstanceId) -> Option<Timestamp> {
    let started = record::started(&layout.incarnation(instance)).ok()??;
    Some(started.at)
}

/// Removes the record of a run that has ended or never began, and its control group. Done twice, it is done.
///
/// # Errors
/// When it has not ended (one that is only prepared is ended first: [`end`]), or a folder cannot be removed.
pub fn forget(layout: &Layout, instance: &InstanceId) -> Result<(), ProcessError> {
    let state = observe(layout, instance)?;
    let still_there = |found: String| ProcessError::StillThere { instance: instance.clone(), found };
    if matches!(state, ProcessState::Prepared | ProcessState::Starting | ProcessState::Running(_)) {
        return Err(still_there(format!("it {}", state.words())));
    }
    if let Some(left) = end::left_of(layout, instance)? {
        return Err(still_there(left));
    }
    // A shim that was killed has left it.
    let started = record::started(&layout.incarnation(instance)).map_err(ProcessError::record(instance))?;
    if let Some(folder) = started.and_then(|started| started.memory_group) {
        memory::remove(&folder);
    }
    Group::of(instance).remove().map_err(|error| still_there(format!("its control group: {error}")))?;
    durable::remove_folder_of(&layout.incarnation(instance), &record::FILES)
        .map_err(ProcessError::record(instance))
}
