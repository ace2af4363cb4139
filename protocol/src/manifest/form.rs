//! The manifest as it is typed: sections, keys, and what each is for. Also its JSON Schema, from the same types.
//!
//! In: TOML tables. Out: texts with their places. Not here: whether a text is right (`value`) and whether the
//! parts fit together (`check`).
//!
//! What stands above a field is what an editor shows to whoever writes a manifest, and what an error says of a
//! key that is missing.

use std::collections::BTreeMap;

use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use toml::Spanned;

/// A text with its place.
pub(crate) type Text = Spanned<String>;

macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $pattern:literal;)*) => {$(
        $(#[$doc])*
        #[derive(JsonSchema)]
        #[schemars(inline)]
        #[allow(dead_code, reason = "stands for a text in the schema only")]
        struct $name(#[schemars(regex(pattern = $pattern))] String);
    )*};
}

texts! {
    Name = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
    Version = r"^[0-9]+(\.[0-9]+){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$";
    Replaced = r"^(process|container):[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
    SystemName = r"^linux/(amd64|arm64)$";
    DigestText = r"^sha256:[0-9a-f]{64}$";
    FilePath = r"^\$\{module\.dir\}/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";
    SecretName = r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$";
    ModeText = r"^0?[0-7]{3}$";
    MountSource = r"^\$\{(module\.dir\}(/[A-Za-z0-9_-][A-Za-z0-9._-]{0,127})?|data\.dir\}|run\.dir\})$";
}

/// A module of a mesh: what it is made of, and how it runs.
#[derive(Debug, Default, JsonSchema)]
#[schemars(title = "module.toml", deny_unknown_fields)]
pub(super) struct Forms {
    /// What the module is.
    #[schemars(with = "ModuleForm")]
    pub(super) module: Option<ModuleForm>,
    /// The system accounts that it needs on a node.
    #[serde(default)]
    pub(super) account: Vec<AccountForm>,
    /// Its own programs: one entry a system.
    #[serde(default)]
    pub(super) bundle: Vec<BundleForm>,
    /// The files in its folder on a node.
    #[serde(default)]
    pub(super) file: Vec<FileForm>,
    /// Its own programs, run from bundles.
    #[serde(default)]
    pub(super) process: Vec<ProcessForm>,
    /// Third-party programs, and only they, run from images.
    #[serde(default)]
    pub(super) container: Vec<ContainerForm>,
}

/// What the module is.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ModuleForm {
    /// The module's name: 1 to 63 of a-z, 0-9 and '-'.
    #[schemars(with = "Name")]
    pub(super) name: Text,
    /// The module's version, e.g. 1.4.2; whoever runs it reports the same.
    #[schemars(with = "Version")]
    pub(super) version: Text,
    /// The seat that its one process or container holds: it answers for the whole mesh.
    #[serde(default)]
    #[schemars(with = "Name")]
    pub(super) seat: Option<Text>,
    /// The folder that `binary`, `files` and `build` are relative to, itself relative to the manifest's
    /// folder. Without it: the manifest's folder.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(super) source: Option<Text>,
}

/// A system account.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AccountForm {
    /// The account's name, without the mesh's prefix.
    #[schemars(with = "Name")]
    pub(super) name: Text,
    /// Whether it is there already and is left alone; else the host makes it, and removes it with the module.
    #[serde(default)]
    pub(super) existing: bool,
}

/// A program for one system, with the files it needs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BundleForm {
    /// The bundle's name; the same in each system's entry.
    #[schemars(with = "Name")]
    pub(super) name: Text,
    /// The system that the program is for: linux/amd64 or linux/arm64.
    #[schemars(with = "SystemName")]
    pub(super) system: Text,
    /// The static program, relative to the source folder; in the bundle it lies at the top under its file name.
    #[schemars(with = "String")]
    pub(super) binary: Text,
    /// The words that make the program, run in the source folder.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) build: Option<Spanned<Vec<Text>>>,
    /// What the packed bundle must be: anything else is refused.
    #[serde(default)]
    #[schemars(with = "DigestText")]
    pub(super) digest: Option<Text>,
    /// More files: the path in the bundle, and the file it is taken from, relative to the source folder.
    #[serde(default)]
    #[schemars(with = "BTreeMap<String, String>")]
    pub(super) files: BTreeMap<Text, Text>,
}

/// A file in the module's folder on a node: either a secret or a content.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileForm {
    /// Where it lies: ${module.dir}/NAME.
    #[schemars(with = "FilePath")]
    pub(super) path: Text,
    /// The name of the secret that it is made of; nodes hold secrets, manifests only name them.
    #[serde(default)]
    #[schemars(with = "SecretName")]
    pub(super) secret: Option<Text>,
    /// The whole file, word for word.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(super) content: Option<Text>,
    /// Its permission bits in octal, e.g. "0400".
    #[schemars(with = "ModeText")]
    pub(super) mode: Text,
    /// The account that it belongs to.
    #[schemars(with = "Name")]
    pub(super) account: Text,
}

/// A program of the module's own, run from a bundle.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProcessForm {
    /// The process's name.
    #[schemars(with = "Name")]
    pub(super) name: Text,
    /// The bundle that it runs from, which is its working directory.
    #[schemars(with = "Name")]
    pub(super) bundle: Text,
    /// The program in the bundle, e.g. "./server", and its arguments; ${variables} are filled in.
    #[schemars(with = "Vec<String>")]
    pub(super) run: Spanned<Vec<Text>>,
    /// The account that it runs as.
    #[schemars(with = "Name")]
    pub(super) account: Text,
    /// What it takes the place of, e.g. "container:NAME": that goes when this one has proved itself.
    #[serde(default)]
    #[schemars(with = "Replaced")]
    pub(super) replaces: Option<Text>,
}

/// A third-party program, run from an image.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ContainerForm {
    /// The container's name, without the mesh's prefix.
    #[schemars(with = "Name")]
    pub(super) name: Text,
    /// The image's reference.
    #[schemars(with = "String")]
    pub(super) image: Text,
    /// The arguments of the image's program; ${variables} are filled in.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(super) run: Option<Spanned<Vec<Text>>>,
    /// The account that it runs as.
    #[schemars(with = "Name")]
    pub(super) account: Text,
    /// What of the node it is given.
    #[serde(default)]
    pub(super) mount: Vec<MountForm>,
    /// What it takes the place of, e.g. "container:NAME": that goes when this one has proved itself.
    #[serde(default)]
    #[schemars(with = "Replaced")]
    pub(super) replaces: Option<Text>,
}

impl ContainerForm {
    /// Its arguments, if any.
    pub(super) fn words(&self) -> &[Text] {
        self.run.as_ref().map_or(&[], |run| run.get_ref())
    }
}

/// A file or folder of the node, as a container sees it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MountForm {
    /// On the node: ${module.dir}, a file in it, ${data.dir} or ${run.dir}.
    #[schemars(with = "MountSource")]
    pub(super) source: Text,
    /// In the container; without it: the same as on the node.
    #[serde(default)]
    #[schemars(with = "String")]
    pub(super) target: Option<Text>,
    /// Whether the container may write: "read" or "write".
    pub(super) access: AccessForm,
}

/// Whether something mounted may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub(super) enum AccessForm {
    /// Read only.
    Read,
    /// Read and write.
    Write,
}

/// The JSON Schema of `module.toml`, for editors.
#[must_use]
pub fn schema() -> serde_json::Value {
    schema_of::<Forms>()
}

fn schema_of<T: JsonSchema>() -> serde_json::Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>();
    RecursiveTransform(without_null_default).transform(&mut schema);
    schema.to_value()
}

/// A key that may be left out has no value then: TOML has no null.
fn without_null_default(schema: &mut Schema) {
    if schema.get("default").is_some_and(serde_json::Value::is_null) {
        schema.remove("default");
    }
}

/// The keys of a table, each with what it is for.
pub(super) fn keys_of<T: JsonSchema>() -> BTreeMap<String, String> {
    let schema = schema_of::<T>();
    let Some(properties) = schema.get("properties").and_then(serde_json::Value::as_object) else {
        return BTreeMap::new();
    };
    let meaning = |property: &serde_json::Value| {
        property.get("description").and_then(serde_json::Value::as_str).unwrap_or_default().replace('\n', " ")
    };
    properties.iter().map(|(key, property)| (key.clone(), meaning(property))).collect()
}
