//! Processes under the shim, with the real binary and real programs. They run as root, as the host does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests may stop too

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use mesh_host::machine::{ProcessIdentity, boot_id};
use mesh_host::processes::{
    ExitKind, Grouping, Launch, ProcessError, ProcessState, Signal, Signalled, bundle_of, close, end, forget,
    list, log_tail, observe, prepare, signal, spawn,
};
use mesh_protocol::id::{Digest, InstanceId};
use mesh_protocol::layout::Layout;

const HOST: &str = env!("CARGO_BIN_EXE_mesh-host");
const NOBODY: u32 = 65534;
const GRACE: Duration = Duration::from_secs(5);

/// A root with its runs, which end with it.
struct Node {
    _folder: tempfile::TempDir,
    layout: Layout,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let root = Utf8PathBuf::from_path_buf(folder.path().to_owned()).unwrap();
        Self { _folder: folder, layout: Layout::new(root) }
    }

    fn launch(&self, program: &str, arguments: &[&str]) -> Launch {
        use std::hash::{BuildHasher as _, RandomState};
        let number = RandomState::new().hash_one(program);
        Launch {
            instance: format!("p-{:010x}", number & 0xff_ffff_ffff).parse().unwrap(),
            program: program.into(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            working_directory: "/".into(),
            uid: NOBODY,
            gid: NOBODY,
            log: self.layout.log("process-test"),
            log_limit_bytes: 1024 * 1024,
            grouping: Grouping::ControlGroup,
        }
    }

    fn shell(&self, script: &str) -> Launch {
        self.launch("/bin/sh", &["-c", script])
    }

    fn start(&self, launch: &Launch) -> InstanceId {
        prepare(&self.layout, launch).unwrap();
        self.spawn(&launch.instance);
        launch.instance.clone()
    }

    fn spawn(&self, instance: &InstanceId) {
        spawn(&self.layout, instance, Utf8Path::new(HOST)).unwrap();
    }

    fn observe(&self, instance: &InstanceId) -> ProcessState {
        observe(&self.layout, instance).unwrap()
    }

    fn running(&self, instance: &InstanceId) -> ProcessIdentity {
        until("it runs", || match self.observe(instance) {
            ProcessState::Running(identity) => Some(identity),
            ProcessState::Prepared | ProcessState::Starting => None,
            other => panic!("{other:?}"),
        })
    }

    fn exit(&self, instance: &InstanceId) -> ExitKind {
        until("it has ended", || match self.observe(instance) {
            ProcessState::Ended(exit) => Some(exit.kind),
            ProcessState::Prepared | ProcessState::Starting | ProcessState::Running(_) => None,
            other => panic!("{other:?}"),
        })
    }

    /// The first line of the log, once it is whole.
    fn line(&self) -> String {
        until("a line in the log", || {
            let text = fs::read_to_string(self.layout.log("process-test")).ok()?;
            text.split_once('\n').map(|(line, _)| line.to_owned())
        })
    }

    fn end(&self, instance: &InstanceId, grace: Duration) -> ProcessState {
        block(end(&self.layout, instance, grace)).unwrap()
    }

    fn started_file(&self, instance: &InstanceId) -> Utf8PathBuf {
        self.layout.incarnation(instance).join("started.json")
    }

    fn shim(&self, instance: &InstanceId) -> ProcessIdentity {
        let text = fs::read(self.started_file(instance)).unwrap();
        let started: mesh_host::processes::Started = serde_json::from_slice(&text).unwrap();
        started.shim
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for instance in list(&self.layout).unwrap_or_default() {
            let _ = block(end(&self.layout, &instance, Duration::ZERO));
            let _ = forget(&self.layout, &instance);
        }
    }
}

fn block<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "not so in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_alive(pid: u32) -> bool {
    ProcessIdentity::of(pid).is_ok_and(|identity| identity.open(&boot_id().unwrap()).is_some())
}

fn number(line: &str) -> u32 {
    line.trim().parse().unwrap()
}

#[test]
fn it_runs_as_its_account_with_nothing_inherited() {
    let node = Node::new();
    // A descriptor without close-on-exec, as whoever starts a host may leave one.
    let leaked = rustix::io::dup(fs::File::open("/etc/hostname").unwrap()).unwrap();
    let environment = node.start(&node.launch("/usr/bin/env", &[]));
    assert_eq!(node.exit(&environment), ExitKind::Exited { code: 0 });
    assert_eq!(log_tail(&node.layout.log("process-test"), 9).unwrap(), Vec::<String>::new());
    let script = "id; ls /proc/self/fd | tr '\\n' ' '; grep NoNewPrivs /proc/self/status; pwd; umask";
    let facts = node.start(&node.shell(script));
    assert_eq!(node.exit(&facts), ExitKind::Exited { code: 0 });
    let lines = log_tail(&node.layout.log("process-test"), 9).unwrap();
    assert!(lines[0].starts_with("uid=65534"), "{lines:?}");
    assert!(lines[0].ends_with("groups=65534(nogroup)"), "{lines:?}");
    // The last of them is the folder that ls itself reads.
    assert_eq!(lines[1], "0 1 2 3 NoNewPrivs:\t1");
    assert_eq!(lines[2..], ["/", "0022"]);
    drop(leaked);
}

#[test]
fn exit_status_and_signal_are_told() {
    let node = Node::new();
    let failing = node.start(&node.shell("exit 7"));
    assert_eq!(node.exit(&failing), ExitKind::Exited { code: 7 });
    let killed = node.start(&node.shell("kill -11 $$"));
    assert_eq!(node.exit(&killed), ExitKind::Signalled { signal: 11 });
    let sleeping = node.start(&node.shell("exec sleep 1000"));
    node.running(&sleeping);
    assert_eq!(signal(&node.layout, &sleeping, Signal::HUP).unwrap(), Signalled::Sent);
    assert_eq!(node.exit(&sleeping), ExitKind::Signalled { signal: 1 });
    assert_eq!(signal(&node.layout, &sleeping, Signal::HUP).unwrap(), Signalled::Gone);
}

#[test]
fn what_cannot_be_started_says_why() {
    let node = Node::new();
    let root = node.layout.root().to_owned();
    let file = |name: &str, text: &str, mode: u32| {
        let path = root.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let closed = root.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::copy("/bin/true", closed.join("true")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let mut other_processor = fs::read("/bin/true").unwrap();
    other_processor[18] ^= 0xff;
    let foreign = root.join("foreign");
    fs::write(&foreign, other_processor).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
    let cases = [
        (root.join("missing"), "No such file"),
        (file("plain", "#!/bin/sh\n", 0o644), "Permission denied"),
        (file("text", "hello\n", 0o755), "exec format error"),
        (foreign, "another kind of processor"),
        (file("script", "#!/no/such/interpreter\n", 0o755), "first line or header"),
        (closed.join("true"), "Permission denied"),
    ];
    for (program, expected) in cases {
        let instance = node.start(&node.launch(program.as_str(), &[]));
        match node.exit(&instance) {
            ExitKind::CouldNotStart { path, error } => {
                assert_eq!(path, program);
                assert!(error.contains(expected), "{program}: {error}");
            }
            other => panic!("{program}: {other:?}"),
        }
    }
    let nowhere = Launch { working_directory: root.join("nowhere"), ..node.shell("exit 0") };
    match node.exit(&node.start(&nowhere)) {
        ExitKind::CouldNotStart { path, .. } => assert_eq!(path, root.join("nowhere")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_log_is_turned_and_its_end_is_kept() {
    let node = Node::new();
    let script = "i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done";
    let launch = Launch { log_limit_bytes: 10_000, ..node.shell(script) };
    let instance = node.start(&launch);
    assert_eq!(node.exit(&instance), ExitKind::Exited { code: 0 });
    let log = node.layout.log("process-test");
    for path in [log.clone(), Utf8PathBuf::from(format!("{log}.1"))] {
        assert!(fs::metadata(&path).unwrap().len() <= 10_000, "{path}");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(log_tail(&log, 2).unwrap(), ["line 4998", "line 4999"]);
}

#[test]
fn it_outlives_its_shim_and_can_still_be_ended() {
    let node = Node::new();
    let instance = node.start(&node.shell("echo $$; exec sleep 1000"));
    let program = node.running(&instance);
    assert_eq!(number(&node.line()), program.pid);
    let shim = node.shim(&instance);
    shim.open(&boot_id().unwrap()).unwrap().signal(Signal::KILL).unwrap();
    until("the shim is gone", || (!is_alive(shim.pid)).then_some(()));
    assert_eq!(node.observe(&instance), ProcessState::Running(program.clone()));
    assert!(matches!(forget(&node.layout, &instance), Err(ProcessError::StillThere { .. })));
    let state = node.end(&instance, GRACE);
    assert!(matches!(state, ProcessState::Lost { .. }), "{state:?}");
    assert!(!is_alive(program.pid));
    forget(&node.layout, &instance).unwrap();
    assert_eq!(node.observe(&instance), ProcessState::Absent);
}

#[test]
fn an_end_is_asked_for_first_and_made_then() {
    let node = Node::new();
    let polite = node.start(&node.shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"));
    node.line();
    let state = node.end(&polite, GRACE);
    assert!(matches!(state, ProcessState::Ended(exit) if exit.kind == ExitKind::Exited { code: 3 }));
    let stubborn = Launch {
        log: node.layout.log("stubborn"),
        ..node.shell("trap '' TERM; echo ready; while :; do sleep 0.01; done")
    };
    let stubborn = node.start(&stubborn);
    until("it is deaf", || fs::read_to_string(node.layout.log("stubborn")).ok().filter(|t| !t.is_empty()));
    let state = node.end(&stubborn, Duration::from_millis(100));
    assert!(matches!(&state, ProcessState::Ended(exit) if exit.kind == ExitKind::Signalled { signal: 9 }));
    assert_eq!(node.end(&stubborn, GRACE), state, "ended twice, it has ended");
}

/// A grandchild that leaves its session, and with `kill` tells the program so.
const RUNAWAY: &str = "setsid sh -c 'echo $$; kill -USR1 '$$'; exec sleep 1000' & ";

#[test]
fn what_left_its_session_ends_when_it_is_told_to() {
    for grouping in [Grouping::ControlGroup, Grouping::Session] {
        let node = Node::new();
        let script = format!("trap '' USR1; {RUNAWAY} exec sleep 1000");
        let instance = node.start(&Launch { grouping, ..node.shell(&script) });
        let runaway = number(&node.line());
        assert!(is_alive(runaway));
        node.end(&instance, GRACE);
        assert!(!is_alive(runaway), "{grouping:?}");
    }
}

#[test]
fn what_left_its_session_ends_with_the_program() {
    for grouping in [Grouping::ControlGroup, Grouping::Session] {
        let node = Node::new();
        let script = format!("trap 'exit 0' USR1; {RUNAWAY} while :; do sleep 0.01; done");
        let instance = node.start(&Launch { grouping, ..node.shell(&script) });
        let runaway = number(&node.line());
        assert_eq!(node.exit(&instance), ExitKind::Exited { code: 0 });
        assert!(!is_alive(runaway), "{grouping:?}");
    }
}

#[test]
fn what_left_its_session_ends_also_when_the_shim_is_gone() {
    let node = Node::new();
    let instance = node.start(&node.shell(&format!("trap '' USR1; {RUNAWAY} exec sleep 1000")));
    let runaway = number(&node.line());
    let shim = node.shim(&instance);
    shim.open(&boot_id().unwrap()).unwrap().signal(Signal::KILL).unwrap();
    until("the shim is gone", || (!is_alive(shim.pid)).then_some(()));
    node.end(&instance, GRACE);
    assert!(!is_alive(runaway));
}

#[test]
fn a_late_shim_finds_its_gate_closed() {
    let node = Node::new();
    let launch = node.shell("echo ran");
    prepare(&node.layout, &launch).unwrap();
    let gate_path = node.layout.incarnation(&launch.instance).join("gate");
    let mut gate = fs::OpenOptions::new().append(true).open(&gate_path).unwrap();
    gate.lock().unwrap();
    let mut late = Command::new(HOST)
        .args(["shim", node.layout.incarnation(&launch.instance).as_str()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let waits = format!("-> FLOCK  ADVISORY  WRITE {} ", late.id());
    until("the shim waits at its gate", || {
        fs::read_to_string("/proc/locks").unwrap().contains(&waits).then_some(())
    });
    assert_eq!(node.observe(&launch.instance), ProcessState::Prepared);
    std::io::Write::write_all(&mut gate, b"closed\n").unwrap();
    drop(gate);
    assert!(late.wait().unwrap().success());
    assert_eq!(node.observe(&launch.instance), ProcessState::Closed);
    block(close(&node.layout, &launch.instance)).unwrap();
    node.spawn(&launch.instance);
    assert_eq!(node.end(&launch.instance, GRACE), ProcessState::Closed);
    assert!(!node.layout.log("process-test").exists());
    forget(&node.layout, &launch.instance).unwrap();
}

#[test]
fn spawned_many_times_it_runs_once() {
    let node = Node::new();
    let launch = node.shell("echo ran; exec sleep 1000");
    prepare(&node.layout, &launch).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| node.spawn(&launch.instance));
        }
    });
    let program = node.running(&launch.instance);
    node.line();
    node.spawn(&launch.instance);
    assert_eq!(node.running(&launch.instance), program);
    node.end(&launch.instance, GRACE);
    node.spawn(&launch.instance);
    assert_eq!(fs::read_to_string(&launch.log).unwrap(), "ran\n");
}

#[test]
fn a_host_that_died_between_preparing_and_spawning_is_followed_by_one_that_goes_on() {
    let node = Node::new();
    let launch = node.shell("exec sleep 1000");
    prepare(&node.layout, &launch).unwrap();
    assert_eq!(node.observe(&launch.instance), ProcessState::Prepared);
    assert!(matches!(forget(&node.layout, &launch.instance), Err(ProcessError::StillThere { .. })));
    prepare(&node.layout, &launch).unwrap();
    let other = Launch { arguments: Vec::new(), ..launch.clone() };
    assert!(matches!(prepare(&node.layout, &other), Err(ProcessError::PreparedOtherwise { .. })));
    assert_eq!(list(&node.layout).unwrap(), std::slice::from_ref(&launch.instance));
    node.spawn(&launch.instance);
    node.running(&launch.instance);
}

#[test]
fn a_number_that_another_process_has_is_not_signalled() {
    let node = Node::new();
    let instance = node.start(&node.shell("exec sleep 1000"));
    let program = node.running(&instance);
    let path = node.started_file(&instance);
    let text = fs::read_to_string(&path).unwrap();
    let right = format!("\"start_time\":{}", program.start_time);
    fs::write(&path, text.replacen(&right, "\"start_time\":1", 1)).unwrap();
    assert_eq!(signal(&node.layout, &instance, Signal::KILL).unwrap(), Signalled::Gone);
    assert!(is_alive(program.pid));
    let boot = boot_id().unwrap();
    fs::write(&path, text.replace(&boot, "00000000-0000-0000-0000-000000000000")).unwrap();
    assert_eq!(signal(&node.layout, &instance, Signal::KILL).unwrap(), Signalled::Gone);
    assert!(matches!(node.observe(&instance), ProcessState::Lost { .. }));
    fs::write(&path, text).unwrap();
    assert_eq!(node.observe(&instance), ProcessState::Running(program));
}

#[test]
fn what_never_ran_can_be_ended_and_forgotten() {
    let node = Node::new();
    let launch = node.shell("exit 0");
    assert_eq!(node.end(&launch.instance, GRACE), ProcessState::Absent);
    forget(&node.layout, &launch.instance).unwrap();
    prepare(&node.layout, &launch).unwrap();
    assert_eq!(node.end(&launch.instance, GRACE), ProcessState::Closed);
    forget(&node.layout, &launch.instance).unwrap();
    assert_eq!(list(&node.layout).unwrap(), []);
}

#[test]
fn a_shim_without_a_record_starts_nothing() {
    let node = Node::new();
    let output = Command::new(HOST).args(["shim", node.layout.root().as_str()]).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("launch.json"));
}

#[test]
fn nothing_is_left_of_what_is_forgotten() {
    let node = Node::new();
    let instance = node.start(&node.shell("exit 0"));
    node.exit(&instance);
    forget(&node.layout, &instance).unwrap();
    forget(&node.layout, &instance).unwrap();
    assert!(!node.layout.incarnation(&instance).exists());
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"] {
        assert!(!Utf8Path::new(root).join(format!("mesh-{instance}")).exists());
    }
}

#[test]
fn the_bundle_that_a_run_stands_in_is_told_for_as_long_as_it_lives() {
    let node = Node::new();
    let digest = Digest::of(b"bundle");
    let folder = node.layout.bundle(&digest);
    fs::create_dir_all(&folder).unwrap();
    let launch = Launch { working_directory: folder, ..node.shell("exec sleep 60") };
    prepare(&node.layout, &launch).unwrap();
    let stands_in = || bundle_of(&node.layout, &launch.instance).unwrap();
    assert_eq!(stands_in().as_ref(), Some(&digest), "it may be started at any moment");
    node.spawn(&launch.instance);
    node.running(&launch.instance);
    assert_eq!(stands_in().as_ref(), Some(&digest));
    node.end(&launch.instance, GRACE);
    assert_eq!(stands_in(), None);
}
