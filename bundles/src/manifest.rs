//! A bundle's entry in an artifact store: an OCI image manifest (image-spec 1.1) for an artifact, and the image index
//! that has one version's bundles for several systems.
//!
//! In: a bundle's configuration and digest. Out: documents whose bytes depend on nothing else (own types, for maps
//! must be sorted). Not here: talking to a store.

use std::collections::BTreeMap;

use mesh_protocol::id::{Digest, System};
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// What kind of artifact a bundle is.
pub const ARTIFACT_TYPE: &str = "application/vnd.mesh.bundle.v1";
/// The media type of a bundle's configuration.
pub const CONFIG_TYPE: &str = "application/vnd.mesh.bundle.config.v1+json";
/// The media type of the archive: the standard one, which every tool can copy.
pub const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// The media type of the manifest itself.
pub const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
/// The media type of an index.
pub const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";

const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";
const CREATED: &str = "org.opencontainers.image.created";
const REVISION: &str = "org.opencontainers.image.revision";
const SOURCE: &str = "org.opencontainers.image.source";

/// Says in an index's annotations what its manifests are. Its field for that, `artifactType`, is lost when tools from
/// before image-spec 1.1 copy it, and with it the index's digest; annotations stay.
pub const INDEX_KIND: &str = "vnd.mesh.artifact-type";

/// A reference to content by what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// The digest of its bytes.
    pub digest: Digest,
    /// How many there are.
    pub size: u64,
    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What the content runs on; in an index only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
}

/// A system, as an index names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The processor.
    pub architecture: String,
    /// Which of them; ours have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Platform {
    /// A system that we know.
    #[must_use]
    pub fn of(system: System) -> Self {
        let (os, architecture) = (system.os().to_owned(), system.architecture().to_owned());
        Self { os, architecture, variant: None }
    }
}

/// A bundle's manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// Always [`MANIFEST_TYPE`].
    pub media_type: String,
    /// [`ARTIFACT_TYPE`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The archive: one.
    pub layers: Vec<Descriptor>,
    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Manifest {
    /// The manifest of a bundle. `created` is the time that its source names (RFC 3339), if any: never the present.
    #[must_use]
    pub fn new(config: &Config, digest: &Digest, size: u64, created: Option<&str>) -> Self {
        let config_bytes = config.to_bytes();
        let Config { name, version, system, build, .. } = config;
        let mut annotations = about(name.as_str(), version);
        let build = build.as_ref();
        let optional = [
            (CREATED, created),
            (REVISION, build.and_then(|build| build.revision.as_deref())),
            (SOURCE, build.and_then(|build| build.source.as_deref())),
        ];
        for (key, value) in optional {
            annotations.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        }
        Self {
            schema_version: 2,
            media_type: MANIFEST_TYPE.to_owned(),
            artifact_type: Some(ARTIFACT_TYPE.to_owned()),
            config: Descriptor::of(CONFIG_TYPE, &config_bytes),
            layers: vec![Descriptor {
                media_type: LAYER_TYPE.to_owned(),
                digest: digest.clone(),
                size,
                annotations: BTreeMap::from([(
                    TITLE.to_owned(),
                    format!("{name}-{version}-{}.tar.gz", system.dashed()),
                )]),
                platform: None,
            }],
            annotations,
        }
    }

    /// The version that it is annotated with.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.annotations.get(VERSION).map(String::as_str)
    }

    /// The time that it is annotated with, if any.
    #[must_use]
    pub fn created(&self) -> Option<&str> {
        self.annotations.get(CREATED).map(String::as_str)
    }

    /// Its bytes in the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical(self)
    }
}

fn about(name: &str, version: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(TITLE.to_owned(), name.to_owned()), (VERSION.to_owned(), version.to_owned())])
}

impl Descriptor {
    /// Of these bytes.
    #[must_use]
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(bytes),
            size: bytes.len() as u64,
            annotations: BTreeMap::new(),
            platform: None,
        }
    }

    /// Of a bundle's manifest, in an index.
    #[must_use]
    pub fn of_bundle(manifest: &[u8], system: System) -> Self {
        Self { platform: Some(Platform::of(system)), ..Self::of(MANIFEST_TYPE, manifest) }
    }
}

/// The bundles of one version, one for each system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// Always [`INDEX_TYPE`].
    pub media_type: String,
    /// The manifests, in the order of their platforms.
    pub manifests: Vec<Descriptor>,
    /// More about it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Index {
    /// The index of a version, of these manifests; of two for one platform the last one is taken.
    #[must_use]
    pub fn new(name: &str, version: &str, manifests: impl IntoIterator<Item = Descriptor>) -> Self {
        // What names no platform is told apart by what it is.
        let key = |one: &Descriptor| match &one.platform {
            Some(platform) => (Some(platform.clone()), None),
            None => (None, Some(one.digest.clone())),
        };
        let by_platform: BTreeMap<_, Descriptor> =
            manifests.into_iter().map(|one| (key(&one), one)).collect();
        let mut annotations = about(name, version);
        annotations.insert(INDEX_KIND.to_owned(), ARTIFACT_TYPE.to_owned());
        let manifests = by_platform.into_values().collect();
        Self { schema_version: 2, media_type: INDEX_TYPE.to_owned(), manifests, annotations }
    }

    /// The manifest for a system.
    #[must_use]
    pub fn of_system(&self, system: System) -> Option<&Descriptor> {
        let platform = Platform::of(system);
        self.manifests.iter().find(|one| one.platform.as_ref() == Some(&platform))
    }

    /// What is for none of the systems that we know: it is somebody else's, and stays.
    pub fn foreign(&self) -> impl Iterator<Item = &Descriptor> {
        let known = System::ALL.map(Platform::of);
        self.manifests.iter().filter(move |one| !one.platform.as_ref().is_some_and(|at| known.contains(at)))
    }

    /// Its bytes in the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        canonical(self)
    }
}

/// The tag of one system's bundle of a version. A tag cannot have a `+`; the manifest has the version as it is.
#[must_use]
pub fn tag_of(config: &Config) -> String {
    system_tag(&config.version, config.system)
}

/// As [`tag_of`], of a version and a system.
#[must_use]
pub fn system_tag(version: &str, system: System) -> String {
    format!("{}-{}", version_tag(version), system.dashed())
}

/// The tag of a version's index.
#[must_use]
pub fn version_tag(version: &str) -> String {
    version.replace('+', "_")
}

/// JSON without white space, keys in the order of the type's fields.
pub(crate) fn canonical<T: Serialize>(value: &T) -> Vec<u8> {
    #[allow(clippy::expect_used)] // our types have string keys only; there is nothing else that can fail
    serde_json::to_vec(value).expect("a type of ours can be written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::BuildInputs;

    fn config() -> Config {
        Config {
            name: "mesh-host".parse().unwrap(),
            version: "1.2.3+build.4".to_owned(),
            system: "linux/amd64".parse().unwrap(),
            entrypoint: "mesh-host".parse().unwrap(),
            files: vec![],
            links: vec![],
            diff_id: Digest::of(b"tar"),
            build: None,
            tool: "test".to_owned(),
        }
    }

    #[test]
    fn the_manifest_is_what_the_image_spec_wants() {
        let manifest = Manifest::new(&config(), &Digest::of(b"archive"), 7, None);
        let text = String::from_utf8(manifest.to_bytes()).unwrap();
        let (config, layer) = (&manifest.config.digest, &manifest.layers[0].digest);
        assert_eq!(
            text,
            format!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","artifactType":"application/vnd.mesh.bundle.v1","config":{{"mediaType":"application/vnd.mesh.bundle.config.v1+json","digest":"{config}","size":{size}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"{layer}","size":7,"annotations":{{"org.opencontainers.image.title":"mesh-host-1.2.3+build.4-linux-amd64.tar.gz"}}}}],"annotations":{{"org.opencontainers.image.title":"mesh-host","org.opencontainers.image.version":"1.2.3+build.4"}}}}"#,
                size = manifest.config.size,
            )
        );
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest);
    }

    #[test]
    fn a_time_is_there_only_when_it_is_given() {
        let created = "2026-01-02T03:04:05Z";
        let manifest = Manifest::new(&config(), &Digest::of(b""), 0, Some(created));
        assert_eq!(manifest.annotations["org.opencontainers.image.created"], created);
    }

    #[test]
    fn a_tag_has_no_plus() {
        assert_eq!(tag_of(&config()), "1.2.3_build.4-linux-amd64");
        assert_eq!(version_tag("1.2.3+build.4"), "1.2.3_build.4");
    }

    #[test]
    fn what_was_built_from_what_is_annotated() {
        let build = BuildInputs {
            source: Some("https://example.org/mesh".to_owned()),
            revision: Some("0123abcd".to_owned()),
            ..BuildInputs::default()
        };
        let manifest = Manifest::new(&config().with_build(build), &Digest::of(b""), 0, None);
        assert_eq!(manifest.annotations[REVISION], "0123abcd");
        assert_eq!(manifest.annotations[SOURCE], "https://example.org/mesh");
    }

    #[test]
    fn an_index_is_in_the_order_of_platforms_whatever_came_first() {
        let one = Descriptor::of_bundle(b"{}", System::LinuxArm64);
        let two = Descriptor::of_bundle(b"{ }", System::LinuxAmd64);
        let riscv = Platform { os: "linux".to_owned(), architecture: "riscv64".to_owned(), variant: None };
        let foreign = Descriptor { platform: Some(riscv), ..one.clone() };
        let index = Index::new("n", "1", [foreign.clone(), one.clone(), two.clone()]);
        assert_eq!(index, Index::new("n", "1", [two.clone(), one.clone(), foreign.clone()]));
        assert_eq!(index.manifests, [two.clone(), one.clone(), foreign.clone()]);
        assert_eq!(index.of_system(System::LinuxArm64), Some(&one));
        assert_eq!(index.foreign().collect::<Vec<_>>(), [&foreign]);
        let newer = Descriptor::of_bundle(b"{  }", System::LinuxAmd64);
        let index = Index::new("n", "1", index.manifests.into_iter().chain([newer.clone()]));
        assert_eq!(index.manifests, [newer, one, foreign]);
    }

    #[test]
    fn an_index_is_what_the_image_spec_wants() {
        let child = Descriptor::of_bundle(b"{}", System::LinuxAmd64);
        let text = String::from_utf8(Index::new("n", "1+2", [child.clone()]).to_bytes()).unwrap();
        assert_eq!(
            text,
            format!(
                r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{}","size":2,"platform":{{"os":"linux","architecture":"amd64"}}}}],"annotations":{{"org.opencontainers.image.title":"n","org.opencontainers.image.version":"1+2","vnd.mesh.artifact-type":"application/vnd.mesh.bundle.v1"}}}}"#,
                child.digest
            )
        );
    }
}
