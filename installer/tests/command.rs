//! What people see of the command: every `--help`, the main errors, and their exit status.
//!
//! In: command lines, in an empty environment and a folder of their own. Out: snapshots. Not here: a mesh that runs;
//! the end-to-end tests raise one.

#![allow(clippy::unwrap_used)] // a test may stop at the first thing that is not as it says

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use mesh_installer::cli::Cli;

fn mesh(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("mesh").unwrap();
    command.env_clear().env("MESH_ROOT", folder.join("root")).current_dir(folder);
    command.args(arguments).output().unwrap()
}

/// What was printed, with the folder's name taken out.
fn shown(folder: &Path, output: &Output) -> String {
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace(folder.to_str().unwrap(), "[folder]");
        text.split_inclusive('\n').map(without_moment).collect::<String>()
    };
    format!(
        "exit {}\n--- out\n{}--- err\n{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    )
}

/// An event without what is another each time: when, and by which process.
fn without_moment(line: &str) -> String {
    let said = |line: &str| {
        let rest = line.strip_prefix(r#"{"format":1,"time":""#)?;
        let (_, rest) = rest.split_once(r#","pid":"#)?;
        let (_, rest) = rest.split_once(',')?;
        Some(format!(r#"{{"format":1,"time":"[time]","pid":[pid],{rest}"#))
    };
    said(line).unwrap_or_else(|| line.to_owned())
}

#[test]
fn help() {
    let temp = tempfile::tempdir().unwrap();
    let mut lines = vec![vec![]];
    lines.extend(commands());
    for words in lines {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let output = mesh(temp.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(output.stderr.is_empty(), "help is data: {arguments:?}");
        let name = if words.is_empty() { "mesh".to_owned() } else { words.join("-") };
        insta::assert_snapshot!(format!("help-{name}"), String::from_utf8(output.stdout).unwrap());
    }
}

#[test]
fn what_is_not_understood_is_a_usage_error() {
    let temp = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("unknown-command", &["rise"][..]),
        ("unknown-option", &["status", "--bus"]),
        ("short-interval", &["genesis", "--check-interval", "99ms"]),
        ("unknown-step", &["genesis", "--until", "lunch"]),
        ("unknown-check", &["doctor", "--skip", "memory,bus-prot"]),
        ("bad-name", &["genesis", "--name", "My Mesh"]),
        ("usage-as-json", &["status", "--bus", "--json"]),
        ("stray-down", &["down", "lab"]),
        ("stray-down-behind-a-name", &["down", "--destroy", "lab", "other"]),
        ("stray-prune", &["bundle", "prune", "all"]),
        ("stray-restore", &["restore", "one.tar", "other.tar"]),
        ("bad-destroy", &["down", "--destroy", "My Mesh"]),
        ("bad-resource", &["retry", "mesh-controller"]),
        ("bad-timeout", &["push", "x", "--timeout", "soon"]),
        ("bad-shell", &["completions", "cmd"]),
        ("missing-module", &["assign"]),
        ("abort-of-nothing", &["plans", "--abort"]),
    ] {
        let output = mesh(temp.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        insta::assert_snapshot!(name, shown(temp.path(), &output));
    }
}

#[test]
fn where_there_is_no_mesh_every_command_says_so() {
    let temp = tempfile::tempdir().unwrap();
    for (name, arguments) in [
        ("no-mesh-status", &["status"][..]),
        ("no-mesh-status-json", &["status", "--json"]),
        ("no-mesh-up", &["up"]),
        ("no-mesh-push", &["push", "x"]),
        ("no-mesh-logs", &["logs", "host"]),
        ("no-mesh-retry", &["retry", "process:a"]),
        ("no-mesh-nodes", &["nodes"]),
        ("no-mesh-modules", &["modules"]),
        ("no-mesh-declaration", &["declaration"]),
        ("no-mesh-assign", &["assign", "a", "n1"]),
        ("no-mesh-unassign", &["unassign", "a", "n1"]),
        ("no-mesh-plans", &["plans"]),
        ("no-mesh-events", &["events"]),
        ("no-mesh-history", &["history", "a"]),
        ("no-mesh-rollback", &["rollback", "a"]),
        ("no-mesh-recover", &["recover"]),
        ("no-mesh-report", &["report"]),
        ("no-mesh-backup", &["backup", "b.tar"]),
        ("no-mesh-bundle-list", &["bundle", "list"]),
        ("no-mesh-bundle-prune", &["bundle", "prune", "--yes"]),
        ("no-backup-restore", &["restore", "b.tar"]),
    ] {
        let output = mesh(temp.path(), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        insta::assert_snapshot!(name, shown(temp.path(), &output));
    }
    let output = mesh(temp.path(), &["down"]);
    insta::assert_snapshot!("no-mesh-down", shown(temp.path(), &output));
    assert!(!temp.path().join("root").exists(), "nothing was made");
}

#[test]
fn a_foreign_folder_is_no_mesh_and_stays() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("root")).unwrap();
    std::fs::write(temp.path().join("root/notes"), "mine").unwrap();
    let output = mesh(temp.path(), &["down", "--yes"]);
    insta::assert_snapshot!("foreign-folder-down", shown(temp.path(), &output));
    assert!(temp.path().join("root/notes").exists());
}

#[test]
fn a_genesis_that_was_killed_before_there_was_a_mesh_is_removed() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("root")).unwrap();
    std::fs::write(temp.path().join("root/installer.lock"), "").unwrap();
    // Killed while it wrote the first record.
    std::fs::write(temp.path().join("root/.mesh.json.7.0.tmp"), "{").unwrap();
    let output = mesh(temp.path(), &["down", "--yes"]);
    insta::assert_snapshot!("begun-down", shown(temp.path(), &output));
    assert!(!temp.path().join("root").exists());
}

#[test]
fn what_stands_in_the_way_of_genesis_is_told_at_once_and_nothing_is_touched() {
    let temp = tempfile::tempdir().unwrap();
    let controller = temp.path().join("controller");
    std::fs::create_dir(&controller).unwrap();
    std::fs::write(controller.join("module.toml"), "[module]\nname = \"x\"\nsurprise = 1\n").unwrap();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = held.local_addr().unwrap().port().to_string();
    let output = Command::cargo_bin("mesh")
        .unwrap()
        .env_clear()
        .env("MESH_ROOT", temp.path().join("root"))
        .env("DOCKER_HOST", "unix:///no/such/engine.sock")
        .current_dir(temp.path())
        .args(["genesis", "--store-port", "0", "--bus-port", &port])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    for part in [
        "port-taken",
        "manifest-invalid",
        "surprise",
        "engine-unreachable",
        "/no/such/engine.sock (DOCKER_HOST)",
    ] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
    assert!(
        errors.contains(&format!("(pid {})", std::process::id())),
        "the port's holder is named: {errors}"
    );
    assert!(!temp.path().join("root").exists(), "nothing was made");
}

#[test]
fn doctor_prints_one_document_of_all_checks_and_leaves_out_what_it_is_asked_to() {
    let temp = tempfile::tempdir().unwrap();
    let output = Command::cargo_bin("mesh")
        .unwrap()
        .env_clear()
        .env("MESH_ROOT", temp.path().join("root"))
        .env("DOCKER_HOST", "unix:///no/such/engine.sock")
        .current_dir(temp.path())
        .args([
            "doctor",
            "--json",
            "--bus-port",
            "0",
            "--store-port",
            "0",
            "--skip",
            "engine-endpoint,memory",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stderr.is_empty(), "what failed is in the document: {output:?}");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let check = |name: &str| checks.iter().find(|check| check["name"] == name).unwrap();
    assert_eq!(checks.len(), mesh_installer::doctor::Name::ALL.len());
    for (name, state) in [
        ("engine-endpoint", "skipped"),
        ("memory", "skipped"),
        ("engine-running", "failed"),
        ("engine-version", "skipped"),
        ("container-start", "skipped"),
        ("root-folder", "passed"),
        ("controller-manifest", "passed"),
        ("controller-name", "skipped"),
    ] {
        assert_eq!(check(name)["state"], state, "{}", check(name));
    }
    assert!(
        check("engine-running")["found"].as_str().unwrap().contains("/no/such/engine.sock (DOCKER_HOST)")
    );
    assert!(!check("engine-running")["remedy"].as_str().unwrap().is_empty());
    let left: Vec<_> = std::fs::read_dir(temp.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_module_without_a_bundle_for_this_system_and_an_engine_that_is_nowhere_are_told() {
    let temp = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller");
    let controller = temp.path().join("controller");
    std::fs::create_dir(&controller).unwrap();
    std::fs::copy(source.join("genesis.toml"), controller.join("genesis.toml")).unwrap();
    let text = std::fs::read_to_string(source.join("module.toml")).unwrap();
    let other = if cfg!(target_arch = "x86_64") {
        ("linux/amd64", "linux/arm64")
    } else {
        ("linux/arm64", "linux/amd64")
    };
    assert!(text.contains(other.0), "{text}");
    std::fs::write(controller.join("module.toml"), text.replace(other.0, other.1)).unwrap();
    let output = Command::cargo_bin("mesh")
        .unwrap()
        .env_clear()
        .env("MESH_ROOT", temp.path().join("root"))
        .env("DOCKER_HOST", "carrier-pigeon://loft")
        .current_dir(temp.path())
        .args(["genesis", "--store-port", "0", "--bus-port", "0"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    for part in ["\n- unsupported-system: ", "\n- engine-endpoint: ", "carrier-pigeon"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn completions_are_data() {
    let temp = tempfile::tempdir().unwrap();
    let commands = commands();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = mesh(temp.path(), &["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty(), "{shell}");
        let script = String::from_utf8(output.stdout).unwrap();
        for words in &commands {
            assert!(script.contains(words.last().unwrap()), "{shell} does not know {words:?}");
        }
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let temp = tempfile::tempdir().unwrap();
    let output = mesh(temp.path(), &["man", "pages"]);
    assert_eq!(output.status.code(), Some(0));
    let page = |words: &[String]| {
        let name = format!("{}.1", [&["mesh".to_owned()], words].concat().join("-"));
        std::fs::read_to_string(temp.path().join("pages").join(&name))
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let printed = String::from_utf8(mesh(temp.path(), &["man"]).stdout).unwrap();
    let commands = commands();
    for words in &commands {
        let text = page(words);
        assert!(text.contains(".SH SYNOPSIS") && text.contains("\\-\\-root"), "{words:?}: {text}");
        assert!(printed.contains(text.trim_end()), "{words:?} is not printed");
    }
    assert_eq!(std::fs::read_dir(temp.path().join("pages")).unwrap().count(), commands.len() + 1);
    insta::assert_snapshot!("man-down", page(&["down".to_owned()]));
}

/// A word more than a command takes is never passed over: what was meant by it is not known.
#[test]
fn a_stray_argument_is_a_usage_error_of_every_command() {
    let temp = tempfile::tempdir().unwrap();
    let command = <Cli as clap::CommandFactory>::command();
    for words in commands() {
        let leaf = words.iter().fold(&command, |command, word| command.find_subcommand(word).unwrap());
        if leaf.has_subcommands() {
            continue;
        }
        let positional = leaf.get_positionals().count();
        // Names that are right wherever a name is wanted.
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.extend(std::iter::repeat_n("process:a", positional + 1));
        let output = mesh(temp.path(), &arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", shown(temp.path(), &output));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(temp.path()).unwrap().count(), 0, "nothing was made");
}

/// The words of every command.
fn commands() -> Vec<Vec<String>> {
    let command = <Cli as clap::CommandFactory>::command();
    let mut found = Vec::new();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        found.push(vec![sub.get_name().to_owned()]);
        found.extend(
            sub.get_subcommands().map(|deep| vec![sub.get_name().to_owned(), deep.get_name().to_owned()]),
        );
    }
    found
}
