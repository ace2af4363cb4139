//! The gate of an incarnation: through it goes one shim at most, and none once the host closed it.
//!
//! In: the file `gate`. Out: who went through, and whether it is closed. Not here: what is done behind it.
//!
//! The file holds at most two lines: `opened` and the shim's identity, written by the shim before it starts
//! the program; `closed`, written by the host. Who writes holds the file's lock; the shim holds it until the
//! program's start is recorded, so a host that has the lock knows whether there is a program.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use camino::Utf8Path;
use rustix::fs::OFlags;

use super::record;
use crate::machine::ProcessIdentity;

/// What was written on a gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Written {
    /// Whether a shim went through.
    pub(super) opened: Opened,
    /// Whether the host let no other through.
    pub(super) closed: bool,
}

/// Whether a shim went through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Opened {
    /// None did.
    #[default]
    No,
    /// This one.
    By(ProcessIdentity),
    /// One did, and a crash of the machine took its name.
    Unreadable,
}

/// A gate whose lock is held; it is let go when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    file: File,
    pub(super) written: Written,
}

impl Held {
    /// Waits for the lock, however long.
    pub(super) fn wait(folder: &Utf8Path) -> io::Result<Self> {
        let file = open(folder)?;
        file.lock()?;
        Self::new(file)
    }

    /// Takes the lock if nobody has it.
    pub(super) fn now(folder: &Utf8Path) -> io::Result<Option<Self>> {
        let file = open(folder)?;
        match file.try_lock() {
            Ok(()) => Self::new(file).map(Some),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn new(mut file: File) -> io::Result<Self> {
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Self { file, written: parse(&text) })
    }

    /// The shim goes through.
    pub(super) fn write_opened(&mut self, shim: &ProcessIdentity) -> io::Result<()> {
        let shim = serde_json::to_string(shim)?;
        self.append(&format!("opened {shim}\n"))
    }

    /// The host closes it.
    pub(super) fn write_closed(&mut self) -> io::Result<()> {
        self.append("closed\n")
    }

    fn append(&mut self, line: &str) -> io::Result<()> {
        self.file.write_all(line.as_bytes())?;
        self.file.sync_all()
    }
}

/// What is written on a gate, whoever holds its lock.
pub(super) fn look(folder: &Utf8Path) -> io::Result<Written> {
    match std::fs::read_to_string(record::gate_file(folder)) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Written::default()),
        Err(error) => Err(error),
    }
}

fn open(folder: &Utf8Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(record::gate_file(folder))
}

fn parse(text: &str) -> Written {
    let mut written = Written::default();
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("opened", shim)) => {
                written.opened = serde_json::from_str(shim).map_or(Opened::Unreadable, Opened::By);
            }
            None if line == "closed" => written.closed = true,
            _ => written.opened = Opened::Unreadable,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gate"), "").unwrap();
        folder
    }

    fn path(folder: &tempfile::TempDir) -> &Utf8Path {
        Utf8Path::from_path(folder.path()).unwrap()
    }

    #[test]
    fn what_is_written_is_seen_and_the_lock_is_one() {
        let folder = gate();
        let me = ProcessIdentity::of_this_program().unwrap();
        let mut held = Held::wait(path(&folder)).unwrap();
        assert_eq!(held.written, Written::default());
        assert!(Held::now(path(&folder)).unwrap().is_none(), "it is held");
        held.write_opened(&me).unwrap();
        drop(held);
        let mut held = Held::now(path(&folder)).unwrap().unwrap();
        assert_eq!(held.written, Written { opened: Opened::By(me.clone()), closed: false });
        held.write_closed().unwrap();
        drop(held);
        let written = look(path(&folder)).unwrap();
        assert_eq!(written, Written { opened: Opened::By(me), closed: true });
    }

    #[test]
    fn a_torn_line_still_says_that_one_went_through() {
        for torn in ["opened {\"pid\":", "open", "\0\0\0\0"] {
            assert_eq!(parse(torn).opened, Opened::Unreadable, "{torn:?}");
        }
    }
}
