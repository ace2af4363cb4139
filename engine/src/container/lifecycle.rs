//! Start, stop, signal, remove, wait: each says what it found when there was nothing to do.
//!
//! In: the engine id of a container, never its name: by a name the wrong one can be hit. Out: what became of it.

use std::time::Duration;

use bollard::errors::Error as ClientError;
use bollard::query_parameters::{
    KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use futures_util::StreamExt as _;

use super::{ContainerId, Killed, Removed, Signal, Started, State, Stopped, Waited};
use crate::engine::{Engine, WORK, bounded};
use crate::error::Error;

/// How often it is looked whether a removal that somebody else began has ended.
const REMOVAL_POLL: Duration = Duration::from_millis(25);

impl Engine {
    /// Starts a container.
    ///
    /// # Errors
    /// When the engine fails to start it, for example because its program does not exist in the image.
    pub async fn start(&self, id: &ContainerId) -> Result<Started, Error> {
        let what = format!("start container {}", id.short());
        // The client does not tell "started" from "ran already", so it is looked at first.
        match self.inspect(id).await?.map(|container| container.state) {
            None | Some(State::Removing | State::Dead) => return Ok(Started::Gone),
            Some(State::Running { .. } | State::Paused { .. } | State::Restarting) => {
                return Ok(Started::AlreadyRunning);
            }
            Some(State::Created | State::Exited { .. }) => {}
        }
        match self.have(&what, WORK, self.client.start_container(id.as_str(), None)).await {
            Ok(()) => Ok(Started::Started),
            // The same status tells that the program does not exist in the image.
            Err(error) if error.status() == Some(404) => match self.inspect(id).await? {
                None => Ok(Started::Gone),
                Some(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Asks a container's program to end (SIGTERM), and ends it after `grace`.
    ///
    /// # Errors
    /// When the engine does not answer within `grace` and what ending it takes.
    pub async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<Stopped, Error> {
        let what = format!("stop container {}", id.short());
        match self.inspect(id).await?.map(|container| container.state) {
            None | Some(State::Removing) => return Ok(Stopped::Gone),
            Some(State::Created | State::Exited { .. } | State::Dead) => return Ok(Stopped::AlreadyStopped),
            Some(State::Running { .. } | State::Paused { .. } | State::Restarting) => {}
        }
        // The engine counts in whole seconds; less than one would be none.
        let seconds = i32::try_from(grace.as_millis().div_ceil(1000)).unwrap_or(i32::MAX);
        let options = StopContainerOptionsBuilder::new().t(seconds).build();
        match self.have(&what, grace + WORK, self.client.stop_container(id.as_str(), Some(options))).await {
            Ok(()) => Ok(Stopped::Stopped),
            Err(error) if error.status() == Some(404) => Ok(Stopped::Gone),
            Err(error) => Err(error),
        }
    }

    /// Sends a container's program a signal.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn kill(&self, id: &ContainerId, signal: Signal) -> Result<Killed, Error> {
        let what = format!("send container {} {}", id.short(), signal.as_str());
        let options = KillContainerOptionsBuilder::new().signal(signal.as_str()).build();
        match self.have(&what, WORK, self.client.kill_container(id.as_str(), Some(options))).await {
            Ok(()) => Ok(Killed::Signalled),
            Err(error) if error.status() == Some(404) => Ok(Killed::Gone),
            Err(error) if error.status() == Some(409) => Ok(Killed::NotRunning),
            Err(error) => Err(error),
        }
    }

    /// Removes a container that does not run, with the volumes that were made for it alone. Returns when it is
    /// gone, also when somebody else was removing it.
    ///
    /// # Errors
    /// When the engine does not answer or fails to remove it.
    pub async fn remove(&self, id: &ContainerId) -> Result<Removed, Error> {
        let what = format!("remove container {}", id.short());
        let options = RemoveContainerOptionsBuilder::new().v(true).force(false).build();
        match self.have(&what, WORK, self.client.remove_container(id.as_str(), Some(options))).await {
            Ok(()) => Ok(Removed::Removed),
            Err(error) if error.status() == Some(404) => Ok(Removed::Gone),
            Err(error) if error.status() == Some(409) => match self.inspect(id).await? {
                Some(container) if is_alive(&container.state) => Ok(Removed::StillRunning),
                _ => self.await_removal(id, &what).await.map(|()| Removed::Removed),
            },
            Err(error) => Err(error),
        }
    }

    async fn await_removal(&self, id: &ContainerId, what: &str) -> Result<(), Error> {
        let waiting = async {
            while self.inspect(id).await?.is_some() {
                tokio::time::sleep(REMOVAL_POLL).await;
            }
            Ok(())
        };
        bounded(what, WORK, waiting).await?
    }

    /// Waits, for `limit` at most, until a container's program ends.
    ///
    /// # Errors
    /// `TimedOut` when it still runs then.
    pub async fn wait(&self, id: &ContainerId, limit: Duration) -> Result<Waited, Error> {
        let what = format!("see container {} end", id.short());
        match self.inspect(id).await?.map(|container| container.state) {
            None => return Ok(Waited::Gone),
            Some(State::Created) => return Ok(Waited::NeverStarted),
            Some(State::Exited { code, .. }) => return Ok(Waited::Exited { code }),
            Some(_) => {}
        }
        let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
        let mut answers = Box::pin(self.client.wait_container(id.as_str(), Some(options)));
        match bounded(&what, limit, answers.next()).await? {
            Some(Ok(ended)) => Ok(Waited::Exited { code: ended.status_code }),
            // How the client tells of a status other than zero.
            Some(Err(ClientError::DockerContainerWaitError { code, .. })) => Ok(Waited::Exited { code }),
            Some(Err(error)) => match self.error(&what, error) {
                refused if refused.status() == Some(404) => Ok(Waited::Gone),
                other => Err(other),
            },
            None => Err(Error::Nonsense { what, found: "an empty answer".to_owned() }),
        }
    }
}

/// Whether a program is there that must be ended before its container can be removed.
fn is_alive(state: &State) -> bool {
    match state {
        State::Running { .. } | State::Paused { .. } | State::Restarting => true,
        State::Created | State::Exited { .. } | State::Removing | State::Dead => false,
    }
}
