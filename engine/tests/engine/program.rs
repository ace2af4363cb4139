//! A program and an image for tests: one static binary that does as it is told, in an image with nothing else.

use std::path::PathBuf;
use std::process::Command;

use mesh_protocol::id::Digest;

/// Ends with status 0 on SIGTERM when told to `obey`; as the first process of a container it is deaf to it
/// otherwise, for the kernel spares that process the signals it does not handle.
const SOURCE: &str = r#"
unsafe extern "C" { fn signal(number: i32, handler: usize) -> usize; fn _exit(code: i32) -> !; }
extern "C" fn end(_: i32) { unsafe { _exit(0) } }
fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments[1].as_str() {
        "exit" => std::process::exit(arguments[2].parse().unwrap()),
        "say" => { for line in &arguments[2..] { println!("{line}"); } eprintln!("done"); }
        "obey" => unsafe { signal(15, end as *const () as usize); },
        "read" => print!("{}", std::fs::read_to_string(&arguments[2]).unwrap()),
        "write" => std::process::exit(match std::fs::write(&arguments[2], "x") { Ok(()) => 0, Err(_) => 9 }),
        _ => {}
    }
    if matches!(arguments[1].as_str(), "obey" | "deaf") {
        println!("ready");
        loop { std::thread::park(); }
    }
}
"#;

/// Where the program lies; compiled once, and again when its source changes.
fn program() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join(format!("program-{}", Digest::of(SOURCE.as_bytes()).short()));
    if path.exists() {
        return path;
    }
    // Several tests may compile it at once: each its own, and the last rename wins.
    let scratch = tempfile::tempdir_in(&folder).unwrap();
    let source = scratch.path().join("program.rs");
    std::fs::write(&source, SOURCE).unwrap();
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let status = Command::new("rustc")
        .args(["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "strip=symbols", "--target"])
        .arg(target)
        .arg("-o")
        .arg(scratch.path().join("program"))
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success(), "rustc: {status}");
    std::fs::rename(scratch.path().join("program"), &path).unwrap();
    path
}

fn tar_of(files: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, bytes, mode) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(*mode);
        header.set_mtime(1);
        archive.append_data(&mut header, path, *bytes).unwrap();
    }
    archive.into_inner().unwrap()
}

/// What `docker save` would write of an image that holds the program alone.
pub(crate) fn archive(reference: &str, labels: &[(&str, &str)]) -> Vec<u8> {
    let layer = tar_of(&[("program", &std::fs::read(program()).unwrap(), 0o755)]);
    let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
    let config = serde_json::json!({
        "architecture": mesh_protocol::id::System::of_this_program().architecture(),
        "os": "linux",
        "config": {
            "Labels": labels,
            "Cmd": ["/not-used"],
            "Volumes": { "/data": {} },
        },
        "rootfs": { "type": "layers", "diff_ids": [Digest::of(&layer).as_str()] },
    });
    let config = config.to_string().into_bytes();
    let name = format!("{}.json", Digest::of(&config).hex());
    let manifest = serde_json::json!([{ "Config": name, "RepoTags": [reference], "Layers": ["layer.tar"] }]);
    let manifest = manifest.to_string();
    tar_of(&[
        (&name, &config, 0o644),
        ("layer.tar", &layer, 0o644),
        ("manifest.json", manifest.as_bytes(), 0o644),
    ])
}
