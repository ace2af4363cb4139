//! How a container of ours is made: always confined the same way.
//!
//! In: a request. Out: the id of a container that is created and not started, or who holds its name.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount as EngineMount, MountType,
    RestartPolicy, RestartPolicyNameEnum,
};
use bollard::query_parameters::CreateContainerOptionsBuilder;

use super::{Access, ContainerId, ContainerRequest, Mount};
use crate::engine::{Engine, WORK, bounded};
use crate::error::{Error, Holder};

/// The engine's log has no limit of its own. Three files of ten megabytes are days of what our programs say.
const LOG_FILE_SIZE: &str = "10m";
const LOG_FILES: &str = "3";

/// How often a name is asked for again whose holder is just going away.
const NAME_RETRY: Duration = Duration::from_millis(50);

/// How long a holder that cannot be looked at may take to go away: the engine gives a name back within
/// milliseconds of the container's end, or after storage was cleaned.
const NAME_LIMIT: Duration = Duration::from_secs(30);

impl Engine {
    /// Creates a container and does not start it.
    ///
    /// # Errors
    /// `Conflict` with the holder when the name is held, `NotFound` when the image is not there.
    pub async fn create(&self, request: &ContainerRequest) -> Result<ContainerId, Error> {
        let what = format!("create container {:?}", request.name.as_str());
        bounded(&what, NAME_LIMIT + WORK, self.create_until_told(&what, request)).await?
    }

    async fn create_until_told(&self, what: &str, request: &ContainerRequest) -> Result<ContainerId, Error> {
        let began = tokio::time::Instant::now();
        loop {
            let options = CreateContainerOptionsBuilder::new().name(request.name.as_str()).build();
            // Boxed: the client keeps the whole body, some twenty kilobytes, in the future itself.
            let creating = Box::pin(self.client.create_container(Some(options), body(request)));
            let refusal = match self.have(what, WORK, creating).await {
                Ok(created) => {
                    return created.id.parse().map_err(|error| Error::Nonsense {
                        what: what.to_owned(),
                        found: format!("{error}"),
                    });
                }
                Err(Error::Refused { status: Some(404), message, .. })
                    if message.contains("No such image") || message.contains("no such image") =>
                {
                    return Err(Error::NotFound { what: format!("image {:?}", request.image) });
                }
                Err(refusal) if refusal.status() == Some(409) => refusal,
                Err(other) => return Err(other),
            };
            // The name is also refused while its holder is being made or removed, when it cannot be looked at.
            if let Some(holder) = self.find(&request.name).await? {
                let holder =
                    Holder { id: holder.id, name: holder.name, state: holder.state, labels: holder.labels };
                return Err(Error::Conflict { holder: Box::new(holder) });
            }
            if began.elapsed() > NAME_LIMIT {
                return Err(refusal);
            }
            tokio::time::sleep(NAME_RETRY).await;
        }
    }
}

/// The request in the engine's words.
fn body(request: &ContainerRequest) -> ContainerCreateBody {
    ContainerCreateBody {
        image: Some(request.image.clone()),
        // An image keeps its entry point, which differs between an official image and one assembled here; what
        // is given stands in the place of the image's default arguments. Nothing given: as the image says.
        cmd: (!request.command.is_empty()).then(|| request.command.clone()),
        env: Some(Vec::new()),
        user: Some(request.user.to_string()),
        working_dir: request.working_directory.as_ref().map(|path| path.display().to_string()),
        labels: Some(request.labels.clone().into_iter().collect()),
        stop_signal: Some("SIGTERM".to_owned()),
        // The host checks what it runs; an image's own check would only cost.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..Default::default() }),
        host_config: Some(HostConfig {
            network_mode: Some("host".to_owned()),
            // The users of files and accounts are the machine's, also where the engine maps users.
            userns_mode: Some("host".to_owned()),
            mounts: Some(request.mounts.iter().map(mount).collect()),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            // The host alone starts things: with any other policy the engine would bring them back.
            restart_policy: Some(RestartPolicy {
                name: Some(RestartPolicyNameEnum::NO),
                maximum_retry_count: None,
            }),
            auto_remove: Some(false),
            init: Some(false),
            log_config: Some(HostConfigLogConfig {
                typ: Some("json-file".to_owned()),
                config: Some(HashMap::from([
                    ("max-size".to_owned(), LOG_FILE_SIZE.to_owned()),
                    ("max-file".to_owned(), LOG_FILES.to_owned()),
                ])),
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// As a mount and not as a bind: a source that does not exist is refused instead of made.
fn mount(mount: &Mount) -> EngineMount {
    EngineMount {
        source: Some(mount.source.display().to_string()),
        target: Some(mount.target.display().to_string()),
        typ: Some(MountType::BIND),
        read_only: Some(mount.access == Access::ReadOnly),
        ..Default::default()
    }
}
