//! Processes of this machine, told apart by more than a number.
//!
//! In: pids, folders. Out: what runs, with its start time; signals through a pidfd. Not here: starting any.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process, and when it was started: together they mean one process for as long as the machine runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// In clock ticks since the machine's start.
    pub start_time: u64,
    /// The program that it runs.
    pub program: PathBuf,
}

impl Process {
    /// The process of this number; none when it is gone, or only waits to be reaped.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let program = fs::read_link(folder.join("exe")).ok()?;
        let program = program.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        // proc(5): what stands behind the name in brackets begins with field 3; the start time is field 22.
        let (_, fields) = stat.rsplit_once(')')?;
        let start_time = fields.split_ascii_whitespace().nth(19)?.parse().ok()?;
        Some(Self { pid, start_time, program: program.into() })
    }

    /// Every process whose program lies below `folder`.
    #[must_use]
    pub fn all_from(folder: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Self::of).filter(|process| process.program.starts_with(folder)).collect()
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        Self::of(self.pid).is_some_and(|found| found.start_time == self.start_time)
    }

    /// Whether it is stopped, as by SIGSTOP.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // proc(5): field 3, behind the name in brackets.
        stat.rsplit_once(')').is_some_and(|(_, fields)| fields.trim_start().starts_with(['T', 't']))
    }

    /// Kills it.
    ///
    /// # Panics
    /// When it is another process's number by now, or may not be signalled.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Stops it, as by SIGSTOP.
    ///
    /// # Panics
    /// When it is another process's number by now, or may not be signalled.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Asks it to end, as by SIGTERM.
    ///
    /// # Panics
    /// When it is another process's number by now, or may not be signalled.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Interrupts it, as by Ctrl-C.
    ///
    /// # Panics
    /// When it is another process's number by now, or may not be signalled.
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Lets it go on.
    ///
    /// # Panics
    /// When it is another process's number by now, or may not be signalled.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid).unwrap()).unwrap();
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            pidfd_send_signal(&handle, signal).unwrap();
        }
    }

    /// What of it was in memory at most, in bytes.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn peak_memory(&self) -> u64 {
        let kilobytes = self.field("VmHWM:").trim_end_matches(" kB").parse::<u64>().unwrap();
        kilobytes * 1024
    }

    /// The user it runs as: real, effective, saved and for files, all of them.
    ///
    /// # Panics
    /// When it is gone, or these are not all the same.
    #[must_use]
    pub fn user(&self) -> u32 {
        let text = self.field("Uid:");
        let users: Vec<u32> = text.split_ascii_whitespace().map(|user| user.parse().unwrap()).collect();
        assert!(users.iter().all(|user| *user == users[0]), "{self:?} has the users {users:?}");
        users[0]
    }

    /// Its environment, as it was started.
    ///
    /// # Panics
    /// When it is gone.
    #[must_use]
    pub fn environment(&self) -> Vec<u8> {
        fs::read(format!("/proc/{}/environ", self.pid)).unwrap()
    }

    fn field(&self, name: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{self:?} has no {name}")).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_very_process_is_found_and_alive() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(me.peak_memory() > 0);
        let folder = me.program.parent().unwrap();
        assert!(Process::all_from(folder).contains(&me));
        let another = Process { start_time: me.start_time + 1, ..me };
        assert!(!another.is_alive());
    }
}
