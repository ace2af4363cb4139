use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use proptest::prelude::*;

use super::*;
use crate::SILENT;
use crate::testing::{a_bundle, exits_with, file, packed, some_bytes};
use crate::unpack::unpack;

#[test]
fn the_same_entries_give_the_same_bytes_on_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let one = pack(a_bundle("prog", "1.0.0"), &at("1"), 1, SILENT).unwrap();
    for workers in [2, 3] {
        let mut bundle = a_bundle("prog", "1.0.0");
        bundle.entries.reverse();
        let output = at(&workers.to_string());
        assert_eq!(pack(bundle, &output, workers, SILENT).unwrap(), one);
        assert!(std::fs::read(output).unwrap() == std::fs::read(at("1")).unwrap());
    }
}

/// The format's contract: a change of these digests is a change of every bundle's name. The second one may stay when
/// the first changes (another compressor); never the other way round.
#[test]
fn the_bytes_are_the_ones_that_they_always_were() {
    let folder = tempfile::tempdir().unwrap();
    let packed = packed(a_bundle("prog", "1.0.0"), &folder.path().join("b"));
    let found = [packed.digest.short(), packed.diff_id.short()];
    assert_eq!(found, ["b65d2a8da875", "992a41cccd70"]);
}

#[test]
fn tar_gzip_and_sha256sum_agree() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b.tar.gz");
    let mut bundle = a_bundle("prog", "1.0.0");
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(150));
    bundle.entries.push(file(&long, b"long", FileMode::Data));
    let packed = packed(bundle, &archive);

    let run = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).arg(&archive).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("gzip", &["-t"]);
    assert!(run("sha256sum", &[]).starts_with(packed.digest.hex()));
    let listing = run("tar", &["--numeric-owner", "-tvzf"]);
    assert!(listing.contains("-rwxr-xr-x 0/0"), "{listing}");
    assert!(listing.contains("share/link -> data"), "{listing}");
    run("tar", &["-xzf"]);
    assert!(std::fs::read(folder.path().join("share/data")).unwrap() == some_bytes(700_000));
    assert_eq!(std::fs::read(folder.path().join(long)).unwrap(), b"long");
}

#[test]
fn looking_into_an_archive_finds_what_was_packed() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b.tar.gz");
    let packed = packed(a_bundle("prog", "1.0.0"), &archive);
    let layer = inspect(&archive, Limits::default()).unwrap();
    assert_eq!((&layer.digest, layer.size), (&packed.digest, packed.size));
    assert_eq!((&layer.diff_id, layer.unpacked_size), (&packed.diff_id, packed.unpacked_size));
    let Config { name, version, system, entrypoint, .. } = packed.config.clone();
    assert_eq!(Config::new(Facts { name, version, system, entrypoint }, &layer).unwrap(), packed.config);
}

#[test]
fn a_bundle_that_is_not_right_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("b");
    let refused = |change: &dyn Fn(&mut Bundle)| {
        let mut bundle = a_bundle("prog", "1.0.0");
        change(&mut bundle);
        let error = pack(bundle, &output, 1, SILENT).unwrap_err();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        error
    };
    let script = file("prog", b"#!/bin/sh\n", FileMode::Program);
    let error = refused(&|bundle| bundle.entries[0] = script.clone());
    assert!(matches!(error, PackError::Program { source: ElfError::NotElf { .. }, .. }));
    let error = refused(&|bundle| bundle.system = System::LinuxArm64);
    assert!(matches!(error, PackError::Program { source: ElfError::WrongSystem { .. }, .. }));
    let error = refused(&|bundle| bundle.entrypoint = "other".parse().unwrap());
    assert!(matches!(error, PackError::Config(ConfigError::NoEntrypoint { .. })));
    let error = refused(&|bundle| bundle.entrypoint = "share".parse().unwrap());
    assert!(matches!(error, PackError::Config(ConfigError::NoEntrypoint { .. })));
    let data = file("prog", &exits_with(0), FileMode::Data);
    let error = refused(&|bundle| bundle.entries[0] = data.clone());
    assert!(matches!(error, PackError::Config(ConfigError::NotExecutable { .. })));
    let error = refused(&|bundle| bundle.version = "1 0".to_owned());
    assert!(matches!(error, PackError::Config(ConfigError::Version { .. })));
    let missing = Entry {
        path: "missing".parse().unwrap(),
        source: Source::File { path: "/nonexistent/file".into(), mode: FileMode::Data },
    };
    let error = refused(&|bundle| bundle.entries.push(missing.clone()));
    assert!(
        matches!(error, PackError::Entry(EntryError::Read { path, .. }) if path == Path::new("/nonexistent/file"))
    );
}

#[test]
fn a_file_with_holes_is_packed_as_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    File::create(at("holes")).unwrap().set_len(1 << 20).unwrap();
    std::fs::write(at("full"), vec![0; 1 << 20]).unwrap();
    let digest = |name: &str| {
        let source = Source::File { path: at(name), mode: FileMode::Data };
        let entries = vec![Entry { path: "f".parse().unwrap(), source }];
        pack_entries(entries, &at("out"), 1, SILENT).unwrap().digest
    };
    assert_eq!(digest("holes"), digest("full"));
}

#[test]
fn what_nobody_would_unpack_is_not_packed() {
    let folder = tempfile::tempdir().unwrap();
    let entries = vec![file("f", &vec![0; 64 << 20], FileMode::Data)];
    let error = pack_entries(entries, &folder.path().join("b"), 2, SILENT).unwrap_err();
    assert!(matches!(error, PackError::Ratio { .. }));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn progress_ends_at_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let last = std::sync::Mutex::new((0, None));
    let told = |done, total| *last.lock().unwrap() = (done, total);
    pack(a_bundle("prog", "1.0.0"), &folder.path().join("b"), 2, &told).unwrap();
    let (done, total) = *last.lock().unwrap();
    assert_eq!(Some(done), total);
}

/// Trees of a few names, so that folders are shared and names meet.
fn trees() -> impl Strategy<Value = BTreeMap<String, (Vec<u8>, bool)>> {
    let path = prop::collection::vec("[a-c][d-f]?", 1..4).prop_map(|names| names.join("/"));
    let content = (prop::collection::vec(any::<u8>(), 0..1500), any::<bool>());
    prop::collection::btree_map(path, content, 0..12).prop_map(|mut tree| {
        let paths: Vec<_> = tree.keys().cloned().collect();
        tree.retain(|path, _| !paths.iter().any(|other| other.starts_with(&format!("{path}/"))));
        tree
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_packed_is_unpacked(tree in trees()) {
        let folder = tempfile::tempdir().unwrap();
        let (archive, out) = (folder.path().join("b"), folder.path().join("out"));
        let mode = |program: bool| if program { FileMode::Program } else { FileMode::Data };
        let entries = tree.iter().map(|(path, (content, program))| file(path, content, mode(*program))).collect();
        let layer = pack_entries(entries, &archive, 2, SILENT).unwrap();
        let unpacked = unpack(&archive, Some(&layer.digest), &out, Limits::default()).unwrap();
        prop_assert_eq!(&unpacked, &layer);
        prop_assert_eq!(layer.files.len(), tree.len());
        for (path, (content, program)) in &tree {
            prop_assert_eq!(&std::fs::read(out.join(path)).unwrap(), content);
            let found = out.join(path).metadata().unwrap().permissions().mode() & 0o7777;
            prop_assert_eq!(found, mode(*program).bits());
        }
        // And once more from the folder: the same bytes.
        let again = pack_entries(crate::entries::walk(&out).unwrap(), &folder.path().join("again"), 1, SILENT).unwrap();
        prop_assert_eq!(again, layer);
    }
}
