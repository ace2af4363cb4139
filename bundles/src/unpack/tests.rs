use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use mesh_protocol::id::System;

use super::*;
use crate::testing::{Block, a_bundle, gzip, packed};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|found| found.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_unpacked_belongs_to_root_and_can_be_run_by_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("b"), folder.path().join("out"));
    let packed = packed(a_bundle("prog", "1"), &archive);
    let layer = unpack(&archive, Some(&packed.digest), &out, Limits::default()).unwrap();
    assert_eq!((layer.digest, layer.diff_id), (packed.digest, packed.diff_id));
    assert_eq!(names(&out), ["prog", "share"]);
    let owner = rustix::process::geteuid().as_raw();
    for (name, mode) in [("", 0o755), ("prog", 0o755), ("share", 0o755), ("share/data", 0o644)] {
        let metadata = out.join(name).symlink_metadata().unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (mode, owner), "{name}");
    }
    assert_eq!(out.join("share/link").read_link().unwrap(), Path::new("data"));
    if System::of_this_program() == System::LinuxAmd64 {
        assert_eq!(std::process::Command::new(out.join("prog")).status().unwrap().code(), Some(42));
    }
}

#[test]
fn another_archive_is_refused_before_it_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("b"), folder.path().join("out"));
    std::fs::write(&archive, "no archive at all").unwrap();
    let expected = Digest::of(b"something else");
    let error = unpack(&archive, Some(&expected), &out, Limits::default()).unwrap_err();
    assert!(matches!(error, UnpackError::Digest { found, .. } if found == Digest::of(b"no archive at all")));
    let limits = Limits { compressed: 3, ..Limits::default() };
    let error = unpack(&archive, Some(&expected), &out, limits).unwrap_err();
    assert!(matches!(error, UnpackError::FileTooLarge { found: 17, limit: 3, .. }));
    assert_eq!(names(folder.path()), ["b"]);
}

#[test]
fn a_refusal_at_the_very_end_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("b"), folder.path().join("out"));
    // A whole file, then no end marker.
    std::fs::write(&archive, gzip(&Block::file(b"f", 0).done())).unwrap();
    let error = unpack(&archive, None, &out, Limits::default()).unwrap_err();
    assert!(matches!(error, UnpackError::Archive { source: ArchiveError::NoEnd, .. }));
    assert_eq!(names(folder.path()), ["b"]);
}

#[test]
fn what_is_there_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("b"), folder.path().join("out"));
    packed(a_bundle("prog", "1"), &archive);
    let again = || unpack(&archive, None, &out, Limits::default());

    std::fs::create_dir(&out).unwrap();
    again().unwrap();
    assert!(matches!(again().unwrap_err(), UnpackError::Exists { .. }));
    std::fs::remove_dir_all(&out).unwrap();

    std::fs::write(&out, "a file").unwrap();
    assert!(matches!(again().unwrap_err(), UnpackError::Exists { .. }));
    std::fs::remove_file(&out).unwrap();

    // Neither through a link: the folder it leads to is somebody's.
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), &out).unwrap();
    assert!(matches!(again().unwrap_err(), UnpackError::Exists { .. }));
    assert_eq!(names(elsewhere.path()), [""; 0]);
    assert_eq!(names(folder.path()), ["b", "out"]);
}

#[test]
fn the_mode_does_not_depend_on_the_archive_s() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, out) = (folder.path().join("b"), folder.path().join("out"));
    let tar = [
        Block::file(b"f", 0).set(100, b"0000777").done(),
        Block::file(b"g", 0).set(100, b"0000000").done(),
        vec![0; 1024],
    ];
    std::fs::write(&archive, gzip(&tar.concat())).unwrap();
    unpack(&archive, None, &out, Limits::default()).unwrap();
    let mode = |name: &str| out.join(name).metadata().unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("f"), mode("g")), (0o755, 0o644));
}
