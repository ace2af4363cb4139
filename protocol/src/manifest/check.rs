//! Whether the parts of a manifest fit together: each decision pure, each with a code of its own.
//!
//! In: all forms, none missing. Out: faults, at the place where the mistake would be mended. Not here: what a
//! text is by itself, and what other modules declare.

use std::collections::{BTreeMap, BTreeSet};

use super::fault::{Code, Faults, meant};
use super::form::{Forms, Text};
use super::paths::{MODULE_DIR, ModulePath, module_paths};

/// Looks at everything.
pub(super) fn check(forms: &Forms, faults: &mut Faults<'_>) {
    no_duplicates(forms, faults);
    bundles_are_used(forms, faults);
    bundles_are_declared(forms, faults);
    programs_are_in_their_bundles(forms, faults);
    accounts_are_declared(forms, faults);
    the_seat_has_one_holder(forms, faults);
    nothing_replaces_its_own(forms, faults);
    paths_are_declared(forms, faults);
    paths_are_mounted(forms, faults);
}

fn no_duplicates(forms: &Forms, faults: &mut Faults<'_>) {
    let accounts = forms.account.iter().map(|form| ("account", &form.name));
    let files = forms.file.iter().map(|form| ("file", &form.path));
    let processes = forms.process.iter().map(|form| ("process", &form.name));
    let containers = forms.container.iter().map(|form| ("container", &form.name));
    let mut seen = BTreeSet::new();
    for (kind, name) in accounts.chain(files).chain(processes).chain(containers) {
        if !seen.insert((kind, name.get_ref())) {
            let found = format!("a second {kind}:{}", name.get_ref());
            faults.add(name.span(), Code::DuplicateResource, found, format!("one [[{kind}]] of each name"));
        }
    }
    let mut seen = BTreeSet::new();
    for form in &forms.bundle {
        if !seen.insert((form.name.get_ref(), form.system.get_ref())) {
            let found = format!("a second bundle {} for {}", form.name.get_ref(), form.system.get_ref());
            faults.add(
                form.name.span(),
                Code::DuplicateBundle,
                found,
                "one [[bundle]] of a name for each system",
            );
        }
    }
    for form in &forms.container {
        let mut seen = BTreeSet::new();
        for mount in &form.mount {
            let target = mount.target.as_ref().unwrap_or(&mount.source);
            if !seen.insert(target.get_ref()) {
                let found = format!("a second mount at {}", target.get_ref());
                faults.add(target.span(), Code::InvalidMount, found, "one mount at each target");
            }
        }
    }
}

fn bundles_are_used(forms: &Forms, faults: &mut Faults<'_>) {
    let used: BTreeSet<&String> = forms.process.iter().map(|form| form.bundle.get_ref()).collect();
    let mut told = BTreeSet::new();
    for form in &forms.bundle {
        let name = form.name.get_ref();
        if !used.contains(name) && told.insert(name) {
            let found = format!("the bundle {name}, which no process uses");
            faults.add(
                form.name.span(),
                Code::UnusedBundle,
                found,
                format!("a [[process]] with bundle = {name:?}"),
            );
        }
    }
}

fn bundles_are_declared(forms: &Forms, faults: &mut Faults<'_>) {
    let declared: BTreeSet<&str> = forms.bundle.iter().map(|form| form.name.get_ref().as_str()).collect();
    for form in &forms.process {
        let name = form.bundle.get_ref();
        if !declared.contains(name.as_str()) {
            let found = format!("the bundle {name}, which nobody declares");
            faults.add(form.bundle.span(), Code::UndeclaredBundle, found, one_of("bundle", name, &declared));
        }
    }
}

fn programs_are_in_their_bundles(forms: &Forms, faults: &mut Faults<'_>) {
    for process in &forms.process {
        let Some(text) = process.run.get_ref().first() else { continue };
        let Some(program) = text.get_ref().strip_prefix("./") else { continue };
        for bundle in forms.bundle.iter().filter(|bundle| bundle.name == process.bundle) {
            let binary = bundle.binary.get_ref().rsplit('/').next().unwrap_or_default();
            if program != binary && !bundle.files.contains_key(program) {
                let found = format!(
                    "./{program}, which is not in the bundle {} for {}",
                    bundle.name.get_ref(),
                    bundle.system.get_ref()
                );
                let expected = format!("./{binary}, which the bundle's binary is, or one of its `files`");
                faults.add(text.span(), Code::InvalidRun, found, expected);
            }
        }
    }
    for bundle in &forms.bundle {
        let binary = bundle.binary.get_ref().rsplit('/').next().unwrap_or_default();
        if let Some((path, _)) = bundle.files.get_key_value(binary) {
            let found = format!("a file {binary} in the bundle, where its binary lies");
            faults.add(path.span(), Code::InvalidPath, found, "another path for the file");
        }
    }
}

fn accounts_are_declared(forms: &Forms, faults: &mut Faults<'_>) {
    let declared: BTreeSet<&str> = forms.account.iter().map(|form| form.name.get_ref().as_str()).collect();
    let files = forms.file.iter().map(|form| &form.account);
    let processes = forms.process.iter().map(|form| &form.account);
    let containers = forms.container.iter().map(|form| &form.account);
    for account in files.chain(processes).chain(containers) {
        let name = account.get_ref();
        if !declared.contains(name.as_str()) {
            let found = format!("the account {name}, which nobody declares");
            faults.add(account.span(), Code::UndeclaredAccount, found, one_of("account", name, &declared));
        }
    }
}

fn the_seat_has_one_holder(forms: &Forms, faults: &mut Faults<'_>) {
    let Some(seat) = forms.module.as_ref().and_then(|module| module.seat.as_ref()) else { return };
    let (processes, containers) = (forms.process.len(), forms.container.len());
    if processes + containers != 1 {
        let found = format!("a seat in a module with {} that could hold it", processes + containers);
        faults.add(
            seat.span(),
            Code::SeatHolder,
            found,
            "exactly one process or container, which holds the seat",
        );
    }
}

fn nothing_replaces_its_own(forms: &Forms, faults: &mut Faults<'_>) {
    let processes =
        forms.process.iter().map(|form| (format!("process:{}", form.name.get_ref()), &form.replaces));
    let containers =
        forms.container.iter().map(|form| (format!("container:{}", form.name.get_ref()), &form.replaces));
    let all: Vec<(String, &Option<Text>)> = processes.chain(containers).collect();
    for (id, replaces) in &all {
        let Some(target) = replaces else { continue };
        let name = target.get_ref();
        if name == id {
            let found = format!("{id}, which replaces itself");
            let expected = "what it takes the place of, or no `replaces`: a new version takes the old one's place by itself";
            faults.add(target.span(), Code::InvalidReplaces, found, expected);
        } else if all.iter().any(|(other, _)| other == name) {
            let found = format!("`replaces` of {name}, which this module declares");
            faults.add(
                target.span(),
                Code::InvalidReplaces,
                found,
                "something that the module does not declare itself",
            );
        }
    }
}

fn paths_are_declared(forms: &Forms, faults: &mut Faults<'_>) {
    let prefix = format!("{MODULE_DIR}/");
    let declared: BTreeSet<&str> =
        forms.file.iter().filter_map(|form| form.path.get_ref().strip_prefix(&prefix)).collect();
    let mut names: Vec<(String, &Text)> = Vec::new();
    for form in &forms.process {
        let reader = format!("process:{}", form.name.get_ref());
        names.extend(form.run.get_ref().iter().map(|word| (reader.clone(), word)));
    }
    for form in &forms.container {
        let reader = format!("container:{}", form.name.get_ref());
        let sources = form.mount.iter().map(|mount| &mount.source);
        names.extend(form.words().iter().chain(sources).map(|word| (reader.clone(), word)));
    }
    for (reader, text) in names {
        for path in module_paths(text.get_ref()) {
            match path {
                ModulePath::Folder if declared.is_empty() => {
                    let found = format!("{MODULE_DIR}, which {reader} reads, in a module without files");
                    faults.add(text.span(), Code::UndeclaredFile, found, "a [[file]] in it");
                }
                ModulePath::File(name) if !declared.contains(name.as_str()) => {
                    let found = format!("{prefix}{name}, a path that {reader} reads and no file declares");
                    let expected = match meant(&name, declared.iter().copied()) {
                        Some(near) => format!("{prefix}{near}, perhaps"),
                        None => format!("a [[file]] with path = \"{prefix}{name}\""),
                    };
                    faults.add(text.span(), Code::UndeclaredFile, found, expected);
                }
                ModulePath::Folder | ModulePath::File(_) => {}
            }
        }
    }
}

/// What a container's words name of the node must be there in the container, at the same place.
fn paths_are_mounted(forms: &Forms, faults: &mut Faults<'_>) {
    for form in &forms.container {
        let targets: Vec<&str> = form
            .mount
            .iter()
            .map(|mount| mount.target.as_ref().unwrap_or(&mount.source).get_ref().as_str())
            .collect();
        for word in form.words() {
            for path in node_paths(word.get_ref()) {
                let inside = |target: &str| {
                    path.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                if !targets.iter().any(|target| inside(target)) {
                    let found =
                        format!("{path}, which container:{} is told of and not given", form.name.get_ref());
                    faults.add(
                        word.span(),
                        Code::UnmountedPath,
                        found,
                        format!("a mount with the target {path}"),
                    );
                }
            }
        }
    }
}

/// The paths on a node that a word names, each from its variable on.
fn node_paths(word: &str) -> Vec<String> {
    let mut paths: BTreeMap<usize, String> = BTreeMap::new();
    for variable in [MODULE_DIR, "${data.dir}", "${run.dir}"] {
        for (start, _) in word.match_indices(variable) {
            let tail = &word[start + variable.len()..];
            let ends = |c: char| c.is_whitespace() || matches!(c, ',' | ':' | ';' | '"' | '\'' | '$');
            let tail = &tail[..tail.find(ends).unwrap_or(tail.len())];
            paths.insert(start, format!("{variable}{}", tail.trim_end_matches('/')));
        }
    }
    paths.into_values().collect()
}

fn one_of(kind: &str, name: &str, declared: &BTreeSet<&str>) -> String {
    match meant(name, declared.iter().copied()) {
        Some(near) => format!("{near}, perhaps"),
        None => format!("a [[{kind}]] with name = {name:?}"),
    }
}
