//! What containers there are, and what they said.
//!
//! In: ids, names, labels. Out: [`Container`]s, lines of their logs. Changes nothing.

use std::collections::HashMap;
use std::path::PathBuf;

use bollard::models::{ContainerInspectResponse, ContainerState, ContainerStateStatusEnum as Status};
use bollard::query_parameters::{ListContainersOptionsBuilder, LogsOptionsBuilder};
use futures_util::TryStreamExt as _;
use jiff::Timestamp;

use super::{Access, Container, ContainerId, ContainerName, LabelSelector, Mount, State};
use crate::engine::{Engine, QUICK};
use crate::error::Error;

/// The most that is kept of a log's tail: what a person reads of a failure, with room for a stack trace.
const TAIL_BYTES: usize = 256 * 1024;

impl Engine {
    /// Looks at the container with this engine id.
    ///
    /// # Errors
    /// When the engine does not answer; that there is none is `None`.
    pub async fn inspect(&self, id: &ContainerId) -> Result<Option<Container>, Error> {
        let found = self.look(id.as_str()).await?;
        Ok(found.filter(|container| container.id == *id))
    }

    /// Looks at the container that holds this name.
    ///
    /// # Errors
    /// When the engine does not answer; that there is none is `None`.
    pub async fn find(&self, name: &ContainerName) -> Result<Option<Container>, Error> {
        // The engine takes the beginning of an id for a name, too.
        let found = self.look(name.as_str()).await?;
        Ok(found.filter(|container| container.name == *name))
    }

    async fn look(&self, id_or_name: &str) -> Result<Option<Container>, Error> {
        let what = format!("inspect container {id_or_name:?}");
        match self.ask(&what, QUICK, self.client.inspect_container(id_or_name, None)).await {
            Ok(found) => container(found).map(Some).map_err(|found| Error::Nonsense { what, found }),
            Err(error) if error.status() == Some(404) => Ok(None),
            // An ambiguous beginning of an id: nothing has that name.
            Err(Error::Refused { message, .. }) if message.contains("multiple IDs found") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The containers whose labels fit, whatever they are doing.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn list(&self, selector: &LabelSelector) -> Result<Vec<Container>, Error> {
        let what = "list containers";
        let filters = HashMap::from([("label", selector.filters())]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = self.ask(what, QUICK, self.client.list_containers(Some(options))).await?;
        let mut containers = Vec::with_capacity(listed.len());
        for id in listed.into_iter().filter_map(|entry| entry.id) {
            let id: ContainerId = id.parse().map_err(|error: mesh_protocol::id::InvalidId| {
                Error::Nonsense { what: what.to_owned(), found: error.to_string() }
            })?;
            // One that went away meanwhile is no longer there.
            containers.extend(self.inspect(&id).await?);
        }
        Ok(containers)
    }

    /// The last lines that a container's program wrote, whichever stream it wrote them to.
    ///
    /// # Errors
    /// `NotFound` when there is no such container.
    pub async fn logs_tail(&self, id: &ContainerId, lines: usize) -> Result<Vec<String>, Error> {
        let what = format!("show the log of container {}", id.short());
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail(&lines.to_string()).build();
        let mut bytes: Vec<u8> = Vec::new();
        let reading = self.client.logs(id.as_str(), Some(options)).try_for_each(|part| {
            bytes.extend_from_slice(&part.into_bytes());
            if bytes.len() > 2 * TAIL_BYTES {
                bytes.drain(..bytes.len() - TAIL_BYTES);
            }
            std::future::ready(Ok(()))
        });
        match self.ask(&what, QUICK, reading).await {
            Ok(()) => Ok(last_lines(&bytes, lines)),
            Err(error) if error.status() == Some(404) => {
                Err(Error::NotFound { what: format!("container {}", id.short()) })
            }
            Err(error) => Err(error),
        }
    }
}

fn last_lines(bytes: &[u8], count: usize) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].iter().map(|&line| line.to_owned()).collect()
}

/// The engine's answer in our words, or what about it makes no sense.
fn container(found: ContainerInspectResponse) -> Result<Container, String> {
    let id = found.id.unwrap_or_default().parse().map_err(|error| format!("{error}"))?;
    let name = found.name.unwrap_or_default();
    let name = name.trim_start_matches('/').parse().map_err(|error| format!("{error}"))?;
    let (state, started_at) = state(&found.state.unwrap_or_default())?;
    let config = found.config.unwrap_or_default();
    let mounts = found.mounts.unwrap_or_default().into_iter().map(|mount| Mount {
        source: PathBuf::from(mount.source.unwrap_or_default()),
        target: PathBuf::from(mount.destination.unwrap_or_default()),
        access: if mount.rw == Some(false) { Access::ReadOnly } else { Access::ReadWrite },
    });
    // The engine tells them in another order each time.
    let mut mounts: Vec<Mount> = mounts.collect();
    mounts.sort_by(|one, other| one.target.cmp(&other.target));
    Ok(Container {
        id,
        name,
        image_id: found.image.unwrap_or_default(),
        image_reference: config.image.unwrap_or_default(),
        state,
        started_at,
        restart_count: found.restart_count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0),
        restart_policy: found
            .host_config
            .and_then(|host| host.restart_policy?.name)
            .map_or_else(|| "no".to_owned(), |name| name.to_string()),
        user: config.user.unwrap_or_default(),
        labels: config.labels.unwrap_or_default().into_iter().collect(),
        mounts,
    })
}

/// The state, and when the container was last started.
fn state(found: &ContainerState) -> Result<(State, Option<Timestamp>), String> {
    let started_at = time("StartedAt", found.started_at.as_deref())?;
    let pid = || {
        let pid = found.pid.unwrap_or(0);
        u32::try_from(pid).ok().filter(|pid| *pid > 0).ok_or(format!("pid {pid} of a running container"))
    };
    let state = match found.status.unwrap_or(Status::EMPTY) {
        Status::CREATED => State::Created,
        Status::RUNNING | Status::STOPPING => State::Running {
            pid: pid()?,
            started_at: started_at.ok_or("a running container without StartedAt")?,
        },
        Status::PAUSED => State::Paused { pid: pid()? },
        Status::RESTARTING => State::Restarting,
        Status::EXITED => State::Exited {
            code: found.exit_code.ok_or("an exited container without ExitCode")?,
            finished_at: time("FinishedAt", found.finished_at.as_deref())?
                .ok_or("an exited container without FinishedAt")?,
            out_of_memory: found.oom_killed.unwrap_or(false),
        },
        Status::REMOVING => State::Removing,
        Status::DEAD => State::Dead,
        Status::EMPTY => return Err("a container without a state".to_owned()),
    };
    Ok((state, started_at))
}

/// The engine writes the year 1 for a time that never was.
fn time(what: &str, text: Option<&str>) -> Result<Option<Timestamp>, String> {
    match text {
        None | Some("") => Ok(None),
        Some(text) if text.starts_with("0001-") => Ok(None),
        Some(text) => match text.parse() {
            Ok(time) => Ok(Some(time)),
            Err(_) => Err(format!("{what} {text:?} is no time")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(status: Status) -> ContainerState {
        ContainerState {
            status: Some(status),
            pid: Some(42),
            exit_code: Some(3),
            oom_killed: Some(false),
            started_at: Some("2026-01-02T03:04:05.123456789Z".to_owned()),
            finished_at: Some("2026-01-02T03:04:06Z".to_owned()),
            ..Default::default()
        }
    }

    #[test]
    fn each_state_has_what_belongs_to_it() {
        let started: Timestamp = "2026-01-02T03:04:05.123456789Z".parse().unwrap();
        let (running, _) = state(&found(Status::RUNNING)).unwrap();
        assert_eq!(running, State::Running { pid: 42, started_at: started });
        let (exited, started_at) = state(&found(Status::EXITED)).unwrap();
        let finished_at = "2026-01-02T03:04:06Z".parse().unwrap();
        assert_eq!(exited, State::Exited { code: 3, finished_at, out_of_memory: false });
        assert_eq!(started_at, Some(started));
        let never =
            ContainerState { started_at: Some("0001-01-01T00:00:00Z".to_owned()), ..found(Status::CREATED) };
        assert_eq!(state(&never).unwrap(), (State::Created, None));
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_said() {
        let no_pid = ContainerState { pid: Some(0), ..found(Status::RUNNING) };
        assert_eq!(state(&no_pid).unwrap_err(), "pid 0 of a running container");
        let no_time = ContainerState { started_at: Some("noon".to_owned()), ..found(Status::RUNNING) };
        assert!(state(&no_time).unwrap_err().contains("noon"));
        state(&ContainerState::default()).unwrap_err();
    }

    #[test]
    fn the_tail_is_the_last_lines() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), ["b", "c"]);
        assert_eq!(last_lines(b"a", 2), ["a"]);
        assert!(last_lines(b"", 2).is_empty());
    }
}
