//! Of what the model's mesh is made: one node, one module that holds the seat, in four forms.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mesh_protocol::declaration::{ContainerSpec, Declaration, FORMAT, ModuleSection, Owner};
use mesh_protocol::id::{Digest, Generation, MeshId, NodeName, System, Token};
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::{ModuleRecord, Published};
use mesh_protocol::report::SecretHeld;
use mesh_protocol::section::{self, NodeContext};

/// One form of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Spec {
    /// Genesis's container.
    Container,
    /// Three versions of the process.
    One,
    Two,
    Three,
}

impl Spec {
    pub(crate) const ALL: [Self; 4] = [Self::Container, Self::One, Self::Two, Self::Three];

    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::Container => "0.1.0",
            Self::One => "1.0.0",
            Self::Two => "2.0.0",
            Self::Three => "3.0.0",
        }
    }

    pub(crate) fn of_version(version: &str) -> Self {
        Self::ALL.into_iter().find(|spec| spec.version() == version).unwrap()
    }

    const fn revision(self) -> u64 {
        match self {
            Self::Container => 0,
            Self::One => 1,
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    pub(crate) fn program(self) -> Digest {
        Digest::of(self.version().as_bytes())
    }
}

pub(crate) fn mesh() -> MeshId {
    "m1".parse().unwrap()
}

pub(crate) fn node() -> NodeName {
    "n1".parse().unwrap()
}

fn manifest(version: &str) -> String {
    format!(
        "[module]\nname = \"mesh-controller\"\nversion = \"{version}\"\nseat = \"mesh-controller\"\n\
         [[account]]\nname = \"mesh-controller\"\n\
         [[bundle]]\nname = \"mesh-controller\"\nsystem = \"linux/amd64\"\nbinary = \"c\"\n\
         [[process]]\nname = \"mesh-controller\"\nbundle = \"mesh-controller\"\n\
         run = [\"./c\", \"--version-is\", \"{version}\"]\naccount = \"mesh-controller\"\n\
         replaces = \"container:mesh-controller\"\n"
    )
}

pub(crate) fn module(spec: Spec, revision: u64) -> ModuleRecord {
    let published = Published { digest: spec.program(), size: 1 };
    let bundles = BTreeMap::from([(System::LinuxAmd64, published)]);
    ModuleRecord {
        name: "mesh-controller".parse().unwrap(),
        revision,
        version: spec.version().to_owned(),
        manifest: manifest(spec.version()),
        bundles: BTreeMap::from([("mesh-controller".parse().unwrap(), bundles)]),
        nodes: vec![node()],
        plan: Some(format!("plan-{revision}").parse().unwrap()),
        time: Timestamp::UNIX_EPOCH,
        again: None,
    }
}

pub(crate) fn secrets() -> Vec<SecretHeld> {
    Vec::new()
}

/// The section of one form, under the revision in which it comes.
pub(crate) fn section(spec: Spec) -> ModuleSection {
    if spec == Spec::Container {
        return ModuleSection {
            name: "mesh-controller".parse().unwrap(),
            version: spec.version().to_owned(),
            revision: 0,
            seat: Some("mesh-controller".parse().unwrap()),
            manifest: String::new(),
            accounts: vec![],
            bundles: vec![],
            files: vec![],
            processes: vec![],
            containers: vec![ContainerSpec {
                name: "mesh-controller".parse().unwrap(),
                image: "mesh.local/c:1".to_owned(),
                run: vec![],
                owner: Owner::User(65534),
                mounts: vec![],
                replaces: None,
            }],
        };
    }
    let record = module(spec, spec.revision());
    let manifest = Manifest::parse("module.toml", &record.manifest).unwrap();
    let context = NodeContext {
        system: System::LinuxAmd64,
        bundles: &record.bundles,
        secrets: &secrets(),
        revision: record.revision,
    };
    section::compose(&manifest, &context).unwrap()
}

/// The declaration that the node has when the model begins.
pub(crate) fn first_declaration(spec: Spec) -> Declaration {
    let mut declaration = Declaration {
        format: FORMAT,
        mesh: mesh(),
        node: node(),
        generation: Generation::FIRST,
        token: Token::default(),
        issued: vec![],
        plan: None,
        modules: vec![section(spec)],
        adopted: vec![],
    };
    declaration.issued = vec![declaration.issued()];
    declaration
}
