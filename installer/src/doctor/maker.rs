//! Who tries something on this machine, as a token in the names of what is made for it: so that what is left behind by a
//! kill is told from what somebody uses right now.
//!
//! In: this process. Out: a token of letters, digits and hyphens. Not here: removing anything.

use std::io;
use std::time::Duration;

use super::machine;

/// Past this age nothing of a look can be in use: a look takes seconds, and its program ends by itself after a minute.
const OLD: Duration = Duration::from_secs(120);

/// Who tries something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Maker(String);

/// A process, and the numbers that make its own number mean it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    boot: String,
    space: String,
    pid: u32,
    start: u64,
}

impl Maker {
    /// This process.
    pub(super) fn of_this_process() -> io::Result<Self> {
        let (boot, space) = here()?;
        let pid = std::process::id();
        let start = machine::start_time(pid)
            .ok_or_else(|| io::Error::other("the start of this process is not known"))?;
        Ok(Self(format!("{boot}-{space}-{pid}-{start}")))
    }

    /// As text.
    pub(super) fn token(&self) -> &str {
        &self.0
    }

    /// Whether who made something is gone. One in another space of processes cannot be seen from here: what it made must be
    /// old. So must what nobody can have made.
    pub(super) fn is_gone(token: &str, age: Option<Duration>) -> bool {
        let is_old = age.is_some_and(|age| age > OLD);
        let (Some(process), Ok((boot, space))) = (parse(token), here()) else { return is_old };
        match (process.boot == boot, process.space == space) {
            (false, _) => true,
            (true, false) => is_old,
            (true, true) => machine::start_time(process.pid) != Some(process.start),
        }
    }
}

/// The boot and the space of processes that this one is in.
fn here() -> io::Result<(String, String)> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let space = std::fs::read_link("/proc/self/ns/pid")?;
    let number = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    Ok((boot.chars().filter(char::is_ascii_hexdigit).take(12).collect(), number))
}

fn parse(token: &str) -> Option<Process> {
    let mut parts = token.split('-');
    let (boot, space) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(Process { boot, space, pid, start })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there_and_another_of_its_number_is_not() {
        let maker = Maker::of_this_process().unwrap();
        let mine = parse(maker.token()).unwrap();
        let token = |process: &Process| {
            format!("{}-{}-{}-{}", process.boot, process.space, process.pid, process.start)
        };
        assert_eq!(token(&mine), maker.token());
        assert!(!Maker::is_gone(maker.token(), None));
        assert!(Maker::is_gone(&token(&Process { start: mine.start + 1, ..mine.clone() }), None));
        assert!(Maker::is_gone(&token(&Process { boot: "0".to_owned(), ..mine.clone() }), None));
        let elsewhere = token(&Process { space: "1".to_owned(), ..mine });
        assert!(!Maker::is_gone(&elsewhere, Some(OLD)));
        assert!(Maker::is_gone(&elsewhere, Some(OLD * 2)));
        assert!(!Maker::is_gone("mine", None));
    }
}
