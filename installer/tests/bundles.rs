//! Bundles by the command alone, without a mesh: packed, published to a registry of somebody else's and fetched again,
//! listed; and how all that is told to programs.
//!
//! In: command lines, in an empty environment and a folder of their own; a real registry. Out: files, lines of JSON. Not
//! here: the mesh's own store; the end-to-end tests have one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may stop at the first thing that is not as it says

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Output, Stdio};

use assert_cmd::Command;
use serde_json::Value;

/// A registry on the loopback, in a folder of its own, that may want a login.
struct Registry {
    child: Child,
    folder: tempfile::TempDir,
    address: String,
}

/// bcrypt, cost 5, of `open sesame`.
const HTPASSWD: &str = "publisher:$2b$05$mesh.bundles.tests.saeovznmbdBnNkfGzOn4wvh9ubNEUnWAUG\n";
/// base64 of `publisher:open sesame`.
const LOGIN: &str = "cHVibGlzaGVyOm9wZW4gc2VzYW1l";

impl Registry {
    fn start(auth: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("htpasswd"), HTPASSWD).unwrap();
        let mut text = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: 127.0.0.1:0}}\n",
            at("storage")
        );
        if auth {
            text.push_str(&format!("auth: {{htpasswd: {{realm: mesh, path: {}}}}}\n", at("htpasswd")));
        }
        std::fs::write(at("config.yml"), text).unwrap();
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/parts");
        let parts = std::env::var_os("MESH_PARTS").map_or_else(default, PathBuf::from);
        let mut child = Process::new(parts.join("docker-registry/usr/bin/docker-registry"))
            .args(["serve", &at("config.yml")])
            .env_clear()
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .find_map(|line| Some(line.unwrap().split_once("listening on ")?.1.split('"').next()?.to_owned()))
            .expect("the registry says where it listens");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, folder, address }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A module whose program is the smallest that the packer takes for one, and a file that compresses to megabytes.
fn module() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let instructions = [0xbf, 0, 0, 0, 0, 0xb8, 60, 0, 0, 0, 0x0f, 0x05];
    let (base, begin) = (0x40_0000_u64, 64 + 56_u64);
    let length = begin + instructions.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\x00".to_vec();
    elf.extend([0; 8]);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend((base + begin).to_le_bytes());
    elf.extend(64_u64.to_le_bytes());
    elf.extend([0; 12]);
    elf.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for word in [0, base, base, length, length, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(instructions);
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(3 << 20)
    .collect();
    let manifest = r#"
[module]
name = "tool"
version = "1.2"

[[account]]
name = "tool"

[[bundle]]
name = "tool"
system = "linux/amd64"
binary = "tool"
files = { "data" = "data" }

[[process]]
name = "tool"
bundle = "tool"
account = "tool"
run = ["./tool"]
"#;
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("tool", &elf);
    write("data", &noise);
    write("module.toml", manifest.as_bytes());
    folder
}

struct Here(tempfile::TempDir);

impl Here {
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::cargo_bin("mesh").unwrap();
        command
            .env_clear()
            .env("HOME", self.0.path())
            .env("PATH", "/usr/bin:/bin")
            .current_dir(self.0.path());
        command.args(words).output().unwrap()
    }

    /// What a program reads: every line a document.
    fn json(&self, words: &[&str]) -> Vec<Value> {
        let output = self.run(&[words, &["--json"]].concat());
        let (out, errors) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{words:?}: {out}{errors}");
        out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn fails(&self, words: &[&str], texts: &[&str]) {
        let output = self.run(words);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {errors}");
        assert!(texts.iter().all(|text| errors.contains(text)), "{texts:?}: {errors}");
    }
}

/// All lines but the last tell of bytes, and of the end of each transfer once.
fn few_lines(lines: &[Value], transfers: &[&str]) {
    let (document, events) = lines.split_last().unwrap();
    assert!(document.get("event").is_none(), "{document}");
    assert!(events.iter().all(|line| line["event"] == "bytes"), "{events:?}");
    let ends: Vec<&str> = events
        .iter()
        .filter(|line| line["done"] == line["total"])
        .map(|line| line["what"].as_str().unwrap())
        .collect();
    assert_eq!(ends, transfers, "{events:?}");
    // One a second at most, and these take a moment.
    assert!(events.len() <= transfers.len() + 20, "{} lines", events.len());
}

#[test]
fn a_bundle_goes_to_a_registry_that_wants_a_login_and_back() {
    let (registry, module, here) = (Registry::start(true), module(), Here(tempfile::tempdir().unwrap()));
    let lines = here.json(&["bundle", "pack", module.path().to_str().unwrap(), "-o", "tool.tar.gz"]);
    few_lines(&lines, &["packed"]);
    let digest = lines.last().unwrap()["digest"].as_str().unwrap().to_owned();
    assert_eq!(lines.last().unwrap()["config"]["version"], "1.2");

    let store = format!("http://{}/some/owner", registry.address);
    let publish =
        ["bundle", "publish", "tool.tar.gz", "--name", "tool", "--version", "1.2", "--store", &store];
    here.fails(&publish, &["error[store-unauthorized]", "none are known", "docker login", "--credentials"]);
    let config = format!(r#"{{"auths":{{"{}/some":{{"auth":"{LOGIN}"}}}}}}"#, registry.address);
    let file = registry.folder.path().join("logins.json");
    std::fs::write(&file, &config).unwrap();
    let with_file = [&publish[..], &["--credentials", file.to_str().unwrap()]].concat();
    let lines = here.json(&with_file);
    few_lines(&lines, &["sent"]);
    let published = lines.last().unwrap();
    assert_eq!(
        (published["digest"].as_str(), &published["sent"]),
        (Some(digest.as_str()), &Value::Bool(true))
    );
    assert!(
        published["tagged"].as_str().unwrap().ends_with("/some/owner/tool:1.2-linux-amd64"),
        "{published}"
    );

    // From now on the login is where docker keeps it. What is there already is not sent again.
    std::fs::create_dir(here.0.path().join(".docker")).unwrap();
    std::fs::write(here.0.path().join(".docker/config.json"), &config).unwrap();
    let lines = here.json(&publish);
    assert_eq!((lines.len(), &lines[0]["changed"]), (1, &Value::Bool(false)), "{lines:?}");
    let created = [&publish[..], &["--created", "2026-01-02T03:04:05Z", "--source", "."]].concat();
    assert_eq!(here.json(&created).last().unwrap()["sent"], false);
    let lines = here.json(&["bundle", "inspect", "tool:1.2", "--store", &store]);
    assert_eq!(lines[0]["created"], "2026-01-02T03:04:05Z");

    let lines = here.json(&["bundle", "list", "tool", "--store", &store]);
    let listed = &lines[0]["bundles"][0];
    assert_eq!(
        (&listed["repository"], &listed["bundle"]),
        (&"some/owner/tool".into(), &digest.as_str().into())
    );
    assert!(listed["uses"].is_null(), "of a store that is not the mesh's nobody can tell: {listed}");

    let lines = here.json(&["bundle", "pull", "tool", &digest, "-o", "back.tar.gz", "--store", &store]);
    few_lines(&lines, &["fetched"]);
    let read = |name: &str| std::fs::read(here.0.path().join(name)).unwrap();
    assert!(read("back.tar.gz") == read("tool.tar.gz"));
    here.fails(
        &[
            "bundle",
            "pull",
            "tool",
            &format!("sha256:{}", "0".repeat(64)),
            "-o",
            "no.tar.gz",
            "--store",
            &store,
        ],
        &["error[store]", "is not in the store"],
    );
    assert!(!here.0.path().join("no.tar.gz").exists());
}

#[test]
fn which_store_is_meant_and_how_it_is_spoken_to_is_said_or_refused() {
    let here = Here(tempfile::tempdir().unwrap());
    here.fails(
        &["bundle", "list", "--store", "http://192.0.2.1:5000"],
        &["error[store-address]", "--plain-http"],
    );
    here.fails(&["bundle", "list", "--store", "ftp://x"], &["error[store-address]"]);
    here.fails(
        &["bundle", "list", "--store", "https://127.0.0.1:1", "--ca", "no.pem"],
        &["error[store-certificates]", "no.pem"],
    );
    here.fails(&["bundle", "list", "--store", "127.0.0.1:1"], &["error[store-unreachable]"]);
    here.fails(&["bundle", "inspect", "nothing-here"], &["error[not-found]", "NAME:VERSION"]);
    for words in [&["bundle", "list"][..], &["bundle", "prune", "--yes"]] {
        here.fails(&[words, &["--root", "none"]].concat(), &["error[no-mesh]"]);
    }
}

#[test]
fn images_that_cannot_be_made_say_what_is_missing() {
    let here = Here(tempfile::tempdir().unwrap());
    let module = module();
    let dir = module.path().to_str().unwrap();
    let export = ["image", "export", "all.tar", "--controller", dir];
    // A machine that has these programs installed has no such failure.
    if !["/usr/sbin/nats-server", "/usr/bin/docker-registry"].iter().any(|path| Path::new(path).exists()) {
        here.fails(&export, &["program-missing", "nats-server is not on this machine", "docker-registry"]);
        assert!(!here.0.path().join("all.tar").exists());
    }
    std::fs::write(here.0.path().join("text"), "no program").unwrap();
    here.fails(&["image", "build", "--from-binary", "text", "--name", "text"], &["image-missing", "text"]);
    here.fails(&["image", "load", "none.tar"], &["not-found", "none.tar", "mesh image export"]);
    let output = here.run(&["image", "build"]);
    assert_eq!(output.status.code(), Some(2), "which program or module has to be said");
}
