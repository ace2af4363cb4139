//! The same command once more, and on whatever became of the mesh.

use std::time::Duration;

use mesh_installer::genesis::step::Step;
use mesh_protocol::handover::Form;
use mesh_tests::mesh::Mesh;
use mesh_tests::until::until;
use mesh_tests::watch::Watch;

/// Two seconds are aimed at; a machine that does something else meanwhile takes longer.
const AT_MOST: Duration = Duration::from_secs(40);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_genesis_changes_nothing_and_says_so() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let before = picture(&mesh).await;
    let said = mesh.raise().await.says(&["nothing was changed", "failed 0, "]);
    eprintln!("a second genesis took {:?}", said.took);
    assert!(said.took < AT_MOST, "{said}");
    assert_eq!(picture(&mesh).await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_genesis_with_other_inputs_is_refused() {
    let mesh = Mesh::new().await;
    let _ = mesh.genesis(&["--until", "identity"]).await.exited(0);
    let said = mesh.genesis(&["--until", "identity", "--bus-port", "4321"]).await.exited(1);
    let _ = said.says(&["inputs-differ", "--bus-port 4321"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_says_what_would_be_done_and_touches_nothing() {
    let mesh = Mesh::new().await;
    let said = mesh.genesis(&["--dry-run"]).await.exited(0).says(&["would ", "nothing was touched"]);
    for step in Step::ALL {
        assert!(said.stderr.contains(step.as_str()), "{step} is not told: {said}");
    }
    assert!(!mesh.layout().root().exists(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn genesis_goes_on_from_every_step_at_which_it_was_stopped() {
    let mesh = Mesh::new().await;
    for step in Step::ALL {
        let _ = mesh.genesis(&["--until", step.as_str()]).await.exited(0);
    }
    let status = mesh.status().await;
    let forms: Vec<Form> = status.seat.instances.iter().map(|instance| instance.form).collect();
    assert_eq!(forms, [Form::Process]);
    let _ = mesh.raise().await.says(&["nothing was changed"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn genesis_never_raises_the_container_again_even_when_host_and_controller_are_dead() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let (host, controller) = (mesh.host().await, mesh.process("process:mesh-controller").await);
    let watch = Watch::begin(mesh.engine().await, mesh.controller_container());
    host.kill();
    controller.kill();
    let gone = || (!host.is_alive() && !controller.is_alive()).then_some(());
    until("both are gone", Duration::from_secs(60), gone);
    let _ = mesh.raise().await.says(&["the host did not run: started it"]);
    let seen = watch.end().await;
    assert!(seen.is_empty(), "a container of the controller was there again: {seen:?}");
    let status = mesh.status().await;
    let forms: Vec<Form> = status.seat.instances.iter().map(|instance| instance.form).collect();
    assert_eq!(forms, [Form::Process]);
    assert!(!controller.is_alive());
}

/// All that a genesis could have changed, but for its journal.
async fn picture(mesh: &Mesh) -> String {
    let observed = mesh.observe().await;
    let containers: Vec<String> = mesh
        .containers()
        .await
        .iter()
        .map(|container| format!("{} {:?}", container.id, container.started_at))
        .collect();
    let file = std::fs::read_to_string(mesh.layout().mesh_file()).unwrap();
    let accepted = observed.report.accepted;
    format!(
        "{:#?} {:#?} {accepted:?} {:?} {containers:?} {file}",
        observed.ledger, observed.tombstones, observed.pid
    )
}
