//! A push that `mesh push` would refuse to make, made behind its back: a bundle of any content, published as it is, and
//! a request to the controller that names it.
//!
//! In: a manifest's text, the bundle's files. Out: the plan, ended. Not here: what the plan must come to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mesh_bundles::archive::FileMode;
use mesh_bundles::entries::{Entry, Source};
use mesh_bundles::pack::pack_entries;
use mesh_installer::session::{Nothing, Session};
use mesh_protocol::id::{Digest, System};
use mesh_protocol::plan::{Plan, Published};
use mesh_protocol::verb::{Mode, PlannedAnswer, PlansAnswer, PushRequest, Verb};

use crate::mesh::Mesh;
use crate::until::eventually;

/// A bundle that was published, and where its archive lies.
#[derive(Debug, Clone)]
pub struct Behind {
    /// What the controller is told of it.
    pub published: Published,
    /// The archive.
    pub archive: PathBuf,
}

/// Packs a file under the name of the controller's program, or none, and publishes that as the controller's bundle, which has a
/// program beside it that may be run: without one it would not be published.
///
/// # Panics
/// When the store does not take it.
pub async fn publish(mesh: &Mesh, folder: &Path, program: Option<Vec<u8>>, mode: FileMode) -> Behind {
    let archive = folder.join("behind.tar.gz");
    let entry = |path: &str, content, mode| Entry {
        path: path.parse().unwrap(),
        source: Source::Bytes { content, mode },
    };
    let mut entries = vec![entry("beside", b"#!/bin/false\n".to_vec(), FileMode::Program)];
    entries.extend(program.map(|program| entry("mesh-controller", program, mode)));
    let packed = pack_entries(entries, &archive, 2, mesh_bundles::SILENT).unwrap();
    let file = archive.to_str().unwrap();
    let words = ["bundle", "publish", file, "--name", "mesh-controller", "--version", "0.1.0", "--program"];
    let _ = mesh.run(&[&words[..], &["beside"]].concat()).await.exited(0);
    Behind { published: Published { digest: packed.digest, size: packed.size }, archive }
}

/// Asks the controller for a module as this manifest has it, and waits for the plan's end.
///
/// # Panics
/// When it is refused, or has no end within `limit`.
pub async fn push(mesh: &Mesh, manifest: &str, bundle: &Published, limit: Duration) -> Plan {
    let session = Session::open(mesh.layout(), &mesh.file()).await.unwrap();
    let unique = Digest::of(format!("{manifest} {:?}", jiff::Timestamp::now()).as_bytes());
    let request = PushRequest {
        request: format!("behind-{}", &unique.as_str()[7..19]).parse().unwrap(),
        path: "behind".to_owned(),
        manifest: manifest.to_owned(),
        bundles: BTreeMap::from([(
            "mesh-controller".parse().unwrap(),
            BTreeMap::from([(System::of_this_program(), bundle.clone())]),
        )]),
        assign: Vec::new(),
        mode: Mode::Do,
    };
    let planned: PlannedAnswer = session.ask(Verb::Push, &request).await.unwrap();
    let ended = async || {
        let all: PlansAnswer = session.ask(Verb::Plans, &Nothing {}).await.ok()?;
        all.plans.into_iter().find(|plan| plan.id == planned.plan.id && plan.state.is_ended())
    };
    eventually("the plan has ended", limit, ended).await
}
