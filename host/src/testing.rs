//! Small things of which the tests of several rooms are made.

use mesh_protocol::declaration::{
    AccountOrigin, AccountSpec, BundleSpec, ContainerSpec, Declaration, FORMAT, ModuleSection, Owner,
    ProcessSpec,
};
use mesh_protocol::door::{LedgerEntry, Standing};
use mesh_protocol::id::{Digest, Generation, ResourceId, Token};

/// A module that holds the seat, as a process that replaces this.
pub(crate) fn process_section(word: &str, replaces: Option<&str>) -> ModuleSection {
    ModuleSection {
        processes: vec![ProcessSpec {
            name: "mesh-controller".parse().unwrap(),
            bundle: "mesh-controller".parse().unwrap(),
            run: vec!["./mesh-controller".to_owned(), word.to_owned()],
            account: "mesh-controller".parse().unwrap(),
            replaces: replaces.map(|id| id.parse().unwrap()),
        }],
        bundles: vec![BundleSpec {
            name: "mesh-controller".parse().unwrap(),
            digest: Digest::of(b"bundle"),
            size: 6,
        }],
        accounts: vec![AccountSpec { name: "mesh-controller".parse().unwrap(), origin: AccountOrigin::Made }],
        ..empty_section()
    }
}

/// A module that holds the seat, as genesis's container of this name.
pub(crate) fn container_section(name: &str) -> ModuleSection {
    ModuleSection {
        containers: vec![ContainerSpec {
            name: name.parse().unwrap(),
            image: "mesh.local/c:1".to_owned(),
            run: vec![],
            owner: Owner::User(65534),
            mounts: vec![],
            replaces: None,
        }],
        ..empty_section()
    }
}

fn empty_section() -> ModuleSection {
    ModuleSection {
        name: "mesh-controller".parse().unwrap(),
        version: "0.1.0".to_owned(),
        revision: 1,
        seat: Some("mesh-controller".parse().unwrap()),
        manifest: String::new(),
        accounts: vec![],
        bundles: vec![],
        files: vec![],
        processes: vec![],
        containers: vec![],
    }
}

/// The one thing that runs in a section, as the ledger holds it.
pub(crate) fn held(section: &ModuleSection, standing: Standing) -> LedgerEntry {
    let id: ResourceId = section.seat_holder().unwrap();
    LedgerEntry {
        digest: section.spec_digest(&id).unwrap(),
        id,
        section: section.clone(),
        runtime: None,
        instance: Some("p-1".parse().unwrap()),
        run: Some("p-1".parse().unwrap()),
        standing,
        generation: Generation(1),
    }
}

/// A declaration of these modules that knows of those before it.
pub(crate) fn declaration(generation: u64, token: (u64, u64), modules: Vec<ModuleSection>) -> Declaration {
    let mut declaration = Declaration {
        format: FORMAT,
        mesh: "m1".parse().unwrap(),
        node: "n1".parse().unwrap(),
        generation: Generation(generation),
        token: Token { epoch: token.0, revision: token.1 },
        issued: vec![],
        plan: None,
        modules,
        adopted: vec![],
    };
    declaration.issued = vec![declaration.issued()];
    declaration
}
