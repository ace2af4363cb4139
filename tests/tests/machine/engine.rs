//! The engine and the bus misbehave in the middle of a handover: the engine hangs, does not stop the container, has the
//! container replaced by somebody else's, or pruned; the bus is restarted. The new one serves in the end, and what is left
//! to do is done when it can be.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mesh_engine::Signal;
use mesh_installer::door::Door;
use mesh_protocol::handover::{Form, HandoverReport, Role, State};
use mesh_protocol::verb::StatusAnswer;
use mesh_tests::command::Said;
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::repository;
use mesh_tests::private::{self, Machine};
use mesh_tests::process::Process;
use mesh_tests::rounds::{figure, rounds};
use mesh_tests::until::{eventually, until};

const LIMIT: Duration = Duration::from_secs(120);

/// Pushes the controller, and freezes the host when it has written that the handover is in this state.
async fn push_and_stop_at(mesh: &Mesh, state: State) -> Process {
    let node = mesh.file().inputs.node;
    let controller = repository().join("controller");
    let detached = ["--node", node.as_str(), "--detach"];
    let record = mesh.layout().handover("mesh-controller");
    let host = mesh.host().await;
    let _ = mesh.push(&controller, &detached).await.exited(0);
    let stopping = {
        let (record, host) = (record.clone(), host.clone());
        tokio::task::spawn_blocking(move || {
            until(&format!("the handover is {}", state.as_str()), LIMIT, || {
                let text = std::fs::read(&record).ok()?;
                let written: serde_json::Value = serde_json::from_slice(&text).ok()?;
                (written["state"] == state.as_str()).then(|| host.freeze())
            });
        })
    };
    stopping.await.unwrap();
    host
}

async fn handover(mesh: &Mesh) -> Option<HandoverReport> {
    let report = Door::new(mesh.layout().door()).observe().await.ok()?.report;
    report.handovers.into_iter().next()
}

async fn reaches(mesh: &Mesh, what: &str, states: &[State]) -> HandoverReport {
    let looking = async || handover(mesh).await.filter(|handover| states.contains(&handover.state));
    eventually(what, LIMIT, looking).await
}

async fn a_process_serves(mesh: &Mesh) {
    let serves = async || {
        let said: Said = mesh.run(&["status", "--json"]).await;
        let status: StatusAnswer = (said.code == Some(0)).then(|| said.json())?;
        let mut serving = status.seat.instances.iter().filter(|instance| instance.role == Role::Serving);
        let one = serving.next().filter(|_| serving.next().is_none())?;
        (one.form == Form::Process).then_some(())
    };
    eventually("a process serves, and nobody else", LIMIT, serves).await;
}

async fn container_is_gone(mesh: &Mesh) {
    let engine = mesh.engine().await;
    let gone = async || engine.list(&mesh.controller_container()).await.ok()?.is_empty().then_some(());
    eventually("the controller's container is gone", LIMIT, gone).await;
}

/// The program that does the engine's work: the daemon answers without it, and stops nothing.
fn worker_of_the_engine() -> Process {
    let all = Process::all_from(Path::new("/usr/bin/containerd"));
    let [worker] = &all[..] else { panic!("expected one containerd: {all:?}") };
    worker.clone()
}

#[test]
fn it_hangs_while_the_container_is_to_go() {
    private::run(
        concat!(module_path!(), "::it_hangs_while_the_container_is_to_go"),
        async |machine: Machine| {
            hangs("the engine hangs", &machine.engine_process()).await;
        },
    );
}

#[test]
fn it_answers_and_does_not_stop_the_container() {
    private::run(
        concat!(module_path!(), "::it_answers_and_does_not_stop_the_container"),
        async |_machine: Machine| {
            hangs("the engine does not stop the container", &worker_of_the_engine()).await;
        },
    );
}

async fn hangs(what: &str, hanging: &Process) {
    let mesh = Mesh::new().await.checking_every("200ms");
    let _ = mesh.raise_until_store().await;
    let prober = mesh.probe().await;
    let host = push_and_stop_at(&mesh, State::Alone).await;
    hanging.freeze();
    host.thaw();
    let left = reaches(&mesh, "the handover is at the removal", &[State::Removing]).await;
    a_process_serves(&mesh).await;
    // The plan is done: what is left holds up nothing.
    let done = async || {
        let said = mesh.run(&["plans", "--json"]).await;
        let plans: mesh_protocol::verb::PlansAnswer = (said.code == Some(0)).then(|| said.json())?;
        plans.plans.iter().all(|plan| plan.state.is_ended()).then_some(())
    };
    eventually("the plan has ended", LIMIT, done).await;
    let pending = async || {
        let handover = handover(&mesh).await?;
        (handover.state != State::Held).then_some(handover)
    };
    let pending = eventually("no hold for it", LIMIT, pending).await;
    eprintln!("left: {:?}, then {:?}", left.waiting_for, pending.waiting_for);
    // What is left is said by the seat, which answers.
    let said = mesh.run(&["status"]).await.exited(0);
    let is_left =
        |line: &str| line.contains("removing") && (line.contains("waits for") || line.contains("left"));
    assert!(said.stdout.lines().any(is_left), "{said}");
    hanging.thaw();
    container_is_gone(&mesh).await;
    let _ = reaches(&mesh, "the rest is finished", &[State::Done]).await;
    let figures = prober.stop().await;
    figure(
        &format!("{what} while the container is to be removed"),
        "no hold for it; the new one serves; the rest is finished when it comes back",
        &format!("so; {} asked, {} failed", figures.asked, figures.failed),
    );
    assert_eq!(figures.failed, 0, "{figures:?}");
}

#[test]
fn the_stopped_container_is_pruned() {
    private::run(concat!(module_path!(), "::the_stopped_container_is_pruned"), async |_machine: Machine| {
        let mesh = Mesh::new().await.checking_every("200ms");
        let _ = mesh.raise_until_store().await;
        let prober = mesh.probe().await;
        let container = mesh.engine().await.list(&mesh.controller_container()).await.unwrap().remove(0);
        let host = push_and_stop_at(&mesh, State::Removing).await;
        // As somebody does who tidies up.
        mesh.engine().await.kill(&container.id, Signal::Kill).await.unwrap();
        mesh.engine().await.wait(&container.id, LIMIT).await.unwrap();
        docker(&["container", "prune", "--force"]);
        host.thaw();
        let _ = reaches(&mesh, "the handover is done", &[State::Done]).await;
        a_process_serves(&mesh).await;
        let figures = prober.stop().await;
        figure(
            "the container ended and pruned by somebody else before its removal",
            "the handover is done; nobody without an answer",
            &format!("done; {} asked, {} failed", figures.asked, figures.failed),
        );
        assert!(figures.failed <= 1, "only what the killed one had taken: {figures:?}");
    });
}

#[test]
fn the_containers_name_is_taken_by_somebody_else() {
    private::run(
        concat!(module_path!(), "::the_containers_name_is_taken_by_somebody_else"),
        async |_machine: Machine| {
            let mesh = Mesh::new().await.checking_every("200ms");
            let _ = mesh.raise_until_store().await;
            let engine = mesh.engine().await;
            let container = engine.list(&mesh.controller_container()).await.unwrap().remove(0);
            let host = push_and_stop_at(&mesh, State::Trial).await;
            engine.kill(&container.id, Signal::Kill).await.unwrap();
            engine.wait(&container.id, LIMIT).await.unwrap();
            engine.remove(&container.id).await.unwrap();
            let name = mesh.prefixed("mesh-controller");
            let image = mesh_tests::images::bus().await;
            docker(&["create", "--name", &name, "--network", "host", &image]);
            host.thaw();
            let _ = reaches(&mesh, "the handover is done", &[State::Done]).await;
            a_process_serves(&mesh).await;
            let found = docker(&["inspect", "--format", "{{.State.Status}} {{len .Config.Labels}}", &name]);
            assert!(found.starts_with("created"), "somebody else's container was touched: {found}");
            docker(&["rm", &name]);
            figure(
                "the container of that name replaced by somebody else's in the trial",
                "not touched; the new one serves",
                "not touched; handed over",
            );
        },
    );
}

#[test]
fn the_bus_is_restarted_in_the_trial_and_while_the_old_one_leaves() {
    private::run(
        concat!(module_path!(), "::the_bus_is_restarted_in_the_trial_and_while_the_old_one_leaves"),
        async |_machine: Machine| {
            let states = [State::Alone, State::Trial, State::Joined];
            let tried = &states[..rounds(1, states.len())];
            for state in tried.iter().copied() {
                let mesh = Mesh::new().await.checking_every("200ms");
                let _ = mesh.raise_until_store().await;
                let host = push_and_stop_at(&mesh, state).await;
                let containers = mesh.containers().await;
                let bus = containers.iter().find(|one| one.name.as_str().ends_with("mesh-bus")).unwrap();
                mesh.engine().await.kill(&bus.id, Signal::Kill).await.unwrap();
                host.thaw();
                let ended = reaches(&mesh, "the handover has ended", &[State::Done]).await;
                a_process_serves(&mesh).await;
                container_is_gone(&mesh).await;
                eprintln!("the bus killed in {}: tries {}", state.as_str(), ended.tries);
            }
            figure(
                &format!("the bus killed, and started again by the host, in {} states", tried.len()),
                "no hold for it; the new one serves",
                &format!("done in {} of {}", tried.len(), tried.len()),
            );
        },
    );
}

pub(super) fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).output().unwrap();
    assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
