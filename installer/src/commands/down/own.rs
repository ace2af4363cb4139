//! What in a mesh's root is the mesh's, down to each file, and how it goes.
//!
//! In: the root, the host's records in it. Out: what is not the mesh's, by path; the rest removed, in an order in which each
//! kill leaves something that can be gone on with. A file is the mesh's by the name that its programs give it, by their
//! records where names are a module's choice, and in a module's data by whom it belongs to. Links are removed, not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::depot::Depot;
use mesh_bundles::files::is_partial_name;
use mesh_durable::{self as durable, checkpoint};
use mesh_protocol::declaration::FileSource;
use mesh_protocol::id::{Digest, ModuleName, SeatName, System, is_file_name};
use mesh_protocol::layout::Layout;

use crate::backup::begun;
use crate::config::HOST_PROGRAM;
use crate::output::{Code, Failure, Result};
use crate::third_party::ThirdParty;
use crate::{doctor, usage};

/// What is the mesh's in its root, in the order in which it is removed: first what is only known by the host's records,
/// then these; the file that says what is the mesh's almost last, and the lock under which this is done at the very end.
const TOP: [&str; 15] = [
    "run",
    "modules",
    "bundles",
    "data",
    "logs",
    "secrets",
    "reports",
    "host",
    "bin",
    "credentials",
    "identity",
    "genesis",
    "journal.jsonl",
    "mesh.json",
    "installer.lock",
];

/// The mode of a module's data, as the host makes it.
const DATA_MODE: u32 = 0o700;

/// What a thing in the root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A file of the mesh.
    File,
    /// A folder of the mesh, in which there may be what is not.
    Folder,
    /// A folder of the mesh with all that is in it.
    Whole,
    /// Somebody else's, with all that is in it.
    Foreign,
}

/// By what the mesh's things in its root are told from others.
#[derive(Debug)]
pub(super) struct Own {
    layout: Layout,
    /// The names in each known folder of a module's files.
    files: BTreeMap<Utf8PathBuf, BTreeSet<String>>,
    /// The names of each known module's secrets.
    secrets: BTreeMap<String, BTreeSet<String>>,
    /// The known modules.
    modules: BTreeSet<String>,
    /// The users that the mesh's accounts are.
    users: BTreeSet<u32>,
    /// What an earlier down found to be somebody else's, while there were records to tell by.
    foreign: BTreeSet<PathBuf>,
    /// Whether all of it was put there by a restore, as far as that came.
    is_restored: bool,
}

impl Own {
    /// By the records that are there now. `users` are those of the mesh's accounts, `foreign` what was found before.
    pub(super) fn of(layout: &Layout, users: BTreeSet<u32>, foreign: &[Utf8PathBuf]) -> Self {
        let mut own = Self {
            layout: layout.clone(),
            files: BTreeMap::new(),
            secrets: BTreeMap::new(),
            modules: BTreeSet::new(),
            users,
            foreign: foreign.iter().map(|path| path.as_std_path().to_owned()).collect(),
            is_restored: begun::is_there(layout),
        };
        for section in usage::sections_on_disk(layout) {
            let folder = layout.module(&section.name, &section.files_digest());
            let files = own.files.entry(folder).or_default();
            let secrets = own.secrets.entry(section.name.to_string()).or_default();
            for file in section.files {
                if let FileSource::Secret { name, .. } = file.source {
                    let _ = secrets.insert(name);
                }
                let _ = files.insert(file.name);
            }
            let _ = own.modules.insert(section.name.to_string());
        }
        own
    }

    /// What is in the root and not the mesh's: of a folder that is not, the folder alone.
    pub(super) fn foreign(&self) -> Result<Vec<Utf8PathBuf>> {
        let mut found = Vec::new();
        let root = self.layout.root();
        self.foreign_in(root.as_std_path(), &mut found).map_err(|error| unreadable(root, &error))?;
        let shown = |path: PathBuf| Utf8PathBuf::from(path.to_string_lossy().into_owned());
        let mut found: Vec<Utf8PathBuf> = found.into_iter().map(shown).collect();
        found.sort();
        Ok(found)
    }

    fn foreign_in(&self, folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
        for (path, facts) in entries_of(folder)? {
            match self.kind(&path, &facts) {
                Kind::File | Kind::Whole => {}
                Kind::Folder => self.foreign_in(&path, found)?,
                Kind::Foreign => found.push(path),
            }
        }
        Ok(())
    }

    /// Removes what is the mesh's, and the root if nothing else is in it.
    pub(super) fn remove(&self) -> Result<()> {
        let root = self.layout.root();
        let failed = |path: &Path, error: &io::Error| {
            let what = format!("{} cannot be removed", path.display());
            Failure::because(Code::LeftBehind, &what, error).part_way()
        };
        let is_named = |path: &Path| path.file_name().is_some_and(|name| TOP.iter().any(|top| name == *top));
        // What a killed writer left beside the mesh's own files, and what a killed look at this machine left.
        let others = entries_of(root.as_std_path()).map_err(|error| unreadable(root, &error))?;
        let others = others.into_iter().map(|(path, _)| path).filter(|path| !is_named(path));
        let named = TOP.iter().map(|name| root.as_std_path().join(name));
        for path in others.chain(named) {
            let Ok(facts) = fs::symlink_metadata(&path) else { continue };
            if self.kind(&path, &facts) == Kind::Foreign {
                continue;
            }
            let removing = || self.remove_one(&path, &facts);
            checkpoint::around(|| format!("remove {}", path.display()), removing)
                .map_err(|error| failed(&path, &error))?;
        }
        let removing = || remove_if_empty(root.as_std_path());
        checkpoint::around(|| format!("remove folder {root}"), removing)
            .map_err(|error| failed(root.as_std_path(), &error))
    }

    fn remove_one(&self, path: &Path, facts: &Metadata) -> io::Result<()> {
        let removed = match self.kind(path, facts) {
            Kind::Foreign => return Ok(()),
            Kind::File => fs::remove_file(path),
            Kind::Whole => fs::remove_dir_all(path),
            Kind::Folder => {
                let mut entries = entries_of(path)?;
                // Folders first: the record of what is in a bundle's folder lies beside it.
                entries.sort_by_key(|(_, facts)| !facts.is_dir());
                for (path, facts) in entries {
                    self.remove_one(&path, &facts)?;
                }
                remove_if_empty(path)
            }
        };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    fn kind(&self, path: &Path, facts: &Metadata) -> Kind {
        let Ok(below) = path.strip_prefix(self.layout.root().as_std_path()) else { return Kind::Foreign };
        if self.foreign.contains(path) {
            return Kind::Foreign;
        }
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        let is = |ours: bool, kind: Kind| if ours { kind } else { Kind::Foreign };
        if let ["data", module, inside @ ..] = &parts[..] {
            return is(self.is_data(module, inside, facts), kind_of(facts));
        }
        let name = parts.last().copied().unwrap_or_default();
        if facts.is_dir() {
            let is_whole = (parts.len() == 1 && doctor::is_probe(name))
                || (parts.len() > 1 && is_partial_name(name))
                || (parts.len() == 2 && parts[0] == "bundles" && Depot::is_work(name));
            return if is_whole { Kind::Whole } else { is(self.is_folder(&parts), Kind::Folder) };
        }
        // What a killed writer left.
        let is_begun = facts.is_file() && (durable::is_beside(name) || is_partial_name(name));
        is(is_begun || self.is_file(&parts), Kind::File)
    }

    /// A module's data is whose its folder is: no other account can write there but root's, and what is root's there was put
    /// there by hand. A folder that still is root's was only just made, or came out of a backup.
    fn is_data(&self, module: &str, inside: &[&str], facts: &Metadata) -> bool {
        let folder = self.layout.root().as_std_path().join("data").join(module);
        let Ok(owner) = fs::symlink_metadata(&folder).map(|facts| facts.uid()) else { return false };
        if !inside.is_empty() {
            return facts.uid() == owner || self.users.contains(&facts.uid());
        }
        let is_known = self.modules.contains(module) || self.is_restored;
        // Of a module that is not on this node any more the data stays, and nothing else tells of it.
        let has_been = owner != 0 && facts.mode() & 0o7777 == DATA_MODE;
        facts.is_dir() && module.parse::<ModuleName>().is_ok() && (is_known || has_been)
    }

    fn is_folder(&self, parts: &[&str]) -> bool {
        match parts {
            [top] => TOP.contains(top),
            ["run", run] | ["host", "incarnations", run] => is_run(run),
            ["modules" | "secrets", module] => {
                module.parse::<ModuleName>().is_ok() && self.is_module_s(parts)
            }
            ["modules", _, digest] => is_hex(digest, 12),
            ["bundles", digest] => is_hex(digest, 64),
            ["bundles", digest, inside @ ..] => self.is_in_bundle(digest, inside),
            ["host", "fetch" | "handover" | "steady" | "recovered" | "incarnations"] => true,
            _ => false,
        }
    }

    /// A folder for a module's files or secrets: of one that is known, or with something of the mesh in it, or nothing yet.
    fn is_module_s(&self, parts: &[&str]) -> bool {
        let folder: PathBuf = self.layout.root().as_std_path().join(parts.iter().collect::<PathBuf>());
        let entries = entries_of(&folder).unwrap_or_default();
        let is_ours = |(path, facts): &(PathBuf, Metadata)| self.kind(path, facts) != Kind::Foreign;
        parts.last().is_some_and(|module| self.modules.contains(*module))
            || entries.is_empty()
            || entries.iter().any(is_ours)
    }

    fn is_file(&self, parts: &[&str]) -> bool {
        let json = |name: &str| name.strip_suffix(".json").map(str::to_owned);
        match parts {
            ["journal.jsonl" | "mesh.json" | "installer.lock"]
            | ["bundles", ".lock"]
            | ["run", _, "instance" | "role" | "role.ack"]
            | ["credentials", "host.creds" | "operator.creds" | "prober.creds"]
            | ["identity", "bus-keys.json" | "bus-keys.json.new"]
            | ["genesis", begun::MARK]
            | ["host", "declaration.json" | "host.json" | "ledger.json"]
            | ["host", "lock" | "dissolved" | "door.sock"]
            // Tests put these there, and nobody else.
            | ["host", "checkpoints" | "checkpoints.log" | "checkpoints.fired" | "trace"]
            | ["host", "incarnations", _, "launch.json" | "gate" | "started.json" | "exit.json"] => true,
            ["bin", name] => *name == HOST_PROGRAM,
            ["modules", module, digest, name] => {
                let folder = self.layout.modules().join(module).join(digest);
                // A folder that no record knows any more was about to be removed by the host.
                self.files.get(&folder).map_or_else(|| is_file_name(name), |names| names.contains(*name))
            }
            ["secrets", module, name] => {
                let is_known = self.secrets.get(*module).is_some_and(|names| names.contains(*name));
                is_known || is_genesis_s(module, name) || (self.is_restored && is_file_name(name))
            }
            ["bundles", name] => json(name).is_some_and(|digest| is_hex(&digest, 64)),
            ["bundles", digest, inside @ ..] => self.is_in_bundle(digest, inside),
            ["logs", name] => {
                let name = name.trim_end_matches(".1").strip_suffix(".log");
                name.is_some_and(|name| name == "host" || name.starts_with("process-"))
            }
            ["reports", name] => json(name).is_some_and(|name| is_moment(name.split('-').next())),
            ["genesis", name] => is_packed(name),
            ["host", "fetch", name] => name.strip_suffix(".tar.gz").is_some_and(|name| is_hex(name, 64)),
            ["host", "handover" | "steady" | "recovered", name] => {
                json(name).is_some_and(|seat| seat.parse::<SeatName>().is_ok())
            }
            _ => false,
        }
    }

    /// By the record of what was unpacked; without one it was not unpacked to its end.
    fn is_in_bundle(&self, digest: &str, inside: &[&str]) -> bool {
        let Ok(digest) = format!("sha256:{digest}").parse::<Digest>() else { return false };
        let contents = Depot::contents(self.layout.bundles().as_std_path(), &digest);
        contents.is_none_or(|contents| contents.contains(&inside.iter().collect::<PathBuf>()))
    }
}

fn kind_of(facts: &Metadata) -> Kind {
    if facts.is_dir() { Kind::Folder } else { Kind::File }
}

/// The secrets that genesis makes, whether they were declared yet or not; the controller's module has the name that its
/// manifest gives it.
fn is_genesis_s(module: &str, name: &str) -> bool {
    match name {
        "seat.creds" | "state.creds" => true,
        "nats.conf" => module == ThirdParty::Bus.name(),
        "config.yml" => module == ThirdParty::Store.name(),
        _ => false,
    }
}

/// What genesis packs, and what restore unpacks for the engine.
fn is_packed(name: &str) -> bool {
    let is_image =
        |name: &str| is_hex(name, 64) || name.strip_suffix(".image").is_some_and(|id| is_hex(id, 12));
    let is_of_system =
        |name: &str| System::ALL.iter().any(|system| name.ends_with(&format!("-{}", system.dashed())));
    match (name.strip_suffix(".tar"), name.strip_suffix(".tar.gz")) {
        (Some(name), _) => is_image(name),
        (_, Some(name)) => name.ends_with(".layer") || is_of_system(name),
        _ => false,
    }
}

/// A run, as hosts name them: `p-9c2d54571c`.
pub(super) fn is_run(name: &str) -> bool {
    let number = name.strip_prefix("p-").or_else(|| name.strip_prefix("c-"));
    number.is_some_and(|number| is_hex(number, 10))
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `20261201T000048`
fn is_moment(text: Option<&str>) -> bool {
    let is_right = |(place, c): (usize, char)| if place == 8 { c == 'T' } else { c.is_ascii_digit() };
    text.is_some_and(|text| text.len() == 15 && text.chars().enumerate().all(is_right))
}

/// The entries of a folder, following no link; none of one that is gone.
fn entries_of(folder: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        match fs::symlink_metadata(&path) {
            Ok(facts) => found.push((path, facts)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}

/// A folder in which something of somebody else's is stays.
fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => removed,
    }
}

fn unreadable(folder: &Utf8Path, error: &io::Error) -> Failure {
    Failure::because(Code::Io, &format!("folder {folder} cannot be read"), error)
}

#[cfg(test)]
mod tests;
