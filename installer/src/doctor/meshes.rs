//! The meshes of this machine: where each lies, and what carries the mark of one that lies nowhere any more.
//!
//! In: the engine's containers, units of systemd, running hosts. Out: meshes with their roots, findings. Not here: taking
//! anything away; what is left of a mesh may be the last of something that somebody needs.

use std::collections::{BTreeMap, BTreeSet};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_engine::Container;
use mesh_protocol::layout::{DEFAULT_ROOT, Layout, label};

use super::check::{Finding, expect, wrong};
use super::engine::NO_ENGINE;
use crate::config::HOST_PROGRAM;
use crate::mesh_file::MeshFile;
use crate::output::Code;

/// Where units are that an administrator, or a mesh, put there.
const UNITS: &str = "/etc/systemd/system";

/// The meshes that lie on this machine, by id, as far as they can be found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Meshes(BTreeMap<String, Utf8PathBuf>);

/// A unit of systemd that starts a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) path: Utf8PathBuf,
    pub(super) mesh: String,
    root: Option<Utf8PathBuf>,
}

impl Meshes {
    /// Looks where meshes usually lie, where `root` says, where hosts run, and where containers have what they see.
    pub(super) fn look(root: &Utf8Path, units: &[Unit], containers: &[Container]) -> Self {
        let mut roots: BTreeSet<Utf8PathBuf> = [root.to_owned(), Utf8PathBuf::from(DEFAULT_ROOT)].into();
        roots.extend(units.iter().filter_map(|unit| unit.root.clone()));
        roots.extend(roots_of_hosts());
        let mounts = containers.iter().flat_map(|container| &container.mounts);
        let sources = mounts.filter_map(|mount| Utf8Path::from_path(&mount.source));
        roots.extend(sources.flat_map(Utf8Path::ancestors).map(Utf8Path::to_owned));
        let mesh =
            |root: Utf8PathBuf| Some((MeshFile::read(&Layout::new(&root)).ok()??.mesh.to_string(), root));
        Self(roots.into_iter().filter_map(mesh).collect())
    }

    /// Their ids.
    pub(super) fn ids(&self) -> BTreeSet<String> {
        self.0.keys().cloned().collect()
    }

    /// `mesh h4ve in /var/lib/mesh`
    fn text(&self, mesh: &str) -> String {
        match self.0.get(mesh) {
            Some(root) => format!("mesh {mesh} in {root}"),
            None => format!("mesh {mesh}, which lies nowhere on this machine"),
        }
    }

    /// Whose a container is, for people: `, of mesh h4ve in /var/lib/mesh`; nothing where it is no mesh's.
    pub(super) fn whose(&self, container: &Container) -> String {
        container.labels.get(label::MESH).map(|mesh| format!(", of {}", self.text(mesh))).unwrap_or_default()
    }
}

/// What the hosts that run were given as their roots.
fn roots_of_hosts() -> Vec<Utf8PathBuf> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let root = |process: std::fs::DirEntry| {
        let line = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let words: Vec<&str> = line.split('\0').collect();
        let is_host = Utf8Path::new(words.first()?).file_name() == Some(HOST_PROGRAM);
        let place = words.iter().position(|word| *word == "--root")?;
        is_host.then(|| words.get(place + 1).map(Utf8PathBuf::from))?
    };
    processes.filter_map(root).collect()
}

/// The units that start hosts.
pub(super) fn units() -> Vec<Unit> {
    units_in(Utf8Path::new(UNITS))
}

pub(super) fn units_in(folder: &Utf8Path) -> Vec<Unit> {
    let paths = folder.read_dir_utf8().into_iter().flatten().flatten().map(camino::Utf8DirEntry::into_path);
    let unit = |path: Utf8PathBuf| {
        let mesh = path.file_name()?.strip_prefix("mesh-")?.strip_suffix(".service")?.to_owned();
        let text = std::fs::read_to_string(&path).ok()?;
        let line = text.lines().find(|line| line.starts_with("ExecStart=") && line.contains(HOST_PROGRAM))?;
        let root = line.split_once("--root ").map(|(_, root)| Utf8PathBuf::from(root.trim()));
        Some(Unit { path, mesh, root })
    };
    let mut units: Vec<Unit> = paths.filter_map(unit).collect();
    units.sort_by(|one, other| one.path.cmp(&other.path));
    units
}

/// Units of a mesh that lies nowhere any more fail at every start of the machine.
pub(super) fn leftover_units(units: &[Unit], meshes: &Meshes) -> Finding {
    let check = expect("no units of a mesh that is gone");
    let left: Vec<&Unit> = units.iter().filter(|unit| !meshes.0.contains_key(&unit.mesh)).collect();
    if left.is_empty() {
        return check.met("none");
    }
    let paths: Vec<&str> = left.iter().map(|unit| unit.path.as_str()).collect();
    let remove: Vec<String> = left
        .iter()
        .map(|unit| format!("systemctl disable --now mesh-{}; rm {}", unit.mesh, unit.path))
        .collect();
    check.warned(wrong(
        Code::LeftBehind,
        format!("units are left of meshes that lie nowhere any more: {}", paths.join(", ")),
        paths.join(", "),
        remove.join("; "),
    ))
}

/// The same of containers: they hold names, ports and room. `containers` is none where no engine answers.
pub(super) fn leftover_containers(containers: Option<&[Container]>, meshes: &Meshes) -> Finding {
    let check = expect("no containers of a mesh that is gone");
    let Some(containers) = containers else { return check.skipped(NO_ENGINE) };
    let gone = |container: &&Container| {
        container.labels.get(label::MESH).is_some_and(|mesh| !meshes.0.contains_key(mesh))
    };
    let left: Vec<&Container> = containers.iter().filter(gone).collect();
    if left.is_empty() {
        let others: Vec<String> = meshes.0.keys().map(|mesh| meshes.text(mesh)).collect();
        let known =
            if others.is_empty() { String::new() } else { format!("; here are {}", others.join(", ")) };
        return check.met(format!("none{known}"));
    }
    let texts: Vec<String> =
        left.iter().map(|one| format!("{} ({}{})", one.name, one.state, meshes.whose(one))).collect();
    let names: Vec<&str> = left.iter().map(|one| one.name.as_str()).collect();
    check.warned(wrong(
        Code::LeftBehind,
        format!("containers are left of meshes that lie nowhere any more: {}", texts.join(", ")),
        texts.join(", "),
        format!("if nobody needs them: docker rm -f {}", names.join(" ")),
    ))
}

/// A container's name must be free, or held by this mesh. `holder` is none where no engine answers or the name is not
/// known.
pub(super) fn name(
    name: Option<&str>,
    holder: Option<&Result<Option<Container>, String>>,
    (mesh, meshes): (Option<&MeshFile>, &Meshes),
) -> Finding {
    let Some(name) = name else {
        return expect("a container's name that is free, or this mesh's")
            .skipped("the manifest does not say it");
    };
    let check = expect(format!("container name {name} to be free, or this mesh's"));
    match holder {
        None => check.skipped(NO_ENGINE),
        Some(Err(why)) => check.failed(wrong(
            Code::Engine,
            format!("it cannot be told who holds container name {name}: {why}"),
            why.clone(),
            "see whether `docker ps` answers",
        )),
        Some(Ok(None)) => check.met("free"),
        Some(Ok(Some(container))) => {
            let own = mesh.map(|mesh| mesh.mesh.to_string());
            if own.is_some() && container.labels.get(label::MESH) == own.as_ref() {
                return check.met(format!("held by this mesh ({})", container.id.short()));
            }
            let policy = match container.restart_policy.as_str() {
                "" | "no" => String::new(),
                policy => format!(", which the engine brings back by itself: restart policy {policy}"),
            };
            let found = format!(
                "{} ({}, image {}){}{policy}",
                container.id.short(),
                container.state,
                container.image_reference,
                meshes.whose(container)
            );
            check.failed(wrong(
                Code::NameTaken,
                format!("container name {name} is held by another container{}", meshes.whose(container)),
                found,
                format!("choose another --prefix; or, if nobody needs it: docker rm -f {name}"),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn a_unit_says_whose_it_is_and_where_that_lies() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        let text = "[Service]\nExecStart=/r/bin/mesh-host serve --root /r\n";
        std::fs::write(folder.join("mesh-a7.service"), text).unwrap();
        std::fs::write(folder.join("mesh-other.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
        std::fs::write(folder.join("docker.service"), "").unwrap();
        let units = units_in(folder);
        assert_eq!(units.len(), 1);
        assert_eq!((units[0].mesh.as_str(), units[0].root.as_deref()), ("a7", Some(Utf8Path::new("/r"))));
        assert_eq!(leftover_units(&units, &Meshes::default()).state, State::Warned);
        let living = Meshes([("a7".to_owned(), "/r".into())].into());
        assert_eq!(leftover_units(&units, &living).state, State::Passed);
    }

    #[test]
    fn a_mesh_is_found_where_it_lies() {
        let temp = tempfile::tempdir().unwrap();
        let root = Utf8Path::from_path(temp.path()).unwrap();
        let file = MeshFile::new(
            "m1".parse().unwrap(),
            jiff::Timestamp::UNIX_EPOCH,
            crate::mesh_file::tests::inputs(),
        );
        file.write(&Layout::new(root)).unwrap();
        let meshes = Meshes::look(root, &[], &[]);
        assert!(meshes.ids().contains("m1"));
        assert_eq!(meshes.text("m1"), format!("mesh m1 in {root}"));
    }
}
