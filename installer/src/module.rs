//! A module on its author's disk: its manifest, its binaries, and the bundles that they become.
//!
//! In: a folder. Out: a checked manifest, built and packed bundles. Not here: publishing and pushing.

use std::fs::File;
use std::io;
use std::process::Stdio;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::archive::FileMode;
use mesh_bundles::elf;
use mesh_bundles::entries::{Entry, Source};
use mesh_bundles::pack::{self, PackError, Packed};
use mesh_bundles::path::BundlePath;
use mesh_protocol::id::{Digest, System};
use mesh_protocol::manifest::{Bundle, FILE_NAME, Manifest};
use mesh_protocol::plan::Published;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::inputs;
use crate::output::{Code, Event, Failure, Meter, Printer, Result};

/// A module on its author's disk.
#[derive(Debug, Clone)]
pub struct Module {
    /// The manifest's path, as it was given.
    pub path: Utf8PathBuf,
    /// The manifest's folder.
    pub folder: Utf8PathBuf,
    /// What it says.
    pub manifest: Manifest,
}

/// Whether a bundle's `build` may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// When the binary is missing.
    WhenMissing,
    /// Never.
    Never,
}

/// A bundle that was packed, and where it lies.
#[derive(Debug, Clone)]
pub struct PackedBundle {
    /// The tar.gz.
    pub archive: Utf8PathBuf,
    /// What it is.
    pub packed: Packed,
}

impl PackedBundle {
    /// As the controller is told of it.
    #[must_use]
    pub fn published(&self) -> Published {
        Published { digest: self.packed.digest.clone(), size: self.packed.size }
    }
}

impl Module {
    /// Reads the manifest in a folder, or the manifest itself.
    ///
    /// # Errors
    /// When it is not there, or all that is wrong with it.
    pub fn load(given: &Utf8Path) -> Result<Self> {
        let path = if given.is_dir() { given.join(FILE_NAME) } else { given.to_owned() };
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Failure::because(Code::ManifestInvalid, &format!("manifest {path} cannot be read"), &error)
                .expected(format!("a folder with a {FILE_NAME}"))
        })?;
        let manifest = Manifest::parse(path.as_str(), &text).map_err(|errors| {
            let count = errors.all().len();
            let faults = if count == 1 { "one fault".to_owned() } else { format!("{count} faults") };
            Failure::new(Code::ManifestInvalid, format!("manifest {path} has {faults}"))
                .details(errors.all().iter().map(ToString::to_string))
                .hint("nothing was changed; mend the manifest and run this again")
        })?;
        let folder = path.parent().unwrap_or(Utf8Path::new("")).to_owned();
        Ok(Self { path, folder, manifest })
    }

    /// Where a bundle's binary lies.
    #[must_use]
    pub fn binary(&self, bundle: &Bundle) -> Utf8PathBuf {
        self.source().join(&bundle.binary)
    }

    /// The folder that binaries are relative to, and in which they are built.
    #[must_use]
    pub fn source(&self) -> Utf8PathBuf {
        self.manifest.source_folder(&self.folder)
    }

    /// Builds the binary where that is needed and permitted, and looks whether it may be a bundle's program.
    ///
    /// # Errors
    /// When it is not there, cannot be built, is not static, or is for another system.
    pub async fn prepare(&self, bundle: &Bundle, build: Build, printer: &Printer) -> Result<()> {
        let binary = self.binary(bundle);
        if !binary.is_file() && build == Build::WhenMissing && !bundle.build.is_empty() {
            self.build(bundle, printer).await?;
        }
        self.check(bundle)
    }

    /// Looks whether a bundle's binary may be its program.
    ///
    /// # Errors
    /// When it is not there, not static, or for another system.
    pub fn check(&self, bundle: &Bundle) -> Result<()> {
        let binary = self.binary(bundle);
        let file = File::open(&binary).map_err(|error| {
            let failure = Failure::because(
                Code::BinaryMissing,
                &format!("the binary of bundle {} for {} cannot be read", bundle.name, bundle.system),
                &error,
            );
            let hint = match &bundle.build[..] {
                [] => format!("put it at {binary}"),
                words => format!("build it: cd {} && {}", self.source(), words.join(" ")),
            };
            failure.expected(binary.to_string()).hint(hint)
        })?;
        elf::check_static(file, bundle.system).map_err(|error| {
            Failure::because(
                Code::BinaryUnfit,
                &format!("binary {binary} cannot be a bundle's program"),
                &error,
            )
            .expected(format!("a static binary for {}", bundle.system))
            .hint("link it statically (for Rust: -C target-feature=+crt-static and --target)")
        })
    }

    /// Builds a bundle's binary, as the manifest says; where it says nothing, nothing is done.
    ///
    /// # Errors
    /// When the command cannot be run, or fails.
    pub async fn build(&self, bundle: &Bundle, printer: &Printer) -> Result<()> {
        let [program, arguments @ ..] = &bundle.build[..] else { return Ok(()) };
        let what = bundle.build.join(" ");
        let note = |text: String| {
            printer.event(&Event::Note { step: "build".to_owned(), text });
        };
        note(format!("{what} (in {})", self.source()));
        let failed =
            |error: &io::Error| Failure::because(Code::BuildFailed, &format!("{what} cannot be run"), error);
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(self.source())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(&error))?;
        let mut last = Vec::new();
        if let Some(errors) = child.stderr.take() {
            let mut lines = BufReader::new(errors).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                note(line.clone());
                last.push(line);
                if last.len() > 20 {
                    last.remove(0);
                }
            }
        }
        let status = child.wait().await.map_err(|error| failed(&error))?;
        if status.success() {
            return Ok(());
        }
        Err(Failure::new(Code::BuildFailed, format!("{what} failed: {status}")).details(last))
    }

    /// Packs a bundle into a file.
    ///
    /// # Errors
    /// When it cannot be packed, or is not what the manifest pins.
    pub async fn pack(&self, bundle: &Bundle, output: &Utf8Path, printer: &Printer) -> Result<PackedBundle> {
        let entries = self.entries(bundle)?;
        let program: BundlePath = bundle_path(bundle.program())?;
        let made = pack::Bundle {
            name: bundle.name.clone(),
            version: self.manifest.version.clone(),
            system: bundle.system,
            entrypoint: program,
            entries,
        };
        let (archive, meter) = (output.to_owned(), Meter::new(printer, bundle.name.as_str(), "packed"));
        let (source, command) = (self.source(), bundle.build.clone());
        let packing = move || {
            let told = move |done, total| meter.told(done, total);
            let packed = pack::pack(made, archive.as_std_path(), workers(), &told)?;
            Ok(packed.built_from(inputs::of(&source, &command)))
        };
        let packed: Result<Packed, PackError> = tokio::task::spawn_blocking(packing)
            .await
            .map_err(|error| Failure::of(Code::Internal, &error))?;
        let packed = packed.map_err(|error| {
            let what = format!("bundle {} cannot be packed", bundle.name);
            Failure::because(Code::BundleInvalid, &what, &error)
        })?;
        check_pin(bundle.pin.as_ref(), &packed.digest, bundle)?;
        Ok(PackedBundle { archive: output.to_owned(), packed })
    }

    fn entries(&self, bundle: &Bundle) -> Result<Vec<Entry>> {
        let file = |path: BundlePath, from: Utf8PathBuf, mode| Entry {
            path,
            source: Source::File { path: from.into_std_path_buf(), mode },
        };
        let mut entries = vec![file(bundle_path(bundle.program())?, self.binary(bundle), FileMode::Program)];
        for (path, from) in &bundle.files {
            let from = self.source().join(from);
            let mode = match std::fs::metadata(&from) {
                Ok(facts) => FileMode::of(std::os::unix::fs::PermissionsExt::mode(&facts.permissions())),
                Err(error) => {
                    let what = format!("file {from} of bundle {} cannot be read", bundle.name);
                    return Err(Failure::because(Code::BinaryMissing, &what, &error));
                }
            };
            entries.push(file(bundle_path(path.as_str())?, from, mode));
        }
        Ok(entries)
    }
}

/// The name of a packed bundle's file.
#[must_use]
pub fn archive_name(bundle: &Bundle) -> String {
    archive_name_of(bundle.name.as_str(), bundle.system)
}

/// The name of a packed bundle's file.
#[must_use]
pub fn archive_name_of(name: &str, system: System) -> String {
    format!("{name}-{}.tar.gz", system.dashed())
}

fn check_pin(pin: Option<&Digest>, found: &Digest, bundle: &Bundle) -> Result<()> {
    match pin {
        Some(pin) if pin != found => Err(Failure::new(
            Code::BundleInvalid,
            format!("bundle {} for {} is not what the manifest pins", bundle.name, bundle.system),
        )
        .expected(pin.to_string())
        .found(found.to_string())
        .hint("build it from the sources that the digest was made of, or change `digest` in the manifest")),
        _ => Ok(()),
    }
}

fn bundle_path(path: &str) -> Result<BundlePath> {
    path.parse()
        .map_err(|error| Failure::because(Code::BundleInvalid, &format!("path {path:?} in a bundle"), &error))
}

fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_manifest_is_all_said() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        let failure = Module::load(folder).unwrap_err();
        assert_eq!(failure.code, Code::ManifestInvalid);
        std::fs::write(folder.join(FILE_NAME), "[module]\nname = \"A\"\nsurprise = 1\n").unwrap();
        let failure = Module::load(folder).unwrap_err();
        assert_eq!(failure.code, Code::ManifestInvalid);
        assert!(failure.details.iter().any(|line| line.contains("surprise")), "{failure:?}");
    }
}
