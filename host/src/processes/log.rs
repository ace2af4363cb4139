//! A program's log: written by its shim, turned at a size, read from its end.
//!
//! In: bytes. Out: `<name>.log`, and before it `<name>.log.1`; at most twice the limit on disk. Not here:
//! following a log as it grows, which is the installer's.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use camino::{Utf8Path, Utf8PathBuf};
use rustix::fs::OFlags;

use mesh_durable as durable;

/// The most that is read to find the last lines of a log.
const TAIL_BYTES: u64 = 256 * 1024;

/// A log that is written. Two may write the same (one run ends while the next begins): each looks, under the
/// file's lock, whether the other has turned it.
#[derive(Debug)]
pub(super) struct Log {
    path: Utf8PathBuf,
    limit: u64,
    file: File,
}

impl Log {
    pub(super) fn open(path: &Utf8Path, limit: u64) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), limit, file: open(path)? })
    }

    /// Appends, in pieces where it is much, so that no file is ever larger than the limit; a piece ends with a
    /// line, where a line is no longer than the limit.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let size = self.follow()?;
            let fits = piece(bytes, size, self.limit);
            if fits == 0 {
                self.turn()?;
                continue;
            }
            self.file.write_all(&bytes[..fits])?;
            bytes = &bytes[fits..];
        }
        Ok(())
    }

    /// Opens the log anew where its name belongs to another file by now; tells its size.
    fn follow(&mut self) -> io::Result<u64> {
        if !self.has_the_name()? {
            self.file = open(&self.path)?;
        }
        Ok(self.file.metadata()?.len())
    }

    fn has_the_name(&self) -> io::Result<bool> {
        let mine = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (mine.dev(), mine.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn turn(&mut self) -> io::Result<()> {
        self.file.lock()?;
        if self.has_the_name()? {
            fs::rename(&self.path, before(&self.path))?;
        }
        // The lock goes with the file.
        self.file = open(&self.path)?;
        Ok(())
    }
}

/// How much of what is to be written goes into a file of this size; nothing: the file is full.
fn piece(bytes: &[u8], size: u64, limit: u64) -> usize {
    let room = usize::try_from(limit.max(1).saturating_sub(size)).unwrap_or(usize::MAX);
    if bytes.len() <= room {
        return bytes.len();
    }
    match bytes[..room].iter().rposition(|byte| *byte == b'\n') {
        Some(end) => end + 1,
        // A line that is longer than a whole file is cut.
        None if size == 0 => room,
        None => 0,
    }
}

/// The last lines of a log; what is no UTF-8 is shown as such. None where there is no log.
///
/// # Errors
/// When it is there and cannot be read.
pub fn log_tail(path: &Utf8Path, lines: usize) -> io::Result<Vec<String>> {
    let mut found = last_lines(path, lines)?;
    if found.len() < lines {
        let mut earlier = last_lines(&before(path), lines - found.len())?;
        earlier.extend(found);
        found = earlier.into_iter().collect();
    }
    Ok(found.into())
}

fn last_lines(path: &Utf8Path, lines: usize) -> io::Result<VecDeque<String>> {
    let mut file = match durable::open_plain(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(VecDeque::new()),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    let skipped = size.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first of them may have lost its beginning.
    let whole = if skipped > 0 { text.split_once('\n').map_or(&*text, |(_, rest)| rest) } else { &text };
    let mut found: VecDeque<String> = whole.lines().map(str::to_owned).collect();
    found.drain(..found.len().saturating_sub(lines));
    Ok(found)
}

fn before(path: &Utf8Path) -> Utf8PathBuf {
    Utf8PathBuf::from(format!("{path}.1"))
}

fn open(path: &Utf8Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_turned_and_its_end_is_read_across_the_turn() {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().join("a.log");
        assert_eq!(log_tail(&path, 3).unwrap(), Vec::<String>::new());
        let mut log = Log::open(&path, 100).unwrap();
        for number in 0..50 {
            log.append(format!("line {number}\n").as_bytes()).unwrap();
        }
        assert!(fs::metadata(&path).unwrap().len() <= 100);
        assert!(fs::metadata(before(&path)).unwrap().len() <= 100);
        let tail = log_tail(&path, 12).unwrap();
        let expected: Vec<String> = (38..50).map(|number| format!("line {number}")).collect();
        assert_eq!(tail, expected);
    }

    #[test]
    fn pieces_end_with_lines_where_they_can() {
        assert_eq!(piece(b"ab\ncd\n", 0, 10), 6);
        assert_eq!(piece(b"ab\ncd\n", 0, 4), 3);
        assert_eq!(piece(b"ab\ncd\n", 2, 4), 0);
        assert_eq!(piece(b"ab\ncd\n", 9, 4), 0);
        assert_eq!(piece(b"abcdefgh\n", 0, 4), 4);
        assert_eq!(piece(b"ab", 0, 0), 1);
    }

    #[test]
    fn two_writers_lose_nothing_that_is_within_the_limits() {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().join("a.log");
        let mut one = Log::open(&path, 1000).unwrap();
        let mut two = Log::open(&path, 1000).unwrap();
        for number in 0..90 {
            one.append(format!("one {number}\n").as_bytes()).unwrap();
            two.append(format!("two {number}\n").as_bytes()).unwrap();
        }
        let tail = log_tail(&path, 1000).unwrap();
        assert_eq!(tail.len(), 180);
        assert!(fs::metadata(&path).unwrap().len() <= 1000);
    }

    #[test]
    fn what_is_no_text_is_shown_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().join("a.log");
        fs::write(&path, b"a\n\xff\xfe\nb").unwrap();
        assert_eq!(log_tail(&path, 2).unwrap(), ["\u{fffd}\u{fffd}", "b"]);
    }
}
