//! A backup is whole or refused: every byte of it is looked at before anything is put in place.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;

use mesh_protocol::id::System;

use super::super::{FolderEntry, LinkEntry};
use super::*;

struct Made {
    _kept: tempfile::TempDir,
    folder: Utf8PathBuf,
    file: Utf8PathBuf,
}

fn head() -> Manifest {
    Manifest {
        format: FORMAT,
        mesh: "m1".parse().unwrap(),
        name: "lab".parse().unwrap(),
        node: "n1".parse().unwrap(),
        system: System::of_this_program(),
        created: jiff::Timestamp::UNIX_EPOCH,
        version: "1".to_owned(),
        folders: Vec::new(),
        files: Vec::new(),
        links: Vec::new(),
        images: Vec::new(),
    }
}

fn gathered() -> Gathered {
    let folder = |path: &str, mode| FolderEntry { path: path.into(), mode };
    let bytes = |text: &str| Place::Bytes(text.as_bytes().to_vec());
    Gathered {
        folders: [folder("host", 0o700), folder("bundles", 0o711), folder("bundles/a", 0o755)].into(),
        files: BTreeMap::from([
            ("host/host.json".into(), (0o600, bytes("later"))),
            ("host/ledger.json".into(), (0o600, bytes("{}"))),
            ("bundles/a/program".into(), (0o755, bytes("same"))),
            ("bundles/a/other".into(), (0o644, bytes("same"))),
        ]),
        links: [LinkEntry { path: "bundles/a/link".into(), target: "program".into() }].into(),
        ..Gathered::default()
    }
}

fn made() -> Made {
    made_of(head(), &gathered())
}

fn made_of(head: Manifest, gathered: &Gathered) -> Made {
    let kept = tempfile::tempdir().unwrap();
    let folder = Utf8Path::from_path(kept.path()).unwrap().to_owned();
    let file = folder.join("backup.tar");
    let image = folder.join("image");
    std::fs::write(&image, "an image's archive").unwrap();
    write(&file, head, gathered, &[("x:1".to_owned(), image)]).unwrap();
    Made { _kept: kept, folder, file }
}

#[test]
fn what_was_gathered_is_put_in_place_but_for_what_comes_last() {
    let made = made();
    assert_eq!(std::fs::metadata(&made.file).unwrap().mode() & 0o7777, 0o600);
    let (root, images) = (made.folder.join("root"), made.folder.join("images"));
    std::fs::create_dir_all(&images).unwrap();
    let opened = Opened::read(&made.file).unwrap();
    let later = "host/host.json";
    assert_eq!(opened.verify(&[later]).unwrap()[Utf8Path::new(later)], b"later");
    assert_eq!(opened.verify(&["host/none"]).unwrap_err().code, Code::BackupInvalid);
    // Twice: a restore that was killed puts everything in place again.
    for _ in 0..2 {
        opened.unpack(&root, &images, Utf8Path::new("host/host.json")).unwrap();
    }
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    assert_eq!((read("host/ledger.json"), read("bundles/a/other")), ("{}".to_owned(), "same".to_owned()));
    assert_eq!(read("bundles/a/link"), "same");
    assert!(!root.join("host/host.json").exists());
    assert_eq!(std::fs::metadata(root.join("bundles/a/program")).unwrap().mode() & 0o7777, 0o755);
    let image = images.join(format!("{}.tar", opened.manifest.images[0].digest.hex()));
    assert_eq!(std::fs::read_to_string(image).unwrap(), "an image's archive");
}

#[test]
fn the_same_state_makes_the_same_bytes() {
    assert_eq!(std::fs::read(made().file).unwrap(), std::fs::read(made().file).unwrap());
}

#[test]
fn no_byte_of_it_can_be_another_and_none_can_be_missing() {
    let made = made();
    let whole = std::fs::read(&made.file).unwrap();
    let opened = |bytes: &[u8]| {
        std::fs::write(&made.file, bytes).unwrap();
        Opened::read(&made.file).and_then(|opened| opened.verify(&[])).map(|_| ())
    };
    opened(&whole).unwrap();
    // What is behind a content, up to the next block, says nothing; nor do the two blocks at the end.
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    let mut refused = 0;
    for place in (0..=end).step_by(7) {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x20;
        if damaged[place] == 0 || whole[place] == 0 {
            continue;
        }
        if let Err(failure) = opened(&damaged) {
            assert_eq!(failure.code, Code::BackupInvalid, "{place}: {failure:?}");
            refused += 1;
        } else {
            // A header has fields that nothing depends on, each of them in a checksum but for the checksum's own form.
            panic!(
                "a change at {place} was not seen: {:?}",
                String::from_utf8_lossy(&whole[place - place % 512..][..100])
            );
        }
    }
    assert!(refused > 100, "{refused}");
    for length in [0, 100, 512, 1536, end / 2, end] {
        let failure = opened(&whole[..length]).unwrap_err();
        assert_eq!(failure.code, Code::BackupInvalid, "{length}: {failure:?}");
    }
}

#[test]
fn a_newer_form_is_refused_by_its_number() {
    let made = made_of(Manifest { format: FORMAT + 1, ..head() }, &gathered());
    let failure = Opened::read(&made.file).unwrap_err();
    assert_eq!(failure.code, Code::BackupInvalid);
    assert_eq!((failure.expected.as_deref(), failure.found.as_deref()), (Some("format 1"), Some("format 2")));
}

#[test]
fn a_path_that_leads_out_of_the_root_is_refused() {
    for path in ["../x", "/etc/x", "a/../../x", "bundles/a/link/x"] {
        let mut gathered = gathered();
        gathered.files.insert(path.into(), (0o600, Place::Bytes(Vec::new())));
        let made = made_of(head(), &gathered);
        assert_eq!(Opened::read(&made.file).unwrap_err().code, Code::BackupInvalid, "{path}");
    }
}

#[test]
fn what_changes_while_it_is_written_leaves_no_file() {
    let made = made();
    let before = std::fs::read(&made.file).unwrap();
    let mut gathered = gathered();
    gathered.files.insert("bundles/a/gone".into(), (0o600, Place::File(made.folder.join("gone"))));
    let failure = write(&made.file, head(), &gathered, &[]).unwrap_err();
    assert_eq!(failure.code, Code::Io);
    assert_eq!(std::fs::read(&made.file).unwrap(), before, "the one before is still there");
}

#[test]
fn a_full_disk_is_not_the_backups_fault() {
    let made = made();
    let opened = Opened::read(&made.file).unwrap();
    let full = || io::Error::from(io::ErrorKind::StorageFull);
    let failure = opened.each(|_, _| Err(full())).unwrap_err();
    assert_eq!(failure.code, Code::DiskFull);
}
