//! An image of a program that this machine has, with the shared libraries that it needs and nothing else.
//!
//! In: a third-party program (a bus, a store), dynamically linked or not. Out: an image with the program in
//! `/usr/bin`, its loader where the program asks for it, and each library where the loader looks. Not here:
//! data that a program opens by itself.
//!
//! Libraries are looked for as the loader does without its cache: in each binary's own `DT_RUNPATH`, then in
//! the standard folders. The image has no cache either, so what is found here is found there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use mesh_protocol::id::System;

use super::{ImageArchive, ImageError, LAYER_LABEL, PROGRAM_LABEL, assemble};
use crate::archive::FileMode;
use crate::elf::{Elf, ElfError, Form};
use crate::entries::{Entry, Source};
use crate::pack::{self, PackError};
use crate::path::{BundlePath, PathFault};

/// What to make an image of.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The program.
    pub path: &'a Path,
    /// Its name in `/usr/bin` of the image.
    pub name: &'a str,
    /// What it is given before whatever a container is made with: the image's entry point is the program and
    /// these, so that an official image, which has one, and this take the same arguments.
    pub arguments: &'a [&'a str],
    /// Empty folders to have too, as places for mounts: a read-only image cannot make them later.
    pub folders: &'a [BundlePath],
    /// `repository:tag`
    pub reference: &'a str,
}

/// Why there is no image of a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// A binary cannot be understood.
    #[error("{path} cannot be put into an image", path = .path.display())]
    Elf {
        /// Which.
        path: PathBuf,
        /// Why.
        source: ElfError,
    },
    /// A binary cannot be read.
    #[error("cannot read {path}", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no program.
    #[error("{path} is a library or an object file: expected a program", path = .path.display())]
    NotProgram {
        /// Which.
        path: PathBuf,
    },
    /// A library is not on this machine.
    #[error("{needed_by} needs {library}, which is in none of {searched}", needed_by = .needed_by.display())]
    LibraryMissing {
        /// The library.
        library: String,
        /// What needs it.
        needed_by: PathBuf,
        /// Where it was looked for.
        searched: String,
    },
    /// A path cannot be in an image.
    #[error(transparent)]
    Path(#[from] PathFault),
    /// The layer.
    #[error("cannot pack the layer")]
    Pack(#[source] PackError),
    /// The image.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Makes an image; its layer is packed into the file `layer`, which the image is read from later.
///
/// # Errors
/// When a library is missing, or something cannot be read or written.
pub fn program(program: &Program<'_>, layer: &Path, workers: usize) -> Result<ImageArchive, ProgramError> {
    let mut files = BTreeMap::new();
    let system = closure(program.path, &mut files)?;
    let own = Entry {
        path: format!("usr/bin/{}", program.name).parse()?,
        source: Source::File { path: program.path.to_path_buf(), mode: FileMode::Program },
    };
    let folder = |path: &BundlePath| Entry { path: path.clone(), source: Source::Folder };
    let file = |(path, from): (BundlePath, PathBuf)| Entry {
        path,
        source: Source::File { path: from, mode: FileMode::Program },
    };
    let entries =
        program.folders.iter().map(folder).chain([own]).chain(files.into_iter().map(file)).collect();
    let packed = pack::pack_entries(entries, layer, workers, crate::SILENT).map_err(ProgramError::Pack)?;
    let own = format!("/usr/bin/{}", program.name);
    let entry_point: Vec<&str> =
        [own.as_str()].into_iter().chain(program.arguments.iter().copied()).collect();
    let labels = BTreeMap::from([(PROGRAM_LABEL, program.name), (LAYER_LABEL, packed.digest.as_str())]);
    Ok(assemble(packed.at(layer), system, program.reference, (&entry_point, labels))?)
}

/// The loader and every library that a program needs: where each goes, and where it comes from.
fn closure(program: &Path, files: &mut BTreeMap<BundlePath, PathBuf>) -> Result<System, ProgramError> {
    let elf = read(program)?;
    if elf.form != Form::Program {
        return Err(ProgramError::NotProgram { path: program.to_path_buf() });
    }
    let system = elf.system;
    let mut seen = BTreeSet::new();
    if let Some(interpreter) = &elf.interpreter {
        let interpreter = Path::new(interpreter);
        files.insert(in_image(interpreter)?, interpreter.to_path_buf());
        // Libraries name their loader too; it is there before they are, whatever its folder.
        seen.extend(interpreter.file_name().and_then(|name| name.to_str()).map(str::to_owned));
    }
    let mut todo = vec![(program.to_path_buf(), elf)];
    while let Some((path, elf)) = todo.pop() {
        for library in &elf.needed {
            if seen.insert(library.clone()) {
                let (found, inner) = find(library, &path, &elf, system)?;
                files.insert(in_image(&found)?, found.clone());
                todo.push((found, inner));
            }
        }
    }
    Ok(system)
}

/// The library that the loader would take.
fn find(library: &str, needed_by: &Path, elf: &Elf, system: System) -> Result<(PathBuf, Elf), ProgramError> {
    let folders = if library.contains('/') { vec![PathBuf::new()] } else { folders(needed_by, elf, system) };
    for folder in &folders {
        let path = lexically(&folder.join(library));
        // As the loader does, what is for another processor is passed over.
        if path.is_file()
            && let Ok(inner) = read(&path)
            && inner.system == system
        {
            return Ok((path, inner));
        }
    }
    let searched: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let (library, needed_by) = (library.to_owned(), needed_by.to_path_buf());
    Err(ProgramError::LibraryMissing { library, needed_by, searched: searched.join(", ") })
}

/// Where the loader looks, in its order.
fn folders(needed_by: &Path, elf: &Elf, system: System) -> Vec<PathBuf> {
    let origin = needed_by.parent().unwrap_or(Path::new("/")).display().to_string();
    let expand = |folder: &String| folder.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
    let own = elf.search.iter().map(expand).filter(|folder| folder.starts_with('/'));
    let triple = match system {
        System::LinuxAmd64 => "x86_64-linux-gnu",
        System::LinuxArm64 => "aarch64-linux-gnu",
    };
    let multiarch = ["/lib/", "/usr/lib/"].map(|folder| format!("{folder}{triple}"));
    let plain = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(str::to_owned);
    own.chain(multiarch).chain(plain).map(PathBuf::from).collect()
}

fn read(path: &Path) -> Result<Elf, ProgramError> {
    let file = File::open(path).map_err(|source| ProgramError::Read { path: path.to_path_buf(), source })?;
    Elf::read(file).map_err(|source| ProgramError::Elf { path: path.to_path_buf(), source })
}

/// Where an absolute path of this machine is in the image: in the same place.
fn in_image(path: &Path) -> Result<BundlePath, PathFault> {
    let path = path.strip_prefix("/").unwrap_or(path);
    BundlePath::parse(path.as_os_str().as_encoded_bytes())
}

/// Without `.` and `..`, as `$ORIGIN/../lib` has them.
fn lexically(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_nothing(search: &[&str]) -> Elf {
        let search = search.iter().map(|&folder| folder.to_owned()).collect();
        Elf { system: System::LinuxAmd64, interpreter: None, needed: vec![], search, form: Form::Program }
    }

    #[test]
    fn a_binary_s_own_folders_come_first() {
        let elf = needs_nothing(&["$ORIGIN/../lib", "relative", "${ORIGIN}"]);
        let found = folders(Path::new("/opt/x/bin/p"), &elf, System::LinuxArm64);
        assert_eq!(lexically(&found[0]), Path::new("/opt/x/lib"));
        assert_eq!(found[1], Path::new("/opt/x/bin"));
        assert_eq!(found[2], Path::new("/lib/aarch64-linux-gnu"));
    }

    #[test]
    fn a_library_that_is_not_there_is_named_with_what_needs_it() {
        let error =
            find("libno.so.1", Path::new("/bin/p"), &needs_nothing(&[]), System::LinuxAmd64).unwrap_err();
        assert!(matches!(error, ProgramError::LibraryMissing { library, needed_by, searched }
            if library == "libno.so.1" && needed_by == Path::new("/bin/p") && searched.contains("/usr/lib")));
    }

    #[test]
    fn this_test_s_libraries_are_found_where_the_loader_looks() {
        let mut files = BTreeMap::new();
        let this = std::env::current_exe().unwrap();
        assert_eq!(closure(&this, &mut files).unwrap(), System::of_this_program());
        assert!(files.keys().any(|path| path.name().starts_with("libc.")), "{files:?}");
        assert!(files.keys().any(|path| path.name().starts_with("ld-")), "{files:?}");
    }
}
