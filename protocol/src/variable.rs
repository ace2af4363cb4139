//! `${variables}`: the words of a manifest that only the node can fill in.
//!
//! In: a text and the values. Out: the text with each filled in, or the first one that there is no value
//! for. Not here: the values themselves; the host knows its folders, and a manifest is only checked for names.

use std::collections::BTreeMap;

/// Every variable that a manifest may use, and what it stands for.
pub const KNOWN: [(&str, &str); 8] = [
    ("module.dir", "the folder of the module's files on the node"),
    ("data.dir", "the folder of the module's data on the node, kept until the mesh is taken down"),
    ("run.dir", "the run folder of the instance: instance, role, role.ack"),
    ("mesh.id", "the id of the mesh"),
    ("mesh.name", "the name of the mesh"),
    ("mesh.bus", "the address of the bus, e.g. nats://127.0.0.1:4222"),
    ("mesh.store", "the address of the artifact store, e.g. http://127.0.0.1:5000"),
    ("node.name", "the name of the node"),
];

/// Why a text could not be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// There is no such variable.
    #[error("unknown variable ${{{name}}}: expected one of {}", known_names())]
    Unknown {
        /// Between the braces.
        name: String,
    },
    /// `${` without `}`.
    #[error("{text:?} opens a variable with ${{ and does not close it: expected a }}")]
    Open {
        /// The whole text.
        text: String,
    },
}

fn known_names() -> String {
    KNOWN.map(|(name, _)| format!("${{{name}}}")).join(", ")
}

/// The names of the variables in a text, in their order.
///
/// # Errors
/// When one is not known, or not closed.
pub fn names(text: &str) -> Result<Vec<&'static str>, VariableError> {
    let mut found = Vec::new();
    replace(text, |name| {
        found.push(name);
        String::new()
    })?;
    Ok(found)
}

/// The text with each variable filled in. What has no value here is unknown.
///
/// # Errors
/// When one is not known, has no value, or is not closed.
pub fn expand(text: &str, values: &BTreeMap<&'static str, String>) -> Result<String, VariableError> {
    let mut missing = None;
    let expanded = replace(text, |name| {
        values.get(name).cloned().unwrap_or_else(|| {
            missing.get_or_insert(name);
            String::new()
        })
    })?;
    match missing {
        Some(name) => Err(VariableError::Unknown { name: name.to_owned() }),
        None => Ok(expanded),
    }
}

fn replace(text: &str, mut value: impl FnMut(&'static str) -> String) -> Result<String, VariableError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, opened) = rest.split_at(start);
        let end = opened.find('}').ok_or_else(|| VariableError::Open { text: text.to_owned() })?;
        let name = &opened[2..end];
        let (known, _) = KNOWN
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| VariableError::Unknown { name: name.to_owned() })?;
        out.push_str(before);
        out.push_str(&value(known));
        rest = &opened[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_variables_are_filled_in() {
        let values =
            BTreeMap::from([("mesh.bus", "nats://127.0.0.1:1".to_owned()), ("run.dir", "/r".to_owned())]);
        assert_eq!(expand("a ${mesh.bus} ${run.dir}/x", &values).unwrap(), "a nats://127.0.0.1:1 /r/x");
        assert_eq!(expand("${run.dir}${run.dir}", &values).unwrap(), "/r/r");
        assert_eq!(expand("$ {x} }", &values).unwrap(), "$ {x} }");
    }

    #[test]
    fn what_is_not_known_is_named() {
        let error = names("x ${mesh.buss}").unwrap_err();
        assert_eq!(error, VariableError::Unknown { name: "mesh.buss".to_owned() });
        assert!(error.to_string().contains("${mesh.bus}"), "{error}");
        assert!(matches!(names("${mesh.bus").unwrap_err(), VariableError::Open { .. }));
        let error = expand("${mesh.id}", &BTreeMap::new()).unwrap_err();
        assert_eq!(error, VariableError::Unknown { name: "mesh.id".to_owned() });
    }
}
