//! A genesis that was stopped explains itself, though nothing runs that could.

use mesh_installer::output::Event;
use mesh_tests::events;
use mesh_tests::mesh::Mesh;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_genesis_that_was_stopped_explains_itself_while_nothing_runs() {
    let mesh = Mesh::new().await;
    let said = mesh.genesis(&["--until", "images", "--json"]).await.exited(0);
    let told = events::of(&said);
    assert_eq!(told.len(), said.stdout.lines().count(), "every line is an event: {said}");
    for step in ["preflight", "identity", "bundles", "images"] {
        let begun = |event: &Event| matches!(event, Event::Begun { step: told, .. } if told == step);
        assert!(told.iter().any(|line| begun(&line.event)), "{step} is not begun: {said}");
    }
    let root = mesh.layout().root().as_str();

    let said = mesh.run(&["status"]).await.exited(1).says(&[
        "host   does not run",
        "reached   identity, bundles, images\n",
        "ended     stopped after images, as asked",
        "error[host-unreachable]",
        "hint: go on with: mesh genesis --offline --name lab",
    ]);
    let hint = said.stderr.lines().find(|line| line.contains("go on with")).unwrap();
    assert!(hint.ends_with(&format!("--root {root}")) && !hint.contains("--until"), "{said}");

    let said = mesh.run(&["events"]).await.exited(1).says(&["identity   mesh id, keys and credentials"]);
    assert!(!said.stdout.contains("preflight"), "nothing is written before the root is there: {said}");
    let said = mesh.run(&["events", "--json"]).await.exited(1);
    let told = events::of(&said);
    assert!(matches!(told.first().map(|line| &line.event), Some(Event::Command { .. })), "{said}");
    assert!(matches!(told.last().map(|line| &line.event), Some(Event::Failed { .. })), "{said}");
    // What is not the mesh's stays, and is told; the rest goes.
    let notes = mesh.layout().root().join("notes");
    std::fs::write(&notes, "mine").unwrap();
    let said = mesh.run(&["nodes"]).await.exited(1).says(&["error[bus-unreachable]"]);
    assert!(said.stdout.is_empty(), "{said}");
    let effects = told.iter().filter(|line| matches!(line.event, Event::Effect { .. })).count();
    assert!(effects > 0, "what was about to be done is written down before: {said}");
    let said = mesh.run(&["down", "--yes"]).await.exited(0).says(&["stays", notes.as_str()]);
    let left: Vec<_> = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes"], "{said}");
    std::fs::remove_dir_all(root).unwrap();
}
