//! `mesh man`: a manual page of every command, made of what `--help` says.
//!
//! In: the command line's own description. Out: roff on standard output, or a file a page. Not here: the words.

use camino::Utf8Path;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::{self, Cli};
use crate::config;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::world::World;
use mesh_durable as durable;

/// A page: `mesh-genesis.1`, and its text.
struct Page {
    name: String,
    text: String,
}

pub(super) fn run(world: &World, options: &cli::Man, printer: &Printer) -> Result<()> {
    let pages = pages()?;
    let Some(folder) = &options.folder else {
        pages.iter().for_each(|page| printer.data(page.text.trim_end()));
        return Ok(());
    };
    let folder = config::absolute(world, folder);
    write(&folder, &pages)?;
    printer.event(&Event::Finished { text: format!("{} pages in {folder}", pages.len()) });
    Ok(())
}

fn write(folder: &Utf8Path, pages: &[Page]) -> Result<()> {
    let failed = |error: durable::DurableError| Failure::of(Code::Io, &error);
    if !folder.is_dir() {
        durable::ensure_folder(folder, 0o755).map_err(failed)?;
    }
    for page in pages {
        durable::write_unless_same(&folder.join(&page.name), page.text.as_bytes(), 0o644).map_err(failed)?;
    }
    Ok(())
}

fn pages() -> Result<Vec<Page>> {
    let mut command = Cli::command();
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)
        .map_err(|error| Failure::because(Code::Internal, "a manual page cannot be made", &error))?;
    Ok(pages)
}

fn collect(command: &Command, pages: &mut Vec<Page>) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text)?;
    pages.push(Page { name: format!("{name}.1"), text: String::from_utf8_lossy(&text).into_owned() });
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        collect(inner, pages)?;
    }
    Ok(())
}
