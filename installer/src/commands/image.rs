//! `mesh image`: build, export, load, list.
//!
//! In: a module's folder, programs of this machine, archives, an engine. Out: images in the engine, or one archive of
//! them, the same bytes for the same content; what is there already is not made again. Not here: running them.

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::image::export::Export;
use mesh_bundles::image::{BUNDLE_LABEL, ImageArchive, PROGRAM_LABEL};
use mesh_engine::{Engine, Image, LabelSelector};
use mesh_protocol::id::{Digest, System};
use serde::Serialize;

use super::bundle::choose;
use crate::genesis::engine_failure;
use crate::images::{self, OWN_REGISTRY};
use crate::module::{self, Build, Module, PackedBundle};
use crate::output::amount::bytes;
use crate::output::table::columns;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::third_party::ThirdParty;
use crate::world::World;
use crate::{cli, config, machine};

pub(super) async fn run(world: &World, command: cli::Image, printer: &Printer) -> Result<()> {
    match command {
        cli::Image::Build(options) => build(world, options, printer).await,
        cli::Image::Export(options) => export(world, &options, printer).await,
        cli::Image::Load(options) => load(world, &options.file, printer).await,
        cli::Image::List => list(world, printer).await,
    }
}

/// What came of making an image.
#[derive(Debug, Serialize)]
struct Made<'a> {
    reference: &'a str,
    /// Of its configuration: the same wherever it is made.
    id: &'a Digest,
    layer: &'a Digest,
    changed: bool,
}

async fn build(world: &World, options: cli::ImageBuild, printer: &Printer) -> Result<()> {
    let (_folder, work) = images::work_folder()?;
    let archive = async {
        match (&options.dir, &options.from_binary) {
            (Some(dir), _) => of_module(dir, &options, &work, printer).await,
            (None, Some(binary)) => of_binary(world, binary, &options, &work).await,
            (None, None) => Err(Failure::new(Code::Usage, "there is nothing to build an image of")),
        }
    };
    // The engine is looked for meanwhile; what is wrong with the content is said before what is wrong with the engine.
    let (archive, engine) = tokio::join!(archive, images::engine(world));
    let (archive, engine) = (archive?, engine?);
    let there = images::is_there(&engine, &archive).await?;
    if !there {
        images::load(&engine, &archive).await?;
    }
    let ImageArchive { reference, id, layer, .. } = &archive;
    let document = Made { reference, id, layer, changed: !there };
    printer.document(&document, || {
        let how = if there { "is in the engine already" } else { "is in the engine" };
        vec![format!("{reference} {how} ({id})")]
    });
    Ok(())
}

async fn of_module(
    dir: &Utf8Path,
    options: &cli::ImageBuild,
    work: &Utf8Path,
    printer: &Printer,
) -> Result<ImageArchive> {
    let packed = pack(dir, options.system, options.bundle.as_ref(), work, printer).await?;
    let reference = options.tag.clone().unwrap_or_else(|| reference_of(&packed));
    images::of_bundle(&packed, &reference)
}

async fn pack(
    dir: &Utf8Path,
    system: System,
    wanted: Option<&mesh_protocol::id::ResourceName>,
    work: &Utf8Path,
    printer: &Printer,
) -> Result<PackedBundle> {
    let module = Module::load(dir)?;
    let bundle = choose(&module, system, wanted)?;
    module.prepare(bundle, Build::WhenMissing, printer).await?;
    module.pack(bundle, &work.join(module::archive_name(bundle)), printer).await
}

fn reference_of(packed: &PackedBundle) -> String {
    format!("{OWN_REGISTRY}/{}:{}", packed.packed.config.name, packed.packed.digest.short())
}

async fn of_binary(
    world: &World,
    binary: &Utf8Path,
    options: &cli::ImageBuild,
    work: &Utf8Path,
) -> Result<ImageArchive> {
    let binary = config::absolute(world, binary);
    let name = options.name.as_ref().map_or("program", |name| name.as_str());
    let mut arguments: Vec<&str> = options.argument.iter().map(String::as_str).collect();
    let known = ThirdParty::ALL.into_iter().find(|known| known.program() == name);
    if arguments.is_empty()
        && let Some(known) = known
    {
        arguments.extend(known.entry_arguments().iter().map(|argument| *argument as &str));
    }
    let made = images::Program { binary: &binary, name, arguments: &arguments };
    let reference = match &options.tag {
        Some(tag) => tag.clone(),
        None => made.reference()?,
    };
    images::of_program(&made, &reference, work).await
}

/// The controller's image, the bus's and the store's: all that a genesis loads.
async fn export(world: &World, options: &cli::Export, printer: &Printer) -> Result<()> {
    let (_folder, work) = images::work_folder()?;
    let file = config::absolute(world, &options.file);
    let controller = config::controller_folder(world, options.controller.as_deref())?;
    let packed = pack(&controller, System::of_this_program(), None, &work, printer).await?;
    let mut all = vec![images::of_bundle(&packed, &reference_of(&packed))?];
    let mut missing = Vec::new();
    for third_party in ThirdParty::ALL {
        match machine::find_program(third_party.program(), world.variable("PATH")) {
            Some(binary) => {
                let (name, arguments) = (third_party.program(), third_party.entry_arguments());
                let made = images::Program { binary: &binary, name, arguments };
                let reference = made.reference()?;
                printer.event(&Event::Note {
                    step: name.to_owned(),
                    text: format!("assembles {reference} from {binary}"),
                });
                all.push(images::of_program(&made, &reference, &work).await?);
            }
            None => missing.push(no_program(third_party)),
        }
    }
    if !missing.is_empty() {
        return Err(Failure::all(
            Code::ProgramMissing,
            "not all that a genesis needs is on this machine",
            missing,
        ));
    }
    let changed = write(&all, &file, &work).await?;
    #[derive(Serialize)]
    struct Exported<'a> {
        file: &'a Utf8Path,
        size: u64,
        changed: bool,
        images: Vec<Made<'a>>,
    }
    let size = std::fs::metadata(&file).map_or(0, |facts| facts.len());
    let images = all
        .iter()
        .map(|image| Made { reference: &image.reference, id: &image.id, layer: &image.layer, changed })
        .collect();
    let document = Exported { file: &file, size, changed, images };
    printer.document(&document, || {
        let how = if changed { "has" } else { "has already" };
        let mut lines = vec![format!("{file} ({}) {how}", bytes(size))];
        lines.extend(all.iter().map(|image| format!("  {} ({})", image.reference, image.id)));
        lines
    });
    Ok(())
}

fn no_program(third_party: ThirdParty) -> Failure {
    let program = third_party.program();
    Failure::new(Code::ProgramMissing, format!("{program} is not on this machine"))
        .expected(format!("a program {program} in PATH, to make the image of {} from", third_party.name()))
        .hint(format!(
            "install it (on Debian: package {program}); or put an archive of {} into the folder yourself: docker save",
            third_party.official_image()
        ))
}

/// Writes the archive, unless it is there with the same bytes.
async fn write(all: &[ImageArchive], file: &Utf8Path, work: &Utf8Path) -> Result<bool> {
    let failed = |error: &(dyn std::error::Error + 'static)| {
        Failure::because(Code::Io, &format!("{file} cannot be written"), error)
    };
    let export = Export::new(all).map_err(|error| failed(&error))?;
    let (output, fresh) = (file.to_owned(), work.join("export.tar"));
    let writing = move || -> Result<bool, mesh_bundles::image::ImageError> {
        if output.metadata().is_ok_and(|facts| facts.len() == export.size()) {
            export.write_to(fresh.as_std_path())?;
            if same_bytes(&output, &fresh).unwrap_or(false) {
                return Ok(false);
            }
        }
        export.write_to(output.as_std_path())?;
        Ok(true)
    };
    tokio::task::spawn_blocking(writing)
        .await
        .map_err(|error| failed(&error))?
        .map_err(|error| failed(&error))
}

fn same_bytes(one: &Utf8Path, other: &Utf8Path) -> std::io::Result<bool> {
    use std::io::Read as _;
    let open = |path: &Utf8Path| {
        std::fs::File::open(path).map(|file| std::io::BufReader::with_capacity(1 << 20, file))
    };
    let (mut one, mut other) = (open(one)?, open(other)?);
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        let count = one.read(&mut left)?;
        if count == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        match other.read_exact(&mut right[..count]) {
            Ok(()) if left[..count] == right[..count] => {}
            _ => return Ok(false),
        }
    }
}

async fn load(world: &World, file: &Utf8Path, printer: &Printer) -> Result<()> {
    let file = config::absolute(world, file);
    if !file.is_file() {
        return Err(Failure::new(Code::NotFound, format!("there is no archive {file}"))
            .expected("an archive of `mesh image export` or `docker save`"));
    }
    let engine = images::engine(world).await?;
    let listed = images::listed(&file);
    let mut there = !listed.is_empty();
    for image in &listed {
        for reference in &image.references {
            there = there
                && match &image.layer {
                    Some(layer) => images::has_layer(&engine, reference, layer).await?,
                    // Of an image that is not ours only its name can be compared, which may name another by now.
                    None => false,
                };
        }
    }
    let references: Vec<String> = if there {
        listed.into_iter().flat_map(|image| image.references).collect()
    } else {
        images::load_file(&engine, &file).await?.into_iter().flat_map(|image| image.references).collect()
    };
    #[derive(Serialize)]
    struct Loaded<'a> {
        file: &'a Utf8PathBuf,
        images: &'a [String],
        changed: bool,
    }
    let document = Loaded { file: &file, images: &references, changed: !there };
    printer.document(&document, || {
        let how = if there { "is in the engine already" } else { "is in the engine" };
        references.iter().map(|reference| format!("{reference} {how}")).collect()
    });
    Ok(())
}

#[derive(Debug, Serialize)]
struct Row {
    references: Vec<String>,
    /// The bundle that it is, or the program that it was made around.
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    id: String,
    size: u64,
}

#[derive(Debug, Serialize)]
struct Listed {
    images: Vec<Row>,
}

async fn list(world: &World, printer: &Printer) -> Result<()> {
    let engine = images::engine(world).await?;
    let mut images: Vec<Row> = ours(&engine).await?.into_iter().map(Row::of).collect();
    images.sort_by(|one, other| (&one.references, &one.id).cmp(&(&other.references, &other.id)));
    let document = Listed { images };
    printer.document(&document, || rows(&document.images));
    Ok(())
}

async fn ours(engine: &Engine) -> Result<Vec<Image>> {
    let mut all: Vec<Image> = Vec::new();
    for label in [BUNDLE_LABEL, PROGRAM_LABEL] {
        let found =
            engine.list_images(&LabelSelector::has(label)).await.map_err(|error| engine_failure(&error))?;
        all.extend(found);
    }
    Ok(all)
}

impl Row {
    fn of(image: Image) -> Self {
        let label = |name: &str| image.labels.get(name).cloned();
        let (bundle, program) = (label(BUNDLE_LABEL), label(PROGRAM_LABEL));
        let mut references = image.references;
        references.sort();
        Self { references, bundle, program, id: image.id, size: image.size }
    }
}

fn rows(images: &[Row]) -> Vec<String> {
    let mut rows = vec![["IMAGE", "MADE OF", "ID", "SIZE"].map(str::to_owned).to_vec()];
    let short =
        |text: &str| text.strip_prefix("sha256:").unwrap_or(text).chars().take(12).collect::<String>();
    for Row { references, bundle, program, id, size } in images {
        let made = match (bundle, program) {
            (Some(bundle), _) => format!("bundle {}", short(bundle)),
            (None, Some(program)) => format!("program {program}"),
            (None, None) => String::new(),
        };
        let names = if references.is_empty() { &["(no name)".to_owned()][..] } else { references };
        rows.extend(names.iter().map(|name| vec![name.clone(), made.clone(), short(id), bytes(*size)]));
    }
    columns(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_a_line_for_each_of_its_names() {
        let row = |references: &[&str], bundle: Option<&str>, program: Option<&str>| Row {
            references: references.iter().map(|name| (*name).to_owned()).collect(),
            bundle: bundle.map(str::to_owned),
            program: program.map(str::to_owned),
            id: format!("sha256:{}", "ab".repeat(32)),
            size: 4_200_000,
        };
        let shown = rows(&[
            row(&["mesh.local/c:1", "mesh.local/m/c:1"], Some(&format!("sha256:{}", "12".repeat(32))), None),
            row(&[], None, Some("nats-server")),
        ]);
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn bytes_are_compared_to_the_end() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        let file = |name: &str, content: &[u8]| {
            std::fs::write(folder.join(name), content).unwrap();
            folder.join(name)
        };
        let long = vec![7; 200_000];
        let (one, same) = (file("one", &long), file("same", &long));
        let (shorter, other) = (file("shorter", &long[1..]), file("other", &[&long[1..], b"x"].concat()));
        assert!(same_bytes(&one, &same).unwrap());
        for different in [&shorter, &other] {
            assert!(!same_bytes(&one, different).unwrap() && !same_bytes(different, &one).unwrap());
        }
    }
}
