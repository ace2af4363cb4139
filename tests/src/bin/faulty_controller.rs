//! A controller that does not stay up, in one of a few ways: what a handover must be able to tell from a good one.
//!
//! In: `--fault KIND` or a file `fault`, then the words of the controller. Out: the controller's own start, as far as the fault lets it
//! come, and a last line that tests look for in its log. Not here: anything that a good controller does otherwise.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use mesh_controller::config::Config;
use mesh_controller::log::Log;
use mesh_controller::run_folder::RunFolder;
use mesh_controller::{roles, start};
use mesh_protocol::handover::{Role, RoleOrder};
use mesh_protocol::id::InstanceId;
use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};

/// What is wrong with it.
enum Fault {
    /// It ends at once, with this exit status.
    Exits(u8),
    /// It stands by as it should, and something becomes of it so long afterwards.
    AfterReady(Duration, Later),
    /// Nothing, but that it needs no host: it makes its own run folder, and orders itself to serve until it is asked to
    /// end. Where a time is given, it ends so long after it began to serve.
    ByItself(Option<Duration>),
    /// It runs and never answers.
    NeverReady,
    /// This signal ends it at once.
    Signalled(i32),
    /// It takes more memory than it may have, once somebody has set a limit to it.
    EatsMemory,
}

/// What becomes of one that stood by as it should.
#[derive(Clone, Copy)]
enum Later {
    /// It ends with exit status 9.
    Exits,
    /// It stops, as by SIGSTOP.
    Freezes,
    /// It goes on running, and does nothing any more.
    Hangs,
}

const USAGE: &str = "usage: faulty-controller --fault KIND WORD...\nKIND is exit=CODE, signal=NUMBER, never-ready, \
                     eat-memory, by-itself, by-itself=MILLISECONDS, or exit-after-ready, freeze-after-ready or hang-after-ready=MILLISECONDS";

impl Fault {
    fn parse(text: &str) -> Option<Self> {
        let (kind, value) = text.split_once('=').unwrap_or((text, ""));
        let after_ready =
            |later| value.parse().ok().map(|time| Self::AfterReady(Duration::from_millis(time), later));
        match kind {
            "exit" => value.parse().ok().map(Self::Exits),
            "signal" => value.parse().ok().map(Self::Signalled),
            "exit-after-ready" => after_ready(Later::Exits),
            "freeze-after-ready" => after_ready(Later::Freezes),
            "hang-after-ready" => after_ready(Later::Hangs),
            "by-itself" if value.is_empty() => Some(Self::ByItself(None)),
            "by-itself" => value.parse().ok().map(|time| Self::ByItself(Some(Duration::from_millis(time)))),
            "never-ready" => Some(Self::NeverReady),
            "eat-memory" => Some(Self::EatsMemory),
            _ => None,
        }
    }
}

fn main() -> ExitCode {
    let log = Log::default();
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    // In a bundle of its own it is the file `fault` that says what is wrong, and all words are the controller's.
    let text = match std::fs::read_to_string("fault") {
        Ok(text) => Some(text),
        Err(_) => words.next().filter(|word| word == "--fault").and_then(|_| words.next()),
    };
    let Some(fault) = text.and_then(|text| Fault::parse(text.trim())) else {
        log.line(USAGE);
        return ExitCode::from(2);
    };
    match fault {
        Fault::Exits(code) => {
            log.line("faulty on purpose: ends at once");
            ExitCode::from(code)
        }
        Fault::Signalled(number) => {
            log.line("faulty on purpose: ends by a signal");
            if let Some(signal) = Signal::from_named_raw(number) {
                let _ = kill_process(getpid(), signal);
            }
            park()
        }
        Fault::NeverReady => {
            log.line("faulty on purpose: never ready");
            park()
        }
        Fault::EatsMemory => {
            eat_memory(&log);
            ExitCode::from(8)
        }
        Fault::AfterReady(time, later) => {
            let ended = with_config(&log, std::iter::once(program).chain(words), async |config| {
                run(&config, &log, time, later).await
            });
            log.line(
                &ended
                    .map_or_else(|error| error, |()| "faulty on purpose: ends after it was ready".to_owned()),
            );
            ExitCode::from(9)
        }
        Fault::ByItself(time) => {
            let ended = with_config(&log, std::iter::once(program).chain(words), async |config| {
                by_itself(&config, &log, time).await
            });
            match ended {
                Ok(()) if time.is_none() => ExitCode::SUCCESS,
                Ok(()) => ExitCode::from(9),
                Err(error) => {
                    log.line(&error);
                    ExitCode::from(2)
                }
            }
        }
    }
}

fn with_config(
    log: &Log,
    words: impl Iterator<Item = String>,
    work: impl AsyncFnOnce(Config) -> Result<(), String>,
) -> Result<(), String> {
    let config = Config::try_parse_from(words).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    log.line("faulty on purpose");
    runtime.block_on(work(config))
}

/// As somebody else's supervisor runs it: it is up when it runs, and leaves when it is asked to end.
async fn by_itself(config: &Config, log: &Log, time: Option<Duration>) -> Result<(), String> {
    let now = jiff::Timestamp::now().as_nanosecond();
    let instance: InstanceId = format!("c-{now:x}").parse().map_err(|error| format!("{error}"))?;
    let order = RoleOrder { instance: instance.clone(), role: Role::Serving, number: 1 };
    let order = serde_json::to_string(&order).map_err(|error| error.to_string())?;
    for (name, text) in [("instance", instance.to_string()), ("role", order)] {
        std::fs::write(config.run_dir.join(name), text).map_err(|error| error.to_string())?;
    }
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let folder = RunFolder::new(&config.run_dir);
    let seat = Box::pin(start::stand_by(config, &folder, log)).await.map_err(|error| format!("{error:#}"))?;
    let asked = async {
        let _ = terminate.recv().await;
    };
    let serving = roles::follow(seat, &folder, asked);
    match time {
        None => serving.await,
        Some(time) => {
            let _ = tokio::time::timeout(time, serving).await;
        }
    }
    Ok(())
}

fn park() -> ! {
    loop {
        std::thread::park();
    }
}

async fn run(config: &Config, log: &Log, time: Duration, later: Later) -> Result<(), String> {
    let folder = RunFolder::new(&config.run_dir);
    let seat = Box::pin(start::stand_by(config, &folder, log)).await.map_err(|error| format!("{error:#}"))?;
    // As a crash would: whatever it does at that moment is cut off.
    let serving = roles::follow(seat, &folder, std::future::pending());
    let mut serving = std::pin::pin!(serving);
    let _ = tokio::time::timeout(time, &mut serving).await;
    match later {
        Later::Exits => {}
        Later::Freezes => {
            log.line("faulty on purpose: freezes after it was ready");
            let _ = kill_process(getpid(), Signal::STOP);
            serving.await;
        }
        Later::Hangs => {
            log.line("faulty on purpose: hangs after it was ready");
            // The runtime's one thread.
            park()
        }
    }
    Ok(())
}

/// Takes memory without end, and gives up when it has had far more than it may.
fn eat_memory(log: &Log) {
    const LIMIT: u64 = 1 << 30;
    const PIECE: usize = 8 << 20;
    let limit = || {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let group = groups.lines().find_map(|line| line.split_once(":memory:"))?.1;
        let file = format!("/sys/fs/cgroup/memory{group}/memory.limit_in_bytes");
        std::fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    };
    while limit().is_none_or(|limit| limit > LIMIT) {
        std::thread::sleep(Duration::from_millis(5));
    }
    log.line("faulty on purpose: takes more memory than it may have");
    let mut all = Vec::new();
    while all.len() as u64 * (PIECE as u64) < LIMIT {
        all.push(vec![1_u8; PIECE]);
    }
    log.line("it had all the memory that it took");
}
