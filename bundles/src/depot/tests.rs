use std::process::Command;
use std::time::{Duration, Instant};

use super::*;
use crate::SILENT;
use crate::archive::FileMode;
use crate::pack::pack_entries;
use crate::testing::{a_bundle, file, packed, some_bytes};

struct Place {
    _folder: tempfile::TempDir,
    archive: PathBuf,
    depot: Depot,
    digest: Digest,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let digest = packed(a_bundle("prog", "1"), &archive).digest;
    let depot = Depot::open(&folder.path().join("depot")).unwrap();
    Place { _folder: folder, archive, depot, digest }
}

impl Place {
    fn unpack(&self) -> Outcome {
        self.depot.unpack(&self.digest, &self.archive, Limits::default()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.depot.names().unwrap();
        names.sort();
        names
    }

    fn whole(&self) -> Vec<String> {
        vec![".lock".to_owned(), self.digest.hex().to_owned(), format!("{}.json", self.digest.hex())]
    }
}

#[test]
fn a_bundle_is_unpacked_once() {
    let place = place();
    assert!(!place.depot.holds(&place.digest));
    assert_eq!(place.unpack(), Outcome::Unpacked);
    assert!(place.depot.holds(&place.digest));
    // Not even the archive is needed the second time.
    fs::remove_file(&place.archive).unwrap();
    assert_eq!(place.unpack(), Outcome::AlreadyThere);
    assert_eq!(place.names(), place.whole());
    assert_eq!(place.depot.list().unwrap(), std::slice::from_ref(&place.digest));
    place.depot.remove(&place.digest).unwrap();
    place.depot.remove(&place.digest).unwrap();
    assert_eq!(place.names(), [".lock"]);
}

#[test]
fn what_nobody_needs_is_what_is_held_and_not_kept() {
    let [one, two, three] = [b"1", b"2", b"3"].map(|bytes| Digest::of(bytes));
    let held = [one.clone(), two.clone()];
    assert_eq!(unused(&held, &BTreeSet::from([two, three])), [one]);
    assert_eq!(unused(&held, &BTreeSet::new()), held);
}

#[test]
fn what_was_damaged_is_replaced_and_what_runs_from_it_goes_on() {
    let place = place();
    let folder = place.depot.folder_of(&place.digest);
    let damages: [&dyn Fn(); 4] = [
        &|| fs::remove_file(folder.join("share/data")).unwrap(),
        &|| fs::write(folder.join("prog"), "short").unwrap(),
        &|| fs::write(folder.join("more"), "").unwrap(),
        &|| fs::set_permissions(folder.join("prog"), Permissions::from_mode(0o644)).unwrap(),
    ];
    assert_eq!(place.unpack(), Outcome::Unpacked);
    for damage in damages {
        damage();
        assert!(!place.depot.holds(&place.digest));
        let open = File::open(folder.join("share/link")).ok();
        assert_eq!(place.unpack(), Outcome::Replaced);
        drop(open);
        assert_eq!(place.names(), place.whole());
    }
}

#[test]
fn an_archive_of_another_digest_changes_nothing() {
    let place = place();
    let other = Digest::of(b"other");
    let error = place.depot.unpack(&other, &place.archive, Limits::default()).unwrap_err();
    assert!(matches!(error, DepotError::Unpack(UnpackError::Digest { .. })));
    assert_eq!(place.names(), [""; 0]);
}

#[test]
fn leftovers_are_swept_but_not_from_under_somebody_at_work() {
    let place = place();
    let root = place.depot.root.clone();
    let left = || {
        fs::create_dir_all(root.join(".new-1/d")).unwrap();
        fs::create_dir_all(root.join(".gone-1/bundle")).unwrap();
        fs::write(root.join(".mesh-1.partial"), "").unwrap();
        fs::write(root.join(format!("{}.json", Digest::of(b"").hex())), "{}").unwrap();
    };
    left();
    let lock = place.depot.lock().unwrap();
    place.depot.sweep().unwrap();
    assert_eq!(place.names().len(), 5);
    drop(lock);
    place.depot.sweep().unwrap();
    assert_eq!(place.names(), [".lock"]);
    left();
    assert_eq!(place.unpack(), Outcome::Unpacked);
    assert_eq!(place.names(), place.whole());
}

#[test]
fn several_at_once_end_with_one() {
    let place = place();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..4).map(|_| scope.spawn(|| place.unpack())).collect();
        running.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::Unpacked).count(), 1);
    assert_eq!(place.names(), place.whole());
}

const KILLED: &str = "MESH_TEST_UNPACK";

/// Not a test of its own: the program that the next one kills.
#[test]
fn unpacks_when_asked_by_another_test() {
    let Ok(orders) = std::env::var(KILLED) else { return };
    let [root, archive, digest] = orders.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let depot = Depot::open(Path::new(root)).unwrap();
    depot.unpack(&digest.parse().unwrap(), Path::new(archive), Limits::default()).unwrap();
}

#[test]
fn killed_at_any_moment_there_is_a_whole_bundle_or_none() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let content = some_bytes(20_000);
    let entries = (0..200).map(|at| file(&format!("d/{at}"), &content, FileMode::Data)).collect();
    let digest = pack_entries(entries, &archive, 2, SILENT).unwrap().digest;
    let depot = Depot::open(&folder.path().join("depot")).unwrap();
    let orders = format!("{} {} {digest}", depot.root.display(), archive.display());
    let begin = Instant::now();
    depot.unpack(&digest, &archive, Limits::default()).unwrap();
    let took = begin.elapsed();

    let mut unfinished = 0;
    for at in 0..12 {
        depot.remove(&digest).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "depot::tests::unpacks_when_asked_by_another_test"])
            .env(KILLED, &orders)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From the moment it has begun, over the time that it takes.
        let deadline = Instant::now() + Duration::from_secs(20);
        while depot.names().unwrap().iter().all(|name| name == ".lock") && child.try_wait().unwrap().is_none()
        {
            assert!(Instant::now() < deadline, "nothing was begun");
            std::thread::yield_now();
        }
        let until = Instant::now() + took * at / 10;
        while Instant::now() < until {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let there = depot.folder_of(&digest).exists();
        assert_eq!(there, depot.holds(&digest), "a part of a bundle has its name");
        unfinished += u32::from(!there);
        depot.unpack(&digest, &archive, Limits::default()).unwrap();
        assert!(depot.holds(&digest));
        // What the killed one left is swept with the next change at the latest.
        depot.sweep().unwrap();
        assert_eq!(depot.names().unwrap().len(), 3);
    }
    assert!(unfinished > 0, "no kill came in time");
}

#[test]
fn a_disk_that_fills_up_leaves_nothing_of_that_name() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make a small disk.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let content = some_bytes(200_000);
    let entries = (0..10).map(|at| file(&format!("{at}"), &content, FileMode::Data)).collect();
    let digest = pack_entries(entries, &archive, 2, SILENT).unwrap().digest;
    let root = folder.path().join("depot");
    fs::create_dir(&root).unwrap();
    let script = r#"mount -t tmpfs -o size=1m none "$1" && "$0" --exact "$2" --nocapture; ls -A "$1""#;
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(&root)
        .arg("depot::tests::unpacks_when_asked_by_another_test")
        .env(KILLED, format!("{} {} {digest}", root.display(), archive.display()))
        .output()
        .unwrap();
    let (said, left) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(said.contains("StorageFull"), "{said}");
    assert!(left.ends_with(".lock\n") && !left.contains(digest.hex()), "{left}");
}
