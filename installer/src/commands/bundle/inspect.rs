//! `mesh bundle inspect`: what is in a bundle, and what is said of it.
//!
//! In: a file, or a name in a store. Out: its digests and files; of one in a store also its version, its program, and what
//! it was built from, each verified by digest. Not here: fetching it.

use camino::Utf8Path;
use mesh_bundles::config::Config;
use mesh_bundles::manifest::Manifest;
use mesh_bundles::pack::{FileFact, Layer, LinkFact};
use mesh_bundles::store::{Repository, Wanted};
use mesh_protocol::id::{Digest, ResourceName};
use mesh_protocol::layout::Layout;
use serde::Serialize;

use super::read;
use crate::output::{Code, Failure, Printer, Result};
use crate::world::World;
use crate::{cli, config, inputs, registry};

#[derive(Debug, Serialize)]
struct Inspected<'a> {
    digest: &'a Digest,
    size: u64,
    diff_id: &'a Digest,
    unpacked_size: u64,
    files: &'a [FileFact],
    links: &'a [LinkFact],
}

/// What a store says of one.
#[derive(Debug, Serialize)]
struct Described<'a> {
    repository: String,
    digest: &'a Digest,
    size: u64,
    manifest: &'a Digest,
    created: Option<&'a str>,
    config: &'a Config,
}

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    options: cli::Inspect,
    printer: &Printer,
) -> Result<()> {
    let file = config::absolute(world, Utf8Path::new(&options.what));
    if file.exists() {
        return of_file(Utf8Path::new(&options.what), &read(&file).await?, printer);
    }
    let Some((name, wanted)) = reference(&options.what) else {
        return Err(Failure::new(Code::NotFound, format!("there is no bundle {}", options.what))
            .expected("a file, or NAME:VERSION or NAME@sha256:... in the store"));
    };
    let store = registry::open(world, layout, &options.store.wanted(None))?;
    let repository = store.repository(&name);
    let found = store.resolve_for(&repository, &wanted, options.system).await;
    let found = found.map_err(|error| registry::failure(&error))?;
    let (Some(manifest), Some(digest)) = (&found.manifest, &found.manifest_digest) else {
        return unsaid(&repository, &found.bundle, found.size, printer);
    };
    let config = store.config(&repository, manifest).await.map_err(|error| registry::failure(&error))?;
    describe(&repository, (manifest, digest), &config, printer);
    Ok(())
}

fn of_file(file: &Utf8Path, layer: &Layer, printer: &Printer) -> Result<()> {
    let Layer { digest, size, diff_id, unpacked_size, files, links } = layer;
    let document = Inspected { digest, size: *size, diff_id, unpacked_size: *unpacked_size, files, links };
    printer.document(&document, || {
        let mut lines = vec![
            format!("file      {file}"),
            format!("digest    {digest}"),
            format!("diff id   {diff_id}"),
            format!("size      {size} bytes, unpacked {unpacked_size}"),
        ];
        lines.extend(content(files, links));
        lines
    });
    Ok(())
}

fn describe(
    repository: &Repository,
    (manifest, digest): (&Manifest, &Digest),
    config: &Config,
    printer: &Printer,
) {
    let layer = &manifest.layers[0];
    let document = Described {
        repository: repository.to_string(),
        digest: &layer.digest,
        size: layer.size,
        manifest: digest,
        created: manifest.created(),
        config,
    };
    printer.document(&document, || {
        let mut lines = vec![
            format!("bundle    {repository} {} for {}", config.version, config.system),
            format!("digest    {}", document.digest),
            format!("manifest  {}", document.manifest),
            format!("diff id   {}", config.diff_id),
            format!("size      {} bytes", document.size),
            format!("program   {}", config.entrypoint),
        ];
        lines.extend(document.created.map(|created| format!("created   {created}")));
        match &config.build {
            Some(build) => lines.extend(inputs::lines(build)),
            None => lines.push("built     nobody noted from what".to_owned()),
        }
        lines.push(format!("packed by {}", config.tool));
        lines.extend(content(&config.files, &config.links));
        lines
    });
}

/// A bundle that was found by its own digest: nothing is said of it there.
fn unsaid(repository: &Repository, digest: &Digest, size: Option<u64>, printer: &Printer) -> Result<()> {
    #[derive(Serialize)]
    struct Unsaid<'a> {
        repository: String,
        digest: &'a Digest,
        size: Option<u64>,
    }
    let document = Unsaid { repository: repository.to_string(), digest, size };
    printer.document(&document, || {
        let size = size.map(|size| format!(", {size} bytes")).unwrap_or_default();
        vec![
            format!("digest    {digest} is in {repository}{size}"),
            "what is said of it is found by its version, or by its manifest's digest: mesh bundle list"
                .to_owned(),
        ]
    });
    Ok(())
}

fn content(files: &[FileFact], links: &[LinkFact]) -> Vec<String> {
    let file = |f: &FileFact| format!("{} {} {} ({})", f.mode, f.path, f.size, f.sha256.short());
    let links = links.iter().map(|link| format!("link {} -> {}", link.path, link.target));
    files.iter().map(file).chain(links).collect()
}

/// `NAME:VERSION`, `NAME@sha256:...`
fn reference(text: &str) -> Option<(ResourceName, Wanted)> {
    if let Some((name, digest)) = text.split_once('@') {
        return Some((name.parse().ok()?, Wanted::Digest(digest.parse().ok()?)));
    }
    let (name, version) = text.split_once(':')?;
    Some((name.parse().ok()?, Wanted::Tag(mesh_bundles::manifest::version_tag(version).parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_store_has_a_version_or_a_digest() {
        let name: ResourceName = "a".parse().unwrap();
        assert_eq!(reference("a:1.0+b"), Some((name.clone(), Wanted::Tag("1.0_b".parse().unwrap()))));
        let digest = Digest::of(b"");
        assert_eq!(reference(&format!("a@{digest}")), Some((name, Wanted::Digest(digest))));
        for bad in ["a", "a@1", "A:1", "a:", "./a.tar.gz", "a:b/c"] {
            assert_eq!(reference(bad), None, "{bad}");
        }
    }
}
