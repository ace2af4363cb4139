//! Puts the figures of a run into a page of the documentation: one table, between two marks.
//!
//! In: the page, and the file of figures that the tests wrote (`mesh_tests::rounds`). Out: the page, with the table of
//! this run in the place of the last one. Not here: making figures; scripts/figures does that.

use std::process::ExitCode;

use serde::Deserialize;

const BEGIN: &str = "<!-- figures: written by scripts/figures -->";
const END: &str = "<!-- end of figures -->";

#[derive(Deserialize)]
struct Figure {
    what: String,
    aim: String,
    found: String,
}

#[allow(clippy::print_stderr, reason = "a program for whoever works on the documentation")]
fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (Some(page), Some(figures), Some(when)) = (words.next(), words.next(), words.next()) else {
        eprintln!("usage: figures PAGE FIGURES.jsonl WHEN-AND-WHERE");
        return ExitCode::from(2);
    };
    match put(&page, &figures, &when) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("figures: {error}");
            ExitCode::FAILURE
        }
    }
}

fn put(page: &str, figures: &str, when: &str) -> Result<(), String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let (text, lines) = (read(page)?, read(figures)?);
    let figures: Vec<Figure> = lines
        .lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{line}: {error}")))
        .collect::<Result<_, _>>()?;
    let (Some(begin), Some(end)) = (text.find(BEGIN), text.find(END)) else {
        return Err(format!("{page} has no {BEGIN} with {END} behind it"));
    };
    let table = table(&figures, when);
    let new = format!("{}{BEGIN}\n\n{table}\n{}", &text[..begin], &text[end..]);
    std::fs::write(page, new).map_err(|error| format!("{page}: {error}"))
}

fn table(figures: &[Figure], when: &str) -> String {
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let rows = figures
        .iter()
        .map(|Figure { what, aim, found }| format!("| {} | {} | {} |\n", cell(what), cell(aim), cell(found)));
    format!("{when}\n\n| what | aim | found |\n|---|---|---|\n{}", rows.collect::<String>())
}
