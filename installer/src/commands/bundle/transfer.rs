//! `mesh bundle publish` and `pull`: bundles to a store and back, by their digests.
//!
//! In: a packed bundle, a store. Out: the bundle there, or here, whole. Not here: what the store is asked for.

use mesh_bundles::archive::Limits;
use mesh_bundles::config::{self, Config};
use mesh_bundles::inputs::BuildInputs;
use mesh_bundles::pack::{Layer, Packed};
use mesh_bundles::store::{Action, Part, Publication, Published};
use mesh_protocol::id::{Digest, ResourceName};
use mesh_protocol::layout::Layout;
use serde::Serialize;

use super::read;
use crate::output::{Code, Failure, Meter, Printer, Result};
use crate::world::World;
use crate::{cli, inputs, registry};

#[derive(Debug, Serialize)]
struct Done<'a> {
    digest: &'a Digest,
    size: u64,
    manifest: &'a Digest,
    tagged: String,
    version: String,
    /// Whether its bytes had to be put there.
    sent: bool,
    /// Whether anything had to be.
    changed: bool,
}

pub(super) async fn publish(
    world: &World,
    layout: &Layout,
    options: cli::Publish,
    printer: &Printer,
) -> Result<()> {
    let store = registry::open(world, layout, &options.store.wanted(options.mount_from))?;
    let layer = read(&options.file).await?;
    let program = program(&layer, &options.name, options.program.as_deref())?;
    let entrypoint = program.parse().map_err(|error| Failure::of(Code::BundleInvalid, &error))?;
    let cli::Publish { file, name, version, system, source, created, .. } = options;
    let config = Config::new(config::Facts { name, version, system, entrypoint }, &layer)
        .map_err(|error| Failure::of(Code::BundleInvalid, &error))?;
    let Layer { digest, size, diff_id, unpacked_size, .. } = layer;
    let build = source.map_or_else(BuildInputs::default, |folder| inputs::of(&folder, &[]));
    let Packed { digest, size, config, .. } =
        Packed { digest, size, diff_id, unpacked_size, config }.built_from(build);

    let meter = Meter::new(printer, config.name.as_str(), "sent");
    let told = move |done, total| meter.told(done, total);
    let created = created.map(|time| time.to_string());
    let publication = Publication {
        archive: file.as_std_path(),
        digest: &digest,
        size,
        config: &config,
        created: created.as_deref(),
    };
    let published = store.publish(&publication, &told).await.map_err(|error| registry::failure(&error))?;
    let Published { tagged, version, manifest, done, .. } = &published;
    let document = Done {
        digest: &digest,
        size,
        manifest,
        tagged: tagged.to_string(),
        version: version.to_string(),
        sent: done.contains(&Action::Send(Part::Archive)),
        changed: !done.is_empty(),
    };
    printer.document(&document, || {
        let how = if document.changed { "is published as" } else { "is there already, as" };
        vec![format!("{digest} {how} {tagged}")]
    });
    Ok(())
}

/// The program as said; else the file of the bundle's name; else the only one that may be run.
fn program(layer: &Layer, name: &ResourceName, said: Option<&str>) -> Result<String> {
    if let Some(said) = said {
        return Ok(said.to_owned());
    }
    let programs: Vec<&str> =
        layer.files.iter().filter(|file| file.mode == "0755").map(|file| file.path.as_str()).collect();
    match programs[..] {
        _ if programs.contains(&name.as_str()) => Ok(name.to_string()),
        [one] => Ok(one.to_owned()),
        _ => Err(Failure::new(
            Code::BundleInvalid,
            "it cannot be told which of the bundle's files is its program",
        )
        .expected(format!("one that may be run, or one named {name}"))
        .found(if programs.is_empty() { "none".to_owned() } else { programs.join(", ") })
        .hint("say which with --program PATH")),
    }
}

pub(super) async fn pull(
    world: &World,
    layout: &Layout,
    options: cli::Pull,
    printer: &Printer,
) -> Result<()> {
    let cli::Pull { name, digest, output, store } = options;
    let store = registry::open(world, layout, &store.wanted(None))?;
    let meter = Meter::new(printer, name.as_str(), "fetched");
    let told = move |done, total| meter.told(done, total);
    let (limit, repository) = (Limits::default().compressed, store.repository(&name));
    let size = store
        .fetch(&repository, &digest, output.as_std_path(), limit, &told)
        .await
        .map_err(|error| registry::failure(&error))?;
    #[derive(Serialize)]
    struct Pulled<'a> {
        file: &'a camino::Utf8Path,
        digest: &'a Digest,
        size: u64,
    }
    let document = Pulled { file: &output, digest: &digest, size };
    printer.document(&document, || vec![format!("{digest} {size} {output}")]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_bundles::pack::FileFact;

    fn layer(files: &[(&str, &str)]) -> Layer {
        let digest = Digest::of(b"");
        let fact = |(path, mode): &(&str, &str)| FileFact {
            path: path.parse().unwrap(),
            mode: (*mode).to_owned(),
            size: 0,
            sha256: digest.clone(),
        };
        Layer {
            digest: digest.clone(),
            size: 0,
            diff_id: digest.clone(),
            unpacked_size: 0,
            files: files.iter().map(fact).collect(),
            links: Vec::new(),
        }
    }

    #[test]
    fn the_program_is_told_apart_or_asked_for() {
        let name: ResourceName = "a".parse().unwrap();
        let found = |files: &[(&str, &str)]| program(&layer(files), &name, None);
        assert_eq!(found(&[("b", "0755"), ("c", "0644")]).unwrap(), "b");
        assert_eq!(found(&[("a", "0755"), ("c", "0755")]).unwrap(), "a");
        assert_eq!(
            found(&[("b", "0755"), ("c", "0755")]).unwrap_err().hint.as_deref().unwrap(),
            "say which with --program PATH"
        );
        assert_eq!(found(&[("b", "0644")]).unwrap_err().found.as_deref().unwrap(), "none");
        assert_eq!(program(&layer(&[]), &name, Some("x")).unwrap(), "x");
    }
}
