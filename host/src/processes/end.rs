//! The end of a run: asked, then made, until nothing of it is left.
//!
//! In: a run in any state. Out: one that has ended. Not here: whether it should.

use std::io;
use std::time::{Duration, Instant};

use mesh_durable::checkpoint;
use mesh_protocol::id::InstanceId;
use mesh_protocol::layout::Layout;
use rustix::process::Signal;

use super::gate::{Held, Opened};
use super::group::{self, Group, Left};
use super::observe::{self, Facts, ProcessState};
use super::{ProcessError, record};
use crate::machine::ProcessIdentity;

/// How long a shim may be between taking the gate's lock and having recorded the start: two writes to disk.
const GATE: Duration = Duration::from_secs(5);
/// How long the kernel may take to end what was killed.
const KILL: Duration = Duration::from_secs(10);
/// How long a shim may take to record the end of what it has seen end.
const RECORD: Duration = Duration::from_secs(2);
/// How often a condition is looked at while it is waited for.
const LOOK: Duration = Duration::from_millis(2);

/// Whether there was something to signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signalled {
    /// It was sent to the program.
    Sent,
    /// The program is not alive.
    Gone,
}

/// Lets no shim through any more: when this returns, the program is running or never will.
///
/// # Errors
/// When a shim hangs in its start, or the gate cannot be written.
pub async fn close(layout: &Layout, instance: &InstanceId) -> Result<(), ProcessError> {
    let folder = layout.incarnation(instance);
    if record::launch(&folder).map_err(ProcessError::record(instance))?.is_none() {
        return Ok(());
    }
    let failed = || ProcessError::gate(instance);
    let begun = Instant::now();
    loop {
        if let Some(mut held) = Held::now(&folder).map_err(failed())? {
            if !held.written.closed {
                held.write_closed().map_err(failed())?;
            }
            return Ok(());
        }
        if begun.elapsed() > GATE {
            return Err(ProcessError::GateHeld {
                instance: instance.clone(),
                milliseconds: begun.elapsed().as_millis(),
            });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Signals the program of a run, and nothing else that may have its number.
///
/// # Errors
/// When its record cannot be read, or the system refuses.
pub fn signal(layout: &Layout, instance: &InstanceId, signal: Signal) -> Result<Signalled, ProcessError> {
    let facts = observe::find(layout, instance)?;
    let program = facts.started.as_ref().map(|started| &started.program);
    match program.and_then(|program| program.open(&facts.boot_id)) {
        None => Ok(Signalled::Gone),
        Some(handle) => {
            let sent = checkpoint::around(|| format!("signal {instance}"), || handle.signal(signal));
            sent.map(|()| Signalled::Sent)
                .map_err(|source| ProcessError::Signal { instance: instance.clone(), source })
        }
    }
}

/// Ends a run: closes its gate, asks with SIGTERM, waits for `grace`, then kills until nothing of it is left.
/// Of what has ended or never ran there is nothing to do. What is returned is how it then stands.
///
/// # Errors
/// When its record cannot be used, or something of it does not die.
pub async fn end(
    layout: &Layout,
    instance: &InstanceId,
    grace: Duration,
) -> Result<ProcessState, ProcessError> {
    close(layout, instance).await?;
    if signal(layout, instance, Signal::TERM)? == Signalled::Sent {
        let program_is_gone = || {
            let facts = observe::find(layout, instance)?;
            Ok(facts.program == observe::Life::Gone)
        };
        wait(grace, program_is_gone).await?;
    }
    let facts = observe::find(layout, instance)?;
    let shim = shim_of(&facts);
    let group = Group::of(instance);
    let all_dead =
        || kill_all(&group, shim.as_ref(), &facts.boot_id).map_err(|source| left(instance, &source));
    if !checkpoint::around_async(|| format!("end {instance}"), wait(KILL, all_dead)).await? {
        return Err(ProcessError::StillThere {
            instance: instance.clone(),
            found: format!("processes that do not die within {} s", KILL.as_secs()),
        });
    }
    if let Some(shim) = shim {
        let shim_is_gone = || Ok(shim.open(&facts.boot_id).is_none());
        if !wait(RECORD, shim_is_gone).await? {
            kill_shim(instance, &shim, &facts.boot_id)?;
            wait(RECORD, shim_is_gone).await?;
        }
    }
    observe::observe(layout, instance)
}

/// What is left alive of a run, in words.
pub(super) fn left_of(layout: &Layout, instance: &InstanceId) -> Result<Option<String>, ProcessError> {
    let facts = observe::find(layout, instance)?;
    let in_session = shim_of(&facts).map(|shim| group::session(&shim, &facts.boot_id)).unwrap_or_default();
    if !in_session.is_empty() {
        return Ok(Some(format!("processes {in_session:?} of its session")));
    }
    match Group::of(instance).left().map_err(|source| left(instance, &source))? {
        Left::Something => Ok(Some("processes in its control group".to_owned())),
        Left::Nothing => Ok(None),
    }
}

fn shim_of(facts: &Facts) -> Option<ProcessIdentity> {
    match (&facts.started, &facts.gate.opened) {
        (Some(started), _) => Some(started.shim.clone()),
        (None, Opened::By(shim)) => Some(shim.clone()),
        (None, Opened::No | Opened::Unreadable) => None,
    }
}

fn kill_all(group: &Group, shim: Option<&ProcessIdentity>, boot_id: &str) -> io::Result<bool> {
    let in_group = group.kill()?;
    let in_session = shim.map_or(Left::Nothing, |shim| group::kill_session(shim, boot_id));
    Ok(in_group == Left::Nothing && in_session == Left::Nothing)
}

fn kill_shim(instance: &InstanceId, shim: &ProcessIdentity, boot_id: &str) -> Result<(), ProcessError> {
    match shim.open(boot_id).map(|handle| handle.signal(Signal::KILL)) {
        Some(Err(source)) => Err(ProcessError::Signal { instance: instance.clone(), source }),
        Some(Ok(())) | None => Ok(()),
    }
}

fn left(instance: &InstanceId, error: &io::Error) -> ProcessError {
    ProcessError::StillThere {
        instance: instance.clone(),
        found: format!("a control group that cannot be read or killed: {error}"),
    }
}

/// Whether the condition came to hold within the time.
async fn wait(
    limit: Duration,
    mut holds: impl FnMut() -> Result<bool, ProcessError>,
) -> Result<bool, ProcessError> {
    let begun = Instant::now();
    loop {
        if holds()? {
            return Ok(true);
        }
        if begun.elapsed() >= limit {
            return Ok(false);
        }
        tokio::time::sleep(LOOK).await;
    }
}
