//! What is done to containers: each deed can be done twice, and each is addressed by the engine's id.
//!
//! In: a declared container with its places filled in. Out: what the engine did. Not here: when.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mesh_engine::{
    Access as EngineAccess, Container, ContainerId, ContainerName, ContainerRequest, Engine, Error, Mount,
    Signal, User,
};
use mesh_protocol::chain::chain;
use mesh_protocol::declaration::{Access, ContainerSpec, ModuleSection};
use mesh_protocol::id::{Digest, InstanceId, MeshId, ResourceId};
use mesh_protocol::layout::label;
use mesh_protocol::variable;

use crate::fault::Fault;
use crate::place::Place;

/// How long a container may take to end by itself: a controller leaves within 2 s, a registry or bus at once.
pub const GRACE: Duration = Duration::from_secs(10);

/// Whose container it is: what its labels say.
#[derive(Debug, Clone)]
pub struct Tag {
    /// The mesh.
    pub mesh: MeshId,
    /// The resource.
    pub id: ResourceId,
    /// Its spec digest.
    pub digest: Digest,
    /// Its run folder's name.
    pub run: InstanceId,
}

impl Tag {
    fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::from([
            (label::MESH.to_owned(), self.mesh.to_string()),
            (label::RESOURCE.to_owned(), self.id.to_string()),
            (label::SPEC.to_owned(), self.digest.to_string()),
            (label::INSTANCE.to_owned(), self.run.to_string()),
        ])
    }

    fn is_on(&self, labels: &BTreeMap<String, String>) -> bool {
        self.labels().iter().all(|(name, value)| labels.get(name) == Some(value))
    }
}

/// Makes the container and starts it. One that was made for the same tag before is started; a name that is
/// held by anything else is a fault that says by what.
///
/// # Errors
/// What the engine, or the words of the declaration, stood against.
pub async fn create_and_start(
    engine: Engine,
    (name, tag): (String, Tag),
    container: ContainerSpec,
    section: ModuleSection,
    place: Place,
) -> Result<Container, Fault> {
    let request = request(&name, &tag, &container, &section, &place)?;
    let id = match engine.create(&request).await {
        Ok(id) => id,
        Err(Error::Conflict { holder }) if tag.is_on(&holder.labels) => holder.id,
        Err(Error::Conflict { holder }) => {
            let whose = holder.labels.get(label::MESH).map_or_else(
                || "it carries no label of a mesh".to_owned(),
                |mesh| format!("it belongs to mesh {mesh}"),
            );
            return Err(Fault::declared(format!(
                "the name {name:?} is held by container {} ({}), and {whose}: remove or rename it, then retry",
                holder.id.short(),
                holder.state
            )));
        }
        Err(error @ Error::NotFound { .. }) => return Err(Fault::declared(chain(&error))),
        Err(error) => return Err(Fault::surroundings(chain(&error))),
    };
    start(engine, id).await
}

/// Starts a container that is there.
///
/// # Errors
/// What the engine stood against; that it is gone.
pub async fn start(engine: Engine, id: ContainerId) -> Result<Container, Fault> {
    match engine.start(&id).await {
        Ok(_) => {}
        // The engine says so when the program cannot be executed: that is the image's fault, not its own.
        Err(error @ Error::Refused { status: Some(400..=499), .. }) => {
            return Err(Fault::declared(chain(&error)));
        }
        Err(error) => return Err(Fault::surroundings(chain(&error))),
    }
    match engine.inspect(&id).await {
        Ok(Some(container)) => Ok(container),
        Ok(None) => {
            Err(Fault::surroundings(format!("container {} was removed while it started", id.short())))
        }
        Err(error) => Err(Fault::surroundings(chain(&error))),
    }
}

/// Ends a container: with its grace, or at once.
///
/// # Errors
/// What the engine stood against.
pub async fn end(engine: Engine, id: ContainerId, grace: Option<Duration>) -> Result<(), Fault> {
    let ended = match grace {
        Some(grace) => engine.stop(&id, grace).await.map(|_| ()),
        None => engine.kill(&id, Signal::Kill).await.map(|_| ()),
    };
    ended.map_err(|error| Fault::surroundings(chain(&error)))
}

/// Ends and removes a container.
///
/// # Errors
/// What the engine stood against.
pub async fn remove(engine: Engine, id: ContainerId) -> Result<(), Fault> {
    end(engine.clone(), id.clone(), Some(GRACE)).await?;
    engine.remove(&id).await.map(|_| ()).map_err(|error| Fault::surroundings(chain(&error)))
}

fn request(
    name: &str,
    tag: &Tag,
    container: &ContainerSpec,
    section: &ModuleSection,
    place: &Place,
) -> Result<ContainerRequest, Fault> {
    let values = place.values();
    let fill = |text: &str| {
        variable::expand(text, &values)
            .map_err(|error| Fault::declared(format!("{} of module {}: {error}", tag.id, section.name)))
    };
    let mounts = container.mounts.iter().map(|mount| {
        let access = match mount.access {
            Access::Read => EngineAccess::ReadOnly,
            Access::Write => EngineAccess::ReadWrite,
        };
        let (source, target) = (fill(&mount.source)?, fill(&mount.target)?);
        Ok(Mount { source: PathBuf::from(source), target: PathBuf::from(target), access })
    });
    Ok(ContainerRequest {
        name: name.parse::<ContainerName>().map_err(|error| Fault::declared(error.to_string()))?,
        image: container.image.clone(),
        command: container.run.iter().map(|word| fill(word)).collect::<Result<_, _>>()?,
        user: User { uid: place.uid, gid: place.gid },
        working_directory: None,
        mounts: mounts.collect::<Result<_, Fault>>()?,
        labels: tag.labels(),
    })
}
