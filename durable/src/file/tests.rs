//! What a path holds after each way in which a write can go, and what is never followed.

use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

fn folder() -> (tempfile::TempDir, Utf8PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    (folder, path)
}

#[test]
fn what_was_written_is_read_with_mode_and_owner() {
    let (_kept, folder) = folder();
    let path = folder.join("a.json");
    assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), None);
    write_json(&path, &vec![1, 2], 0o640).unwrap();
    assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![1, 2]));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    let ids = Ownership::Ids { uid: 65534, gid: 65534 };
    write_owned(&path, b"x", 0o400, ids).unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (65534, 65534, 0o400));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside");
}

#[test]
fn a_corrupt_file_is_named() {
    let (_kept, folder) = folder();
    let path = folder.join("a.json");
    fs::write(&path, "{").unwrap();
    let error = read_json::<Vec<u32>>(&path).unwrap_err();
    assert!(error.to_string().contains(path.as_str()), "{error}");
    assert!(matches!(error, DurableError::Corrupt { .. }));
}

#[test]
fn a_link_in_the_last_place_is_replaced() {
    let (_kept, folder) = folder();
    let (target, path) = (folder.join("target"), folder.join("link"));
    fs::write(&target, "untouched").unwrap();
    symlink(&target, &path).unwrap();
    write(&path, b"new", 0o600).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
}

#[test]
fn a_folder_gets_its_mode_and_a_link_is_no_folder() {
    let (_kept, folder) = folder();
    let inner = folder.join("a/b");
    ensure_folder(&inner, 0o711).unwrap();
    ensure_folder(&inner, 0o711).unwrap();
    assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o7777, 0o711);
    symlink(&inner, folder.join("link")).unwrap();
    ensure_folder(&folder.join("link"), 0o700).unwrap_err();
    assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o7777, 0o711);
}

#[test]
fn what_a_killed_writer_left_is_swept() {
    let (_kept, folder) = folder();
    // The kernel gives no process this number; the other one is written by this very process.
    fs::write(folder.join(".a.4194305.2.tmp"), "half").unwrap();
    let written = format!(".b.{}.7.tmp", std::process::id());
    fs::write(folder.join(&written), "half").unwrap();
    write(&folder.join("a"), b"whole", 0o600).unwrap();
    sweep(&folder).unwrap();
    let mut names: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [written, "a".to_owned()]);
}

#[test]
fn a_tree_is_synced_with_links_and_pipes_in_it() {
    let (_kept, folder) = folder();
    ensure_folder(&folder.join("x/y"), 0o700).unwrap();
    write(&folder.join("x/y/z"), b"1", 0o600).unwrap();
    symlink("nowhere", folder.join("x/link")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(
        rustix::fs::CWD,
        folder.join("x/fifo").as_std_path(),
        fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    sync_tree(&folder).unwrap();
    sync_tree(&folder.join("not there")).unwrap();
}

#[test]
fn removing_what_is_not_there_is_done() {
    let (_kept, folder) = folder();
    remove(&folder.join("a")).unwrap();
    remove_tree(&folder.join("b")).unwrap();
}

#[test]
fn a_folder_goes_with_what_is_known_of_it_and_stays_with_what_is_not() {
    let (_kept, folder) = folder();
    let inner = folder.join("run");
    let make = || {
        ensure_folder(&inner, 0o700).unwrap();
        write(&inner.join("role"), b"1", 0o600).unwrap();
        fs::write(inner.join(".role.4194305.2.tmp"), "half").unwrap();
    };
    make();
    remove_folder_of(&inner, &["role", "instance"]).unwrap();
    assert!(!inner.exists());
    remove_folder_of(&inner, &["role"]).unwrap();

    make();
    fs::write(inner.join("notes"), "somebody's").unwrap();
    remove_folder_of(&inner, &["role"]).unwrap();
    let names: Vec<_> = fs::read_dir(&inner).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["notes"]);
}
