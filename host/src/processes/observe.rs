//! What became of a run, for a host that need not be its parent.
//!
//! In: an incarnation's folder, the kernel. Out: one state. Not here: doing anything about it.

use mesh_protocol::id::{Digest, InstanceId};
use mesh_protocol::layout::Layout;

use super::ProcessError;
use super::gate::{self, Opened};
use super::record::{self, Exit, Started};
use crate::machine::{self, ProcessIdentity};

/// What became of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessState {
    /// There is no record of it: it never ran, or is forgotten.
    Absent,
    /// It was prepared and no shim has begun. It may be spawned (again): it runs once.
    Prepared,
    /// Its shim is starting it.
    Starting,
    /// It lives; or it just died and its shim is putting away what it left. That its shim lives is not said.
    Running(ProcessIdentity),
    /// It ended, or could not start, and nothing is left of it.
    Ended(Exit),
    /// It was closed before a shim began: it never ran and never will.
    Closed,
    /// It ended without a record. What it started may still live: [`super::end`] comes before another start.
    Lost {
        /// What is known, in words.
        why: String,
    },
}

impl ProcessState {
    /// As the rest of a sentence that begins with the run: "is running as process 7".
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Absent => "is not known".to_owned(),
            Self::Prepared => "is prepared and not started".to_owned(),
            Self::Starting => "is being started".to_owned(),
            Self::Running(identity) => format!("is running as process {}", identity.pid),
            Self::Ended(exit) => format!("has ended: {}", exit.kind.reason()),
            Self::Closed => "was given up before it was started".to_owned(),
            Self::Lost { why } => format!("is lost: {why}"),
        }
    }
}

/// What is found of a run.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) launch: Presence,
    pub(super) gate: gate::Written,
    pub(super) started: Option<Started>,
    pub(super) program: Life,
    pub(super) shim: Life,
    pub(super) exit: Option<Exit>,
    pub(super) boot_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    There,
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    Gone,
}

/// Observes a run.
///
/// # Errors
/// When its record cannot be read.
pub fn observe(layout: &Layout, instance: &InstanceId) -> Result<ProcessState, ProcessError> {
    let state = decide(&find(layout, instance)?);
    if matches!(state, ProcessState::Lost { .. }) {
        // A shim that wrote and ended between two of the looks: now that it is gone, the second is right.
        return Ok(decide(&find(layout, instance)?));
    }
    Ok(state)
}

/// The bundle that a run stands in, as long as anything of it may live or be started.
///
/// # Errors
/// When its record cannot be read.
pub fn bundle_of(layout: &Layout, instance: &InstanceId) -> Result<Option<Digest>, ProcessError> {
    match observe(layout, instance)? {
        ProcessState::Absent | ProcessState::Ended(_) | ProcessState::Closed => return Ok(None),
        ProcessState::Prepared
        | ProcessState::Starting
        | ProcessState::Running(_)
        | ProcessState::Lost { .. } => {}
    }
    let launch = record::launch(&layout.incarnation(instance)).map_err(ProcessError::record(instance))?;
    let name = launch.as_ref().and_then(|launch| launch.working_directory.file_name());
    Ok(name.and_then(|name| format!("sha256:{name}").parse().ok()))
}

/// Looks in the order in which things are written, and at the exit last: what is missing at one look was not
/// there when the earlier ones were made.
pub(super) fn find(layout: &Layout, instance: &InstanceId) -> Result<Facts, ProcessError> {
    let failed = || ProcessError::record(instance);
    let folder = layout.incarnation(instance);
    let boot_id =
        machine::boot_id().map_err(|source| ProcessError::Machine { instance: instance.clone(), source })?;
    let launch = record::launch(&folder).map_err(failed())?;
    let gate = gate::look(&folder).map_err(ProcessError::gate(instance))?;
    let started = record::started(&folder).map_err(failed())?;
    let life =
        |identity: Option<&ProcessIdentity>| match identity.and_then(|identity| identity.open(&boot_id)) {
            Some(_) => Life::Alive,
            None => Life::Gone,
        };
    let shim = match (&started, &gate.opened) {
        (Some(started), _) => Some(&started.shim),
        (None, Opened::By(shim)) => Some(shim),
        (None, _) => None,
    };
    let program = life(started.as_ref().map(|started| &started.program));
    let shim = life(shim);
    Ok(Facts {
        launch: if launch.is_some() { Presence::There } else { Presence::Missing },
        gate,
        program,
        shim,
        started,
        exit: record::exit(&folder).map_err(failed())?,
        boot_id,
    })
}

fn decide(facts: &Facts) -> ProcessState {
    let lost = |why: &str| ProcessState::Lost { why: why.to_owned() };
    if facts.launch == Presence::Missing {
        return ProcessState::Absent;
    }
    if let Some(exit) = &facts.exit {
        return ProcessState::Ended(exit.clone());
    }
    if let Some(started) = &facts.started {
        if started.program.boot_id != facts.boot_id {
            return lost("the machine was started again since");
        }
        return match (facts.program, facts.shim) {
            (Life::Alive, _) | (Life::Gone, Life::Alive) => ProcessState::Running(started.program.clone()),
            (Life::Gone, Life::Gone) => lost("it ended without a record, and so did its shim"),
        };
    }
    match (&facts.gate.opened, facts.shim) {
        (Opened::No, _) if facts.gate.closed => ProcessState::Closed,
        (Opened::No, _) => ProcessState::Prepared,
        (Opened::By(_), Life::Alive) => ProcessState::Starting,
        (Opened::By(shim), Life::Gone) if shim.boot_id != facts.boot_id => {
            lost("the machine was started again while it was being started")
        }
        (Opened::By(_) | Opened::Unreadable, _) => lost("its shim ended while it was being started"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::record::ExitKind;
    use super::gate::Written;
    use super::*;

    fn identity(pid: u32, boot_id: &str) -> ProcessIdentity {
        ProcessIdentity { pid, start_time: 5, boot_id: boot_id.to_owned() }
    }

    fn started() -> Started {
        Started {
            program: identity(2, "now"),
            shim: identity(1, "now"),
            at: Timestamp::UNIX_EPOCH,
            memory_group: None,
        }
    }

    fn opened() -> Written {
        Written { opened: Opened::By(identity(1, "now")), closed: false }
    }

    fn prepared() -> Facts {
        Facts {
            launch: Presence::There,
            gate: Written::default(),
            started: None,
            program: Life::Gone,
            shim: Life::Gone,
            exit: None,
            boot_id: "now".to_owned(),
        }
    }

    fn running() -> Facts {
        Facts {
            gate: opened(),
            started: Some(started()),
            program: Life::Alive,
            shim: Life::Alive,
            ..prepared()
        }
    }

    fn is_lost(facts: &Facts) -> bool {
        matches!(decide(facts), ProcessState::Lost { .. })
    }

    #[test]
    fn before_it_runs() {
        let absent = Facts { launch: Presence::Missing, ..prepared() };
        assert_eq!(decide(&absent), ProcessState::Absent);
        assert_eq!(decide(&prepared()), ProcessState::Prepared);
        let closed = Written { opened: Opened::No, closed: true };
        assert_eq!(decide(&Facts { gate: closed, ..prepared() }), ProcessState::Closed);
        let starting = Facts { gate: opened(), shim: Life::Alive, ..prepared() };
        assert_eq!(decide(&starting), ProcessState::Starting);
        assert!(is_lost(&Facts { gate: opened(), ..prepared() }));
        let torn = Written { opened: Opened::Unreadable, closed: false };
        assert!(is_lost(&Facts { gate: torn, ..prepared() }));
    }

    #[test]
    fn while_and_after_it_runs() {
        let alive = ProcessState::Running(identity(2, "now"));
        assert_eq!(decide(&running()), alive);
        let without_shim = Facts { shim: Life::Gone, ..running() };
        assert_eq!(decide(&without_shim), alive, "the shim does not matter");
        let just_died = Facts { program: Life::Gone, ..running() };
        assert_eq!(decide(&just_died), alive, "its end is being recorded");
        assert!(is_lost(&Facts { program: Life::Gone, shim: Life::Gone, ..running() }));
        let exit = Exit { kind: ExitKind::Exited { code: 0 }, at: Timestamp::UNIX_EPOCH };
        let ended = Facts { exit: Some(exit.clone()), program: Life::Gone, ..running() };
        assert_eq!(decide(&ended), ProcessState::Ended(exit));
    }

    #[test]
    fn a_pid_of_another_boot_is_not_believed() {
        let rebooted = Facts { boot_id: "later".to_owned(), ..running() };
        assert!(is_lost(&rebooted));
        let while_starting = Facts { boot_id: "later".to_owned(), gate: opened(), ..prepared() };
        assert!(is_lost(&while_starting));
        let only_prepared = Facts { boot_id: "later".to_owned(), ..prepared() };
        assert_eq!(decide(&only_prepared), ProcessState::Prepared);
    }
}
