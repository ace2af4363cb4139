//! What is secret stays with root and with whom it is for; and nobody elsewhere can reach what listens.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use mesh_engine::State;
use mesh_tests::account;
use mesh_tests::mesh::Mesh;
use mesh_tests::process::Process;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_files_of_root_or_of_the_account_that_reads_them_and_ports_are_the_loopbacks() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise_until_store().await;
    nothing_secret_is_told(&mesh).await;
    let _ = mesh.raise().await;
    nothing_secret_is_told(&mesh).await;

    let root = mesh.layout().root();
    for folder in ["identity", "credentials", "secrets", "host"] {
        for file in files_below(root.join(folder).as_std_path()) {
            let facts = fs::symlink_metadata(&file).unwrap();
            assert_eq!(facts.uid(), 0, "{}", file.display());
            assert_eq!(facts.mode() & 0o077, 0, "{} can be used by others", file.display());
        }
    }
    let accounts = ["mesh-bus", "mesh-store", "mesh-controller"].map(|name| {
        account::named(&mesh.prefixed(name)).unwrap_or_else(|| panic!("there is no account {name}")).uid
    });
    for file in files_below(mesh.layout().modules().as_std_path()) {
        let facts = fs::symlink_metadata(&file).unwrap();
        assert!(accounts.contains(&facts.uid()), "{} belongs to {}", file.display(), facts.uid());
        assert_eq!(facts.mode() & 0o7777, 0o400, "{}", file.display());
    }
    listens_on_the_loopback_only(&mesh);
}

/// No key stands in an environment, on a command line, or in what the engine tells of a container.
async fn nothing_secret_is_told(mesh: &Mesh) {
    let seeds = seeds(mesh);
    assert!(seeds.len() >= 9, "four keys and five credentials: {}", seeds.len());
    let mut told = Vec::new();
    let root = mesh.layout().root().as_std_path();
    let mut processes = Process::all_from(root);
    for container in mesh.containers().await {
        let output = Command::new("docker").args(["inspect", container.id.as_str()]).output().unwrap();
        told.push((format!("container {}", container.name), output.stdout));
        let State::Running { pid, .. } = container.state else { panic!("{container:?}") };
        processes.extend(Process::of(pid));
    }
    for process in processes {
        for file in ["environ", "cmdline"] {
            let bytes = fs::read(format!("/proc/{}/{file}", process.pid)).unwrap_or_default();
            told.push((format!("{file} of {}", process.program.display()), bytes));
        }
    }
    for (who, bytes) in told {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!seeds.iter().any(|seed| text.contains(seed.as_str())), "{who} tells a key");
    }
}

/// Every private key of the mesh: words of the form that NATS gives to seeds.
fn seeds(mesh: &Mesh) -> Vec<String> {
    let root = mesh.layout().root();
    let folders = ["identity", "credentials", "secrets"].map(|name| root.join(name));
    let files = folders.iter().flat_map(|folder| files_below(folder.as_std_path()));
    let is_seed = |word: &&str| word.len() == 58 && word.starts_with('S');
    let seeds = files.flat_map(|file| {
        let text = fs::read_to_string(file).unwrap();
        let words: Vec<String> =
            text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_seed).map(str::to_owned).collect();
        words
    });
    seeds.collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// By the kernel's own table: proc(5), `0A` is a socket that listens.
fn listens_on_the_loopback_only(mesh: &Mesh) {
    let inputs = mesh.file().inputs;
    let ports = [inputs.bus_port, inputs.store_port].map(|port| format!("{port:04X}"));
    for port in ports {
        let mut found = Vec::new();
        for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
            let text = fs::read_to_string(table).unwrap_or_default();
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split_ascii_whitespace().collect();
                if let Some((address, of)) = fields[1].split_once(':')
                    && of == port
                    && fields[3] == "0A"
                {
                    found.push(address.to_owned());
                }
            }
        }
        // 127.0.0.1, as a little-endian machine writes it there.
        assert_eq!(found, ["0100007F"], "port {port}");
    }
}
