//! The host as a daemon: takes its lock, opens its door, says that it is ready, and runs its task.
//!
//! In: a root folder. Out: an exit status, and on the caller's pipe either `ready` or why not. Not here: how it
//! was started; the installer does that, or an init.

use std::process::ExitCode;
use std::sync::Arc;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_durable::{self as durable, DurableError, checkpoint};
use mesh_protocol::bus::connect::Settings;
use mesh_protocol::bus::identity::User;
use mesh_protocol::layout::{HostFile, Layout};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};

use crate::bus::{BusEnd, Member};
use crate::clock::Clock;
use crate::containers::watch::EngineWatch;
use crate::daemon::{self, Lock};
use crate::task::{Parts, Stop, Task};
use crate::{door, log, machine};

/// Why the host does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot become the host of this root.
    #[error("this host cannot serve {root}")]
    Daemon {
        /// The root.
        root: Utf8PathBuf,
        /// Why.
        source: daemon::DaemonError,
    },
    /// A record of it cannot be read.
    #[error("the host's records below {root} cannot be used")]
    Records {
        /// The root.
        root: Utf8PathBuf,
        /// Which, and why.
        source: DurableError,
    },
    /// It was never told what it is.
    #[error("{path} is missing: expected the host's file, which mesh genesis writes")]
    NoHostFile {
        /// Where it was expected.
        path: Utf8PathBuf,
    },
    /// The machine does not give what it needs.
    #[error("the host cannot start: {what}")]
    Machine {
        /// What.
        what: String,
        /// The system's word.
        source: std::io::Error,
    },
}

impl ServeError {
    fn machine(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Machine { what, source }
    }
}

/// Runs the host of `root` until it is told to stop.
///
/// # Errors
/// Before it was ready; afterwards it goes on, or stops in order.
pub fn serve(root: &Utf8Path) -> Result<ExitCode, ServeError> {
    let layout = Layout::new(root);
    checkpoint::watch(layout.host().join("checkpoints"));
    let lock = Lock::take(&layout).map_err(|source| ServeError::Daemon { root: root.to_owned(), source })?;
    sweep(&layout).map_err(|source| ServeError::Records { root: root.to_owned(), source })?;
    let path = layout.host_file();
    let file: Option<HostFile> =
        durable::read_json(&path).map_err(|source| ServeError::Records { root: root.to_owned(), source })?;
    let file = file.ok_or(ServeError::NoHostFile { path })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(8)
        .thread_stack_size(1 << 20)
        .enable_all()
        .build()
        .map_err(ServeError::machine("no threads"))?;
    let stop = runtime.block_on(run(layout, file))?;
    // Jobs that are under way are begun again by the next host.
    runtime.shutdown_background();
    drop(lock);
    log::line(match stop {
        Stop::Asked => "the host stops; what it started goes on",
        Stop::Dissolved => "the host stops, its mesh is dissolved",
    });
    Ok(ExitCode::SUCCESS)
}

/// What a killed host, or a run's shim, left beside its records; a shim that still writes is left alone.
fn sweep(layout: &Layout) -> Result<(), DurableError> {
    let below = |folder: Utf8PathBuf| {
        let entries = folder.read_dir_utf8().into_iter().flatten().flatten();
        entries.map(camino::Utf8DirEntry::into_path).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    let single = [layout.host(), layout.handovers(), layout.steadies(), layout.recoveries()];
    let runs = [below(layout.incarnations()), below(layout.runs())].concat();
    let modules = below(layout.modules()).into_iter().flat_map(below);
    single.into_iter().chain(runs).chain(modules).try_for_each(|folder| durable::sweep(&folder))
}

async fn run(layout: Layout, file: HostFile) -> Result<Stop, ServeError> {
    let root = layout.root().to_owned();
    let boot_id = machine::boot_id().map_err(ServeError::machine("the boot id cannot be read"))?;
    let clock = Clock::start(boot_id);
    let wake = Arc::new(Notify::new());
    let (declarations, offered) = mpsc::channel(8);
    let (calls, called) = mpsc::channel(8);
    let (stopped, stop) = watch::channel(false);

    let engine = EngineWatch::start(&file.engine, &file.mesh, clock.clone(), wake.clone());
    let user = User::Host(file.node.clone());
    let member = Member {
        mesh: file.mesh.clone(),
        node: file.node.clone(),
        settings: Settings {
            address: file.bus.clone(),
            credential: layout.credential("host"),
            name: format!("host {}", file.node),
            inbox: user.inbox(),
        },
    };
    let bus = BusEnd::start(member, clock.clone(), declarations, wake.clone());
    let listener = door::open(&layout.door())
        .map_err(ServeError::machine(format!("the local door {} cannot be opened", layout.door())))?;
    let log_file = layout.log("host");
    let parts = Parts { layout, file, clock, wake, engine, bus };
    let task =
        Task::take_up(parts).map_err(|source| ServeError::Records { root: root.to_owned(), source })?;
    tokio::spawn(door::serve(listener, calls));
    tokio::spawn(async move {
        wait_for_signal().await;
        // The task is there as long as this runs.
        let _ = stopped.send(true);
    });
    daemon::ready(&log_file).map_err(|source| ServeError::Daemon { root, source })?;
    log::line(&format!("the host is ready, as process {}", std::process::id()));
    Ok(Box::pin(task.run(offered, called, stop)).await)
}

async fn wait_for_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        // Without handlers the signals end the process, which is safe at any time.
        return std::future::pending().await;
    };
    // cancel safe: either ends the wait, and nothing is read from the other
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
