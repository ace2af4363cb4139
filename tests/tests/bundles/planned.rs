//! What a push builds: what is needed and neither lies there nor is in the store; what it refuses, and for whom.

use std::fs;
use std::path::Path;
use std::process::Command;

use mesh_tests::command::Said;
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::Binary;
use mesh_tests::source::Source;

/// Copies the program to where it belongs, and counts how often that was done.
const BUILD: &str = r#"build = ["sh", "-c", "echo built >>count && mkdir -p target/mesh/linux-amd64 && cp origin target/mesh/linux-amd64/faulty-controller"]"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_needed_is_built_once_or_taken_from_the_store_or_refused_with_the_node_that_needs_it() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let node = mesh.file().inputs.node.to_string();
    let source = Source::of_a_sleeper();
    let (folder, top) = (source.folder(), source.folder().parent().unwrap().to_owned());
    let binary = source.binaries().join("faulty-controller");
    let push = async |more: &[&str]| -> Said {
        let words = [&["push", folder.to_str().unwrap(), "--node", &node][..], more].concat();
        mesh.run(&words).await
    };

    // No binary, no build, nothing in the store: nobody can have it, and it is said who wants it.
    fs::remove_file(&binary).unwrap();
    let needs_it = format!("node {node} needs it");
    let _ = push(&[]).await.exited(1).says(&["binary-missing", "sleeper for linux/amd64", &needs_it]);

    // With a build: only reported, where that was asked for.
    fs::copy(Binary::FaultyController.path(), top.join("origin")).unwrap();
    let with_build = "binary = \"target/mesh/linux-amd64/faulty-controller\"\n";
    let source = source.change(with_build, &format!("{with_build}{BUILD}\n"));
    fs::write(top.join(".gitignore"), "target\ncount\norigin\n").unwrap();
    git(&top, &["init", "-q"]);
    git(&top, &["add", "."]);
    git(&top, &["commit", "-q", "-m", "first"]);
    let count = top.join("count");
    let built = || fs::read_to_string(&count).map_or(0, |text| text.lines().count());
    let _ = push(&["--no-build"]).await.exited(1).says(&["build-needed", "sh -c", &needs_it]);
    let _ = push(&["--dry-run"]).await.exited(0).says(&["would build sleeper for linux/amd64", &needs_it]);
    assert_eq!((built(), binary.exists()), (0, false));
    let said = mesh.run(&["bundle", "list"]).await.exited(0);
    assert!(!said.stdout.contains("sleeper"), "{said}");

    // Built, packed, published, pushed; and as a program reads it, a line is a document or event, and few tell of bytes.
    let said = push(&["--json"]).await.exited(0);
    assert_eq!(built(), 1, "{said}");
    let lines: Vec<serde_json::Value> =
        said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_bytes = lines.iter().filter(|line| line["event"] == "bytes").count();
    assert!((1..=4).contains(&of_bytes), "packed and sent, each told at its end: {said}");

    // What it was built from is in the artifact.
    let revision = git(&top, &["rev-parse", "HEAD"]);
    let said = mesh.run(&["bundle", "inspect", "sleeper:1"]).await.exited(0);
    let said =
        said.says(&[&format!("revision  {}, nothing changed since", revision.trim()), "built by  sh -c"]);
    assert!(said.stdout.contains("tool      sh") || !said.stdout.contains("tool "), "{said}");

    // The store has what would be built from this very source: nothing is built.
    fs::remove_file(&binary).unwrap();
    let _ = push(&[]).await.exited(0).says(&["sleeper for linux/amd64 is in the store: sha256:"]);
    assert_eq!((built(), binary.exists()), (1, false));

    // From a source with changes it is another thing, and built.
    fs::write(top.join("changed"), "").unwrap();
    let _ = push(&["--no-build"]).await.exited(1).says(&["build-needed"]);
    let _ = push(&[]).await.exited(0);
    assert_eq!(built(), 2);
    let _ = mesh.run(&["bundle", "inspect", "sleeper:1"]).await.exited(0).says(&["and changes since"]);

    // With its binary there, it is pushed also where nothing may be built.
    let _ = push(&["--no-build"]).await.exited(0);
    assert_eq!(built(), 2);

    // A build that fails says so, and for whom it was.
    fs::remove_file(&binary).unwrap();
    fs::remove_file(top.join("origin")).unwrap();
    let _kept = source.change("version = \"1\"", "version = \"2\"");
    let _ = push(&[]).await.exited(1).says(&["build-failed", &needs_it]);
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"];
    let output = Command::new("git").current_dir(folder).args(identity).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
