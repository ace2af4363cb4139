//! What was typed, resolved with the surroundings: where the mesh lies, where the programs are.
//!
//! In: the command line and the world. Out: paths. Not here: what the mesh's own folder says (`mesh_file`).

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use mesh_protocol::id::NodeName;
use mesh_protocol::layout::{DEFAULT_ROOT, Layout};
use mesh_protocol::manifest::FILE_NAME;

use crate::cli::Common;
use crate::output::{Code, Failure, Form, Printer, Result, Volume};
use crate::world::World;

/// The variable that says where the mesh lies.
pub const ROOT_VARIABLE: &str = "MESH_ROOT";

/// The host's program, beside this one.
pub const HOST_PROGRAM: &str = "mesh-host";

/// Where the mesh lies: `--root`, else the variable, else the default. Absolute, for it is written into files that
/// are read from other folders.
#[must_use]
pub fn layout(world: &World, common: &Common) -> Layout {
    let said = common.root.clone().or_else(|| world.variable(ROOT_VARIABLE).map(Utf8PathBuf::from));
    let root = said.unwrap_or_else(|| Utf8PathBuf::from(DEFAULT_ROOT));
    Layout::new(absolute(world, &root))
}

/// A path as typed, from the root of the file system, without `.` and `..`.
#[must_use]
pub fn absolute(world: &World, path: &Utf8Path) -> Utf8PathBuf {
    let mut clean = Utf8PathBuf::new();
    for component in world.folder.join(path).components() {
        match component {
            Utf8Component::CurDir => {}
            Utf8Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

/// The mouth that was asked for.
#[must_use]
pub fn printer(world: &World, common: &Common) -> Printer {
    let form = if common.json { Form::Json } else { Form::Text };
    let volume = match (common.quiet, common.verbose) {
        (true, _) => Volume::Quiet,
        (false, true) => Volume::Verbose,
        (false, false) => Volume::Normal,
    };
    Printer::new(world, form, volume)
}

/// The folder of the controller's manifest: as said, else `controller` in the current folder, else beside this
/// program or beside a folder above it. So it is found in an unpacked release and in a checkout alike.
///
/// # Errors
/// When there is none.
pub fn controller_folder(world: &World, said: Option<&Utf8Path>) -> Result<Utf8PathBuf> {
    if let Some(said) = said {
        return Ok(absolute(world, said));
    }
    let here = std::iter::once(world.folder.as_path());
    let above = world.program.ancestors().skip(1);
    let found =
        here.chain(above).map(|folder| folder.join("controller")).find(|f| f.join(FILE_NAME).is_file());
    found.ok_or_else(|| {
        Failure::new(Code::ManifestInvalid, "the controller's manifest is not there")
            .expected(format!(
                "controller/{FILE_NAME} in {}, beside {} or above it",
                world.folder, world.program
            ))
            .hint("say where it is with --controller DIR")
    })
}

/// The host's program: the one that lies beside this one, for they are of one release.
#[must_use]
pub fn host_program(world: &World) -> Utf8PathBuf {
    let folder = world.program.parent().unwrap_or(Utf8Path::new("/"));
    folder.join(HOST_PROGRAM)
}

/// This machine's name: its host name as a label.
#[must_use]
pub fn node_name(host_name: &str) -> Option<NodeName> {
    let short = host_name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let right = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
    let label: String = short.chars().map(right).take(63).collect();
    label.trim_matches('-').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(root: Option<&str>) -> Common {
        Common { root: root.map(Utf8PathBuf::from), json: false, quiet: false, verbose: false }
    }

    #[test]
    fn the_root_is_as_said_and_absolute() {
        let mut world = World::of_this_process().unwrap();
        world.folder = "/home/x".into();
        world.environment.clear();
        assert_eq!(layout(&world, &common(None)).root(), DEFAULT_ROOT);
        world.environment.insert(ROOT_VARIABLE.to_owned(), "/tmp/a".to_owned());
        assert_eq!(layout(&world, &common(None)).root(), "/tmp/a");
        assert_eq!(layout(&world, &common(Some("../b/./c/"))).root(), "/home/b/c");
    }

    #[test]
    fn a_host_name_becomes_a_node_name() {
        let name = |text| node_name(text).map(|name| name.to_string());
        assert_eq!(name("Control_1.example.org").as_deref(), Some("control-1"));
        assert_eq!(name("-"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn the_controllers_folder_is_found_above_the_program() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        let mut world = World::of_this_process().unwrap();
        world.folder = root.join("elsewhere");
        world.program = root.join("target/debug/mesh");
        let failure = controller_folder(&world, None).unwrap_err();
        assert_eq!(failure.hint.as_deref(), Some("say where it is with --controller DIR"));
        std::fs::create_dir_all(root.join("controller")).unwrap();
        std::fs::write(root.join("controller/module.toml"), "").unwrap();
        assert_eq!(controller_folder(&world, None).unwrap(), root.join("controller"));
        assert_eq!(controller_folder(&world, Some(Utf8Path::new("x"))).unwrap(), world.folder.join("x"));
        assert_eq!(host_program(&world), root.join("target/debug/mesh-host"));
    }
}
