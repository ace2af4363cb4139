//! Versions that are bad in a way each, every one a real program under the real host: the old one holds the seat,
//! untouched; the push ends with exit status 4 and says the right reason; nobody who asks the seat notices.
//!
//! In an ordinary run each kind is tried once, but for those that need half a minute to be known as bad; in a run for the
//! figures, as often as the figure says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot::error::TryRecvError;

use jiff::Timestamp;
use mesh_bundles::archive::FileMode;
use mesh_protocol::handover::{HandoverReport, Reason, State};
use mesh_protocol::plan::{FailureOutcome, PlanState};
use mesh_tests::load::{Load, ONE_ATTEMPT, failures};
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::Binary;
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::source::Source;
use mesh_tests::until::until;
use mesh_tests::{behind, narrow};

const CONTROLLER: &str = "process:mesh-controller";
const RATE: u32 = 200;
const LIMIT: Duration = Duration::from_secs(120);

/// One way to be bad.
struct Kind {
    name: &'static str,
    how: How,
    /// Whether the reason that was found is the right one.
    is_right: fn(&Reason) -> bool,
}

/// How a bad version comes about.
enum How {
    /// The faulty controller with this fault.
    Fault(&'static str),
    /// The faulty controller that ends so many milliseconds after it stood by.
    Lives(u64),
    /// The good controller's folder with this text in its manifest changed.
    Manifest(&'static str, &'static str),
    /// Made behind the back of `mesh push`: this program, in this mode.
    Behind(fn() -> Vec<u8>, FileMode),
    /// Made behind its back, without the program.
    Missing,
    /// Made behind its back, and damaged in the store afterwards.
    Damaged,
    /// The faulty controller that takes more memory than it may, once it has a limit.
    OutOfMemory,
}

const QUICK: [Kind; 13] = [
    Kind { name: "exits at once", how: How::Fault("exit=7"), is_right: exited },
    Kind { name: "exits at once as if all were well", how: How::Fault("exit=0"), is_right: exited },
    Kind { name: "exits between the checks", how: How::Fault("exit-after-ready=300"), is_right: exited },
    Kind { name: "exits faster than the checks", how: How::Fault("exit-after-ready=30"), is_right: exited },
    Kind { name: "ends by a signal", how: How::Fault("signal=6"), is_right: signalled },
    Kind { name: "freezes", how: How::Fault("freeze-after-ready=250"), is_right: silent },
    Kind { name: "hangs", how: How::Fault("hang-after-ready=250"), is_right: silent },
    Kind {
        name: "answers as the wrong version",
        how: How::Manifest("version = \"0.1.0\"", "version = \"9.9.9\""),
        is_right: |reason| matches!(reason, Reason::WrongAnswer { what, .. } if what == "version"),
    },
    Kind {
        name: "is of another architecture",
        how: How::Behind(of_another_architecture, FileMode::Program),
        is_right: could_not_start,
    },
    Kind {
        name: "may not be executed",
        how: How::Behind(good_program, FileMode::Data),
        is_right: could_not_start,
    },
    Kind { name: "is not there", how: How::Missing, is_right: could_not_start },
    Kind { name: "is damaged in the store", how: How::Damaged, is_right: could_not_start },
    Kind {
        name: "is out of memory",
        how: How::OutOfMemory,
        is_right: |reason| matches!(reason, Reason::OutOfMemory),
    },
];

/// Those that are known as bad by that they are never right within the time.
const SLOW: [Kind; 4] = [
    Kind { name: "is never ready", how: How::Fault("never-ready"), is_right: never_ready },
    Kind {
        name: "cannot read its secret",
        how: How::Manifest(
            "secret  = \"state.creds\"\nmode    = \"0400\"\naccount = \"mesh-controller\"",
            "secret  = \"state.creds\"\nmode    = \"0400\"\naccount = \"another\"\n\n[[account]]\nname = \"another\"",
        ),
        is_right: |reason| exited(reason) || never_ready(reason),
    },
    Kind {
        name: "has the wrong credential",
        how: How::Manifest("secret  = \"state.creds\"", "secret  = \"seat.creds\""),
        is_right: |reason| exited(reason) || never_ready(reason),
    },
    Kind {
        name: "may answer and not join",
        how: How::Manifest("secret  = \"seat.creds\"", "secret  = \"narrow.creds\""),
        is_right: |reason| matches!(reason, Reason::NeverServed { .. }),
    },
];

fn exited(reason: &Reason) -> bool {
    matches!(reason, Reason::Exited { .. })
}

fn signalled(reason: &Reason) -> bool {
    matches!(reason, Reason::Signalled { signal: 6 })
}

fn silent(reason: &Reason) -> bool {
    matches!(reason, Reason::FellSilent { .. })
}

fn could_not_start(reason: &Reason) -> bool {
    matches!(reason, Reason::CouldNotStart { .. })
}

fn never_ready(reason: &Reason) -> bool {
    matches!(reason, Reason::NeverReady { .. })
}

fn good_program() -> Vec<u8> {
    std::fs::read(Binary::Controller.path()).unwrap()
}

/// ELF's e_machine (System V ABI, chapter 4) is two bytes at 18; 183 is AArch64.
fn of_another_architecture() -> Vec<u8> {
    let mut bytes = good_program();
    let other: u16 = if bytes[18] == 183 { 62 } else { 183 };
    bytes[18..20].copy_from_slice(&other.to_le_bytes());
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_are_soon_known_as_bad() {
    let lost = all_are_handed_back(&QUICK, rounds(1, 13)).await;
    assert!(lost.is_empty(), "{lost:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_are_never_right() {
    // In an ordinary run, `does_not_stay_up` tries the first and the last of these.
    let (from, count) = if rounds(0, 1) == 0 { (1, 1) } else { (0, 8) };
    let lost = all_are_handed_back(&SLOW[from..SLOW.len() - from], count).await;
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Up to one and a half times the trial, whose two checks take two intervals from the first right answer on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_that_live_for_a_random_time() {
    let longest = 600;
    let count = rounds(3, 30) as u64;
    // Steps of the golden ratio meet each part of the time evenly, and no rhythm of the host's.
    let lifetimes: Vec<u64> = (1..=count).map(|number| number * 618 % 1000 * longest / 1000).collect();
    let kinds: Vec<Kind> = lifetimes
        .iter()
        .map(|lifetime| Kind {
            name: "lives for a random time",
            how: How::Lives(*lifetime),
            is_right: exited,
        })
        .collect();
    let lost = all_are_handed_back(&kinds, 1).await;
    // One that ends while it serves, before it was alone for long enough, takes with it what it had.
    eprintln!("lost while the newcomer served: {lost:#?}");
}

/// What was found of one bad version.
struct Found {
    handover: HandoverReport,
    decided: Duration,
}

/// What was lost meanwhile, in words.
async fn all_are_handed_back(kinds: &[Kind], count: usize) -> Vec<String> {
    let mesh = Mesh::new().await.checking_every("200ms");
    let _ = mesh.raise().await;
    let _narrow = narrow::make_credential(&mesh);
    let holder = mesh.process(CONTROLLER).await;
    let load = Load::begin(&mesh, RATE, ONE_ATTEMPT).await;
    let mut all = Vec::new();
    for number in 0..count {
        for kind in kinds {
            let found = try_one(&mesh, kind, number).await;
            let reason = found.handover.reason.as_ref().unwrap();
            eprintln!("{} ({number}): {reason}, decided within {:?}", kind.name, found.decided);
            assert!((kind.is_right)(reason), "{}: {reason:?}", kind.name);
            assert_eq!(found.handover.state, State::Held);
            assert_eq!(mesh.process(CONTROLLER).await, holder, "{}: another holds the seat", kind.name);
            all.push(found);
        }
    }
    let samples = load.end().await;
    let lost = failures(&samples);
    let slowest = |silent: bool| {
        let told =
            |found: &&Found| matches!(found.handover.reason, Some(Reason::FellSilent { .. })) == silent;
        all.iter().filter(told).map(|found| found.decided).max().unwrap_or_default()
    };
    let (what, aim) = if kinds.iter().all(|kind| matches!(kind.how, How::Lives(_))) {
        let what = format!("{} processes that live for a random time, up to 1.5 times the trial", all.len());
        (what, "no false commit")
    } else {
        let what =
            format!("{} bad versions of {} kinds, {count} of each: {}", all.len(), kinds.len(), names(kinds));
        (
            what,
            "the old one untouched, the reason right, exit status 4 in all; 0 lost requests; decided within 1 s of an exit, 3 s of a freeze",
        )
    };
    figure(
        &what,
        aim,
        &format!(
            "untouched, right and 4 in {} of {}; {} asked, {} lost; decided within {:.2} s of an end, {:.2} s of a freeze at most",
            all.len(),
            all.len(),
            samples.len(),
            lost.len(),
            slowest(false).as_secs_f64(),
            slowest(true).as_secs_f64()
        ),
    );
    lost
}

fn names(kinds: &[Kind]) -> String {
    let names: BTreeSet<&str> = kinds.iter().map(|kind| kind.name).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

async fn try_one(mesh: &Mesh, kind: &Kind, number: usize) -> Found {
    // Each is a version of its own, so that none is held because an earlier one was.
    let file = format!(
        "[[file]]\npath = \"${{module.dir}}/round\"\ncontent = \"{} {number}\"\nmode = \"0444\"\naccount = \"mesh-controller\"",
        kind.name
    );
    let bundles = PathBuf::from(mesh.layout().bundles());
    let watch = Ends::begin(&bundles, mesh.process(CONTROLLER).await);
    match &kind.how {
        How::Lives(lifetime) => {
            let fault = format!("exit-after-ready={lifetime}");
            push(mesh, &Source::of_a_faulty_controller(&fault).append(&file)).await;
        }
        How::Fault(fault) => push(mesh, &Source::of_a_faulty_controller(fault).append(&file)).await,
        How::Manifest(from, to) => {
            push(mesh, &Source::of_the_controller().change(from, to).append(&file)).await;
        }
        How::Behind(program, mode) => {
            let source = Source::of_the_controller().append(&file);
            push_behind(mesh, &source, Some(program()), *mode, false).await;
        }
        How::Damaged => {
            let source = Source::of_the_controller().append(&file);
            let program = [good_program(), format!("{number} {:?}", Timestamp::now()).into_bytes()].concat();
            push_behind(mesh, &source, Some(program), FileMode::Program, true).await;
        }
        How::Missing => {
            let source = Source::of_the_controller().append(&file);
            push_behind(mesh, &source, None, FileMode::Program, false).await;
        }
        How::OutOfMemory => {
            let source = Source::of_a_faulty_controller("eat-memory").append(&file);
            let (folder, limiting) = (source.folder(), limit_memory(mesh));
            let (said, ()) = tokio::join!(mesh.push(&folder, &[]), limiting);
            let _ = said.exited(4);
        }
    }
    let ended = watch.end().await;
    let handover = mesh.observe().await.report.handovers.remove(0);
    let aborting = handover.passed.iter().find(|passage| passage.state == State::Aborting);
    let decided = match (aborting, ended) {
        (Some(aborting), Some(ended)) => aborting.at.duration_since(ended).unsigned_abs(),
        _ => Duration::ZERO,
    };
    Found { handover, decided }
}

async fn push(mesh: &Mesh, source: &Source) {
    let _ = mesh.push(&source.folder(), &[]).await.exited(4).says(&["error[handed-back]"]);
}

/// What `mesh push` would refuse: the plan ends as one for which it would have exited with 4.
async fn push_behind(mesh: &Mesh, source: &Source, program: Option<Vec<u8>>, mode: FileMode, damage: bool) {
    let temp = tempfile::tempdir().unwrap();
    let published = behind::publish(mesh, temp.path(), program, mode).await.published;
    if damage {
        damage_blob(mesh, published.digest.as_str());
    }
    let manifest = std::fs::read_to_string(source.folder().join("module.toml")).unwrap();
    let plan = behind::push(mesh, &manifest, &published, LIMIT).await;
    let PlanState::Failed { failures, .. } = &plan.state else { panic!("{plan:?}") };
    assert!(failures.iter().any(|failure| failure.outcome == FailureOutcome::HandedBack), "{failures:?}");
}

/// The store keeps a blob in a folder of its digest's name, in a file `data`.
fn damage_blob(mesh: &Mesh, digest: &str) {
    let hex = digest.trim_start_matches("sha256:");
    let below = format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]);
    let data = find(mesh.layout().root().as_std_path(), &below).expect("the store has the blob");
    let mut bytes = std::fs::read(&data).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(data, bytes).unwrap();
}

/// The file below one of the folders of a folder, three deep at most.
fn find(root: &Path, below: &str) -> Option<PathBuf> {
    let mut folders = vec![root.to_owned()];
    for _ in 0..4 {
        if let Some(found) = folders.iter().map(|folder| folder.join(below)).find(|path| path.is_file()) {
            return Some(found);
        }
        let inner = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
        folders = inner.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    }
    None
}

/// Gives the newcomer's memory group a limit as soon as there is one.
async fn limit_memory(mesh: &Mesh) {
    let incarnations = mesh.layout().incarnations();
    let before = Process::all_from(&PathBuf::from(mesh.layout().bundles()));
    let limiting = tokio::task::spawn_blocking(move || {
        until("the newcomer's memory is counted", LIMIT, || {
            let entries = std::fs::read_dir(&incarnations).ok()?.flatten();
            let mut groups = entries.filter_map(|entry| {
                let text = std::fs::read(entry.path().join("started.json")).ok()?;
                let started: serde_json::Value = serde_json::from_slice(&text).ok()?;
                let pid = started["pid"].as_u64()?;
                let is_old = before.iter().any(|process| u64::from(process.pid) == pid);
                (!is_old).then(|| started["memory_group"].as_str().map(str::to_owned))?
            });
            groups.find(|group| {
                std::fs::write(Path::new(group).join("memory.limit_in_bytes"), "67108864").is_ok()
            })
        });
    });
    limiting.await.unwrap();
}

/// When a newcomer's program ended or stopped, as the machine shows it.
struct Ends {
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<Option<Timestamp>>,
}

impl Ends {
    fn begin(bundles: &Path, holder: Process) -> Self {
        let (stop, mut stopped) = tokio::sync::oneshot::channel();
        let bundles = bundles.to_owned();
        let task = tokio::task::spawn_blocking(move || {
            let mut seen: Option<Process> = None;
            let mut ended = None;
            // Also when the test broke off.
            while stopped.try_recv() == Err(TryRecvError::Empty) {
                let runs = |process: &Process| process.is_alive() && !process.is_stopped();
                match &seen {
                    None => {
                        let all = Process::all_from(&bundles);
                        seen = all.into_iter().find(|process| *process != holder && process.is_alive());
                    }
                    Some(process) if ended.is_none() && !runs(process) => ended = Some(Timestamp::now()),
                    Some(_) => {}
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            ended
        });
        Self { stop, task }
    }

    async fn end(self) -> Option<Timestamp> {
        let _ = self.stop.send(());
        self.task.await.unwrap()
    }
}

#[test]
fn the_other_architecture_is_another() {
    assert_ne!(of_another_architecture()[18..20], good_program()[18..20]);
}
