//! The registration gate: images are for third-party programs, and for nothing else.
//!
//! In: a `[[container]]` as it was typed. Out: a refusal where it says how its image is built, for then it is
//! the module's own code. Not here: any exemption; there is none, for no module.

use toml::de::DeTable;

use super::fault::{Code, Faults};

/// The key that tells an image of the module's own code.
const BUILD: &str = "build";

/// Refuses a container with a `build` key, and takes the key out, so that nothing else is said of it.
pub(super) fn pass(container: &mut DeTable<'_>, faults: &mut Faults<'_>) {
    if let Some((key, _)) = container.remove_entry(BUILD) {
        faults.add(
            key.span(),
            Code::ContainerBuild,
            "a [[container]] with a `build` key: an image of the module's own code",
            "no `build` in a container: ship it as a bundle and a process",
        );
    }
}
