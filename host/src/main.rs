//! The host's binary. It is three programs: the host, and, run by the host itself, the launcher and the shim
//! of a process, which come before anything else so that they stay small.

use std::process::ExitCode;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_host::processes::shim::{self, ShimError};
use mesh_host::serve::serve;
use mesh_protocol::chain::chain;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (first, second) = (words.next(), words.next().map(Utf8PathBuf::from));
    match (first.as_deref(), second) {
        (Some(shim::LAUNCH), Some(folder)) => finish(shim::launch(&folder)),
        (Some(shim::SHIM), Some(folder)) => finish(shim::run(&folder)),
        (Some("serve"), Some(word)) if word == "--root" => match words.next() {
            Some(root) => host(Utf8Path::new(&root)),
            None => usage(),
        },
        (Some("--version"), None) => {
            say(concat!("mesh-host ", env!("CARGO_PKG_VERSION")));
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn finish(result: Result<(), ShimError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&chain(&error));
            ExitCode::FAILURE
        }
    }
}

fn host(root: &Utf8Path) -> ExitCode {
    serve(root).unwrap_or_else(|error| {
        say(&chain(&error));
        ExitCode::FAILURE
    })
}

fn usage() -> ExitCode {
    say("usage: mesh-host serve --root FOLDER");
    ExitCode::from(2)
}

#[allow(clippy::print_stderr)] // the one place where this program speaks before it has a log
fn say(text: &str) {
    eprintln!("mesh-host: {text}");
}
