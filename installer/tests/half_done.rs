//! A mesh that is half done, and at which nothing runs, explains itself from what genesis wrote.
//!
//! In: roots as a genesis leaves them that was killed, failed, or told to stop. Out: snapshots of what status and events
//! say, and their exit status. Not here: a genesis that really was stopped; an end-to-end test has one.

#![allow(clippy::unwrap_used)] // a test may stop at the first thing that is not as it says

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use camino::Utf8Path;
use jiff::Timestamp;
use mesh_installer::lock::InstallerLock;
use mesh_installer::mesh_file::{Inputs, MeshFile};
use mesh_installer::output::event::Stage;
use mesh_installer::output::{Code, Event, Failure, Line};
use mesh_protocol::layout::Layout;

fn mesh(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("mesh").unwrap();
    command.env_clear().env("MESH_ROOT", folder.join("root")).current_dir(folder);
    command.args(arguments).output().unwrap()
}

fn shown(folder: &Path, output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(folder.to_str().unwrap(), "[folder]");
    let out: String =
        text(&output.stdout).lines().map(|line| format!("{}\n", without_moment(line))).collect();
    format!("exit {}\n--- out\n{out}--- err\n{}", output.status.code().unwrap(), text(&output.stderr))
}

/// What this command says now has another time each time; what the journal says has not.
fn without_moment(line: &str) -> String {
    match line.split_once(r#","event":"failed""#) {
        Some((_, rest)) if !line.contains(r#""pid":7,"#) => format!(r#"{{[now],"event":"failed"{rest}"#),
        _ => line.to_owned(),
    }
}

/// A root in which a genesis wrote these events, one a second.
struct Root {
    temp: tempfile::TempDir,
}

impl Root {
    fn of(events: Vec<Event>) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let root = Self { temp };
        std::fs::create_dir(root.layout().root()).unwrap();
        let line = |(second, event): (i64, Event)| {
            let time = Timestamp::from_second(1_767_323_045 + second).unwrap();
            serde_json::to_string(&Line { format: 1, time, pid: 7, event }).unwrap() + "\n"
        };
        let text: String = (0..).zip(events).map(line).collect();
        std::fs::write(root.layout().journal(), text).unwrap();
        root
    }

    fn layout(&self) -> Layout {
        Layout::new(Utf8Path::from_path(self.temp.path()).unwrap().join("root"))
    }

    /// With the identity made.
    fn begun(self) -> Self {
        let inputs = Inputs {
            root: self.layout().root().to_owned(),
            name: "lab".parse().unwrap(),
            prefix: "lab7".to_owned(),
            node: "n1".parse().unwrap(),
            bus_port: 1,
            store_port: 2,
            check_interval_ms: 2000,
            replaces: "container:mesh-controller".parse().unwrap(),
        };
        let file = MeshFile::new("m1".parse().unwrap(), Timestamp::UNIX_EPOCH, inputs);
        file.write(&self.layout()).unwrap();
        self
    }

    /// With its controller once seen to be a process.
    fn whole(self) -> Self {
        let mut file = MeshFile::must_read(&self.layout()).unwrap();
        file.process_since = Some(Timestamp::UNIX_EPOCH);
        file.write(&self.layout()).unwrap();
        std::fs::create_dir(self.layout().host()).unwrap();
        std::fs::write(self.layout().host_file(), "{}").unwrap();
        self
    }

    fn says(&self, arguments: &[&str]) -> String {
        shown(self.temp.path(), &mesh(self.temp.path(), arguments))
    }
}

fn command(words: &[&str]) -> Event {
    Event::Command { words: words.iter().map(ToString::to_string).collect(), version: "0.1.0".to_owned() }
}

fn begun(step: &str, goal: &str) -> Event {
    Event::Begun { step: step.to_owned(), goal: goal.to_owned() }
}

fn effect(step: &str, what: &str) -> Event {
    Event::Effect { step: step.to_owned(), what: what.to_owned() }
}

fn done(step: &str) -> Event {
    Event::Done { step: step.to_owned(), text: "it is so".to_owned(), milliseconds: 10 }
}

fn killed() -> Vec<Event> {
    vec![
        command(&["mesh", "genesis", "--prefix", "lab7", "--until", "store"]),
        begun("identity", "mesh id, keys and credentials"),
        done("identity"),
        begun("pivot", "raise the bus, and the controller as a container"),
        effect("pivot", "give the host generation 1"),
        Event::Waiting {
            step: "pivot".to_owned(),
            waiting_for: "the bus".to_owned(),
            since: Timestamp::from_second(1_767_323_050).unwrap(),
            stage: Stage::Begun,
            milliseconds: 0,
        },
    ]
}

#[test]
fn one_that_was_killed() {
    let root = Root::of(killed()).begun();
    insta::assert_snapshot!("killed-status", root.says(&["status"]));
    insta::assert_snapshot!("killed-status-json", root.says(&["status", "--json"]));
    insta::assert_snapshot!("killed-events", root.says(&["events"]));
    insta::assert_snapshot!("killed-events-json", root.says(&["events", "--json"]));
}

#[test]
fn one_that_failed() {
    let failure = Failure::new(Code::ImageMissing, "images: there is no image for mesh-bus")
        .expected("program nats-server in PATH")
        .hint("install the program (on Debian: package nats-server), or load the image");
    let root = Root::of(vec![
        command(&["mesh", "genesis", "--offline"]),
        begun("images", "the images of controller, bus and store"),
        effect("images", "load image mesh.local/m1/mesh-controller:ab into the engine"),
        Event::Failed { failure: failure.in_step("images").part_way() },
    ])
    .begun();
    insta::assert_snapshot!("failed-status", root.says(&["status"]));
    insta::assert_snapshot!("failed-events", root.says(&["events"]));
}

#[test]
fn one_that_was_killed_before_there_was_a_mesh() {
    let root =
        Root::of(vec![command(&["mesh", "genesis"]), begun("identity", "mesh id, keys and credentials")]);
    insta::assert_snapshot!("no-mesh-yet-status", root.says(&["status"]));
    insta::assert_snapshot!("no-mesh-yet-events", root.says(&["events"]));
}

#[test]
fn one_that_is_at_it_is_waited_for() {
    let root = Root::of(killed()).begun();
    let now = Timestamp::from_second(1_767_323_045).unwrap();
    let _lock = InstallerLock::take(&root.layout().installer_lock(), "genesis", now).unwrap();
    let said = root.says(&["status"]).replace(&format!("pid {}", std::process::id()), "pid [own]");
    insta::assert_snapshot!("goes-on-status", said);
}

#[test]
fn one_that_was_whole_has_its_host_started() {
    let finished = Event::Finished { text: "mesh lab runs".to_owned() };
    let root = Root::of(vec![
        command(&["mesh", "genesis"]),
        begun("verify", "one controller"),
        done("verify"),
        finished,
    ])
    .begun()
    .whole();
    insta::assert_snapshot!("whole-status", root.says(&["status"]));
}

#[test]
fn one_that_is_being_taken_down_is_not_raised() {
    let root = Root::of(killed()).begun();
    let mut file = MeshFile::must_read(&root.layout()).unwrap();
    file.down_since = Some(Timestamp::from_second(1_767_323_046).unwrap());
    file.write(&root.layout()).unwrap();
    insta::assert_snapshot!("half-down-genesis", root.says(&["genesis"]));
}

#[test]
fn one_that_is_not_whole_is_not_backed_up() {
    let root = Root::of(killed()).begun();
    insta::assert_snapshot!("half-done-backup", root.says(&["backup", "b.tar"]));
    assert!(!root.temp.path().join("b.tar").exists());
    let root = root.whole();
    insta::assert_snapshot!("backup-into-the-root", root.says(&["backup", "root/b.tar"]));
}

#[test]
fn a_restore_that_was_killed_is_gone_on_with() {
    let root = Root::of(vec![
        command(&["mesh", "restore", "/backups/b.tar"]),
        begun("files", "put the mesh's files in place"),
        effect("files", "put 77 files in place"),
    ])
    .begun();
    let mut file = MeshFile::must_read(&root.layout()).unwrap();
    file.process_since = Some(Timestamp::UNIX_EPOCH);
    file.write(&root.layout()).unwrap();
    insta::assert_snapshot!("killed-restore-status", root.says(&["status"]));
}

#[test]
fn what_is_no_backup_is_not_restored_and_a_root_that_is_not_empty_takes_none() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("b.tar"), "no backup").unwrap();
    let said = shown(temp.path(), &mesh(temp.path(), &["restore", "b.tar"]));
    insta::assert_snapshot!("no-backup", said);
    assert!(!temp.path().join("root").exists(), "nothing was made");
}
