//! The container engine, in our nouns: images that are there or not, containers that run or do not.
//!
//! In: an endpoint, requests in words of this crate. Out: what the engine has and did, with every answer bounded
//! by a deadline and every refusal classified. This is the only place that knows the engine's client. Not here:
//! what should run and why (the host decides), what goes into an image (bundles), and resource ids.

pub mod container;
pub mod endpoint;
mod engine;
mod error;
pub mod image;
pub mod probe;

pub use container::{
    Access, Container, ContainerId, ContainerName, ContainerRequest, Killed, LabelSelector, Mount, Removed,
    Signal, Started, State, Stopped, User, Waited,
};
pub use endpoint::{Address, Endpoint, EndpointError, Environment, FoundBy};
pub use engine::{Engine, NEWEST_API, OLDEST_API};
pub use error::{ApiVersion, Error, Holder, Silence};
pub use image::{Image, ImageRemoved};
pub use probe::{CgroupVersion, Facts, Swarm};
