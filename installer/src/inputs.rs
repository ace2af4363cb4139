//! What a bundle is built from, as its author's disk shows it.
//!
//! In: a module's source folder, the command that builds. Out: [`BuildInputs`], noted when a bundle is packed: a binary
//! that lay there already is taken to be of the source that lies beside it. Whether two are the same source. Not here:
//! how they are found out (`mesh_bundles::inputs`), and building.

use camino::Utf8Path;
use mesh_bundles::inputs::{BuildInputs, SourceTree};

/// The tools of a kind of source, by the file that tells it.
const TOOLS: [(&str, &[&str]); 2] = [("Cargo.toml", &["cargo", "rustc"]), ("go.mod", &["go"])];

/// What can be found out of a source folder, and the command that builds there.
#[must_use]
pub fn of(source: &Utf8Path, command: &[String]) -> BuildInputs {
    // A path without folders is the one that we stand in.
    let source = if source.as_str().is_empty() { Utf8Path::new(".") } else { source };
    let known = TOOLS.iter().filter(|(file, _)| source.join(file).is_file()).flat_map(|(_, tools)| *tools);
    // A program of the machine tells its version; a script of the module may do anything when it is asked.
    let own = command.first().filter(|program| !program.contains('/')).map(String::as_str);
    let mut tools: Vec<&str> = known.copied().chain(own).collect();
    tools.sort_unstable();
    tools.dedup();
    BuildInputs::observe(source.as_std_path(), command, &tools)
}

/// Whether two were built from the same: one revision of one source, with nothing changed since, by the same command.
#[must_use]
pub fn are_same(one: &BuildInputs, other: &BuildInputs) -> bool {
    let clean = |inputs: &BuildInputs| inputs.tree == Some(SourceTree::Clean);
    one.revision.is_some()
        && one.revision == other.revision
        && one.command == other.command
        && clean(one)
        && clean(other)
}

/// What there is to say of it, line by line.
#[must_use]
pub fn lines(inputs: &BuildInputs) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(source) = &inputs.source {
        lines.push(format!("source    {source}"));
    }
    if let Some(revision) = &inputs.revision {
        let tree = match inputs.tree {
            Some(SourceTree::Clean) => "nothing changed since",
            Some(SourceTree::Dirty) => "and changes since",
            None => "it is not known whether anything was changed since",
        };
        lines.push(format!("revision  {revision}, {tree}"));
    }
    if !inputs.command.is_empty() {
        lines.push(format!("built by  {}", inputs.command.join(" ")));
    }
    lines.extend(inputs.tools.iter().map(|(tool, version)| format!("tool      {tool}: {version}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_source_is_one_clean_revision_and_one_command() {
        let clean = BuildInputs {
            revision: Some("r1".to_owned()),
            tree: Some(SourceTree::Clean),
            command: vec!["make".to_owned()],
            ..BuildInputs::default()
        };
        assert!(are_same(&clean, &clean));
        let dirty = BuildInputs { tree: Some(SourceTree::Dirty), ..clean.clone() };
        let later = BuildInputs { revision: Some("r2".to_owned()), ..clean.clone() };
        let otherwise = BuildInputs { command: vec![], ..clean.clone() };
        for other in [&dirty, &later, &otherwise, &BuildInputs::default()] {
            assert!(!are_same(&clean, other) && !are_same(other, &clean), "{other:?}");
        }
        assert!(!are_same(&dirty, &dirty), "what changed since is not known to be the same");
    }

    #[test]
    fn the_tools_are_those_of_the_source_and_the_command_s_own() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(of(folder, &words(&["scripts/build"])).tools.is_empty());
        std::fs::write(folder.join("Cargo.toml"), "").unwrap();
        let found = of(folder, &words(&["tar", "c"]));
        let tools: Vec<&str> = found.tools.keys().map(String::as_str).collect();
        assert_eq!(tools, ["cargo", "rustc", "tar"]);
        let lines = lines(&found);
        assert_eq!(lines[0], "built by  tar c");
        assert!(lines[2].starts_with("tool      rustc: rustc 1."), "{lines:?}");
    }
}
