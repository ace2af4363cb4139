//! From text to forms: syntax, sections, keys and types.
//!
//! In: the text. Out: every entry that could be read, and faults for what could not; an unknown key does not
//! keep its entry from being read, so that one run shows as much as can be known. Not here: whether what was
//! read is right.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::{Code, Faults, meant};
use super::form::{ContainerForm, Forms, MountForm, keys_of};
use super::gate;

/// What could be read.
pub(super) struct Read {
    pub(super) forms: Forms,
    lost: Lost,
}

/// Whether every entry could be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lost {
    Nothing,
    Some,
}

impl Read {
    /// The forms, if none is missing: only then can they be held against each other.
    pub(super) fn whole(&self) -> Option<&Forms> {
        (self.lost == Lost::Nothing).then_some(&self.forms)
    }
}

/// Reads all sections.
pub(super) fn read(text: &str, faults: &mut Faults<'_>) -> Read {
    let mut read = Read { forms: Forms::default(), lost: Lost::Nothing };
    let Some(document) = document(text, faults) else {
        read.lost = Lost::Some;
        return read;
    };
    let whole = document.span();
    let mut document = document.into_inner();
    strip_unknown::<Forms>(&mut document, "a section", faults);
    let forms = &mut read.forms;
    let mut lost = false;
    match document.remove("module") {
        Some(table) => forms.module = entry(table, "[module]", |_, _| (), faults),
        None => faults.add(
            whole.start..whole.start,
            Code::MissingKey,
            "no [module]",
            "a [module] with `name` and `version`",
        ),
    }
    lost |= forms.module.is_none();
    let mut section = Section { document: &mut document, faults, lost: &mut lost };
    forms.account = section.entries("account", |_, _| ());
    forms.bundle = section.entries("bundle", |_, _| ());
    forms.file = section.entries("file", |_, _| ());
    forms.process = section.entries("process", |_, _| ());
    forms.container = section.entries::<ContainerForm>("container", container);
    if lost {
        read.lost = Lost::Some;
    }
    read
}

/// Reads a document that is one table, and holds tables in the list `inner`.
pub(crate) fn table<'i, T, I>(text: &'i str, what: &str, inner: &str, faults: &mut Faults<'_>) -> Option<T>
where
    T: Deserialize<'i> + JsonSchema,
    I: JsonSchema,
{
    let document = document(text, faults)?;
    let span = document.span();
    let strip = |table: &mut DeTable<'i>, faults: &mut Faults<'_>| strip_inner::<I>(table, inner, faults);
    entry(Spanned::new(span, DeValue::Table(document.into_inner())), what, strip, faults)
}

/// The document, if it is TOML from one end to the other.
fn document<'i>(text: &'i str, faults: &mut Faults<'_>) -> Option<Spanned<DeTable<'i>>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let right = errors.is_empty();
    for error in errors {
        let (found, expected) = split(error.message(), "TOML");
        faults.add(error.span().unwrap_or(0..0), Code::Syntax, found, expected);
    }
    right.then_some(document)
}

fn container(table: &mut DeTable<'_>, faults: &mut Faults<'_>) {
    gate::pass(table, faults);
    strip_inner::<MountForm>(table, "mount", faults);
}

/// Takes the unknown keys out of each table of a list.
fn strip_inner<T: JsonSchema>(table: &mut DeTable<'_>, key: &str, faults: &mut Faults<'_>) {
    let Some(DeValue::Array(entries)) = table.get_mut(key).map(Spanned::get_mut) else { return };
    for entry in entries.iter_mut() {
        if let DeValue::Table(entry) = entry.get_mut() {
            strip_unknown::<T>(entry, &format!("a key of a {key}"), faults);
        }
    }
}

struct Section<'a, 'i, 'f> {
    document: &'a mut DeTable<'i>,
    faults: &'a mut Faults<'f>,
    lost: &'a mut bool,
}

impl<'i> Section<'_, 'i, '_> {
    fn entries<T: Deserialize<'i> + JsonSchema>(
        &mut self,
        key: &str,
        before: impl Fn(&mut DeTable<'i>, &mut Faults<'_>),
    ) -> Vec<T> {
        let Some(value) = self.document.remove(key) else { return Vec::new() };
        let span = value.span();
        let place = format!("[[{key}]]");
        let DeValue::Array(array) = value.into_inner() else {
            self.faults.add(
                span,
                Code::WrongType,
                format!("`{key}` that is no list"),
                format!("{place}, once for each"),
            );
            *self.lost = true;
            return Vec::new();
        };
        let mut entries = Vec::new();
        for value in array {
            match entry(value, &place, &before, self.faults) {
                Some(form) => entries.push(form),
                None => *self.lost = true,
            }
        }
        entries
    }
}

fn entry<'i, T: Deserialize<'i> + JsonSchema>(
    value: Spanned<DeValue<'i>>,
    place: &str,
    before: impl Fn(&mut DeTable<'i>, &mut Faults<'_>),
    faults: &mut Faults<'_>,
) -> Option<T> {
    let span = value.span();
    let mut table = match value.into_inner() {
        DeValue::Table(table) => table,
        other => {
            faults.add(
                span,
                Code::WrongType,
                format!("a value of type {}", other.type_str()),
                format!("the table {place}"),
            );
            return None;
        }
    };
    before(&mut table, faults);
    strip_unknown::<T>(&mut table, &format!("a key of {place}"), faults);
    let table = Spanned::new(span.clone(), DeValue::Table(table));
    match T::deserialize(table.into_deserializer()) {
        Ok(form) => Some(form),
        Err(error) => {
            let span = error.span().unwrap_or(span);
            match missing_key(error.message()) {
                Some(key) => {
                    let meaning = keys_of::<T>().remove(key).filter(|meaning| !meaning.is_empty());
                    let expected = meaning.map_or_else(
                        || format!("`{key}`"),
                        |meaning| format!("`{key}`: {}", lower(&meaning)),
                    );
                    faults.add(span, Code::MissingKey, format!("no `{key}` in {place}"), expected);
                }
                None => {
                    let (found, expected) = split(error.message(), &format!("a right {place}"));
                    faults.add(span, Code::WrongType, found, expected);
                }
            }
            None
        }
    }
}

/// Takes the keys out that there are none of, with a fault for each.
fn strip_unknown<T: JsonSchema>(table: &mut DeTable<'_>, what: &str, faults: &mut Faults<'_>) {
    let known = keys_of::<T>();
    let unknown: Vec<String> =
        table.keys().map(|key| key.get_ref().to_string()).filter(|key| !known.contains_key(key)).collect();
    for key in unknown {
        let Some((found, _)) = table.remove_entry(key.as_str()) else { continue };
        let names = known.keys().map(String::as_str);
        let list = || names.clone().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let expected = meant(&key, names.clone())
            .map_or_else(|| format!("one of {}", list()), |name| format!("`{name}`, perhaps"));
        faults.add(found.span(), Code::UnknownKey, format!("`{key}`, which is not {what}"), expected);
    }
}

/// The key of serde's "missing field `key`".
fn missing_key(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.strip_suffix('`')
}

/// What was found and what was expected, of a message that says both in one.
fn split(message: &str, right: &str) -> (String, String) {
    let message = ["invalid type: ", "invalid value: ", "invalid length "]
        .into_iter()
        .find_map(|prefix| message.strip_prefix(prefix))
        .unwrap_or(message);
    match message.split_once(", expected ") {
        Some((found, expected)) => (lower(found), expected.to_owned()),
        None => (lower(message), right.to_owned()),
    }
}

/// A sentence as part of another.
fn lower(sentence: &str) -> String {
    let sentence = sentence.strip_suffix('.').unwrap_or(sentence);
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
