//! The power is cut in every state of a handover: all that runs is gone, the engine and the shims too; run folders are
//! empty; the bus's folder and the engine's are what they were a while ago; the machine boots as another. The seat is
//! answered again without help but that of an init (`mesh up`), by the right one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mesh_durable::checkpoint::{Blow, Moment};
use mesh_installer::door::Door;
use mesh_installer::genesis::step::Step;
use mesh_protocol::handover::{Form, State};
use mesh_protocol::report::NodeState;
use mesh_protocol::verb::StatusAnswer;
use mesh_tests::checkpoints::Checkpoints;
use mesh_tests::mesh::Mesh;
use mesh_tests::private::{self, Machine};
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::source::Source;
use mesh_tests::until::eventually;
use mesh_tests::versions::Versions;

const LIMIT: Duration = Duration::from_secs(120);

/// How old what the bus has after the cut is, at least.
const AGES: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(20), Duration::from_secs(70)];

#[test]
fn in_every_state_of_a_handover() {
    private::run(concat!(module_path!(), "::in_every_state_of_a_handover"), in_every_state);
}

#[test]
fn in_every_state_of_the_handover_of_genesis() {
    private::run(
        concat!(module_path!(), "::in_every_state_of_the_handover_of_genesis"),
        in_every_state_of_genesis,
    );
}

#[test]
fn after_every_step_of_genesis() {
    private::run(concat!(module_path!(), "::after_every_step_of_genesis"), after_every_step);
}

/// What was begun is finished by the same command, whichever step the power was cut behind.
async fn after_every_step(mut machine: Machine) {
    let all = Step::ALL;
    let step = all.len().div_ceil(rounds(2, all.len()));
    let tried: Vec<Step> = all.iter().copied().skip(step / 2).step_by(step).collect();
    for step in &tried {
        let mesh = Mesh::new().await.checking_every("100ms");
        let _ = mesh.genesis(&["--until", &step.to_string()]).await.exited(0);
        machine.cut_power();
        machine.unmount_engine();
        if mesh.layout().runs().exists() {
            fs::remove_dir_all(mesh.layout().runs()).unwrap();
            fs::create_dir(mesh.layout().runs()).unwrap();
        }
        machine.boot_again();
        machine.start_engine();
        let _ = mesh.raise().await;
        let _ = comes_back(&mesh, Form::Process).await;
        let left = mesh.engine().await.list(&mesh.controller_container()).await.unwrap();
        assert!(left.is_empty(), "cut behind {step}: {left:?}");
    }
    let names: Vec<String> = tried.iter().map(ToString::to_string).collect();
    figure(
        &format!(
            "power cut behind {} steps of genesis ({}), the same command again",
            tried.len(),
            names.join(", ")
        ),
        "it goes on to the same end",
        &format!("so in {} of {}", tried.len(), tried.len()),
    );
}

async fn in_every_state(mut machine: Machine) {
    let mesh = Mesh::new().await.checking_every("100ms");
    let _ = mesh.raise().await;
    let mut copies = Copies::new(&mesh, &machine);
    copies.take();
    let node = mesh.file().inputs.node;
    let _ = mesh.push(&Source::of_a_sleeper().folder(), &["--node", node.as_str()]).await.exited(0);
    let points = Checkpoints::at(mesh.layout().host().join("checkpoints"));
    let mut versions = Versions::default().next();
    let records = records_of(&mesh, &points, &versions).await;
    let all: Vec<(Duration, u64)> =
        AGES.iter().flat_map(|age| records.iter().map(|number| (*age, *number))).collect();
    // In an ordinary run, a few states, with the youngest copy.
    let step = if rounds(0, 1) == 0 { records.len().div_ceil(2) } else { 1 };
    let tried: Vec<(Duration, u64)> =
        all.into_iter().take(rounds(records.len(), usize::MAX)).step_by(step).collect();
    let mut slowest = Duration::ZERO;
    for (age, number) in &tried {
        copies.take_until_old(*age).await;
        versions = versions.next();
        points.strike(*number, Moment::After, Blow::Stop);
        let host = mesh.host().await;
        let _ = mesh.push(&versions.source().folder(), &["--detach"]).await.exited(0);
        is_stopped(&points, &host, *number).await;
        eprintln!("cut at deed {number}, the bus {age:?} old");
        cut(&mut machine, &mesh, &copies, *age);
        slowest = slowest.max(comes_back(&mesh, Form::Process).await);
        // What was declared is there: a module that the bus may not know of, and its process.
        let _ = mesh.process("process:sleeper").await;
        // And what was pushed, or is pushed now, holds the seat.
        let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
        let _ = comes_back(&mesh, Form::Process).await;
        let controllers = Process::all_from(mesh.layout().bundles().as_std_path());
        assert_eq!(controllers.len(), 2, "expected controller and sleeper: {controllers:?}");
    }
    figure(
        &format!(
            "power cut in {} states of a handover from process to process, the bus put back by {} to {} s",
            tried.len(),
            tried.iter().map(|(age, _)| age.as_secs()).min().unwrap(),
            tried.iter().map(|(age, _)| age.as_secs()).max().unwrap()
        ),
        "the seat is answered again, by the right one, without help; nothing declared was lost",
        &format!("so in {} of {}, answered within {:.1} s", tried.len(), tried.len(), slowest.as_secs_f64()),
    );
}

async fn in_every_state_of_genesis(mut machine: Machine) {
    // The numbers of the records, from one that is undisturbed.
    let records = {
        let mesh = Mesh::new().await.checking_every("100ms");
        let _ = mesh.raise_until_store().await;
        let points = Checkpoints::at(mesh.layout().host().join("checkpoints"));
        points.list();
        let _ = mesh.raise().await;
        let _ = comes_back(&mesh, Form::Process).await;
        record_numbers(&points)
    };
    let step = records.len().div_ceil(rounds(2, records.len()));
    let tried: Vec<u64> = records.iter().copied().step_by(step).collect();
    let mut slowest = Duration::ZERO;
    for number in &tried {
        let mesh = Mesh::new().await.checking_every("100ms");
        let _ = mesh.raise_until_store().await;
        let mut copies = Copies::new(&mesh, &machine);
        copies.take_until_old(Duration::from_secs(1)).await;
        let points = Checkpoints::at(mesh.layout().host().join("checkpoints"));
        points.strike(*number, Moment::After, Blow::Stop);
        let host = mesh.host().await;
        {
            let raising = mesh.genesis(&[]);
            tokio::select! {
                said = raising => panic!("genesis ended before its host was stopped: {said}"),
                () = is_stopped(&points, &host, *number) => {}
            }
        }
        eprintln!("cut at deed {number} of genesis's handover");
        cut(&mut machine, &mesh, &copies, Duration::from_secs(1));
        slowest = slowest.max(answered(&mesh).await);
        let _ = mesh.raise().await;
        let _ = comes_back(&mesh, Form::Process).await;
        let left = mesh.engine().await.list(&mesh.controller_container()).await.unwrap();
        assert!(left.is_empty(), "what was removed came back: {left:?}");
    }
    figure(
        &format!(
            "power cut in {} states of genesis's handover, the bus and the engine put back by 1 s",
            tried.len()
        ),
        "the seat is answered again, by the right one, without help; nothing removed serves",
        &format!("so in {} of {}, answered within {:.1} s", tried.len(), tried.len(), slowest.as_secs_f64()),
    );
}

async fn records_of(mesh: &Mesh, points: &Checkpoints, versions: &Versions) -> Vec<u64> {
    points.list();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    let _ = comes_back(mesh, Form::Process).await;
    record_numbers(points)
}

/// The deeds that write the handover's record: one for each state.
fn record_numbers(points: &Checkpoints) -> Vec<u64> {
    let deeds = points.end();
    let records = deeds.iter().filter(|deed| deed.name.ends_with("host/handover/mesh-controller.json"));
    let numbers: Vec<u64> = records.map(|deed| deed.number).collect();
    assert!(numbers.len() >= 6, "a record in each state: {deeds:#?}");
    numbers
}

async fn is_stopped(points: &Checkpoints, host: &Process, number: u64) {
    let stopped = async || (points.has_struck() && host.is_stopped()).then_some(());
    eventually(&format!("the host stops at deed {number}"), LIMIT, stopped).await;
}

/// Copies of the bus's folder and of the engine's, each with when it was taken.
struct Copies {
    folder: tempfile::TempDir,
    bus: PathBuf,
    engine: PathBuf,
    taken: Vec<Instant>,
}

impl Copies {
    fn new(mesh: &Mesh, machine: &Machine) -> Self {
        let folder = tempfile::Builder::new().prefix("mt-copies-").tempdir_in("/tmp").unwrap();
        let bus = mesh.layout().data(&"mesh-bus".parse().unwrap()).into();
        Self { folder, bus, engine: machine.engine_data(), taken: Vec::new() }
    }

    fn at(&self, number: usize, name: &str) -> PathBuf {
        self.folder.path().join(format!("{number}-{name}"))
    }

    fn take(&mut self) {
        let number = self.taken.len();
        copy(&self.bus, &self.at(number, "bus"));
        // The engine's is only ever put back by a little.
        if number > 0 {
            let _ = fs::remove_dir_all(self.at(number - 1, "engine"));
        }
        copy(&self.engine.join("containers"), &self.at(number, "engine"));
        self.taken.push(Instant::now());
    }

    /// Takes one now, and waits until there is one of this age.
    async fn take_until_old(&mut self, age: Duration) {
        self.take();
        while self.of_age(age).is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The youngest that is so old.
    fn of_age(&self, age: Duration) -> Option<usize> {
        self.taken.iter().rposition(|taken| taken.elapsed() >= age)
    }

    fn put_back(&self, age: Duration) {
        let number = self.of_age(age).expect("one of this age was waited for");
        replace(&self.at(number, "bus"), &self.bus);
        let newest = self.taken.len() - 1;
        // Containers that are gone since then are there again.
        let before = self.at(newest, "engine");
        let entries = fs::read_dir(&before).unwrap().flatten();
        for container in
            entries.filter(|entry| !self.engine.join("containers").join(entry.file_name()).exists())
        {
            copy(&container.path(), &self.engine.join("containers").join(container.file_name()));
        }
    }
}

fn copy(from: &Path, to: &Path) {
    // A file may go while it is copied, as it may while the power is cut.
    let _ = Command::new("cp").arg("-a").arg(from).arg(to).output().unwrap();
    assert!(to.exists(), "{} cannot be copied", from.display());
}

fn replace(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    copy(from, to);
}

/// What a power cut does, and what boots again without the mesh: the engine.
fn cut(machine: &mut Machine, mesh: &Mesh, copies: &Copies, age: Duration) {
    machine.cut_power();
    machine.unmount_engine();
    let _ = fs::remove_dir_all(mesh.layout().runs());
    fs::create_dir(mesh.layout().runs()).unwrap();
    copies.put_back(age);
    let _ = fs::remove_file(mesh.layout().host().join("checkpoints.fired"));
    machine.boot_again();
    machine.start_engine();
}

/// Does what an init does, and says how long it was until the seat was answered.
async fn answered(mesh: &Mesh) -> Duration {
    let began = Instant::now();
    let _ = mesh.run(&["up"]).await.exited(0);
    mesh.answered_within(LIMIT).await;
    began.elapsed()
}

/// The same, and all is as declared, with one instance of this form.
async fn comes_back(mesh: &Mesh, form: Form) -> Duration {
    let took = answered(mesh).await;
    let right = async || {
        let report = Door::new(mesh.layout().door()).observe().await.ok()?.report;
        let over = report.handovers.iter().all(|one| matches!(one.state, State::Done | State::Held));
        if !over || report.state != NodeState::Converged {
            return None;
        }
        let said = mesh.run(&["status", "--json"]).await;
        let status: StatusAnswer = (said.code == Some(0)).then(|| said.json())?;
        let [instance] = &status.seat.instances[..] else { return None };
        (instance.form == form && status.plan_lock.holder.is_none()).then_some(())
    };
    eventually("all is as declared, and one instance serves", LIMIT, right).await;
    took
}
