//! `mesh bundle list` and `prune`: what is in the store, who uses it, and what nobody does.
//!
//! In: a store, the mesh. Out: a list; a plan, and then nothing of what it names. Not here: who uses what
//! ([`crate::usage`]). Whoever prunes does so when nobody pushes: what was published for a push whose plan is not stored
//! yet is used by nobody.

use std::collections::{BTreeMap, BTreeSet};

use mesh_bundles::store::{PrunePlan, Store, StoreError, Stored};
use mesh_protocol::id::Digest;
use mesh_protocol::layout::Layout;
use serde::Serialize;

use crate::cli;
use crate::lock::InstallerLock;
use crate::mesh_file::MeshFile;
use crate::output::amount::bytes;
use crate::output::table::columns;
use crate::output::{self, Code, Event, Failure, Printer, Result};
use crate::registry;
use crate::session::Session;
use crate::usage::{self, Use};
use crate::world::{Stream, World};

/// One bundle in the store, and who uses it.
#[derive(Debug, Serialize)]
struct Row<'a> {
    #[serde(flatten)]
    stored: &'a Stored,
    /// None where nobody can tell, of another store than the mesh's.
    uses: Option<Vec<&'a Use>>,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    bundles: Vec<Row<'a>>,
}

pub(super) async fn list(
    world: &World,
    layout: &Layout,
    options: cli::List,
    printer: &Printer,
) -> Result<()> {
    let uses = match &options.store.store {
        Some(_) => None,
        None => Some(uses(layout, &MeshFile::must_read(layout)?).await?),
    };
    let store = registry::open(world, layout, &options.store.wanted(None))?;
    let stored = match &options.name {
        Some(name) => store.list_in(&store.repository(name)).await,
        None => store.list().await,
    };
    let stored = stored.map_err(|error| cannot_list(&error))?;
    let of = |one: &Stored| -> Option<Vec<&Use>> {
        Some(uses.as_ref()?.get(&one.bundle).into_iter().flatten().collect())
    };
    let bundles = stored.iter().map(|stored| Row { stored, uses: of(stored) }).collect();
    let document = Listed { bundles };
    printer.document(&document, || rows(&document.bundles));
    Ok(())
}

fn rows(bundles: &[Row<'_>]) -> Vec<String> {
    let heads = ["BUNDLE", "VERSION", "SYSTEM", "DIGEST", "SIZE", "USED BY"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    rows.extend(bundles.iter().map(|Row { stored, uses }| {
        let uses = match uses {
            None => "-".to_owned(),
            Some(uses) if uses.is_empty() => "nobody".to_owned(),
            Some(uses) => uses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        };
        vec![
            stored.repository.to_string(),
            stored.version.clone(),
            stored.system.to_string(),
            stored.bundle.short().to_owned(),
            bytes(stored.size),
            uses,
        ]
    }));
    columns(&rows)
}

async fn uses(layout: &Layout, mesh: &MeshFile) -> Result<BTreeMap<Digest, BTreeSet<Use>>> {
    let session = Session::open(layout, mesh).await?;
    Ok(usage::uses(&usage::ask(layout, mesh, &session).await?))
}

fn cannot_list(error: &StoreError) -> Failure {
    let failure = registry::failure(error);
    match error {
        StoreError::Refused { .. } | StoreError::Unauthorized { .. } => failure.hint(
            "there are registries that do not tell their names: say which bundle, mesh bundle list NAME",
        ),
        _ => failure,
    }
}

#[derive(Debug, Serialize)]
struct Pruned<'a> {
    remove: &'a [Stored],
    keep: usize,
    bytes: u64,
    dry_run: bool,
}

pub(super) async fn prune(
    world: &World,
    layout: &Layout,
    options: &cli::Prune,
    printer: &Printer,
) -> Result<()> {
    let mesh = MeshFile::must_read(layout)?;
    // One who keeps house at a time, and none beside a genesis.
    let lock = InstallerLock::take(&layout.installer_lock(), "bundle prune", (world.clock)())?;
    let store = registry::of_mesh(&mesh, None)?;
    // What is in the store is read first: what is published later is not looked at, and stays.
    let stored = store.list().await.map_err(|error| registry::failure(&error))?;
    let used: BTreeSet<Digest> = uses(layout, &mesh).await?.into_keys().collect();
    let plan = PrunePlan::new(stored, &used);
    let document =
        Pruned { remove: &plan.remove, keep: plan.keep.len(), bytes: plan.freed(), dry_run: options.dry_run };
    printer.document(&document, || plan_lines(&plan));
    if options.dry_run || plan.remove.is_empty() {
        return Ok(());
    }
    confirm(world, options)?;
    remove(&store, &plan, printer).await?;
    drop(lock);
    Ok(())
}

async fn remove(store: &Store, plan: &PrunePlan, printer: &Printer) -> Result<()> {
    let removed = store.prune(plan).await.map_err(|error| {
        let failure = registry::failure(&error).part_way();
        match error {
            StoreError::Refused { status: 405, .. } => {
                failure.hint("the store does not delete: its configuration has to say storage.delete.enabled")
            }
            _ => failure,
        }
    })?;
    let text = format!(
        "removed {} of {}; their {} are the store's to free: its own garbage collection does that",
        removed.len(),
        bundles(plan.remove.len() + plan.keep.len()),
        bytes(plan.freed())
    );
    printer.event(&Event::Finished { text });
    Ok(())
}

fn plan_lines(plan: &PrunePlan) -> Vec<String> {
    if plan.remove.is_empty() {
        return vec![format!("nothing to remove: somebody uses {}", bundles(plan.keep.len()))];
    }
    let mut lines: Vec<String> = plan
        .remove
        .iter()
        .map(|one| {
            let (digest, size) = (one.bundle.short(), bytes(one.size));
            format!("remove {} {} for {} ({digest}, {size})", one.repository, one.version, one.system)
        })
        .collect();
    let count = bundles(plan.remove.len());
    lines.push(format!("{count} that nobody uses, {}; {} stay", bytes(plan.freed()), plan.keep.len()));
    lines
}

/// `one bundle`, `3 bundles`
fn bundles(count: usize) -> String {
    if count == 1 { "one bundle".to_owned() } else { format!("{count} bundles") }
}

fn confirm(world: &World, options: &cli::Prune) -> Result<()> {
    if options.yes {
        return Ok(());
    }
    if world.input == Stream::Terminal && world.errors == Stream::Terminal {
        let typed = output::ask("remove these? [y/N] ")
            .map_err(|error| Failure::because(Code::Io, "the answer cannot be read", &error))?;
        if matches!(typed.as_str(), "y" | "Y" | "yes") {
            return Ok(());
        }
    }
    Err(Failure::new(Code::NotConfirmed, "nothing was removed, for nobody confirmed it")
        .hint("run it with --yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_protocol::id::System;

    fn stored(name: &str, content: &[u8]) -> Stored {
        Stored {
            repository: name.parse().unwrap(),
            version: "1.0".to_owned(),
            system: System::LinuxAmd64,
            bundle: Digest::of(content),
            size: 1_500_000,
            manifest: Digest::of(name.as_bytes()),
        }
    }

    #[test]
    fn who_uses_what_is_a_column_and_nobody_is_said() {
        let (one, two) = (stored("one", b"1"), stored("two", b"2"));
        let by = Use::Revision { module: "m".parse().unwrap(), revision: 3 };
        let shown = rows(&[
            Row { stored: &one, uses: Some(vec![&by]) },
            Row { stored: &two, uses: Some(vec![]) },
            Row { stored: &two, uses: None },
        ]);
        insta::assert_snapshot!(shown.join("\n"));
    }

    #[test]
    fn a_plan_says_what_goes_and_how_many_bytes() {
        let used = BTreeSet::from([Digest::of(b"1")]);
        let plan = PrunePlan::new(vec![stored("one", b"1"), stored("two", b"2")], &used);
        insta::assert_snapshot!(plan_lines(&plan).join("\n"));
        let plan = PrunePlan::new(vec![stored("one", b"1")], &used);
        assert_eq!(plan_lines(&plan), ["nothing to remove: somebody uses one bundle"]);
    }

    #[test]
    fn nothing_is_removed_that_nobody_confirmed() {
        let mut world = World::of_this_process().unwrap();
        world.input = Stream::Other;
        confirm(&world, &cli::Prune { dry_run: false, yes: true }).unwrap();
        let failure = confirm(&world, &cli::Prune { dry_run: false, yes: false }).unwrap_err();
        assert_eq!(failure.code, Code::NotConfirmed);
    }
}
