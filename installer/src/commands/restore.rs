//! `mesh restore`: a mesh out of a backup, on a machine that has lost it.
//!
//! In: a backup, an empty root. Out: a mesh whose seat is answered by a process, as after a power cut at the instant of the
//! backup. The files are put in place, `host.json` last: from then on there is a mesh, which the host brings up by what it
//! holds. Killed anywhere, the same command goes on. Not here: what is in a backup (`crate::backup`).

mod machine;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_durable as durable;
use mesh_engine::Engine;
use mesh_protocol::handover::{Form, Role};
use mesh_protocol::id::{InstanceId, System};
use mesh_protocol::layout::{HostFile, Layout};
use mesh_protocol::verb::{StatusAnswer, Verb};

use super::backup::beside;
use crate::backup::begun::{self, Mark, mark_of};
use crate::backup::{Manifest, Opened};
use crate::follow::watch::Watch;
use crate::genesis::engine_failure;
use crate::journal::Journal;
use crate::lock::InstallerLock;
use crate::mesh_file::{LoadedImage, MeshFile};
use crate::output::event::Stage;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::session::{Nothing, Session};
use crate::world::World;
use crate::{cli, config, daemon, images};

/// The bus, then the controller, then the store: some seconds, many times that on a starved machine.
const SEAT_LIMIT: Duration = Duration::from_secs(120);

const ANSWER: Duration = Duration::from_secs(1);

const POLL: Duration = Duration::from_millis(50);

/// The steps, in their order, each with what it makes true.
const MACHINE: (&str, &str) = ("machine", "is the backup whole, and can this machine take it?");
const FILES: (&str, &str) = ("files", "put the mesh's files in place");
const IMAGES: (&str, &str) = ("images", "the images of its containers");
const HOST: (&str, &str) = ("host", "start the host");
const SEAT: (&str, &str) = ("seat", "the seat is answered by a process, and its host says so");

/// How far an earlier restore of this backup came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// There is nothing, or files of it: they are put in place again.
    Nothing,
    /// All files are in place, and the host may run by them: they are not touched.
    Files,
}

pub(super) async fn run(
    world: &World,
    layout: &Layout,
    options: &cli::Restore,
    printer: &Printer,
) -> Result<()> {
    let file = config::absolute(world, &options.file);
    let opened = Opened::read(&file)?;
    let found = look(layout, &opened)?;
    let mut work = Work {
        world,
        layout,
        printer,
        journal: None,
        opened,
        small: Small::new(),
        watch: Watch::new(printer.now()),
        started: Instant::now(),
        began: Instant::now(),
    };
    let done = work.all(found).await;
    if let Err(failure) = &done {
        // What cannot be noted is not more important than what went wrong.
        let _ = work.note(Event::Failed { failure: failure.clone() });
    }
    done
}

struct Work<'a> {
    world: &'a World,
    layout: &'a Layout,
    printer: &'a Printer,
    journal: Option<Journal>,
    opened: Opened,
    /// The files of it that are looked into.
    small: Small,
    watch: Watch,
    /// When the command began, and the present step.
    started: Instant,
    began: Instant,
}

impl Work<'_> {
    async fn all(&mut self, found: Found) -> Result<()> {
        let engine = images::engine(self.world).await?;
        if found == Found::Nothing {
            self.step(MACHINE)?;
            let opened = self.opened.clone();
            self.small = beside(move || opened.verify(&machine::LOOKED_INTO)).await?;
            machine::check(self.world, self.layout, &self.opened, &self.small, &engine).await?;
            let Manifest { name, node, created, .. } = &self.opened.manifest;
            self.done(MACHINE, format!("mesh {name} of node {node}, as of {created:.0}"))?;
        }
        durable::make_parents(self.layout.root())
            .and_then(|()| durable::ensure_folder(self.layout.root(), 0o711))
            .map_err(|error| Failure::of(Code::RootUnusable, &error))?;
        let lock = InstallerLock::take(&self.layout.installer_lock(), "restore", (self.world.clock)())?;
        if look(self.layout, &self.opened)? != found {
            return Err(Failure::new(Code::Locked, "another restore began in this root meanwhile")
                .hint("run this again"));
        }
        self.go_on(found, &engine).await.map_err(part_way)?;
        drop(lock);
        let name = &self.opened.manifest.name;
        let text =
            format!("mesh {name} is back in {}; look at it: mesh status --root {0}", self.layout.root());
        self.tell(&Event::Finished { text })
    }

    async fn go_on(&mut self, found: Found, engine: &Engine) -> Result<()> {
        let mut journal = Journal::open(&self.layout.journal(), self.world.clock)?;
        let words = self.world.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        journal.note(Event::Command { words, version: env!("CARGO_PKG_VERSION").to_owned() })?;
        self.journal = Some(journal);
        if found == Found::Nothing {
            self.files().await?;
        }
        self.images(engine).await?;
        if found == Found::Nothing {
            self.host_file()?;
        }
        self.step(HOST)?;
        let mesh = MeshFile::must_read(self.layout)?;
        self.effect(HOST, "start the host")?;
        daemon::start(self.world, self.layout, &mesh.mesh).await?;
        self.done(HOST, "the host runs")?;
        self.seat(&mesh).await?;
        durable::remove(&mark_of(self.layout)).map_err(|error| Failure::of(Code::Io, &error))
    }

    async fn files(&mut self) -> Result<()> {
        self.step(FILES)?;
        let failed = |error: durable::DurableError| Failure::of(Code::Io, &error);
        let work = self.layout.genesis_work();
        durable::ensure_folder(&work, 0o700).map_err(failed)?;
        self.effect(FILES, format!("put {} files in place", self.opened.manifest.files.len()))?;
        let mark = Mark { manifest: self.opened.digest.clone() };
        durable::write_json(&mark_of(self.layout), &mark, 0o600).map_err(failed)?;
        // First: so that what was begun can be taken down by its name.
        durable::write(&self.layout.mesh_file(), self.small("mesh.json")?, 0o600).map_err(failed)?;
        for folder in [&self.layout.logs(), &self.layout.host()] {
            durable::ensure_folder(folder, 0o700).map_err(failed)?;
        }
        let (opened, root) = (self.opened.clone(), self.layout.root().to_owned());
        beside(move || opened.unpack(&root, &work, Utf8Path::new(HOST_FILE))).await?;
        self.done(FILES, format!("{} files in {}", self.opened.manifest.files.len(), self.layout.root()))
    }

    /// What is there already stays; what is put into the engine here, `down` may take out again.
    async fn images(&mut self, engine: &Engine) -> Result<()> {
        self.step(IMAGES)?;
        let mut mesh = MeshFile::must_read(self.layout)?;
        let mut there = Vec::new();
        for image in self.opened.manifest.images.clone() {
            let archive = self.layout.genesis_work().join(format!("{}.tar", image.digest.hex()));
            let held = engine.find_image(&image.reference).await.map_err(|error| engine_failure(&error))?;
            if held.is_none() {
                self.effect(IMAGES, format!("load image {} into the engine", image.reference))?;
                images::load_file(engine, &archive).await?;
                let loaded =
                    engine.find_image(&image.reference).await.map_err(|error| engine_failure(&error))?;
                let loaded = loaded.ok_or_else(|| {
                    Failure::new(
                        Code::ImageMissing,
                        format!("image {} was loaded and is not there", image.reference),
                    )
                })?;
                there.push(LoadedImage { reference: image.reference.clone(), id: loaded.id });
            } else {
                there.extend(mesh.images.iter().filter(|own| own.reference == image.reference).cloned());
            }
            durable::remove(&archive).map_err(|error| Failure::of(Code::Io, &error))?;
        }
        mesh.images = there;
        mesh.write(self.layout)?;
        let references: Vec<&str> =
            self.opened.manifest.images.iter().map(|image| image.reference.as_str()).collect();
        self.done(IMAGES, references.join(", "))
    }

    /// The last file: it makes a mesh of what lies there.
    fn host_file(&mut self) -> Result<()> {
        let mut file: HostFile = serde_json::from_slice(self.small(HOST_FILE)?)
            .map_err(|error| Failure::of(Code::BackupInvalid, &error))?;
        file.engine = images::endpoint(self.world)?.address.to_string();
        let text = serde_json::to_vec_pretty(&file).map_err(|error| Failure::of(Code::Internal, &error))?;
        durable::write(&self.layout.host_file(), &text, 0o600).map_err(|error| Failure::of(Code::Io, &error))
    }

    async fn seat(&mut self, mesh: &MeshFile) -> Result<()> {
        self.step(SEAT)?;
        let deadline = tokio::time::Instant::now() + SEAT_LIMIT;
        loop {
            let waits_for = match answered(self.layout, mesh).await {
                Ok((status, by, form)) => match serves(&status, mesh, &by, form) {
                    Ok(()) => {
                        self.waits(None);
                        return self.done(SEAT, format!("answered by {by}, a process, as its host reports"));
                    }
                    Err(waits_for) => waits_for,
                },
                Err(failure) => failure.what.clone(),
            };
            if tokio::time::Instant::now() > deadline {
                return Err(not_served(&waits_for));
            }
            self.waits(Some(&waits_for));
            tokio::time::sleep(POLL).await;
        }
    }

    fn small(&self, name: &str) -> Result<&[u8]> {
        let found = self.small.get(Utf8Path::new(name)).map(Vec::as_slice);
        found.ok_or_else(|| Failure::new(Code::Internal, format!("{name} was not looked into")))
    }

    fn step(&mut self, (step, goal): (&str, &str)) -> Result<()> {
        self.began = Instant::now();
        self.tell(&Event::Begun { step: step.to_owned(), goal: goal.to_owned() })
    }

    fn effect(&mut self, (step, _): (&str, &str), what: impl Into<String>) -> Result<()> {
        self.tell(&Event::Effect { step: step.to_owned(), what: what.into() })
    }

    fn done(&mut self, (step, _): (&str, &str), text: impl Into<String>) -> Result<()> {
        let milliseconds = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.tell(&Event::Done { step: step.to_owned(), text: text.into(), milliseconds })
    }

    fn waits(&mut self, waiting_for: Option<&str>) {
        let mut events = Vec::new();
        self.watch.see_wait(waiting_for, SEAT.0, self.started.elapsed(), &mut events);
        for event in events {
            if matches!(event, Event::Waiting { stage: Stage::Begun, .. }) {
                // What cannot be noted is not more important than what is waited for.
                let _ = self.journal.as_mut().map(|journal| journal.remark(event.clone()));
            }
            self.printer.event(&event);
        }
    }

    fn note(&mut self, event: Event) -> Result<()> {
        match &mut self.journal {
            Some(journal) => journal.note(event),
            None => Ok(()),
        }
    }

    /// Writes an event down, then says it.
    fn tell(&mut self, event: &Event) -> Result<()> {
        self.note(event.clone())?;
        self.printer.event(event);
        Ok(())
    }
}

/// Small files of a backup, by their paths.
type Small = BTreeMap<Utf8PathBuf, Vec<u8>>;

const HOST_FILE: &str = "host/host.json";

async fn answered(layout: &Layout, mesh: &MeshFile) -> Result<(StatusAnswer, InstanceId, Form)> {
    let session = Session::open(layout, mesh).await?;
    let (status, by) = session.ask_once::<_, StatusAnswer>(Verb::Status, &Nothing {}, ANSWER).await?;
    Ok((status, by.instance, by.form))
}

/// Whether a mesh is back: a process answers, and this machine's host has reported that it serves. The seat answers a
/// moment before that; whoever then asks for the status is shown a seat without a holder. Else what is waited for.
fn serves(
    status: &StatusAnswer,
    mesh: &MeshFile,
    by: &InstanceId,
    form: Form,
) -> std::result::Result<(), String> {
    if form != Form::Process {
        return Err(format!("the process, and not {by}"));
    }
    let node = &mesh.inputs.node;
    // A report of before says what was: only one that knows the run that answers was made since.
    let instances = &status.seat.instances;
    let Some(instance) = instances.iter().find(|instance| &instance.instance == by) else {
        return Err(format!("the report of node {node}'s host that {by} serves"));
    };
    if instance.role != Role::Serving {
        return Err(format!("{by} to be serving, and not {}", instance.role.as_str()));
    }
    if !status.nodes.iter().any(|found| &found.name == node) {
        return Err(format!("node {node} to be known"));
    }
    Ok(())
}

fn not_served(waits_for: &str) -> Failure {
    Failure::new(Code::NotReached, "the mesh's files are back, and its seat is not served")
        .expected(format!(
            "an answer, and the host's report of who gives it, within {} s",
            SEAT_LIMIT.as_secs()
        ))
        .found(format!("still waiting for {waits_for}"))
        .hint("see mesh status and mesh logs host; the same command waits again")
}

/// Looks whether the root is empty, or has what an earlier restore of this backup put there.
fn look(layout: &Layout, opened: &Opened) -> Result<Found> {
    let root = layout.root();
    let refused = || Failure::new(Code::RootUnusable, format!("folder {root} cannot take a backup"));
    if opened.manifest.system != System::of_this_program() {
        return Err(Failure::new(
            Code::UnsupportedSystem,
            "the programs in the backup are not of this machine's system",
        )
        .expected(System::of_this_program().to_string())
        .found(opened.manifest.system.to_string()));
    }
    match Mark::read(layout)? {
        Some(mark) if mark.manifest == opened.digest => {
            Ok(if layout.host_file().exists() { Found::Files } else { Found::Nothing })
        }
        Some(_) => Err(refused()
            .expected("nothing in it, or what was begun of this backup")
            .found("what was begun of another backup")
            .hint(format!("go on with that one, or remove it: mesh down --destroy NAME --root {root}"))),
        None => {
            begun::no_genesis(layout)?;
            let own = [layout.installer_lock(), layout.journal(), layout.genesis_work()];
            let entries = match root.read_dir_utf8() {
                Ok(entries) => entries.flatten().collect::<Vec<_>>(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                Err(error) => {
                    return Err(Failure::because(
                        Code::RootUnusable,
                        &format!("folder {root} cannot be read"),
                        &error,
                    ));
                }
            };
            let mut foreign: Vec<&str> = entries
                .iter()
                .filter(|entry| !own.iter().any(|own| own == entry.path()))
                // What a killed restore left beside its files.
                .filter(|entry| !durable::is_beside(entry.file_name()))
                .map(camino::Utf8DirEntry::file_name)
                .collect();
            foreign.sort_unstable();
            if foreign.is_empty() {
                return Ok(Found::Nothing);
            }
            let hint = if layout.mesh_file().exists() {
                format!(
                    "there is a mesh: take it down first (mesh down --root {root}), or choose another --root"
                )
            } else {
                "choose another --root, or empty it".to_owned()
            };
            Err(refused().expected("no folder, or an empty one").found(foreign.join(", ")).hint(hint))
        }
    }
}

fn part_way(mut failure: Failure) -> Failure {
    failure = failure.part_way();
    if failure.hint.is_none() {
        failure.hint = Some("mend it and run the same command again: it goes on from here".to_owned());
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(instances: &serde_json::Value) -> StatusAnswer {
        let node = serde_json::json!({
            "name": "n1", "system": "linux/amd64", "generation": { "declared": 1, "applied": 1 },
            "state": "converged", "reported": "2026-01-01T00:00:00Z", "resources": [],
        });
        let status = serde_json::json!({
            "mesh": { "id": "m1", "name": "lab" },
            "bus": { "url": "nats://127.0.0.1:4222" },
            "seat": { "name": "s", "subject": "mesh.m1.seat.s", "instances": instances, "handovers": [] },
            "nodes": [node],
            "plan_lock": { "holder": null, "token": null, "plan": null },
        });
        serde_json::from_value(status).unwrap()
    }

    fn instance(run: &str, role: &str) -> serde_json::Value {
        serde_json::json!({
            "instance": run, "seat": "s", "resource": "process:s", "form": "process", "role": role,
            "version": "1", "since": "2026-01-01T00:00:00Z",
        })
    }

    #[test]
    fn a_mesh_is_back_when_the_host_has_reported_the_process_that_answers() {
        let inputs = crate::mesh_file::tests::inputs();
        let mesh = MeshFile::new("m1".parse().unwrap(), jiff::Timestamp::UNIX_EPOCH, inputs);
        let by: InstanceId = "p-0123456789".parse().unwrap();
        let told = |instances: serde_json::Value, form| serves(&status(&instances), &mesh, &by, form);
        let serving = || serde_json::json!([instance("p-0123456789", "serving")]);
        told(serving(), Form::Process).unwrap();
        assert!(told(serving(), Form::Container).unwrap_err().contains("the process, and not"));
        // Before the host's first report there is nobody, or whom the backup's own report names.
        for early in [serde_json::json!([]), serde_json::json!([instance("p-9876543210", "serving")])] {
            assert!(told(early, Form::Process).unwrap_err().contains("the report of node n1's host"));
        }
        let standby = serde_json::json!([instance("p-0123456789", "standing-by")]);
        assert!(told(standby, Form::Process).unwrap_err().contains("serving"));
        let failure = not_served("the report of node n1's host");
        assert_eq!(failure.code, Code::NotReached);
        assert_eq!(failure.found.as_deref(), Some("still waiting for the report of node n1's host"));
    }
}
