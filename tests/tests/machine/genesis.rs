//! Genesis disturbed just before and just after each of its deeds, none of them listed by hand: killed, interrupted, its
//! engine, bus, controller or host killed under it. The same command then goes on, and the end is that of a run that
//! nobody disturbed. Down is killed at each of its deeds in the same way, from wherever genesis was.

use std::collections::BTreeSet;
use std::time::Duration;

use mesh_durable::checkpoint::{Blow, Moment};
use mesh_engine::Signal;
use mesh_installer::door::Door;
use mesh_protocol::verb::{HistoryAnswer, ModulesAnswer};
use mesh_tests::checkpoints::{Checkpoints, Deed};
use mesh_tests::command::{As, Said};
use mesh_tests::mesh::marks::Marks;
use mesh_tests::mesh::{LIMIT, Mesh, environment};
use mesh_tests::private::{self, Machine};
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::until::until;

/// What is begun is over within seconds.
const SOON: Duration = Duration::from_secs(30);

/// What happens beside a command that stands still in the middle of a deed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    Engine,
    Bus,
    Controller,
    Host,
    Interrupt,
}

/// A mesh whose commands list their deeds, or are struck at one.
struct Bench {
    mesh: Mesh,
    points: Checkpoints,
    environment: Vec<(String, String)>,
}

impl Bench {
    async fn new() -> Self {
        let mesh = Mesh::new().await.checking_every("100ms");
        let file = mesh.layout().root().parent().unwrap().join("checkpoints");
        let mut environment = environment();
        environment.push(("MESH_CHECKPOINTS".to_owned(), file.to_string()));
        Self { mesh, points: Checkpoints::at(file), environment }
    }

    async fn run(&self, words: &[&str]) -> Said {
        self.mesh.run_as(As::Myself, &self.environment, LIMIT, words).await
    }

    async fn genesis(&self) -> Said {
        self.run(&self.mesh.genesis_words(&[])).await
    }

    async fn down(&self) -> Said {
        self.run(&["down", "--yes", "--destroy", self.mesh.name()]).await
    }

    /// The deeds of an undisturbed run, and what it made.
    async fn recorded(&self) -> (Vec<Deed>, String) {
        self.points.list();
        let _ = self.genesis().await.exited(0);
        let deeds = self.points.end();
        assert!(deeds.len() > 20, "{deeds:#?}");
        (deeds, self.picture().await)
    }

    /// All that a genesis makes, without what each run makes up for itself.
    async fn picture(&self) -> String {
        let mesh = &self.mesh;
        mesh.is_handed_over(SOON).await;
        let (observed, status) = (mesh.observe().await, mesh.status().await);
        let mut lines = Vec::new();
        for instance in &status.seat.instances {
            lines.push(format!("seat: {:?} {:?} {}", instance.form, instance.role, instance.version));
        }
        let modules: ModulesAnswer = mesh.run(&["modules", "--json"]).await.exited(0).json();
        for module in &modules.modules {
            let history: HistoryAnswer =
                mesh.run(&["history", module.name.as_str(), "--json"]).await.exited(0).json();
            lines.push(format!(
                "module: {} {} {:?}, {} revisions",
                module.name,
                module.version,
                module.bundles,
                history.revisions.len()
            ));
        }
        lines.extend(observed.report.resources.iter().map(|r| format!("resource: {} {:?}", r.id, r.state)));
        lines.extend(observed.ledger.iter().map(|entry| format!("held: {} {:?}", entry.id, entry.standing)));
        lines.extend(observed.tombstones.iter().map(|stone| format!("gone: {}", stone.id)));
        for container in mesh.containers().await {
            let state = container.state.to_string();
            let state = state.split(' ').next().unwrap_or_default().to_owned();
            lines.push(format!("container: {} {} {state}", container.name, container.image_reference));
        }
        let programs = Process::all_from(mesh.layout().root().as_std_path());
        lines.extend(programs.iter().map(|process| format!("process: {}", process.program.display())));
        lines.extend(
            mesh.file().images.iter().map(|image| format!("image: {} {}", image.reference, image.id)),
        );
        lines.push(format!("inputs: {:?}", mesh.file().inputs.name));
        lines.sort();
        lines.join("\n").replace(mesh.id().as_str(), "MESH")
    }

    /// Genesis, standing still at a deed while something happens, and then going on.
    async fn genesis_disturbed(
        &self,
        machine: &mut Machine,
        deed: u64,
        moment: Moment,
        by: Disturbance,
    ) -> Said {
        self.points.strike(deed, moment, Blow::Stop);
        let words = self.mesh.genesis_words(&[]);
        let disturbing = async {
            let command = self.stands_still().await;
            self.disturb(machine, by, &command).await;
            command.thaw();
        };
        let (said, ()) = tokio::join!(self.run(&words), disturbing);
        let _ = self.points.end();
        said
    }

    /// The command, once it stands still where it was told to.
    async fn stands_still(&self) -> Process {
        let looking = async || {
            let process = Process::of(self.points.struck_process()?)?;
            process.is_stopped().then_some(process)
        };
        mesh_tests::until::eventually("the command stands still", LIMIT, looking).await
    }

    async fn disturb(&self, machine: &mut Machine, by: Disturbance, command: &Process) {
        let observed = Door::new(self.mesh.layout().door()).observe().await.ok();
        match by {
            Disturbance::Engine => machine.restart_engine(),
            Disturbance::Interrupt => command.interrupt(),
            Disturbance::Host => {
                if let Some(host) = observed.and_then(|observed| Process::of(observed.pid)) {
                    host.kill();
                    until("the host is killed", SOON, || (!host.is_alive()).then_some(()));
                }
            }
            Disturbance::Bus => self.kill_container(&self.mesh.prefixed("mesh-bus")).await,
            Disturbance::Controller => {
                self.kill_container(&self.mesh.prefixed("mesh-controller")).await;
                for process in Process::all_from(self.mesh.layout().bundles().as_std_path()) {
                    process.kill();
                }
            }
        }
    }

    async fn kill_container(&self, name: &str) {
        let engine = self.mesh.engine().await;
        let Some(container) = engine.find(&name.parse().unwrap()).await.unwrap() else { return };
        // One that does not run has nothing to be killed.
        let _ = engine.kill(&container.id, Signal::Kill).await;
    }
}

/// Every moment of these deeds, or so many of them that are spread over all.
fn moments(deeds: &[Deed], few: usize) -> Vec<(u64, Moment)> {
    let all: Vec<(u64, Moment)> =
        deeds.iter().flat_map(|deed| [(deed.number, Moment::Before), (deed.number, Moment::After)]).collect();
    let step = all.len().div_ceil(rounds(few, all.len()));
    all.into_iter().skip(step / 2).step_by(step).collect()
}

fn name(deeds: &[Deed], number: u64) -> &str {
    deeds.iter().find(|deed| deed.number == number).map_or("?", |deed| &deed.name)
}

#[test]
fn genesis_is_killed_before_and_after_each_deed_and_so_is_down() {
    private::run(
        concat!(module_path!(), "::genesis_is_killed_before_and_after_each_deed_and_so_is_down"),
        async |_machine: Machine| killed().await,
    );
}

async fn killed() {
    let bench = Bench::new().await;
    let (deeds, undisturbed) = bench.recorded().await;
    eprintln!("{undisturbed}");
    let marks = Marks::of(&bench.mesh);
    bench.points.list();
    let _ = bench.down().await.exited(0);
    let of_down = bench.points.end();
    assert!(of_down.len() > 3, "{of_down:#?}");
    assert_eq!(marks.left().await, Vec::<String>::new());
    let (tried, of_down_tried) = (moments(&deeds, 6), moments(&of_down, 3));
    let mut ends = of_down_tried.iter().cycle();
    let (mut tried_of_down, mut struck) = (BTreeSet::new(), 0);
    for (number, moment) in &tried {
        let context = format!("killed {moment:?} {number} {}", name(&deeds, *number));
        eprintln!("{context}");
        bench.points.strike(*number, *moment, Blow::Kill);
        let said = bench.genesis().await;
        let _ = bench.points.end();
        assert_eq!(said.code, None, "{context}: it was not killed: {said}");
        struck += 1;
        let _ = bench.genesis().await.exited(0);
        assert_eq!(bench.picture().await, undisturbed, "{context}");

        let marks = Marks::of(&bench.mesh);
        let (number, moment) = ends.next().unwrap();
        let context = format!("down killed {moment:?} {number} {}", name(&of_down, *number));
        eprintln!("{context}");
        bench.points.strike(*number, *moment, Blow::Kill);
        let said = bench.down().await;
        let _ = bench.points.end();
        if said.code.is_none() {
            let _ = tried_of_down.insert((*number, *moment == Moment::After));
        }
        let _ = bench.down().await.exited(0);
        assert_eq!(marks.left().await, Vec::<String>::new(), "{context}");
    }
    figure(
        &format!(
            "`mesh genesis` killed by SIGKILL at {} of the {} moments just before and just after its deeds, and the same command run again",
            tried.len(),
            2 * deeds.len()
        ),
        "the same end as undisturbed, nothing twice, no manual act",
        &format!("killed {struck} times, {struck} ends as undisturbed, 0 failures"),
    );
    figure(
        &format!(
            "`mesh down` killed at {} of the {} moments just before and just after its deeds",
            tried_of_down.len(),
            2 * of_down.len()
        ),
        "the same command goes on, and nothing is left",
        &format!("{} of {} left nothing", tried_of_down.len(), tried_of_down.len()),
    );
}

#[test]
fn down_leaves_nothing_from_wherever_genesis_was_killed() {
    private::run(
        concat!(module_path!(), "::down_leaves_nothing_from_wherever_genesis_was_killed"),
        async |_machine: Machine| {
            let bench = Bench::new().await;
            let (deeds, _) = bench.recorded().await;
            let _ = bench.down().await.exited(0);
            let tried = moments(&deeds, 6);
            for (number, moment) in &tried {
                let context = format!("killed {moment:?} {number} {}", name(&deeds, *number));
                eprintln!("{context}");
                bench.points.strike(*number, *moment, Blow::Kill);
                let said = bench.genesis().await;
                let _ = bench.points.end();
                assert_eq!(said.code, None, "{context}: it was not killed: {said}");
                let marks = Marks::of(&bench.mesh);
                let _ = bench.down().await.exited(0);
                assert_eq!(marks.left().await, Vec::<String>::new(), "{context}");
            }
            figure(
                &format!(
                    "`mesh down` after `mesh genesis` was killed at {} of its {} moments",
                    tried.len(),
                    2 * deeds.len()
                ),
                "nothing is left",
                &format!("nothing in {} of {}", tried.len(), tried.len()),
            );
        },
    );
}

/// Whether from this deed on there are but lines of the journal.
fn is_done_before(deeds: &[Deed], number: u64) -> bool {
    let mut left = deeds.iter().filter(|deed| deed.number >= number);
    left.all(|deed| deed.name.starts_with("write a line to "))
}

/// Genesis, disturbed at its deeds; where it could not go on, the same command does.
async fn disturbed(mut machine: Machine, by: Disturbance, what: &str) {
    let bench = Bench::new().await;
    let (deeds, undisturbed) = bench.recorded().await;
    let _ = bench.down().await.exited(0);
    let all: Vec<u64> = deeds.iter().map(|deed| deed.number).collect();
    let step = all.len().div_ceil(rounds(3, all.len()));
    let tried: Vec<u64> = all.iter().copied().skip(step / 2).step_by(step).collect();
    let mut went_on = 0;
    for number in &tried {
        let context = format!("{by:?} at {number} {}", name(&deeds, *number));
        let said = bench.genesis_disturbed(&mut machine, *number, Moment::Before, by).await;
        eprintln!("{context}: exit {:?}", said.code);
        match (by, said.code) {
            (Disturbance::Interrupt, Some(130)) => {
                let _ = said.says(&["interrupted", "run the same command again"]);
            }
            // Where nothing is left but to write that all is done, it is too late.
            (Disturbance::Interrupt, Some(0)) if is_done_before(&deeds, *number) => went_on += 1,
            (Disturbance::Interrupt, code) => panic!("{context}: exit {code:?}: {said}"),
            (_, Some(0)) => went_on += 1,
            (_, Some(1 | 3)) => assert!(said.stderr.contains("hint"), "{context}: {said}"),
            (_, code) => panic!("{context}: exit {code:?}: {said}"),
        }
        let _ = bench.genesis().await.exited(0);
        assert_eq!(bench.picture().await, undisturbed, "{context}");
        let marks = Marks::of(&bench.mesh);
        let _ = bench.down().await.exited(0);
        assert_eq!(marks.left().await, Vec::<String>::new(), "{context}");
    }
    figure(
        &format!("{what} at {} of the {} deeds of `mesh genesis`", tried.len(), all.len()),
        "the same end as undisturbed, by the same command at the latest",
        &format!("so in {} of {}; {went_on} went on by themselves", tried.len(), tried.len()),
    );
}

#[test]
fn the_engine_is_restarted_at_each_deed() {
    private::run(
        concat!(module_path!(), "::the_engine_is_restarted_at_each_deed"),
        async |machine: Machine| {
            disturbed(machine, Disturbance::Engine, "the engine restarted").await;
        },
    );
}

#[test]
fn the_bus_is_killed_at_each_deed() {
    private::run(concat!(module_path!(), "::the_bus_is_killed_at_each_deed"), async |machine: Machine| {
        disturbed(machine, Disturbance::Bus, "the bus killed").await;
    });
}

#[test]
fn the_controller_is_killed_at_each_deed() {
    private::run(
        concat!(module_path!(), "::the_controller_is_killed_at_each_deed"),
        async |machine: Machine| {
            disturbed(machine, Disturbance::Controller, "the controller killed").await;
        },
    );
}

#[test]
fn the_host_is_killed_at_each_deed() {
    private::run(concat!(module_path!(), "::the_host_is_killed_at_each_deed"), async |machine: Machine| {
        disturbed(machine, Disturbance::Host, "the host killed").await;
    });
}

#[test]
fn genesis_is_interrupted_at_each_deed() {
    private::run(
        concat!(module_path!(), "::genesis_is_interrupted_at_each_deed"),
        async |machine: Machine| {
            disturbed(machine, Disturbance::Interrupt, "Ctrl-C").await;
        },
    );
}
