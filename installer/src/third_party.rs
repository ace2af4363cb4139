//! The two third-party modules of every mesh: the bus and the artifact store.
//!
//! In: an image's reference. Out: their manifests, complete, and the secrets that they need. Not here: getting the
//! images into the engine (`genesis::steps::images`), and pushing.

use camino::Utf8Path;
use mesh_protocol::id::ModuleName;
use mesh_protocol::manifest::Manifest;

use crate::output::{Code, Failure, Result};

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThirdParty {
    /// NATS with JetStream.
    Bus,
    /// A registry.
    Store,
}

/// What stands in a template for the image's reference.
const IMAGE: &str = "@IMAGE@";

impl ThirdParty {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bus, Self::Store];

    /// The module's name, which is its container's too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bus => "mesh-bus",
            Self::Store => "mesh-store",
        }
    }

    /// The module's name.
    ///
    /// # Errors
    /// Never, for the names are right.
    pub fn module(self) -> Result<ModuleName> {
        self.name().parse().map_err(|error| Failure::of(Code::Internal, &error))
    }

    /// The program, as Debian calls it.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::Bus => "nats-server",
            Self::Store => "docker-registry",
        }
    }

    /// The official image, which is used where it is in the engine or can be pulled.
    #[must_use]
    pub const fn official_image(self) -> &'static str {
        match self {
            Self::Bus => "docker.io/library/nats:2.10",
            Self::Store => "docker.io/library/registry:2.8.3",
        }
    }

    /// What its program is given before the arguments of its manifest, where the image is assembled here: the
    /// official images have entry points, and the same arguments must do for both.
    #[must_use]
    pub const fn entry_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Bus => &[],
            Self::Store => &["serve"],
        }
    }

    const fn template(self) -> &'static str {
        match self {
            Self::Bus => include_str!("../modules/mesh-bus/module.toml"),
            Self::Store => include_str!("../modules/mesh-store/module.toml"),
        }
    }

    /// Its manifest with an image.
    ///
    /// # Errors
    /// When the reference makes no valid manifest.
    pub fn manifest(self, image: &str) -> Result<Manifest> {
        let (_, text) = self.template().split_once("[module]").unwrap_or(("", self.template()));
        let text = format!("[module]{}", text.replace(IMAGE, image));
        Manifest::parse(&format!("{}/module.toml", self.name()), &text).map_err(|errors| {
            Failure::new(Code::ManifestInvalid, format!("the manifest of {} is not valid", self.name()))
                .details(errors.all().iter().map(ToString::to_string))
        })
    }
}

/// What Debian's docker-registry and the official image read: distribution's configuration, version 0.1.
#[must_use]
pub fn store_configuration(port: u16, data: &Utf8Path) -> String {
    format!(
        "version: 0.1\n\
         log:\n  level: warn\n  accesslog:\n    disabled: true\n\
         storage:\n  filesystem:\n    rootdirectory: {data}\n  delete:\n    enabled: true\n\
         http:\n  addr: 127.0.0.1:{port}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_manifests_are_right_with_any_image() {
        for third_party in ThirdParty::ALL {
            for image in [third_party.official_image(), "mesh.local/x:0123456789ab"] {
                let manifest = third_party.manifest(image).unwrap();
                assert_eq!(manifest.name.as_str(), third_party.name());
                assert_eq!(manifest.containers[0].image, image);
                assert!(!manifest.text.contains(IMAGE), "{}", manifest.text);
            }
        }
    }

    #[test]
    fn the_store_listens_on_the_loopback_only() {
        insta::assert_snapshot!(store_configuration(5000, Utf8Path::new("/r/data/mesh-store")), @r"
        version: 0.1
        log:
          level: warn
          accesslog:
            disabled: true
        storage:
          filesystem:
            rootdirectory: /r/data/mesh-store
          delete:
            enabled: true
        http:
          addr: 127.0.0.1:5000
        ");
    }
}
