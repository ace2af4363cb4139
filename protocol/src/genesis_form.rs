//! What the genesis container is given: `controller/genesis.toml`, thing by thing, and the section that the host
//! raises it from.
//!
//! The controller's manifest has the process form only, so that no verb and no rollback ever brings the container
//! back. In: the form, the manifest, the image's reference, the secrets. Out: a section for generation 1, or why
//! there can be none; and where form and manifest disagree ([`agree`]), for what is mounted here becomes what is
//! declared there. Not here: the image, and raising anything.

mod agree;

use schemars::JsonSchema;
use serde::Deserialize;
use toml::Spanned;

use crate::declaration::{Access, ContainerSpec, FileSpec, ModuleSection, MountSpec, Owner};
use crate::id::{ResourceId, ResourceKind, ResourceName};
use crate::manifest::fault::{Code, Faults};
use crate::manifest::form::Text;
use crate::manifest::value::{self, Holds, Need};
use crate::manifest::{MODULE_DIR, Manifest, ManifestErrors, read};
use crate::report::SecretHeld;
use crate::section::{Missing, secret, sort};

pub use agree::{Disagreement, agree, mounts_table};

/// The form's file name, beside the manifest.
pub const FILE_NAME: &str = "genesis.toml";

/// Whom the genesis container runs as: nobody, for no account can be declared before there is a controller.
pub const USER: u32 = 65534;

/// The containers of the bus and of the store, which no controller takes the place of.
const TAKEN: [&str; 2] = ["mesh-bus", "mesh-store"];

const RUN_DIR: &str = "${run.dir}";

/// What the genesis container is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenesisForm {
    /// The program in the bundle that it wears, and its arguments.
    pub run: Vec<String>,
    /// What is mounted, each at the same path as on the node.
    pub mounts: Vec<GenesisMount>,
}

/// One thing that the genesis container is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenesisMount {
    /// What.
    pub given: Given,
    /// What it is for, in words.
    pub meaning: String,
}

/// What is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// A file made of a secret, to be read.
    Secret {
        /// What stands behind `${module.dir}/` in its path.
        file: String,
        /// The secret's name.
        secret: String,
        /// Permission bits.
        mode: u32,
    },
    /// The run folder, in which the instance says what role it follows.
    RunFolder,
}

impl GenesisMount {
    /// Its path, as manifests write it.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.given {
            Given::Secret { file, .. } => format!("{MODULE_DIR}/{file}"),
            Given::RunFolder => RUN_DIR.to_owned(),
        }
    }
}

/// Why there can be no genesis container for a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// No seat.
    #[error("the manifest of {module} has no seat: expected seat = \"mesh-controller\" in [module]")]
    NoSeat {
        /// The module.
        module: String,
    },
    /// No process.
    #[error(
        "the manifest of {module} has no process: expected exactly one [[process]], which takes the seat over"
    )]
    NoProcess {
        /// The module.
        module: String,
    },
    /// The process replaces nothing.
    #[error(
        "process:{process} has no `replaces`: expected replaces = \"container:NAME\", which names the container that genesis raises"
    )]
    ReplacesMissing {
        /// The process.
        process: ResourceName,
    },
    /// The process replaces a process.
    #[error(
        "process:{process} replaces {found}: expected container:NAME, for what genesis raises is a container and it bears this name"
    )]
    ReplacesNoContainer {
        /// The process.
        process: ResourceName,
        /// What it replaces.
        found: ResourceId,
    },
    /// The process replaces the bus or the store.
    #[error(
        "process:{process} replaces {found}, which the bus or the artifact store runs as: expected another name, e.g. container:mesh-controller"
    )]
    ReplacesTaken {
        /// The process.
        process: ResourceName,
        /// What it replaces.
        found: ResourceId,
    },
    /// A secret is not there.
    #[error(transparent)]
    Missing(#[from] Missing),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Form {
    /// The program in the bundle, and its arguments.
    #[schemars(with = "Vec<String>")]
    run: Spanned<Vec<Text>>,
    /// What the container is given.
    #[serde(default)]
    mount: Vec<MountForm>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MountForm {
    /// Where it lies: ${module.dir}/NAME, or ${run.dir}.
    #[schemars(with = "String")]
    path: Text,
    /// The name of the secret that it is made of.
    #[serde(default)]
    #[schemars(with = "String")]
    secret: Option<Text>,
    /// Its permission bits in octal.
    #[serde(default)]
    #[schemars(with = "String")]
    mode: Option<Text>,
    /// What it is for.
    #[schemars(with = "String")]
    meaning: Text,
}

impl GenesisForm {
    /// Reads the form. `path` is for messages, as the user gave it.
    ///
    /// # Errors
    /// All that is wrong with it, in the order of its lines.
    pub fn parse(path: &str, text: &str) -> Result<Self, ManifestErrors> {
        let mut faults = Faults::new(path, text);
        let form = read::table::<Form, MountForm>(text, FILE_NAME, "mount", &mut faults);
        let form = form.and_then(|form| {
            let run = value::words(&form.run, Need::Program, &mut faults);
            let mounts = value::every(&form.mount, |form| mount(form, &mut faults));
            Some(Self { run: run?, mounts: mounts? })
        });
        faults.into_result(form)
    }
}

fn mount(form: &MountForm, faults: &mut Faults<'_>) -> Option<GenesisMount> {
    let meaning = form.meaning.get_ref().clone();
    if form.path.get_ref() == RUN_DIR {
        if let Some(key) = form.secret.as_ref().or(form.mode.as_ref()) {
            let found = format!("`secret` or `mode` of {RUN_DIR}");
            faults.add(
                key.span(),
                Code::InvalidMount,
                found,
                "`path` and `meaning` only: the host makes the folder",
            );
            return None;
        }
        return Some(GenesisMount { given: Given::RunFolder, meaning });
    }
    let file = value::file_path(&form.path, faults);
    let secret = needed("secret", form.secret.as_ref(), form, faults)
        .and_then(|text| value::secret_name(text, faults));
    let mode = needed("mode", form.mode.as_ref(), form, faults)
        .and_then(|text| value::mode(text, Holds::Secret, faults));
    Some(GenesisMount { given: Given::Secret { file: file?, secret: secret?, mode: mode? }, meaning })
}

fn needed<'a>(
    key: &str,
    text: Option<&'a Text>,
    form: &MountForm,
    faults: &mut Faults<'_>,
) -> Option<&'a Text> {
    if text.is_none() {
        let found = format!("no `{key}` for {}", form.path.get_ref());
        faults.add(
            form.path.span(),
            Code::MissingKey,
            found,
            format!("`{key}`, as the manifest's [[file]] has it"),
        );
    }
    text
}

/// The name of the container that genesis raises: what the manifest's process replaces.
///
/// # Errors
/// When the manifest is not one of a process that takes a seat over from a container.
pub fn container_name(manifest: &Manifest) -> Result<ResourceName, FormError> {
    let module = manifest.name.to_string();
    if manifest.seat.is_none() {
        return Err(FormError::NoSeat { module });
    }
    let Some(process) = manifest.processes.first() else {
        return Err(FormError::NoProcess { module });
    };
    let Some(target) = &process.replaces else {
        return Err(FormError::ReplacesMissing { process: process.name.clone() });
    };
    let no_container =
        || FormError::ReplacesNoContainer { process: process.name.clone(), found: target.clone() };
    if target.kind() != ResourceKind::Container {
        return Err(no_container());
    }
    if TAKEN.contains(&target.name()) {
        return Err(FormError::ReplacesTaken { process: process.name.clone(), found: target.clone() });
    }
    target.name().parse().map_err(|_| no_container())
}

/// The section of generation 1 from which the host raises the genesis container. `image` is the bundle worn as an
/// image.
///
/// # Errors
/// All that stands in its way: see [`container_name`], and every secret that is not there.
pub fn section(
    form: &GenesisForm,
    manifest: &Manifest,
    image: &str,
    secrets: &[SecretHeld],
) -> Result<ModuleSection, Vec<FormError>> {
    let mut errors = Vec::new();
    let mut files = Vec::new();
    let mut mounts = Vec::new();
    for mount in &form.mounts {
        let path = mount.path();
        let access = match &mount.given {
            Given::RunFolder => Access::Write,
            Given::Secret { file, secret: name, mode } => {
                match secret(&manifest.name, name, secrets) {
                    Ok(source) => {
                        let owner = Owner::User(USER);
                        files.push(FileSpec { name: file.clone(), source, mode: *mode, owner });
                    }
                    Err(missing) => errors.push(missing.into()),
                }
                Access::Read
            }
        };
        mounts.push(MountSpec { source: path.clone(), target: path, access });
    }
    let name = match container_name(manifest) {
        Ok(name) if errors.is_empty() => name,
        Ok(_) => return Err(errors),
        Err(error) => {
            errors.insert(0, error);
            return Err(errors);
        }
    };
    let container = ContainerSpec {
        name,
        image: image.to_owned(),
        run: form.run.clone(),
        owner: Owner::User(USER),
        mounts,
        replaces: None,
    };
    let mut section = ModuleSection {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        revision: 0,
        seat: manifest.seat.clone(),
        manifest: manifest.text.clone(),
        accounts: Vec::new(),
        bundles: Vec::new(),
        files,
        processes: Vec::new(),
        containers: vec![container],
    };
    sort(&mut section);
    Ok(section)
}

#[cfg(test)]
mod tests;
