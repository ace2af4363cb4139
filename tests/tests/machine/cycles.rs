//! A lab's day: a mesh is raised, pushed to and taken down, over and over, on one machine. Afterwards the machine is as it was.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mesh_tests::account;
use mesh_tests::mesh::Mesh;
use mesh_tests::private::{self, Machine};
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::source::Source;

use super::engine::docker;

/// What the engine and the file system keep of many containers for themselves.
const MEGABYTE: u64 = 1024 * 1024;

/// All that a mesh could leave on this machine, by kind and name.
fn picture(mesh: &Mesh) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut add = |kind: &str, name: &str| {
        let _ = found.insert(format!("{kind} {name}"));
    };
    for (kind, words) in [
        ("container", &["ps", "--all", "--format", "{{.Names}}"][..]),
        ("image", &["images", "--all", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}"]),
        ("volume", &["volume", "ls", "--format", "{{.Name}}"]),
    ] {
        docker(words).lines().for_each(|line| add(kind, line));
    }
    // Accounts are the machine's, which other tests use too.
    let prefix = mesh.prefixed("");
    account::all().iter().filter(|it| it.name.starts_with(&prefix)).for_each(|it| add("account", &it.name));
    for process in Process::all_from(Path::new("/")) {
        add("process", &process.program.display().to_string());
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    // proc(5): the fifth field is where it is mounted.
    mounts.lines().filter_map(|line| line.split(' ').nth(4)).for_each(|place| add("mount", place));
    let folder = mesh.layout().root().parent().unwrap();
    for entry in folder.read_dir_utf8().unwrap() {
        add("file", entry.unwrap().file_name());
    }
    found
}

/// What a folder takes on the disk, in bytes: stat(2) counts in blocks of 512.
fn size(path: &Path) -> u64 {
    let Ok(facts) = fs::symlink_metadata(path) else { return 0 };
    let below: u64 = match fs::read_dir(path) {
        Ok(entries) if facts.is_dir() => entries.flatten().map(|entry| size(&entry.path())).sum(),
        _ => 0,
    };
    facts.blocks() * 512 + below
}

#[test]
fn a_mesh_is_raised_pushed_to_and_taken_down_over_and_over() {
    private::run(
        concat!(module_path!(), "::a_mesh_is_raised_pushed_to_and_taken_down_over_and_over"),
        async |machine: Machine| {
            let count = rounds(5, 200);
            let mesh = Mesh::new().await.checking_every("100ms");
            let sleeper = Source::of_a_sleeper();
            let folder = mesh.layout().root().parent().unwrap().to_owned();
            let taken = || size(&machine.engine_data()) + size(folder.as_std_path());
            let cycle = async || {
                let _ = mesh.raise().await;
                let node = mesh.file().inputs.node;
                let _ = mesh.push(&sleeper.folder(), &["--node", node.as_str()]).await.exited(0);
                let _ = mesh.down().await.exited(0);
            };
            // The first leaves what the engine makes once, and keeps.
            cycle().await;
            let (before, taken_before) = (picture(&mesh), taken());
            for round in 0..count {
                cycle().await;
                let after = picture(&mesh);
                let left: Vec<&String> = after.difference(&before).collect();
                assert!(left.is_empty(), "round {round} left {left:?}");
            }
            let grown = taken().saturating_sub(taken_before);
            figure(
                &format!("{count} times in a row: genesis, push, down"),
                "0 failures; 0 containers, images, volumes, accounts, processes, mounts, files left; disk back to within 1 MB",
                &format!("0 failures, nothing left, {} KiB more on the disk", grown / 1024),
            );
            assert!(grown < MEGABYTE, "{grown} bytes more than before");
        },
    );
}
