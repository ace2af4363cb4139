//! Where the images of bus and store will come from.
//!
//! In: the engine, the folder of archives, this machine's programs. Out: findings. Loads and pulls nothing.

use camino::Utf8PathBuf;
use mesh_engine::Engine;

use super::check::{Finding, expect, wrong};
use super::engine::NO_ENGINE;
use super::intent::Intent;
use crate::output::Code;
use crate::third_party::ThirdParty;
use crate::{config, images, machine};

/// Where an image can be had, in the order in which genesis looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// The mesh runs from one already.
    NotNeeded,
    /// It is in the engine.
    Engine(String),
    /// An archive has it.
    Archive(Utf8PathBuf),
    /// It can be assembled from this program, and is, unless a registry is in reach and asked.
    Program(Utf8PathBuf),
    /// Only a registry can have it.
    Registry,
    /// Nothing has it, and nothing is to be pulled.
    Nowhere,
    /// No engine answers, and nothing else has it.
    Unknown,
}

/// Looks where it can be had.
pub(super) async fn look(intent: &Intent<'_>, engine: Option<&Engine>, wanted: ThirdParty) -> Origin {
    if intent.mesh.is_some_and(|mesh| mesh.process_since.is_some()) {
        return Origin::NotNeeded;
    }
    if let Some(engine) = engine {
        let official = wanted.official_image();
        if engine.find_image(official).await.is_ok_and(|found| found.is_some()) {
            return Origin::Engine(official.to_owned());
        }
        if let Ok(Some(reference)) = images::assembled_before(engine, wanted).await {
            return Origin::Engine(reference);
        }
    }
    let folder = intent.wanted.images.as_ref().map(|folder| config::absolute(intent.world, folder));
    if let Some(path) = folder.and_then(|folder| images::archives(&folder, wanted).into_iter().next()) {
        return Origin::Archive(path);
    }
    match machine::find_program(wanted.program(), intent.world.variable("PATH")) {
        Some(program) => Origin::Program(program),
        None if engine.is_none() => Origin::Unknown,
        None if intent.wanted.offline => Origin::Nowhere,
        None => Origin::Registry,
    }
}

/// There must be somewhere to have it from.
pub(super) fn image(wanted: ThirdParty, origin: &Origin) -> Finding {
    let (name, program, official) = (wanted.name(), wanted.program(), wanted.official_image());
    let check = expect(format!(
        "image {official} in the engine, {name}.tar in the folder of --images, a registry in reach, or program {program} in PATH"
    ));
    let remedy = format!("install the program (on Debian: package {program}), or load the image");
    match origin {
        Origin::NotNeeded => check.met("not needed: the mesh runs from one"),
        Origin::Engine(reference) => check.met(format!("{reference}, in the engine")),
        Origin::Archive(path) => check.met(path.to_string()),
        Origin::Program(path) => check.met(format!("assembled from {path}")),
        Origin::Unknown => check.skipped(NO_ENGINE),
        Origin::Registry => check.warned(wrong(
            Code::ImageMissing,
            format!("{official} is not on this machine: genesis will pull it, and fail where its registry is not in reach"),
            "neither image, archive nor program",
            remedy,
        )),
        Origin::Nowhere => check.failed(wrong(
            Code::ImageMissing,
            format!("there is no image for {name}, and nothing is to be pulled"),
            "neither image, archive nor program",
            remedy,
        )),
    }
}
