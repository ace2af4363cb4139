//! The points where a crash may come: just before a deed, and just after it.
//!
//! In: the name of each deed, from the place that does it: a record, a request to the engine, a process begun or
//! ended, an account. Out: nothing, ever, on a mesh that is used. Where a test has put the file that
//! [`watch`] names, each deed is listed beside it, and at the one that the file names this program kills or stops itself,
//! so that what a crash leaves is tried at every deed that there is, without a list by hand.
//! Not here: whether what it leaves is right.
//!
//! The file holds `{}`, to list only, or `{"number": 7, "moment": "before", "signal": "kill"}`; the list is `<file>.log`, a
//! line for each moment: number, moment, process id, deed. A file that has had its effect is renamed to `<file>.fired`.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use camino::Utf8PathBuf;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

/// Of a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Moment {
    /// Nothing of it is done.
    Before,
    /// It is done.
    After,
}

impl Moment {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

/// What this program does to itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Blow {
    /// It ends at once, as by `kill -9`.
    #[default]
    Kill,
    /// It stops until somebody lets it go on.
    Stop,
}

/// What the file holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Order {
    /// Which deed, counted from 1 in each program; none to list only.
    pub number: Option<u64>,
    /// Before or after it.
    pub moment: Option<Moment>,
    /// What then.
    pub signal: Blow,
}

static WATCHED: OnceLock<Utf8PathBuf> = OnceLock::new();
static COUNT: Mutex<Count> = Mutex::new(Count { of: None, deeds: 0 });

/// How many deeds there were since a file was put there.
struct Count {
    of: Option<FileId>,
    deeds: u64,
}

/// By what one file under a name is told from the next: inode, time of change in seconds and nanoseconds.
type FileId = (u64, i64, i64);

/// Looks from now on at this file, at each deed. The first call counts.
pub fn watch(file: Utf8PathBuf) {
    let _ = WATCHED.set(file);
}

/// Does a deed, between its two moments.
pub fn around<T>(deed: impl FnOnce() -> String, work: impl FnOnce() -> T) -> T {
    let point = pass_before(deed);
    let done = work();
    pass_after(point);
    done
}

/// Like [`around`], for a deed that is waited for.
pub async fn around_async<T>(deed: impl FnOnce() -> String, work: impl Future<Output = T>) -> T {
    let point = pass_before(deed);
    let done = work.await;
    pass_after(point);
    done
}

/// A deed that has its number.
#[derive(Debug)]
struct Point {
    number: u64,
    of: FileId,
    deed: String,
}

fn pass_before(deed: impl FnOnce() -> String) -> Option<Point> {
    let file = WATCHED.get()?;
    let mut count = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    let (of, order) = order(file)?;
    if count.of != Some(of) {
        *count = Count { of: Some(of), deeds: 0 };
    }
    count.deeds += 1;
    let point = Point { number: count.deeds, of, deed: deed() };
    pass(file, &order, &point, Moment::Before);
    Some(point)
}

fn pass_after(point: Option<Point>) {
    let (Some(file), Some(point)) = (WATCHED.get(), point) else { return };
    let _one_at_a_time = COUNT.lock().unwrap_or_else(PoisonError::into_inner);
    // What began before the file was put there is no deed of its list.
    if let Some((of, order)) = order(file)
        && of == point.of
    {
        pass(file, &order, &point, Moment::After);
    }
}

/// None where there is no file, or none that can be read: then nothing is tested.
fn order(path: &Utf8PathBuf) -> Option<(FileId, Order)> {
    let mut file = File::open(path).ok()?;
    let found = file.metadata().ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let of = (found.ino(), found.mtime(), found.mtime_nsec());
    Some((of, serde_json::from_slice(&text).ok()?))
}

fn pass(file: &Utf8PathBuf, order: &Order, point: &Point, moment: Moment) {
    let line = format!("{} {} {} {}\n", point.number, moment.as_str(), std::process::id(), point.deed);
    let log = OpenOptions::new().append(true).create(true).open(format!("{file}.log"));
    // A list that cannot be written is missed by the test that asked for it.
    let _ = log.and_then(|mut log| log.write_all(line.as_bytes()));
    if order.number == Some(point.number) && order.moment == Some(moment) {
        let signal = match order.signal {
            Blow::Kill => Signal::KILL,
            Blow::Stop => Signal::STOP,
        };
        if fs::rename(file, format!("{file}.fired")).is_ok() {
            let _ = kill_process(getpid(), signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: what is watched is watched for the whole program.
    #[tokio::test]
    async fn deeds_are_listed_while_the_file_is_there_and_numbered_anew_for_each() {
        let folder = tempfile::tempdir().unwrap();
        let file = Utf8PathBuf::from_path_buf(folder.path().join("checkpoints")).unwrap();
        around(|| unreachable!("nobody watches"), || ());
        watch(file.clone());
        around(|| unreachable!("no file"), || ());
        for _ in 0..2 {
            let beside = folder.path().join("new");
            fs::write(&beside, "{}").unwrap();
            fs::rename(beside, &file).unwrap();
            assert_eq!(around(|| "one".to_owned(), || 1), 1);
            assert_eq!(around_async(|| "two".to_owned(), async { 2 }).await, 2);
        }
        fs::remove_file(&file).unwrap();
        around(|| unreachable!("no file"), || ());
        // A number that is not reached has no effect.
        fs::write(&file, r#"{"number": 2, "moment": "after", "signal": "kill"}"#).unwrap();
        around(|| "three".to_owned(), || ());
        let listed = fs::read_to_string(format!("{file}.log")).unwrap();
        let pid = format!(" {}", std::process::id());
        let once = ["1 before one", "1 after one", "2 before two", "2 after two"];
        let expected = [&once[..], &once, &["1 before three", "1 after three"]].concat().join("\n") + "\n";
        assert_eq!(listed.replace(&pid, ""), expected);
    }
}
