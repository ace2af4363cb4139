//! The machine itself: its user, kernel, memory, clock, programs, and what starts the host on it.
//!
//! In: the surroundings. Out: findings. Changes nothing. Not here: files, networks, engines.

use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use mesh_bundles::elf::{Elf, ElfError};
use mesh_protocol::id::{NodeName, System};
use rustix::process::{PidfdFlags, Resource, getpid, getrlimit, pidfd_open};

use super::check::{Finding, Tried, expect, wrong};
use crate::config;
use crate::machine::{self, find_program};
use crate::output::{Code, Failure};
use crate::world::World;

/// Bus, store, controller and host take some eighty megabytes when they have nothing to do.
const LEAST_MEMORY: u64 = 128 << 20;
/// And several times that when something is pushed.
const ENOUGH_MEMORY: u64 = 512 << 20;

/// The bus has a file for each connection and stream, the store one for each transfer.
const ENOUGH_FILES: u64 = 1024;

/// This program is not older than that, so a clock that is before it is wrong.
const NOT_BEFORE: &str = "2025-01-01T00:00:00Z";

/// What makes accounts, and where Debian has it.
pub(super) const ACCOUNT_PROGRAMS: [&str; 2] = ["useradd", "userdel"];

/// Who may do it.
pub(super) fn user(user: u32) -> Finding {
    let check = expect("root, who makes accounts and starts what runs under them");
    if user == 0 {
        return check.met("root");
    }
    check.failed(wrong(Code::NotRoot, "this user is not root", format!("user {user}"), "run this as root"))
}

/// Whether the kernel names processes by descriptors, tried on this very process.
pub(super) fn kernel_names_processes() -> Tried {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Tried::Worked(format!("Linux {release}")),
        Err(error) => Tried::Failed(format!("Linux {release}: {error}")),
    }
}

/// A pid can be another process a moment later; a descriptor cannot.
pub(super) fn kernel(tried: &Tried) -> Finding {
    expect("a kernel that names processes by descriptors (pidfd_open(2))").tried(tried, |why| {
        let what = "the kernel has no descriptors for processes, or a sandbox forbids them";
        wrong(
            Code::UnsupportedSystem,
            what,
            why,
            "use Linux 5.3 or newer, and no sandbox that forbids pidfd_open",
        )
    })
}

/// The bytes that programs can have, as the kernel estimates them.
pub(super) fn available_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Room for what will run.
pub(super) fn memory(available: Option<u64>) -> Finding {
    let check = expect(format!("{} MB of memory that is available", ENOUGH_MEMORY >> 20));
    let Some(available) = available else { return check.skipped("/proc/meminfo does not say") };
    let found = format!("{} MB", available >> 20);
    let failure =
        |what| wrong(Code::MemoryShort, what, found.clone(), "end what takes it, or use a larger machine");
    match available {
        bytes if bytes < LEAST_MEMORY => check.failed(failure("there is too little memory for a mesh")),
        bytes if bytes < ENOUGH_MEMORY => check.warned(failure("there is little memory for a mesh")),
        _ => check.met(found),
    }
}

/// How many files a program may have open, as what is started from here will inherit it.
pub(super) fn most_open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Room for what will be open.
pub(super) fn open_files(most: Option<u64>) -> Finding {
    let check = expect(format!("programs may open {ENOUGH_FILES} files"));
    match most {
        Some(most) if most < ENOUGH_FILES => check.warned(wrong(
            Code::UnsupportedSystem,
            "programs may open few files",
            format!("{most} files"),
            format!("raise the limit before this is run: ulimit -n {ENOUGH_FILES}"),
        )),
        Some(most) => check.met(format!("{most} files")),
        None => check.met("no limit"),
    }
}

/// A clock that is far off makes every time in logs, reports and credentials wrong.
pub(super) fn clock(now: Timestamp, begun: Option<Timestamp>) -> Finding {
    let release = NOT_BEFORE.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let (floor, why) = match begun {
        Some(begun) if begun > release => (begun, "when the mesh was begun"),
        _ => (release, "before this program was"),
    };
    let check = expect(format!("a clock that is past {floor:.0}"));
    if now >= floor {
        return check.met(format!("{now:.0}"));
    }
    let what = format!("the machine's clock is in the past: {now:.0} is earlier than {floor:.0}, {why}");
    check.warned(wrong(
        Code::ClockWrong,
        what,
        format!("{now:.0}"),
        "set it (timedatectl set-ntp true, or date -s)",
    ))
}

/// The programs that make accounts, and which of them are not there.
pub(super) fn missing_account_programs(path: Option<&str>) -> Vec<&'static str> {
    ACCOUNT_PROGRAMS.into_iter().filter(|program| find_program(program, path).is_none()).collect()
}

/// Processes run under accounts of their own.
pub(super) fn account_programs(missing: &[&str]) -> Finding {
    let check = expect(format!("programs {}", ACCOUNT_PROGRAMS.join(" and ")));
    let one = |program: &&str| {
        Failure::new(Code::ProgramMissing, format!("program {program} is not on this machine"))
            .hint("install it (on Debian: apt-get install passwd)")
    };
    let failures: Vec<Failure> = missing.iter().map(one).collect();
    if failures.is_empty() {
        return check.met("both are there");
    }
    let hint = "install them (on Debian: apt-get install passwd)";
    let failure = Failure::all(Code::ProgramMissing, "programs that make accounts are missing", failures);
    check.failed(if failure.hint.is_none() { failure.hint(hint) } else { failure })
}

/// What the host's program is.
pub(super) fn host_elf(world: &World) -> (Utf8PathBuf, Result<Elf, Failure>) {
    let program = config::host_program(world);
    let read = std::fs::File::open(&program).map(Elf::read);
    let elf = match read {
        Ok(read) => read.map_err(|error: ElfError| {
            Failure::because(Code::BinaryUnfit, &format!("the host's program {program} is none"), &error)
                .hint("build it again (scripts/build)")
        }),
        Err(error) => Err(Failure::because(
            Code::BinaryMissing,
            &format!("the host's program {program} cannot be read"),
            &error,
        )
        .hint("mesh-host belongs beside mesh: build them together (scripts/build)")),
    };
    (program, elf)
}

/// The host runs on this machine and nowhere else: it must be for its system, and need not be static.
pub(super) fn host_program(program: &Utf8Path, elf: &Result<Elf, Failure>) -> Finding {
    let system = System::of_this_program();
    let check = expect(format!("a program for {system} beside this one"));
    match elf {
        Ok(elf) if elf.system == system => check.met(program.to_string()),
        Ok(elf) => check.failed(wrong(
            Code::BinaryMissing,
            format!("the host's program {program} is for another system"),
            elf.system.to_string(),
            format!("put the one for {system} beside this program (scripts/build {system})"),
        )),
        Err(failure) => check.failed(failure.clone()),
    }
}

/// A name is only taken over from the machine when the mesh is begun: later it is the mesh's own.
pub(super) fn host_name(host_name: &str, node: Option<(&NodeName, Origin)>) -> Finding {
    let now = config::node_name(host_name);
    let Some((node, origin)) = node else {
        let check = expect("a host name that can be a node's name");
        return match now {
            Some(node) => check.met(node.to_string()),
            None => check.warned(wrong(
                Code::Usage,
                "the machine's host name cannot be a node's name: the node will be called control",
                format!("{host_name:?}"),
                "say another with --node",
            )),
        };
    };
    let check = expect(format!("{node}, as the mesh knows this machine"));
    match (origin, now) {
        (Origin::Said, _) => check.met(format!("{node}, as --node said")),
        (Origin::HostName, Some(now)) if now == *node => check.met(now.to_string()),
        (Origin::HostName, _) => check.warned(wrong(
            Code::Usage,
            format!("this machine is called {host_name} now; the mesh was begun when it was called {node}"),
            host_name,
            format!("nothing has to be done: in the mesh it stays {node}; do not say --node"),
        )),
    }
}

/// Where a node's name is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It was said.
    Said,
    /// It is what the machine was called.
    HostName,
}

/// What will start the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Init {
    /// systemd; and what says in its configuration that the children of a service end with it, where the host's unit says
    /// otherwise.
    Systemd {
        /// Whether there is a `systemctl` to speak to it with.
        systemctl: bool,
        /// The drop-in that overrides the unit.
        overridden: Option<Utf8PathBuf>,
    },
    /// Nobody: it is started in a session of its own.
    Nobody,
}

impl Init {
    /// As it is on this machine; `unit` is the host's, where there is one.
    pub(super) fn of_this_machine(path: Option<&str>, unit: Option<&Utf8Path>) -> Self {
        if !machine::has_systemd() {
            return Self::Nobody;
        }
        let overridden = unit.and_then(|unit| overriding(&Utf8PathBuf::from(format!("{unit}.d"))));
        Self::Systemd { systemctl: find_program("systemctl", path).is_some(), overridden }
    }
}

/// The last drop-in of a folder that sets KillMode to something else than what leaves the children alone.
pub(super) fn overriding(folder: &Utf8Path) -> Option<Utf8PathBuf> {
    let entries = folder.read_dir_utf8().ok()?.flatten().map(camino::Utf8DirEntry::into_path);
    let mut files: Vec<Utf8PathBuf> = entries.filter(|path| path.extension() == Some("conf")).collect();
    files.sort();
    let mode = |path: &Utf8PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().rev().find_map(|line| line.trim().strip_prefix("KillMode=").map(str::to_owned))
    };
    files
        .into_iter()
        .rev()
        .find_map(|path| mode(&path).map(|mode| (path, mode)))
        .and_then(|(path, mode)| (!matches!(mode.trim(), "process" | "none")).then_some(path))
}

/// What the host runs must outlive it.
pub(super) fn host_unit(init: &Init) -> Finding {
    let check = expect("an init that leaves alone what the host runs");
    match init {
        Init::Nobody => check.met("no systemd: the host is started in a session of its own"),
        Init::Systemd { systemctl: false, .. } => check.failed(wrong(
            Code::ProgramMissing,
            "systemd runs this machine, and there is no systemctl to start the host with",
            "no systemctl in PATH and the system's folders",
            "put systemctl into PATH",
        )),
        Init::Systemd { overridden: Some(path), .. } => check.failed(wrong(
            Code::HostNotStarted,
            format!("{path} has systemd kill what the host runs whenever the host is restarted"),
            "a KillMode that is neither process nor none",
            format!("remove KillMode from {path}, then: systemctl daemon-reload"),
        )),
        Init::Systemd { overridden: None, .. } => {
            check.met("systemd, with KillMode=process in the host's unit")
        }
    }
}

/// The start of a process, in clock ticks since the machine booted: with the pid and the boot it names it for ever.
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have blanks and brackets; the last bracket ends it. Then the 20th field: proc_pid_stat(5).
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// How long what answers from memory may take before it counts as hanging.
pub(super) const PATIENCE: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn this_machine_has_what_is_asked_for() {
        assert_eq!(kernel(&kernel_names_processes()).state, State::Passed);
        let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
        assert!(available_memory(&meminfo).unwrap() > LEAST_MEMORY);
        assert_eq!(start_time(std::process::id()), start_time(std::process::id()));
        assert!(start_time(std::process::id()).unwrap() > 0);
    }

    #[test]
    fn a_drop_in_that_has_children_killed_is_found_and_the_last_one_counts() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        assert_eq!(overriding(&folder.join("none")), None);
        std::fs::write(folder.join("10.conf"), "[Service]\nKillMode=control-group\n").unwrap();
        assert_eq!(overriding(folder), Some(folder.join("10.conf")));
        std::fs::write(folder.join("20.conf"), "[Service]\nKillMode=process\n").unwrap();
        assert_eq!(overriding(folder), None);
    }

    #[test]
    fn a_name_that_was_said_is_not_compared_with_the_machines() {
        let node = "n1".parse().unwrap();
        assert_eq!(host_name("other", Some((&node, Origin::Said))).state, State::Passed);
        assert_eq!(host_name("n1.example.org", Some((&node, Origin::HostName))).state, State::Passed);
        assert_eq!(host_name("other", Some((&node, Origin::HostName))).state, State::Warned);
        assert_eq!(host_name("n1", None).state, State::Passed);
    }

    #[test]
    fn little_memory_is_said_and_too_little_stops() {
        assert_eq!(memory(Some(ENOUGH_MEMORY)).state, State::Passed);
        assert_eq!(memory(Some(LEAST_MEMORY)).state, State::Warned);
        assert_eq!(memory(Some(LEAST_MEMORY - 1)).state, State::Failed);
    }
}
