//! A test that owns its machine, as far as it can tell: processes, mounts, network and container engine of its own, all
//! of which end with it whatever happens.
//!
//! In: a test's name and what it does. Out: the same, run again by unshare(1) in namespaces that were made for it. What is
//! outside of them stays as it is; accounts and control groups are the machine's. Not here: what is destroyed inside.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::Process;
use crate::until::until;

/// The machine's folder, for the program that is run inside.
const INSIDE: &str = "MESH_INSIDE";

/// An engine starts within half a second; beside a compiler, within many.
const START: Duration = Duration::from_secs(60);

/// What the kernel says which boot this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Runs a test on a machine of its own. `name` is what `module_path!()` and the function's name make of it.
///
/// # Panics
/// When the test fails, or unshare(1) does.
pub fn run<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Machine) -> F) {
    let (_target, name) = name.split_once("::").unwrap();
    if let Some(folder) = std::env::var_os(INSIDE) {
        let machine = Machine::start(folder.into());
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(2).enable_all().build().unwrap().block_on(test(machine));
        return;
    }
    let folder = tempfile::Builder::new().prefix("mt-machine-").tempdir_in("/tmp").unwrap();
    let status = Command::new("unshare")
        .args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, folder.path())
        .env("DOCKER_HOST", format!("unix://{}", socket(folder.path()).display()))
        .env_remove("DOCKER_CONTEXT")
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{name} failed on its own machine: {status}");
}

/// Whether a daemon answers there: it listens long before it does, while the programs it needs are yet to start.
fn is_answered(socket: &Path) -> bool {
    let asked = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /_ping HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    asked().is_ok_and(|answer| answer.ends_with("OK"))
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("docker.sock")
}

/// The machine inside.
#[derive(Debug)]
pub struct Machine {
    folder: PathBuf,
    engine: Option<Child>,
    boots: u32,
}

impl Machine {
    fn start(folder: PathBuf) -> Self {
        run_to_end("ip", &["link", "set", "lo", "up"]);
        let mut machine = Self { folder, engine: None, boots: 0 };
        machine.start_engine();
        machine
    }

    /// Where its engine keeps what it has.
    #[must_use]
    pub fn engine_data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Starts its engine, and returns when that answers.
    ///
    /// # Panics
    /// When it does not.
    pub fn start_engine(&mut self) {
        let at = |name: &str| self.folder.join(name);
        let log = File::options().append(true).create(true).open(at("dockerd.log")).unwrap();
        let socket = socket(&self.folder);
        let _ = fs::remove_file(&socket);
        let _ = fs::remove_file(at("dockerd.pid"));
        let _ = fs::remove_dir_all(at("exec"));
        // Not the machine's own.
        fs::write(at("daemon.json"), "{}").unwrap();
        let child = Command::new("dockerd")
            .arg("--config-file")
            .arg(at("daemon.json"))
            .args(["--bridge", "none", "--iptables=false", "--host"])
            .arg(format!("unix://{}", socket.display()))
            .arg("--data-root")
            .arg(self.engine_data())
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("dockerd.pid"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.engine = Some(child);
        until("the engine answers", START, || {
            if let Some(status) = self.engine.as_mut().unwrap().try_wait().unwrap() {
                let log = fs::read_to_string(at("dockerd.log")).unwrap_or_default();
                panic!("dockerd ended with {status}:\n{log}");
            }
            is_answered(&socket).then_some(())
        });
    }

    /// Its engine's daemon.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn engine_process(&self) -> Process {
        let child = self.engine.as_ref().expect("the engine was started");
        Process::of(child.id()).expect("the engine runs")
    }

    /// Ends its engine as its service manager would, with all that it runs, and starts it again.
    ///
    /// # Panics
    /// When it does not end, or not start.
    pub fn restart_engine(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            Process::of(engine.id()).expect("the engine runs").terminate();
            let status = engine.wait().unwrap();
            assert!(status.success(), "dockerd ended with {status}");
        }
        self.start_engine();
    }

    /// What a power cut does to what runs: nothing runs any more, the engine neither.
    ///
    /// # Panics
    /// When something does not end.
    pub fn cut_power(&mut self) {
        let me = std::process::id();
        until("nothing runs any more", START, || {
            let others = Process::all_from(Path::new("/")).into_iter().filter(|process| process.pid != me);
            let mut none = true;
            for process in others {
                none = false;
                process.kill();
            }
            none.then_some(())
        });
        if let Some(mut engine) = self.engine.take() {
            let _ = engine.wait();
        }
    }

    /// What the engine had mounted is not, after a power cut.
    ///
    /// # Panics
    /// When the kernel does not say what is mounted.
    pub fn unmount_engine(&self) {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
        // proc(5): the fifth field is where it is mounted.
        let mounted = text.lines().filter_map(|line| line.split(' ').nth(4));
        let ours: Vec<&str> = mounted.filter(|place| Path::new(place).starts_with(&self.folder)).collect();
        for place in ours.iter().rev() {
            run_to_end("umount", &["--lazy", place]);
        }
    }

    /// The next boot has another id.
    ///
    /// # Panics
    /// When that cannot be made so.
    pub fn boot_again(&mut self) {
        if self.boots > 0 {
            run_to_end("umount", &[BOOT_ID]);
        }
        self.boots += 1;
        let file = self.folder.join("boot_id");
        fs::write(&file, format!("00000000-0000-4000-8000-{:012x}\n", self.boots)).unwrap();
        run_to_end("mount", &["--bind", file.to_str().unwrap(), BOOT_ID]);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.folder.join("dockerd.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("--- the engine's last words\n{}", lines[lines.len().saturating_sub(15)..].join("\n"));
        }
        self.cut_power();
    }
}

fn run_to_end(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}
