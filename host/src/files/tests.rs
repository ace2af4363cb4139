use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use super::*;

const NOBODY: u32 = 65534;

fn layout() -> (tempfile::TempDir, Layout) {
    let folder = tempfile::tempdir().unwrap();
    let root = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
    (folder, Layout::new(root))
}

fn file(name: &str, mode: u32, owner: Owner, source: FileSource) -> FileSpec {
    FileSpec { name: name.to_owned(), source, mode, owner }
}

fn section(files: Vec<FileSpec>) -> ModuleSection {
    ModuleSection {
        name: "m".parse().unwrap(),
        version: "1".to_owned(),
        revision: 1,
        seat: None,
        manifest: String::new(),
        accounts: Vec::new(),
        bundles: Vec::new(),
        files,
        processes: Vec::new(),
        containers: Vec::new(),
    }
}

fn secret(layout: &Layout, name: &str, bytes: &[u8]) -> FileSource {
    let module = "m".parse().unwrap();
    durable::ensure_folder(&layout.secrets(&module), 0o700).unwrap();
    durable::write(&layout.secrets(&module).join(name), bytes, 0o600).unwrap();
    FileSource::Secret { name: name.to_owned(), digest: Digest::of(bytes) }
}

fn accounts() -> BTreeMap<AccountName, Ids> {
    BTreeMap::from([("a".parse().unwrap(), Ids { uid: 4001, gid: 4002 })])
}

#[test]
fn files_are_made_with_content_mode_and_owner_and_then_nothing_is_left_to_do() {
    let (_kept, layout) = layout();
    let section = section(vec![
        file("key", 0o400, Owner::Account("a".parse().unwrap()), secret(&layout, "key", b"hush")),
        file("conf", 0o644, Owner::User(NOBODY), FileSource::Content("text".to_owned())),
    ]);
    assert_eq!(pending(&layout, &section, &accounts()).unwrap().len(), 2);
    let made = ensure(&layout, &section, &accounts()).unwrap();
    assert_eq!(made.change, Change::Done);
    let found = |name: &str| {
        let found = fs::metadata(made.folder.join(name)).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    };
    assert_eq!(found("key"), (4001, 4002, 0o400));
    assert_eq!(found("conf"), (NOBODY, NOBODY, 0o644));
    assert_eq!(found("."), (0, 0, 0o711));
    assert_eq!(fs::read(made.folder.join("key")).unwrap(), b"hush");
    let again = ensure(&layout, &section, &accounts()).unwrap();
    assert_eq!((again.change, again.folder), (Change::None, made.folder));
    assert_eq!(pending(&layout, &section, &accounts()).unwrap(), []);
}

#[test]
fn what_was_changed_by_hand_is_mended() {
    let (_kept, layout) = layout();
    let source = FileSource::Content("text".to_owned());
    let section = section(vec![file("conf", 0o644, Owner::User(NOBODY), source)]);
    let folder = ensure(&layout, &section, &accounts()).unwrap().folder;
    let elsewhere = layout.root().join("elsewhere");
    fs::write(&elsewhere, "untouched").unwrap();
    fs::remove_file(folder.join("conf")).unwrap();
    symlink(&elsewhere, folder.join("conf")).unwrap();
    fs::create_dir(folder.join("stray")).unwrap();
    fs::write(folder.join(".conf.1.2.tmp"), "left by a killed host").unwrap();
    assert_eq!(ensure(&layout, &section, &accounts()).unwrap().change, Change::Done);
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "untouched");
    assert_eq!(fs::metadata(&elsewhere).unwrap().uid(), 0);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(folder.join("conf")).unwrap(), "text");
}

#[test]
fn a_secret_that_is_missing_or_another_is_told_and_nothing_is_written() {
    let (_kept, layout) = layout();
    let right = secret(&layout, "key", b"hush");
    let section = section(vec![
        file("conf", 0o644, Owner::User(NOBODY), FileSource::Content(String::new())),
        file("key", 0o400, Owner::User(NOBODY), right),
    ]);
    secret(&layout, "key", b"other");
    let error = ensure(&layout, &section, &accounts()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(Digest::of(b"hush").as_str()), "{text}");
    assert!(text.contains(Digest::of(b"other").as_str()), "{text}");
    fs::remove_file(layout.secrets(&section.name).join("key")).unwrap();
    let error = ensure(&layout, &section, &accounts()).unwrap_err();
    assert!(matches!(error, FilesError::SecretMissing { .. }), "{error}");
    assert!(!layout.modules().exists());
}

#[test]
fn a_name_that_leads_elsewhere_is_no_secret() {
    let (_kept, layout) = layout();
    secret(&layout, "key", b"hush");
    let source = FileSource::Secret { name: "../../elsewhere".to_owned(), digest: Digest::of(b"x") };
    fs::write(layout.root().join("elsewhere"), "x").unwrap();
    let section = section(vec![file("key", 0o400, Owner::User(NOBODY), source)]);
    let error = ensure(&layout, &section, &accounts()).unwrap_err();
    assert!(matches!(error, FilesError::SecretMissing { .. }), "{error}");
}

#[test]
fn an_account_that_was_not_made_is_told() {
    let (_kept, layout) = layout();
    let owner = Owner::Account("b".parse().unwrap());
    let section = section(vec![file("conf", 0o644, owner, FileSource::Content(String::new()))]);
    let error = ensure(&layout, &section, &accounts()).unwrap_err();
    assert!(matches!(error, FilesError::AccountUnknown { .. }), "{error}");
}

#[test]
fn folders_that_nothing_needs_go() {
    let (_kept, layout) = layout();
    let of = |text: &str| {
        let source = FileSource::Content(text.to_owned());
        section(vec![file("conf", 0o644, Owner::User(NOBODY), source)])
    };
    let one = ensure(&layout, &of("1"), &accounts()).unwrap().folder;
    let two = ensure(&layout, &of("2"), &accounts()).unwrap().folder;
    let removed = collect(&layout, &BTreeSet::from([two.clone()])).unwrap();
    assert_eq!(removed, [one]);
    assert!(two.join("conf").exists());
    assert_eq!(collect(&layout, &BTreeSet::new()).unwrap(), [two]);
    assert_eq!(fs::read_dir(layout.modules()).unwrap().count(), 0);
    assert_eq!(collect(&layout, &BTreeSet::new()).unwrap(), Vec::<Utf8PathBuf>::new());
}

#[test]
fn secrets_are_reported_by_digest() {
    let (_kept, layout) = layout();
    assert_eq!(secrets_held(&layout).unwrap(), []);
    secret(&layout, "b", b"2");
    secret(&layout, "a", b"1");
    fs::write(layout.secrets(&"m".parse().unwrap()).join(".a.1.1.tmp"), "").unwrap();
    let held = secrets_held(&layout).unwrap();
    let names: Vec<(&str, &Digest)> = held.iter().map(|s| (s.name.as_str(), &s.digest)).collect();
    assert_eq!(names, [("a", &Digest::of(b"1")), ("b", &Digest::of(b"2"))]);
}
