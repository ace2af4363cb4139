use std::process::Command;
use std::time::Duration;

use mesh_protocol::handover::Role;

use crate::support::until;
use crate::world::World;

fn run(words: &[&str]) -> (Option<i32>, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_mesh-controller")).args(words).env_clear().output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_cannot_be_right_ends_it_with_one_clear_line() {
    let (code, said) = run(&["--mesh", "No"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("a-z"), "{said}");

    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().to_str().unwrap();
    let words = |run_dir| {
        vec![
            "--mesh",
            "m1",
            "--name",
            "lab",
            "--bus",
            "nats://127.0.0.1:1",
            "--seat-credential",
            "/nowhere/seat.creds",
            "--state-credential",
            "/nowhere/state.creds",
            "--run-dir",
            run_dir,
        ]
    };
    let (code, said) = run(&words(run_dir));
    assert_eq!(code, Some(1));
    assert!(said.starts_with("mesh-controller: ") && said.contains("/instance cannot be read"), "{said}");
    std::fs::write(folder.path().join("instance"), "p-1\n").unwrap();
    let (code, said) = run(&words(run_dir));
    assert_eq!(code, Some(1));
    assert!(said.contains("/nowhere/") && said.contains("No such file"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[tokio::test]
async fn a_bus_that_is_not_there_is_waited_for_and_said_once() {
    let mut world = World::start().await;
    world.bus.go_down();
    let mut instance = world.instance("p-1");
    until("it says so", async || instance.log().contains("cannot be reached")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(600)).await;
    let said = instance.log();
    assert_eq!(said.matches("cannot be reached").count(), 2, "once a connection: {said}");
    world.bus.go_up().await;
    instance.give(Role::Serving).await;
    assert!(instance.terminate().await.success(), "{}", instance.log());

    world.bus.go_down();
    let mut waiting = world.instance("p-2");
    until("it says so", async || waiting.log().contains("cannot be reached")).await.unwrap();
    assert!(waiting.terminate().await.success(), "it ends while it waits");
}
