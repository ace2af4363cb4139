//! A program that is killed after it wrote a file beside, and before that got its name.
//!
//! In: this program, run again with a file that has it kill itself there. Out: the old file whole, the new one beside it,
//! which the next one sweeps. It needs a process of its own, for it ends by `kill -9`.

// A test's name says what it shows, and it stops at the first thing that is not as it says.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_durable::checkpoint::{self, Blow, Moment, Order};
use mesh_durable::{is_beside, sweep, write};

const FOLDER: &str = "MESH_DURABLE_TEST_FOLDER";

#[test]
fn killed_before_the_rename_it_leaves_the_old_file_and_a_new_one_that_is_swept() {
    const NAME: &str = "killed_before_the_rename_it_leaves_the_old_file_and_a_new_one_that_is_swept";
    if let Ok(folder) = std::env::var(FOLDER) {
        let folder = Utf8PathBuf::from(folder);
        checkpoint::watch(folder.join("checkpoints"));
        write(&folder.join("records/record"), b"new", 0o600).unwrap();
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let folder = Utf8Path::from_path(temp.path()).unwrap();
    let records = folder.join("records");
    fs::create_dir(&records).unwrap();
    write(&records.join("record"), b"old", 0o600).unwrap();
    // The write is the first deed, and the rename within it the second.
    for (moment, content, beside) in [(Moment::Before, "old", 1), (Moment::After, "new", 0)] {
        let order = Order { number: Some(2), moment: Some(moment), signal: Blow::Kill };
        fs::write(folder.join("checkpoints"), serde_json::to_vec(&order).unwrap()).unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--test-threads", "1"])
            .env(FOLDER, folder)
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{moment:?}: {status}");
        let log = fs::read_to_string(folder.join("checkpoints.log")).unwrap();
        let last = log.lines().last().unwrap();
        assert!(last.ends_with(&format!("give {records}/record its name")), "{last}");
        assert_eq!(fs::read_to_string(records.join("record")).unwrap(), content, "{moment:?}");
        assert_eq!(names(&records).iter().filter(|name| is_beside(name)).count(), beside, "{moment:?}");
        sweep(&records).unwrap();
        assert_eq!(names(&records), ["record"], "{moment:?}");
    }
}

fn names(folder: &Utf8Path) -> Vec<String> {
    let entries = folder.read_dir_utf8().unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_owned()).collect()
}
