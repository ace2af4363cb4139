//! What is told, what goes and what stays, of each place in a root.

use std::os::unix::fs::{chown, symlink};

use super::*;

fn layout(folder: &tempfile::TempDir) -> Layout {
    Layout::new(Utf8Path::from_path(folder.path()).unwrap().join("root"))
}

fn put(path: &Utf8Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "{}").unwrap();
}

/// A file in each place that there is for one.
fn make(layout: &Layout) {
    let (run, digest) = ("p-0123456789".parse().unwrap(), Digest::of(b"1"));
    let bus: ModuleName = "mesh-bus".parse().unwrap();
    for path in [
        layout.mesh_file(),
        layout.journal(),
        layout.installer_lock(),
        layout.reports().join("20261201T000048-fn6q77uqogum.json"),
        layout.genesis_work().join("nats-server.layer.tar.gz"),
        layout.genesis_work().join("mesh-controller-linux-amd64.tar.gz"),
        layout.genesis_work().join("0123456789ab.image.tar"),
        layout.identity().join("bus-keys.json"),
        layout.credential("operator"),
        layout.secrets(&bus).join("nats.conf"),
        layout.programs().join(HOST_PROGRAM),
        layout.host_file(),
        layout.host_lock(),
        layout.dissolved(),
        layout.door(),
        layout.ledger(),
        layout.declaration(),
        layout.handover("mesh-controller"),
        layout.steady("mesh-controller"),
        layout.recovery("mesh-controller"),
        layout.incarnation(&run).join("launch.json"),
        layout.host().join("fetch").join(format!("{}.tar.gz", digest.hex())),
        layout.bundle(&digest).join("program"),
        layout.bundles().join(format!(".new-abc/{}", digest.hex())),
        layout.module(&bus, &digest).join("nats.conf"),
        layout.run(&run).join("role.ack"),
        layout.log("host"),
        layout.logs().join("process-mesh-controller.p-0123456789.log.1"),
        layout.root().join(".mesh-probe-1-2-3-4/d"),
        layout.root().join(".mesh.json.7.0.tmp"),
        layout.host().join(".ledger.json.7.0.tmp"),
        layout.run(&run).join(".role.7.0.tmp"),
    ] {
        put(&path);
    }
}

fn own(layout: &Layout) -> Own {
    Own::of(layout, BTreeSet::new(), &[])
}

fn names(layout: &Layout) -> Vec<String> {
    let root = layout.root();
    own(layout).foreign().unwrap().iter().map(|path| path.strip_prefix(root).unwrap().to_string()).collect()
}

#[test]
fn the_root_goes_with_all_that_is_the_meshs() {
    let temp = tempfile::tempdir().unwrap();
    let layout = layout(&temp);
    make(&layout);
    assert_eq!(names(&layout), Vec::<String>::new());
    own(&layout).remove().unwrap();
    assert!(!layout.root().exists());
}

#[test]
fn what_is_somebody_elses_is_told_and_stays_wherever_it_lies() {
    let temp = tempfile::tempdir().unwrap();
    let layout = layout(&temp);
    make(&layout);
    let foreign = [
        "data/album/picture",
        "host/handover/notes/x",
        "host/incarnations/p-0123456789/notes",
        "host/notes",
        "modules/mesh-bus/notes",
        "notes",
        "run/notes/x",
        "run/p-0123456789/notes",
        "secrets/mesh-bus/key",
        "secrets/notes",
    ];
    foreign.iter().for_each(|path| put(&layout.root().join(path)));
    let told = names(&layout);
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let expected: Vec<&str> =
        foreign.iter().map(|path| path.trim_end_matches("/picture").trim_end_matches("/x")).collect();
    assert_eq!(told, expected);
    own(&layout).remove().unwrap();
    for path in foreign {
        assert!(layout.root().join(path).exists(), "{path}");
    }
    let mut left = Vec::new();
    let mut folders = vec![layout.root().as_std_path().to_owned()];
    while let Some(folder) = folders.pop() {
        for (path, facts) in entries_of(&folder).unwrap() {
            if facts.is_dir() { folders.push(path) } else { left.push(path) }
        }
    }
    assert_eq!(left.len(), foreign.len(), "{left:?}");
}

#[test]
fn a_modules_data_is_whose_its_folder_is() {
    let temp = tempfile::tempdir().unwrap();
    let layout = layout(&temp);
    let outside = layout.root().parent().unwrap().join("precious");
    put(&outside);
    let folder = layout.data(&"mesh-bus".parse().unwrap());
    let (ours, foreign) = (folder.join("streams/one"), folder.join("streams/notes"));
    put(&ours);
    put(&foreign);
    symlink(&outside, folder.join("link")).unwrap();
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    // Only root gives files away.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for path in [&folder, &folder.join("streams"), &ours] {
        chown(path, Some(65534), Some(65534)).unwrap();
    }
    std::os::unix::fs::lchown(folder.join("link"), Some(65534), Some(65534)).unwrap();
    assert_eq!(names(&layout), ["data/mesh-bus/streams/notes"]);
    own(&layout).remove().unwrap();
    assert!(foreign.exists() && !ours.exists() && outside.exists());
    assert!(fs::symlink_metadata(folder.join("link")).is_err(), "a link is removed, not followed");
}

#[test]
fn what_was_found_to_be_somebody_elses_stays_when_nothing_tells_it_any_more() {
    let temp = tempfile::tempdir().unwrap();
    let layout = layout(&temp);
    let notes = layout.module(&"gone".parse().unwrap(), &Digest::of(b"1")).join("notes");
    put(&notes);
    assert_eq!(names(&layout), Vec::<String>::new());
    let own = Own::of(&layout, BTreeSet::new(), std::slice::from_ref(&notes));
    assert_eq!(own.foreign().unwrap(), std::slice::from_ref(&notes));
    own.remove().unwrap();
    assert!(notes.exists());
}

#[test]
fn what_a_restore_put_there_goes_however_far_it_came() {
    let temp = tempfile::tempdir().unwrap();
    let layout = layout(&temp);
    put(&begun::mark_of(&layout));
    put(&layout.root().join("secrets/album/key"));
    put(&layout.data(&"mesh-bus".parse().unwrap()).join("streams/one"));
    assert_eq!(names(&layout), Vec::<String>::new());
    own(&layout).remove().unwrap();
    assert!(!layout.root().exists());
}
