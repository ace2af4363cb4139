//! What identifies a run of this machine and of its processes: boot id, start times, open handles.
//!
//! In: `/proc`. Out: facts by which a process id may be believed. Not here: what follows from them.
//!
//! A pid alone is no identity: it is believed only together with its start time and the boot id, and acted
//! on only through a handle (pidfd) that was opened before the start time was compared.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process, told from every other that had or will have its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks since boot, as the kernel has it.
    pub start_time: u64,
    /// The boot that number and time belong to.
    pub boot_id: String,
}

/// The kernel's id for the time since it booted.
///
/// # Errors
/// When the kernel does not say.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// When a process started, in clock ticks since boot; also of one that ended and was not yet reaped.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    Status::of(pid).map(|status| status.start_time)
}

impl ProcessIdentity {
    /// Of this very program.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn of_this_program() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// Of a process that is known to be there, as a child that was not yet reaped is.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> io::Result<Self> {
        let start_time = start_time(pid)
            .ok_or_else(|| io::Error::other(format!("process {pid} has no readable status")))?;
        Ok(Self { pid, start_time, boot_id: boot_id()? })
    }

    /// A handle of it, where it is alive: same boot, same start time, not ended (one that ended and was not
    /// yet reaped is not alive).
    #[must_use]
    pub fn open(&self, boot_id: &str) -> Option<Handle> {
        if self.boot_id != boot_id {
            return None;
        }
        let handle = Handle::of(self.pid)?;
        // The handle came first: what is compared now is what it is a handle of, or nothing any more.
        (start_time(self.pid) == Some(self.start_time) && handle.is_alive()).then_some(handle)
    }
}

/// A process that cannot be mistaken for another.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    /// Of whatever has this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&now)), Ok(0))
    }

    /// Sends it a signal; nothing happens to one that has ended.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.0
    }
}

/// What is read of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) parent: u32,
    pub(crate) session: u32,
    pub(crate) start_time: u64,
}

impl Status {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The name, in parentheses, may hold anything, a `)` too: fields are counted behind the last one.
    fn parse(text: &str) -> Option<Self> {
        let (_, fields) = text.rsplit_once(')')?;
        let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3);
        Some(Self {
            parent: field(4)?.parse().ok()?,
            session: field(6)?.parse().ok()?,
            start_time: field(22)?.parse().ok()?,
        })
    }
}

/// The numbers of all processes there are.
pub(crate) fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_no_trouble() {
        let text = "7 (a) b) (c) S 3 7 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2";
        let expected = Status { parent: 3, session: 5, start_time: 9876 };
        assert_eq!(Status::parse(text), Some(expected));
        assert_eq!(Status::parse("7 (a"), None);
    }

    #[test]
    fn this_program_is_alive_and_one_of_another_time_or_boot_is_not() {
        let me = ProcessIdentity::of_this_program().unwrap();
        assert!(me.open(&me.boot_id).is_some());
        assert!(me.open("another boot").is_none());
        let earlier = ProcessIdentity { start_time: me.start_time - 1, ..me.clone() };
        assert!(earlier.open(&me.boot_id).is_none());
    }

    #[test]
    fn one_that_ended_and_was_not_reaped_is_not_alive() {
        let mut child = std::process::Command::new("/bin/sh").args(["-c", "exit 0"]).spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while identity.open(&identity.boot_id).is_some() {
            assert!(std::time::Instant::now() < deadline, "still alive");
            std::thread::yield_now();
        }
        assert!(start_time(child.id()).is_some(), "its number is still taken");
        child.wait().unwrap();
    }
}
