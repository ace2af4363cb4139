//! What whoever starts a host is told, through the pipe that it left as standard output.
#![allow(clippy::unwrap_used)] // helpers of tests may stop too

use std::fs;
use std::process::{Command, Stdio};

/// This test's own program, started again as a daemon: it alone may give away its standard output.
const ASKED: &str = "MESH_TEST_DAEMON_LOG";

#[test]
fn the_starter_reads_ready_and_the_log_gets_the_rest() {
    if let Ok(log) = std::env::var(ASKED) {
        mesh_host::daemon::ready(camino::Utf8Path::new(&log)).unwrap();
        println!("to the log");
        eprintln!("and this");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("logs/host.log");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_starter_reads_ready_and_the_log_gets_the_rest", "--nocapture"])
        .env(ASKED, &log)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.ends_with("ready\n"), "{told:?}");
    let logged = fs::read_to_string(log).unwrap();
    assert!(logged.contains("to the log\n") && logged.contains("and this\n"), "{logged:?}");
}
