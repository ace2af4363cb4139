//! The codes of failures are a contract: each is produced by some test, and no test speaks of one that is not there.
//!
//! In: the workspace's tests and snapshots, as texts. Out: the codes that nothing shows. What counts is a snapshot of what
//! the command printed, a text that an end-to-end test wants to be said, or an assertion on what the product returned: not a
//! failure that a test made itself. Not here: the failures.

#![allow(clippy::unwrap_used)] // a test may stop at the first thing that is not as it says

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use mesh_installer::output::Code;

/// A place where a test shows something.
struct Shown {
    path: PathBuf,
    text: String,
}

/// Snapshots, tests, and the parts of sources that are tests.
fn all() -> Vec<Shown> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut shown = Vec::new();
    for room in ["bundles", "controller", "engine", "host", "installer", "protocol", "tests"] {
        for part in ["src", "tests"] {
            collect(&workspace.join(room).join(part), &mut shown);
        }
    }
    shown
}

fn collect(folder: &Path, shown: &mut Vec<Shown>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, shown);
            continue;
        }
        let text = || std::fs::read_to_string(&path).unwrap();
        let is_test = path.with_extension("").components().any(|part| part.as_os_str() == "tests");
        match path.extension().and_then(std::ffi::OsStr::to_str) {
            Some("snap") => shown.push(Shown { text: text(), path }),
            Some("rs") if path.ends_with(file!().rsplit('/').next().unwrap()) => {}
            Some("rs") if is_test => shown.push(Shown { text: text(), path }),
            Some("rs") => {
                if let Some((_, tests)) = text().split_once("#[cfg(test)]\n") {
                    shown.push(Shown { text: tests.to_owned(), path });
                }
            }
            _ => {}
        }
    }
}

fn shows(shown: &Shown, code: Code) -> bool {
    let word = code.as_str();
    let mut printed = vec![format!("error[{word}]"), format!("\n- {word}: "), format!("\"code\":\"{word}\"")];
    // As the checks of a machine are told.
    printed.push(format!(" [{word}]\n"));
    if shown.path.extension().is_some_and(|ending| ending == "snap") {
        return printed.iter().any(|text| shown.text.contains(text));
    }
    // Of two words joined: nobody writes that for something else. What is said of parts has a colon behind it.
    if word.contains('-') {
        printed.push(format!("\"{word}\""));
    }
    printed.push(format!("\"{word}: "));
    let asserted = format!("Code::{}", code.name());
    if !shown.text.contains(word) && !shown.text.contains(&asserted) {
        return false;
    }
    let makes = ["Failure::new(", "Failure::of(", "Failure::because("];
    shown.text.lines().any(|line| {
        let names = line.match_indices(&asserted).any(|(at, _)| {
            let behind = line[at + asserted.len()..].chars().next();
            !behind.is_some_and(char::is_alphanumeric)
        });
        let is_made = makes.iter().any(|make| line.contains(make));
        !is_made && (names || printed.iter().any(|text| line.contains(text.trim_start_matches('\n'))))
    })
}

#[test]
fn every_code_is_produced_by_a_test() {
    let all = all();
    let missing: Vec<&str> = Code::ALL
        .iter()
        .filter(|code| !all.iter().any(|shown| shows(shown, **code)))
        .map(|code| code.as_str())
        .collect();
    assert!(
        missing.is_empty(),
        "no test shows these codes; write one that brings each about, or take it out: {missing:?}"
    );
}

#[test]
fn no_test_speaks_of_a_code_that_is_not_there() {
    let known: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
    for shown in all() {
        for (at, beginning) in shown.text.match_indices("error[") {
            let word = shown.text[at + beginning.len()..].split(']').next().unwrap();
            // The compiler's own, and what is filled in.
            if word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.is_empty() {
                assert!(known.contains(word), "{}: {word}", shown.path.display());
            }
        }
    }
}
