//! `mesh logs`: what a process, a container or the host of this machine wrote.
//!
//! In: a resource id. Out: its lines. A process's log is a file that is rotated, a container's is the engine's. Not
//! here: logs of other nodes.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_engine::{Container, Engine, LabelSelector};
use mesh_protocol::id::{ResourceId, ResourceKind};
use mesh_protocol::layout::{Layout, label};

use crate::cli;
use crate::genesis::engine_failure;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Printer, Result};
use crate::world::World;

/// How often a log is looked at: as live as a person can tell.
const POLL: Duration = Duration::from_millis(200);

/// The most that is read at once from a log's end.
const LONGEST_TAIL: u64 = 4 * 1024 * 1024;

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    options: &cli::Logs,
    printer: &Printer,
) -> Result<()> {
    let mesh = MeshFile::must_read(layout)?;
    if options.resource == "host" {
        return file(Source::One(layout.log("host")), options, printer).await;
    }
    let id: ResourceId = options.resource.parse().map_err(|error| {
        Failure::of(Code::InvalidRequest, &error)
            .hint("mesh nodes lists the resources; `host` is the host's own log")
    })?;
    match id.kind() {
        ResourceKind::Process => {
            file(Source::Runs { folder: layout.logs(), prefix: Layout::log_prefix(&id) }, options, printer)
                .await
        }
        ResourceKind::Container => container(world, &mesh, &id, options, printer).await,
        kind => Err(Failure::new(Code::NotFound, format!("a {} writes no log", kind.as_str()))
            .expected("process:NAME, container:NAME or host")),
    }
}

/// Where lines come from.
enum Source {
    /// One file.
    One(Utf8PathBuf),
    /// One file a run: the newest is shown, and followed into the next run's.
    Runs { folder: Utf8PathBuf, prefix: String },
}

impl Source {
    fn newest(&self) -> Result<Utf8PathBuf> {
        let (folder, prefix) = match self {
            Self::One(path) => return Ok(path.clone()),
            Self::Runs { folder, prefix } => (folder, prefix),
        };
        let entries = folder.read_dir_utf8().map_err(|error| unreadable(folder, &error))?.flatten();
        let ours = entries.filter(|e| e.file_name().starts_with(prefix) && e.file_name().ends_with(".log"));
        let changed = |path: &Utf8Path| std::fs::metadata(path).and_then(|facts| facts.modified()).ok();
        ours.map(|entry| entry.path().to_owned()).max_by_key(|path| changed(path)).ok_or_else(|| {
            unreadable(&folder.join(format!("{prefix}*.log")), &io::ErrorKind::NotFound.into())
        })
    }
}

async fn file(source: Source, options: &cli::Logs, printer: &Printer) -> Result<()> {
    let mut log = FileLog::open(&source.newest()?, options.lines)?;
    loop {
        for line in log.lines().map_err(|error| unreadable(&log.path, &error))? {
            printer.data(&line);
        }
        if !options.follow {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
        let newest = source.newest()?;
        if newest != log.path {
            log = FileLog::open(&newest, usize::MAX)?;
        }
    }
}

fn unreadable(path: &Utf8Path, error: &io::Error) -> Failure {
    let (code, hint) = match error.kind() {
        io::ErrorKind::NotFound => {
            (Code::NotFound, Some("it has not run on this machine; mesh nodes lists what does"))
        }
        io::ErrorKind::PermissionDenied => (Code::NotRoot, Some("run this as root")),
        _ => (Code::Io, None),
    };
    Failure::because(code, &format!("log {path} cannot be read"), error).maybe_hint(hint.map(str::to_owned))
}

/// A log that may be rotated while it is read: then the old one is read to its end, and the new one from its begin.
struct FileLog {
    path: Utf8PathBuf,
    file: File,
    rest: Vec<u8>,
    skip: Option<usize>,
}

impl FileLog {
    fn open(path: &Utf8Path, lines: usize) -> Result<Self> {
        let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let length = file.metadata().map_err(|error| unreadable(path, &error))?.len();
        let start = length.saturating_sub(LONGEST_TAIL);
        file.seek(SeekFrom::Start(start)).map_err(|error| unreadable(path, &error))?;
        Ok(Self { path: path.to_owned(), file, rest: Vec::new(), skip: Some(lines) })
    }

    /// The whole lines that came since the last look.
    fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = self.read()?;
        if self.is_rotated() {
            if !self.rest.is_empty() {
                lines.push(String::from_utf8_lossy(&std::mem::take(&mut self.rest)).into_owned());
            }
            self.file = File::open(&self.path)?;
            lines.extend(self.read()?);
        }
        if let Some(wanted) = self.skip.take() {
            lines.drain(..lines.len().saturating_sub(wanted));
        }
        Ok(lines)
    }

    fn read(&mut self) -> io::Result<Vec<String>> {
        self.file.read_to_end(&mut self.rest)?;
        let mut lines = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            lines.push(String::from_utf8_lossy(&line[..end]).into_owned());
        }
        Ok(lines)
    }

    fn is_rotated(&self) -> bool {
        let open = self.file.metadata();
        let named = std::fs::metadata(&self.path);
        matches!((open, named), (Ok(open), Ok(named)) if open.ino() != named.ino())
    }
}

async fn container(
    world: &World,
    mesh: &MeshFile,
    id: &ResourceId,
    options: &cli::Logs,
    printer: &Printer,
) -> Result<()> {
    let endpoint = mesh_engine::endpoint::resolve(None, &world.engine_environment());
    let endpoint = endpoint.map_err(|error| Failure::of(Code::EngineEndpoint, &error))?;
    let engine = Engine::connect(&endpoint).await.map_err(|error| engine_failure(&error))?;
    let found = find(&engine, mesh, id).await?;
    let mut shown: Vec<String> = Vec::new();
    loop {
        let tail = engine
            .logs_tail(&found.id, options.lines.max(1))
            .await
            .map_err(|error| engine_failure(&error))?;
        for line in &tail[overlap(&shown, &tail)..] {
            printer.data(line);
        }
        shown = tail;
        if !options.follow {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
    }
}

async fn find(engine: &Engine, mesh: &MeshFile, id: &ResourceId) -> Result<Container> {
    let selector =
        LabelSelector::is(label::MESH, mesh.mesh.as_str()).and_is(label::RESOURCE, &id.to_string());
    let mut found = engine.list(&selector).await.map_err(|error| engine_failure(&error))?;
    found.sort_by_key(|container| container.started_at);
    found.pop().ok_or_else(|| {
        Failure::new(Code::NotFound, format!("{id} is not in the container engine"))
            .hint("mesh nodes lists what runs on this machine")
    })
}

/// How much of the new tail the old one shows already: the longest end of the old one that the new one begins with.
fn overlap(old: &[String], new: &[String]) -> usize {
    (0..=old.len().min(new.len())).rev().find(|count| old[old.len() - count..] == new[..*count]).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn only_what_is_new_is_shown() {
        assert_eq!(overlap(&lines(&[]), &lines(&["a", "b"])), 0);
        assert_eq!(overlap(&lines(&["a", "b"]), &lines(&["a", "b", "c"])), 2);
        assert_eq!(overlap(&lines(&["a", "b", "c"]), &lines(&["b", "c", "d"])), 2);
        assert_eq!(overlap(&lines(&["a"]), &lines(&["a"])), 1);
    }

    #[test]
    fn a_log_is_followed_through_its_rotation() {
        let temp = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(temp.path()).unwrap().join("x.log");
        std::fs::write(&path, "1\n2\n3\nhal").unwrap();
        let mut log = FileLog::open(&path, 2).unwrap();
        assert_eq!(log.lines().unwrap(), ["2", "3"]);
        std::fs::write(&path, "1\n2\n3\nhalf\n4\n").unwrap();
        assert_eq!(log.lines().unwrap(), ["half", "4"]);
        std::fs::rename(&path, temp.path().join("x.log.1")).unwrap();
        std::fs::write(&path, "5\n").unwrap();
        assert_eq!(log.lines().unwrap(), ["5"]);
        assert!(log.lines().unwrap().is_empty());
    }
}
