//! The names and numbers that travel, each as a type of its own, so that none is mistaken for another.
//!
//! In: strings and numbers at the edge (arguments, TOML, JSON). Out: values that are right by
//! construction. Not here: what the things named are, or where they lie.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;

/// Why a text is not the name, digest or number that it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: expected {expected}")]
pub struct InvalidId {
    /// The kind of thing, in words: "node name".
    pub what: &'static str,
    /// The text as it was found.
    pub found: String,
    /// What would have been right.
    pub expected: &'static str,
}

/// Every name is a DNS label (RFC 1123, section 2.1) of at most 63 bytes: it goes, unescaped, into NATS
/// subjects, engine names, file names and account names, and the label is what all of them accept.
fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

const LABEL: &str = "1 to 63 of a-z, 0-9 and '-', neither first nor last a '-'";

macro_rules! label {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                if is_label(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidId { what: $what, found: text.to_owned(), expected: LABEL })
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

label!(
    /// Tells one mesh from every other, for ever: made at random, once, by genesis.
    MeshId,
    "mesh id"
);
label!(
    /// What people call a mesh; typed by hand to destroy it.
    MeshName,
    "mesh name"
);
label!(
    /// A machine of the mesh.
    NodeName,
    "node name"
);
label!(
    /// A unit of software.
    ModuleName,
    "module name"
);
label!(
    /// What an instance holds when it answers for the whole mesh, e.g. `mesh-controller`.
    SeatName,
    "seat name"
);
label!(
    /// A system account, without the mesh's prefix.
    AccountName,
    "account name"
);
label!(
    /// One run of one process or container; given by its host.
    InstanceId,
    "instance id"
);
label!(
    /// A plan, which is also the id of the request that asked for it.
    PlanId,
    "plan id"
);
label!(
    /// The name part of a resource id that is not a file.
    ResourceName,
    "resource name"
);

/// The sha256 of some bytes, written `sha256:` and 64 hexadecimal digits in lower case, as OCI
/// image-spec 1.1 has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_sha256(sha2::Sha256::digest(bytes).into())
    }

    /// The digest whose 32 bytes are known, as after hashing while streaming.
    #[must_use]
    pub fn from_sha256(bytes: [u8; 32]) -> Self {
        Self(format!("sha256:{}", data_encoding::HEXLOWER.encode(&bytes)))
    }

    /// The digest of a value's canonical JSON: keys in the order of the type's fields (maps are
    /// `BTreeMap`s throughout), no white space.
    ///
    /// # Panics
    /// Never for the types of this crate: none has a map whose key is not a string.
    #[must_use]
    pub fn of_json<T: Serialize>(value: &T) -> Self {
        #[allow(clippy::expect_used)]
        // a type of ours that cannot be written is a fault of the type
        let bytes = serde_json::to_vec(value).expect("a wire type can be written as JSON");
        Self::of(&bytes)
    }

    /// With its algorithm: `sha256:…`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hexadecimal digits alone.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// The first 12 digits, for people and for folder names where the full digest is recorded beside.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.hex()[..12]
    }
}

impl FromStr for Digest {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let right = |hex: &str| {
            hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        match text.strip_prefix("sha256:") {
            Some(hex) if right(hex) => Ok(Self(text.to_owned())),
            _ => Err(InvalidId {
                what: "digest",
                found: text.to_owned(),
                expected: "sha256: and 64 hexadecimal digits in lower case",
            }),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Operating system and processor, in Go's words, as OCI platforms have them: `linux/amd64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub enum System {
    /// `linux/amd64`
    LinuxAmd64,
    /// `linux/arm64`
    LinuxArm64,
}

impl System {
    /// Every system there is a name for.
    pub const ALL: [Self; 2] = [Self::LinuxAmd64, Self::LinuxArm64];

    /// The system this program was built for.
    #[must_use]
    pub const fn of_this_program() -> Self {
        if cfg!(target_arch = "aarch64") { Self::LinuxArm64 } else { Self::LinuxAmd64 }
    }

    /// `linux`
    #[must_use]
    pub const fn os(self) -> &'static str {
        "linux"
    }

    /// `amd64`
    #[must_use]
    pub const fn architecture(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "amd64",
            Self::LinuxArm64 => "arm64",
        }
    }

    /// `linux-amd64`, for file names.
    #[must_use]
    pub const fn dashed(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "linux-amd64",
            Self::LinuxArm64 => "linux-arm64",
        }
    }
}

impl FromStr for System {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::ALL.into_iter().find(|system| system.to_string() == text).ok_or(InvalidId {
            what: "system",
            found: text.to_owned(),
            expected: "linux/amd64 or linux/arm64",
        })
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os(), self.architecture())
    }
}

/// What kind of thing a resource is. The order is the order in which the host makes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A system account.
    Account,
    /// A bundle, fetched and unpacked.
    Bundle,
    /// A file in a module's folder.
    File,
    /// A program from a bundle.
    Process,
    /// A third-party program from an image; or the controller during genesis.
    Container,
}

impl ResourceKind {
    /// Every kind, in the order in which the host makes them.
    pub const ALL: [Self; 5] = [Self::Account, Self::Bundle, Self::File, Self::Process, Self::Container];

    /// `account`, `bundle`, …
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Bundle => "bundle",
            Self::File => "file",
            Self::Process => "process",
            Self::Container => "container",
        }
    }
}

/// `kind:name`, e.g. `container:mesh-controller`. A file's name is `module/name`, for a file belongs to
/// its module; every other name stands for itself on its node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct ResourceId {
    kind: ResourceKind,
    name: String,
}

impl ResourceId {
    /// An account, bundle, process or container.
    #[must_use]
    pub fn new(kind: ResourceKind, name: &ResourceName) -> Self {
        Self { kind, name: name.as_str().to_owned() }
    }

    /// An account.
    #[must_use]
    pub fn account(name: &AccountName) -> Self {
        Self { kind: ResourceKind::Account, name: name.as_str().to_owned() }
    }

    /// A file of a module.
    #[must_use]
    pub fn file(module: &ModuleName, name: &str) -> Self {
        Self { kind: ResourceKind::File, name: format!("{module}/{name}") }
    }

    /// A process.
    #[must_use]
    pub fn process(name: &ResourceName) -> Self {
        Self::new(ResourceKind::Process, name)
    }

    /// A container.
    #[must_use]
    pub fn container(name: &ResourceName) -> Self {
        Self::new(ResourceKind::Container, name)
    }

    /// What kind of thing it is.
    #[must_use]
    pub const fn kind(&self) -> ResourceKind {
        self.kind
    }

    /// Its name, without the kind.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for ResourceId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let invalid = || InvalidId {
            what: "resource id",
            found: text.to_owned(),
            expected: "kind:name, the kind one of account, bundle, file, process, container, e.g. container:mesh-controller",
        };
        let (kind, name) = text.split_once(':').ok_or_else(invalid)?;
        let kind = ResourceKind::ALL.into_iter().find(|k| k.as_str() == kind).ok_or_else(invalid)?;
        let right = match (kind, name.split_once('/')) {
            (ResourceKind::File, Some((module, file))) => is_label(module) && is_file_name(file),
            (ResourceKind::File, None) | (_, Some(_)) => false,
            (_, None) => is_label(name),
        };
        if right { Ok(Self { kind, name: name.to_owned() }) } else { Err(invalid()) }
    }
}

/// A file's own name within its module: what remains of its path behind `${module.dir}/`.
#[must_use]
pub fn is_file_name(text: &str) -> bool {
    let right = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    !text.is_empty() && text.len() <= 128 && text.bytes().all(right) && !text.starts_with('.')
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.as_str(), self.name)
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(System, ResourceId);

/// The number of a node's declaration: 1 is genesis's own, each later one is higher.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The one that only a host which never had another accepts.
    pub const FIRST: Self = Self(1);

    /// The one after.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What the holder of the plan lock writes under. Ordered: a higher token is a later holder. The epoch
/// rises with every holder; the revision is the lock key's own, which a bus that lost its last minute may
/// give out twice, and the epoch then still tells the two apart.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct Token {
    /// Raised by each new holder.
    pub epoch: u64,
    /// The revision of the lock's key when it was taken.
    pub revision: u64,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.revision)
    }
}

#[cfg(test)]
mod tests;
