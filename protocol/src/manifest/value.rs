//! From forms to values: whether each text, taken by itself, is right.
//!
//! In: what was typed. Out: a manifest of typed values, and a fault for every text that is not right. Not
//! here: whether the parts fit together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;

use camino::{Utf8Component, Utf8Path, Utf8PathBuf};
use toml::Spanned;

use super::fault::{Code, Faults, meant};
use super::form::{
    AccessForm, AccountForm, BundleForm, ContainerForm, FileForm, Forms, MountForm, ProcessForm, Text,
};
use super::paths::MODULE_DIR;
use super::{Bundle, File, FileBytes, Manifest};
use crate::declaration::{Access, AccountOrigin, AccountSpec, ContainerSpec, MountSpec, Owner, ProcessSpec};
use crate::id::{InvalidId, ResourceId, ResourceKind, is_file_name};
use crate::variable::{self, VariableError};

/// The longest run of words, and the longest of them: far more than a command line needs, far less than what a
/// kernel refuses.
const MAX_WORDS: usize = 256;
const MAX_WORD: usize = 4096;

/// All values, if every one of them is right.
pub(super) fn values(text: &str, forms: &Forms, faults: &mut Faults<'_>) -> Option<Manifest> {
    let module = forms.module.as_ref();
    let name = module.and_then(|module| id(&module.name, Code::InvalidName, faults));
    let version = module.and_then(|module| version(&module.version, faults));
    let seat =
        module.and_then(|module| optional(module.seat.as_ref(), |seat| id(seat, Code::InvalidName, faults)));
    let source =
        module.and_then(|module| optional(module.source.as_ref(), |source| source_folder(source, faults)));
    let accounts = every(&forms.account, |form| account(form, faults));
    let bundles = every(&forms.bundle, |form| bundle(form, faults));
    let files = every(&forms.file, |form| file(form, faults));
    let processes = every(&forms.process, |form| process(form, faults));
    let containers = every(&forms.container, |form| container(form, faults));
    Some(Manifest {
        text: text.to_owned(),
        name: name?,
        version: version?,
        seat: seat?,
        source: source?.unwrap_or_else(|| Utf8PathBuf::from(".")),
        accounts: accounts?,
        bundles: bundles?,
        files: files?,
        processes: processes?,
        containers: containers?,
    })
}

/// Each value; all are looked at, also behind a wrong one.
pub(crate) fn every<'a, F, V>(forms: &'a [F], value: impl FnMut(&'a F) -> Option<V>) -> Option<Vec<V>> {
    let values: Vec<Option<V>> = forms.iter().map(value).collect();
    values.into_iter().collect()
}

/// None where the text is there and wrong.
fn optional<'a, V>(text: Option<&'a Text>, value: impl FnOnce(&'a Text) -> Option<V>) -> Option<Option<V>> {
    text.map_or(Some(None), |text| value(text).map(Some))
}

fn account(form: &AccountForm, faults: &mut Faults<'_>) -> Option<AccountSpec> {
    let origin = if form.existing { AccountOrigin::Existing } else { AccountOrigin::Made };
    Some(AccountSpec { name: id(&form.name, Code::InvalidName, faults)?, origin })
}

fn bundle(form: &BundleForm, faults: &mut Faults<'_>) -> Option<Bundle> {
    let name = id(&form.name, Code::InvalidName, faults);
    let system = id(&form.system, Code::InvalidSystem, faults);
    let binary = inner_path(&form.binary, "source folder", faults);
    let build = form.build.as_ref().map_or(Some(Vec::new()), |build| words(build, Need::Program, faults));
    let pin = optional(form.digest.as_ref(), |digest| id(digest, Code::InvalidDigest, faults));
    let files: Vec<Option<(Utf8PathBuf, Utf8PathBuf)>> = form
        .files
        .iter()
        .map(|(path, from)| {
            let path = inner_path(path, "bundle", faults);
            Some((path?, inner_path(from, "source folder", faults)?))
        })
        .collect();
    let files: Option<BTreeMap<_, _>> = files.into_iter().collect();
    Some(Bundle { name: name?, system: system?, binary: binary?, build: build?, pin: pin?, files: files? })
}

fn file(form: &FileForm, faults: &mut Faults<'_>) -> Option<File> {
    let name = file_path(&form.path, faults);
    let bytes = bytes(form, faults);
    let holds = if form.secret.is_some() { Holds::Secret } else { Holds::Content };
    let mode = mode(&form.mode, holds, faults);
    let account = id(&form.account, Code::InvalidName, faults);
    Some(File { name: name?, bytes: bytes?, mode: mode?, account: account? })
}

/// The name of a file in the module's folder.
pub(crate) fn file_path(text: &Text, faults: &mut Faults<'_>) -> Option<String> {
    variables(text, faults)?;
    let path = text.get_ref();
    let name = path.strip_prefix(MODULE_DIR).and_then(|rest| rest.strip_prefix('/'));
    let name = name.filter(|name| is_file_name(name)).map(str::to_owned);
    if name.is_none() {
        let expected = format!("{MODULE_DIR}/NAME, the name of a-z, A-Z, 0-9, '.', '-' and '_'");
        faults.add(text.span(), Code::InvalidPath, format!("the path {path:?}"), expected);
    }
    name
}

/// The name of a secret.
pub(crate) fn secret_name(text: &Text, faults: &mut Faults<'_>) -> Option<String> {
    let name = text.get_ref();
    if is_file_name(name) {
        return Some(name.clone());
    }
    let expected = "a name of a-z, A-Z, 0-9, '.', '-' and '_'";
    faults.add(text.span(), Code::InvalidName, format!("the secret {name:?}"), expected);
    None
}

fn bytes(form: &FileForm, faults: &mut Faults<'_>) -> Option<FileBytes> {
    const EXPECTED: &str = "either `secret` or `content`";
    match (&form.secret, &form.content) {
        (Some(secret), None) => secret_name(secret, faults).map(FileBytes::Secret),
        (None, Some(content)) => Some(FileBytes::Content(content.get_ref().clone())),
        (Some(_), Some(content)) => {
            faults.add(
                content.span(),
                Code::InvalidSource,
                "a file with `secret` and with `content`",
                EXPECTED,
            );
            None
        }
        (None, None) => {
            faults.add(form.path.span(), Code::InvalidSource, "a file of nothing", EXPECTED);
            None
        }
    }
}

/// Whether a file holds a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    Secret,
    Content,
}

pub(crate) fn mode(mode: &Text, holds: Holds, faults: &mut Faults<'_>) -> Option<u32> {
    let text = mode.get_ref();
    let wrong = match mode_bits(text) {
        None => Some("three octal digits, with or without a 0 before them, e.g. \"0400\""),
        Some(bits) if bits & 0o7000 != 0 => Some("no set-user, set-group or sticky bit"),
        Some(bits) if bits & 0o002 != 0 => Some("a file that not everybody may write"),
        Some(bits) if bits & 0o400 == 0 => Some("a file that its own account may read, e.g. \"0400\""),
        Some(bits) if holds == Holds::Secret && bits & 0o007 != 0 => {
            Some("a secret that is closed to others than its account, e.g. \"0400\"")
        }
        Some(bits) => return Some(bits),
    };
    faults.add(mode.span(), Code::InvalidMode, format!("the mode {text:?}"), wrong.unwrap_or_default());
    None
}

/// The bits of an octal mode of three or four digits.
fn mode_bits(text: &str) -> Option<u32> {
    let right = matches!(text.len(), 3 | 4) && text.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
    right.then(|| u32::from_str_radix(text, 8).ok()).flatten()
}

fn process(form: &ProcessForm, faults: &mut Faults<'_>) -> Option<ProcessSpec> {
    let name = id(&form.name, Code::InvalidName, faults);
    let bundle = id(&form.bundle, Code::InvalidName, faults);
    let run = words(&form.run, Need::Program, faults);
    if let Some(program) = form.run.get_ref().first() {
        program_in_bundle(program, faults);
    }
    let account = id(&form.account, Code::InvalidName, faults);
    let replaces = optional(form.replaces.as_ref(), |target| replaces(target, faults));
    Some(ProcessSpec { name: name?, bundle: bundle?, run: run?, account: account?, replaces: replaces? })
}

fn container(form: &ContainerForm, faults: &mut Faults<'_>) -> Option<ContainerSpec> {
    let name = id(&form.name, Code::InvalidName, faults);
    let image = image(&form.image, faults);
    let run = form.run.as_ref().map_or(Some(Vec::new()), |run| words(run, Need::Nothing, faults));
    let account = id(&form.account, Code::InvalidName, faults);
    let mounts = every(&form.mount, |form| mount(form, faults));
    let replaces = optional(form.replaces.as_ref(), |target| replaces(target, faults));
    let owner = Owner::Account(account?);
    Some(ContainerSpec { name: name?, image: image?, run: run?, owner, mounts: mounts?, replaces: replaces? })
}

fn mount(form: &MountForm, faults: &mut Faults<'_>) -> Option<MountSpec> {
    let source = form.source.get_ref();
    variables(&form.source, faults)?;
    let file = source.strip_prefix(MODULE_DIR).and_then(|rest| rest.strip_prefix('/'));
    let folder = [MODULE_DIR, "${data.dir}", "${run.dir}"].contains(&source.as_str());
    if !folder && !file.is_some_and(is_file_name) {
        let expected = "${module.dir}, ${module.dir}/NAME, ${data.dir} or ${run.dir}";
        faults.add(form.source.span(), Code::InvalidMount, format!("the source {source:?}"), expected);
        return None;
    }
    if source.starts_with(MODULE_DIR) && form.access == AccessForm::Write {
        let expected =
            "access = \"read\": a file is as it is declared; what a program writes belongs in ${data.dir}";
        faults.add(
            form.source.span(),
            Code::InvalidMount,
            format!("{source} mounted to be written"),
            expected,
        );
        return None;
    }
    let target = form.target.as_ref().unwrap_or(&form.source);
    variables(target, faults)?;
    let text = target.get_ref();
    let begins = text.starts_with('/') || text.starts_with("${");
    if !begins || text.len() < 2 || !is_plain(text) {
        let expected = "a path in the container from its root, or one that begins with a ${variable}";
        faults.add(target.span(), Code::InvalidMount, format!("the target {text:?}"), expected);
        return None;
    }
    let access = match form.access {
        AccessForm::Read => Access::Read,
        AccessForm::Write => Access::Write,
    };
    Some(MountSpec { source: source.clone(), target: text.clone(), access })
}

fn id<T: FromStr<Err = InvalidId>>(text: &Text, code: Code, faults: &mut Faults<'_>) -> Option<T> {
    text.get_ref().parse().map_err(|invalid| faults.add_invalid(text.span(), code, &invalid)).ok()
}

fn replaces(text: &Text, faults: &mut Faults<'_>) -> Option<ResourceId> {
    const EXPECTED: &str = "container:NAME or process:NAME";
    match text.get_ref().parse::<ResourceId>() {
        Ok(id) if matches!(id.kind(), ResourceKind::Process | ResourceKind::Container) => Some(id),
        Ok(id) => {
            let found = format!("`replaces` of {id}, which nothing can stand in for");
            faults.add(text.span(), Code::InvalidReplaces, found, EXPECTED);
            None
        }
        Err(_) => {
            let found = format!("`replaces` of {:?}", text.get_ref());
            faults.add(text.span(), Code::InvalidReplaces, found, EXPECTED);
            None
        }
    }
}

/// One to three numbers with dots, then what semver allows behind a third: `1`, `0.1.0`, `2.0.0-rc.1+5`.
fn version(text: &Text, faults: &mut Faults<'_>) -> Option<String> {
    let word = text.get_ref();
    let (rest, build) =
        word.split_once('+').map_or((word.as_str(), None), |(rest, build)| (rest, Some(build)));
    let (numbers, pre) = rest.split_once('-').map_or((rest, None), |(numbers, pre)| (numbers, Some(pre)));
    let tail = |tail: &str| {
        let part =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        tail.split('.').all(part)
    };
    let parts: Vec<&str> = numbers.split('.').collect();
    let number = |part: &&str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_digit())
            && (*part == "0" || !part.starts_with('0'))
    };
    let right = word.len() <= 128
        && parts.len() <= 3
        && parts.iter().all(number)
        && pre.is_none_or(tail)
        && build.is_none_or(tail);
    if right {
        return Some(word.clone());
    }
    let expected = "one to three numbers with dots, and semver's -pre and +build, e.g. \"0.1.0\"";
    faults.add(text.span(), Code::InvalidVersion, format!("the version {word:?}"), expected);
    None
}

/// `..` leads upwards, once or more often, at the beginning only; then plain names.
fn source_folder(text: &Text, faults: &mut Faults<'_>) -> Option<Utf8PathBuf> {
    let word = text.get_ref();
    let behind = Utf8Path::new(word).components().skip_while(|part| *part == Utf8Component::ParentDir);
    let right = word == "."
        || (is_printable(word) && behind.into_iter().all(|part| matches!(part, Utf8Component::Normal(_))));
    if right && !word.contains("${") {
        return Some(Utf8PathBuf::from(word));
    }
    let expected = "a folder relative to the manifest's, e.g. \"..\"";
    faults.add(text.span(), Code::InvalidPath, format!("the source folder {word:?}"), expected);
    None
}

/// A path that stays within the folder it is relative to.
fn inner_path(text: &Text, folder: &str, faults: &mut Faults<'_>) -> Option<Utf8PathBuf> {
    let word = text.get_ref();
    if is_inner(word) && !word.contains("${") {
        return Some(Utf8PathBuf::from(word));
    }
    let expected = format!("a path in the {folder}, relative to it, without '..' and ${{variables}}");
    faults.add(text.span(), Code::InvalidPath, format!("the path {word:?}"), expected);
    None
}

fn is_inner(path: &str) -> bool {
    !path.starts_with('/') && is_printable(path) && is_plain(path)
}

/// Every component is a name.
fn is_plain(path: &str) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    is_printable(path) && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_WORD && !text.chars().any(|c| c.is_control() || c == '\\')
}

fn image(text: &Text, faults: &mut Faults<'_>) -> Option<String> {
    let word = text.get_ref();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'/' | b':' | b'@');
    let begins = word.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if begins && word.len() <= 512 && word.bytes().all(allowed) {
        return Some(word.clone());
    }
    let expected = "an image's reference, e.g. docker.io/library/registry:2.8.3";
    faults.add(text.span(), Code::InvalidImage, format!("the image {word:?}"), expected);
    None
}

/// Whether a run of words must name a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Program,
    Nothing,
}

pub(crate) fn words(run: &Spanned<Vec<Text>>, need: Need, faults: &mut Faults<'_>) -> Option<Vec<String>> {
    let texts = run.get_ref();
    let empty = texts.first().is_none_or(|first| first.get_ref().is_empty());
    if need == Need::Program && empty {
        faults.add(run.span(), Code::InvalidRun, "no program to run", "a program and its arguments");
        return None;
    }
    if texts.len() > MAX_WORDS {
        let found = format!("{} words", texts.len());
        faults.add(run.span(), Code::InvalidRun, found, format!("at most {MAX_WORDS}"));
        return None;
    }
    every(texts, |text| {
        let word = text.get_ref();
        if word.len() > MAX_WORD || word.contains('\0') {
            let expected = format!("at most {MAX_WORD} bytes, none of them NUL");
            faults.add(text.span(), Code::InvalidRun, format!("a word of {} bytes", word.len()), expected);
            return None;
        }
        variables(text, faults).map(|()| word.clone())
    })
}

fn program_in_bundle(text: &Text, faults: &mut Faults<'_>) {
    let word = text.get_ref();
    let right = word.strip_prefix("./").is_some_and(is_inner) && !word.contains("${");
    if !right && !word.is_empty() {
        let expected = "a program in the bundle: \"./\" and its path there, without '..'";
        faults.add(text.span(), Code::InvalidRun, format!("the program {word:?}"), expected);
    }
}

/// Whether all variables of a text are known.
pub(crate) fn variables(text: &Text, faults: &mut Faults<'_>) -> Option<()> {
    let error = match variable::names(text.get_ref()) {
        Ok(_) => return Some(()),
        Err(error) => error,
    };
    let span: Range<usize> = text.span();
    match error {
        VariableError::Unknown { name } => {
            let known = variable::KNOWN.map(|(name, _)| name);
            let expected = match meant(&name, known) {
                Some(name) => format!("${{{name}}}, perhaps"),
                None => format!("one of {}", known.map(|name| format!("${{{name}}}")).join(", ")),
            };
            faults.add(span, Code::UnknownVariable, format!("the unknown variable ${{{name}}}"), expected);
        }
        VariableError::Open { text } => {
            faults.add(
                span,
                Code::UnclosedVariable,
                format!("${{ without }} in {text:?}"),
                "a } behind the variable's name",
            );
        }
    }
    None
}
