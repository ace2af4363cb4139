//! How often what can be repeated is repeated: a few times in each test run, as often as the figures in the docs say in
//! a run that is made for them.
//!
//! In: MESH_FULL, which scripts/figures sets; MESH_FIGURES, a file. Out: a number of rounds; a line in that file for
//! each figure. Not here: what the figures are.

use std::fs::OpenOptions;
use std::io::Write as _;

/// `few` in an ordinary run, `full` in one that is made for the figures.
#[must_use]
pub fn rounds(few: usize, full: usize) -> usize {
    if std::env::var_os("MESH_FULL").is_some() { full } else { few }
}

/// Prints a figure, and keeps it where that is asked for: what was tried, what is aimed at, what was found.
///
/// # Panics
/// When it cannot be kept.
pub fn figure(what: &str, aim: &str, found: &str) {
    eprintln!("figure: {what}\n  aim:   {aim}\n  found: {found}");
    let Some(path) = std::env::var_os("MESH_FIGURES") else { return };
    let line = serde_json::json!({ "what": what, "aim": aim, "found": found });
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
