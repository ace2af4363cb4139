//! What people see of each command on a mesh that runs: standard output, standard error and exit status, in a good case and
//! in a bad one. All of them on one mesh, each once; what differs from run to run is taken out. What they say where there is
//! no mesh, and every `--help`, is beside the command itself (`installer/tests`).

use mesh_protocol::verb::PlansAnswer;
use mesh_tests::command::Said;
use mesh_tests::events;
use mesh_tests::mesh::Mesh;
use mesh_tests::parts::repository;

/// What ends well, with its name. `[controller]` stands for the controller's folder, `[node]` for this machine.
const GOOD: [(&str, &[&str]); 17] = [
    ("up", &["up"]),
    ("status", &["status"]),
    ("nodes", &["nodes"]),
    ("modules", &["modules"]),
    ("declaration", &["declaration"]),
    ("push", &["push", "[controller]", "--dry-run", "--no-build"]),
    ("assign", &["assign", "mesh-bus", "[node]", "--dry-run"]),
    ("unassign", &["unassign", "mesh-store", "[node]", "--dry-run"]),
    ("plans", &["plans"]),
    ("history", &["history", "mesh-controller"]),
    ("retry", &["retry", "process:mesh-controller"]),
    ("bundle-list", &["bundle", "list"]),
    ("bundle-prune", &["bundle", "prune", "--dry-run"]),
    ("genesis", &["genesis"]),
    ("down", &["down", "--dry-run"]),
    ("logs", &["logs", "process:mesh-controller", "--lines", "0"]),
    ("report", &["report", "--output", "/dev/null"]),
];

/// What does not, with its name and exit status.
const BAD: [(&str, i32, &[&str]); 15] = [
    ("declaration", 1, &["declaration", "nowhere"]),
    ("push", 1, &["push", "/nowhere"]),
    ("assign", 1, &["assign", "nothing", "[node]"]),
    ("unassign", 1, &["unassign", "mesh-bus", "nowhere"]),
    ("plans", 1, &["plans", "nothing"]),
    ("abort", 1, &["plans", "nothing", "--abort"]),
    ("history", 1, &["history", "nothing"]),
    ("rollback", 1, &["rollback", "mesh-controller"]),
    ("retry", 1, &["retry", "process:nothing"]),
    ("logs", 1, &["logs", "process:nothing"]),
    ("bundle-inspect", 1, &["bundle", "inspect", "nothing:1"]),
    ("genesis", 1, &["genesis", "--name", "other"]),
    ("report", 1, &["report", "--plan", "nothing"]),
    ("recover", 1, &["recover", "--seat", "nothing"]),
    ("down", 1, &["down", "--yes"]),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_in_its_good_and_in_its_bad_case() {
    let mesh = Mesh::new().await;
    let said = mesh.genesis(&["--json"]).await.exited(0);
    assert_eq!(events::of(&said).len(), said.stdout.lines().count(), "every line is an event: {said}");
    let shown = Shown::of(&mesh).await;
    for (name, words) in GOOD {
        let said = mesh.run(&shown.filled(words)).await.exited(0);
        shown.holds(&format!("good-{name}"), &said);
    }
    for (name, code, words) in BAD {
        let said = mesh.run(&shown.filled(words)).await.exited(code);
        shown.holds(&format!("bad-{name}"), &said);
    }
    for words in
        [&["status"][..], &["nodes"], &["modules"], &["declaration"], &["plans"], &["history", "mesh-bus"]]
    {
        let document: serde_json::Value = mesh.run(&[words, &["--json"]].concat()).await.exited(0).json();
        assert_eq!(document["format"], 1, "{words:?}: {document}");
    }
    // What else is in the engine, and in the logs, is another each time.
    let _ = mesh.run(&["image", "list"]).await.exited(0).says(&["IMAGE"]);
    let _ = mesh.run(&["logs", "host"]).await.exited(0).says(&["declaration "]);
    let said = mesh.run(&["events", "--json"]).await.exited(0);
    let told = events::of(&said).len();
    assert!(told > 10 && told == said.stdout.lines().count(), "{said}");
    let _ = mesh
        .run(&["events"])
        .await
        .exited(0)
        .says(&["plan ", "handover container:mesh-controller -> process:"]);
}

/// What is another each time, and what stands for it.
struct Shown {
    node: String,
    controller: String,
    settings: insta::Settings,
}

impl Shown {
    async fn of(mesh: &Mesh) -> Self {
        let file = mesh.file();
        let (node, root) = (file.inputs.node.to_string(), mesh.layout().root().to_string());
        let plans: PlansAnswer = mesh.run(&["plans", "--json"]).await.exited(0).json();
        let mut names = vec![
            (root.clone(), "[root]"),
            (root.trim_end_matches("/r").to_owned(), "[folder]"),
            (mesh.prefixed("").trim_end_matches('-').to_owned(), "[prefix]"),
            (file.mesh.to_string(), "[mesh]"),
            (repository().to_string_lossy().into_owned(), "[repository]"),
            (file.inputs.bus_port.to_string(), "[bus-port]"),
            (file.inputs.store_port.to_string(), "[store-port]"),
        ];
        names.extend(plans.plans.iter().map(|plan| (plan.id.to_string(), "[plan]")));
        let mut settings = insta::Settings::clone_current();
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        for (name, stands_for) in &names {
            settings.add_filter(&escaped(name), *stands_for);
        }
        settings.add_filter(&format!(r"\b{}\b", escaped(&node)), "[node]");
        for (pattern, stands_for) in [
            (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[time]"),
            (r"sha256:[0-9a-f]{6,64}(\.\.\.)?", "[digest]"),
            (r"\b[pc]-[0-9a-f]{10}\b", "[run]"),
            (r"\b[0-9a-f]{12,64}\b", "[hex]"),
            (r"\b\d+\.\d\d s\b", "[seconds]"),
            (r"seat: asked .*", "seat: [figures]"),
            (r"\bpid \d+", "pid [pid]"),
            (r"\b\d+(\.\d+)? [kMG]?B\b", "[size]"),
            (r"\b\d+ bytes", "[size]"),
            (r"\bprocess \d+", "process [pid]"),
            (r"\btoken \d+\.\d+", "token [token]"),
            (r"lock   .*", "lock   [lock]"),
            // Columns are as wide as what stands in them.
            (r" {2,}", "  "),
            (r"(?m)  (converged|changed)(  |$)", "  [right]$2"),
        ] {
            settings.add_filter(pattern, stands_for);
        }
        let controller = repository().join("controller").to_string_lossy().into_owned();
        Self { node, controller, settings }
    }

    fn filled<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        let filled = |word: &&'a str| match *word {
            "[node]" => self.node.as_str(),
            "[controller]" => self.controller.as_str(),
            other => other,
        };
        words.iter().map(filled).collect()
    }

    fn holds(&self, name: &str, said: &Said) {
        let Said { code, stdout, stderr, .. } = said;
        let text = format!("exit {}\n--- out\n{stdout}--- err\n{stderr}", code.unwrap());
        self.settings.bind(|| insta::assert_snapshot!(name, text));
    }
}

/// A text as a pattern that is nothing but it.
fn escaped(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_string() } else { format!("\\{c}") }).collect()
}
