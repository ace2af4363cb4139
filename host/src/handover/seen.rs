//! What the host sees when it decides on a handover: one value, gathered before the decision.
//!
//! In: the probes, the process and container observations, the declaration. Out: plain facts with the times at
//! which they were true. Not here: what follows from them.
//!
//! Times are durations since the host started, from a clock that does not jump.

use std::time::Duration;

use mesh_protocol::handover::{Reason, Role, RoleAck};
use mesh_protocol::id::{Digest, Generation, InstanceId};
use mesh_protocol::verb::{Check, Ready};
use serde::{Deserialize, Serialize};

/// All that is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The bus, from the host's own connection.
    pub bus: Bus,
    /// What the newcomer needs before it can be started.
    pub needs: Needs,
    /// The holder.
    pub old: Instance,
    /// The newcomer; `NotStarted` before it has an instance.
    pub new: Instance,
    /// What the latest declaration wants of this seat.
    pub wanted: Wanted,
    /// Whether the host is being stopped.
    pub stopping: bool,
    /// Whether a job of this handover (a start, an end, a removal) is under way.
    pub busy: bool,
    /// The id that the newcomer's next run would get.
    pub fresh: InstanceId,
    /// The sha256 of the newcomer's program as unpacked.
    pub program: Option<Digest>,
}

/// The bus as the host's own connection has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bus {
    /// Connected; the host's own echo came back within this time at last.
    Up {
        /// Since when.
        since: Duration,
        /// How long the last echo took; none yet since connected.
        echo: Option<Duration>,
    },
    /// Not connected.
    Away,
}

/// Bundle, account, files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Needs {
    /// All there.
    Met,
    /// Not yet: what is waited for.
    Waiting(String),
    /// They will not come.
    Failed(Reason),
}

/// What the latest declaration wants of this seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// The newcomer, at this revision.
    Same {
        /// Of the module.
        revision: u64,
        /// Somebody asked through the local door for one more try.
        retry: bool,
    },
    /// Something else, since this declaration.
    Other(Generation),
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Its run, where it has one.
    pub id: Option<InstanceId>,
    /// Whether it lives.
    pub life: Life,
    /// What it was last ordered to do, and under which number.
    pub ordered: Option<(Role, u64)>,
    /// What it said that it does.
    pub ack: Option<RoleAck>,
    /// Its last answer on its own subject.
    pub ready: Option<Answered>,
    /// Why there was no answer, where the last attempt had none.
    pub ready_error: Option<String>,
    /// When its last answer on the public subject had been asked for.
    pub public: Option<Duration>,
}

impl Instance {
    /// Whether it acknowledged the role under its latest order.
    #[must_use]
    pub fn follows(&self, role: Role) -> bool {
        match (&self.ordered, &self.ack, &self.id) {
            (Some((ordered, number)), Some(ack), Some(id)) => {
                *ordered == role && ack.number == *number && ack.role == role && &ack.instance == id
            }
            _ => false,
        }
    }

    /// What stands in the way of the latest order, by its own word.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        let (_, number) = self.ordered.as_ref()?;
        let ack = self.ack.as_ref()?;
        if ack.number == *number && self.id.as_ref() == Some(&ack.instance) {
            ack.trouble.as_deref()
        } else {
            None
        }
    }

    /// Whether its last answer lacks nothing that every instance must have, whatever its role.
    #[must_use]
    pub fn reaches_state(&self) -> bool {
        self.ready.as_ref().is_some_and(|a| a.ready.state == Check::Passed && a.ready.lock == Check::Passed)
    }
}

/// An answer on an instance's own subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// When it was asked.
    pub asked: Duration,
    /// What it said.
    pub ready: Ready,
}

/// Whether something lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Life {
    /// It was never started.
    NotStarted,
    /// It is being started.
    Starting,
    /// It runs.
    Running,
    /// It ended, or could not be started.
    Ended(Reason),
    /// It is not there, and nothing says how it ended: another boot, a record lost.
    Gone(String),
}

impl Life {
    /// Whether it may answer.
    #[must_use]
    pub const fn is_alive(&self) -> bool {
        matches!(self, Self::Running | Self::Starting)
    }
}
