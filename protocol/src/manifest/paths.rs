//! The paths below `${module.dir}` that a text names.
//!
//! In: a word of a command line, or a mount's source. Out: the names of files. Not here: whether they are
//! declared.

/// The variable of the module's folder, as manifests write it.
pub(crate) const MODULE_DIR: &str = "${module.dir}";

/// What a text names of the module's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ModulePath {
    /// The folder itself.
    Folder,
    /// Something in it: what stands behind `${module.dir}/`.
    File(String),
}

/// Everything that a text names of the module's folder. A path ends where an option's value does: at white
/// space, a comma, a colon, a semicolon or a quote.
pub(crate) fn module_paths(text: &str) -> Vec<ModulePath> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ',' | ':' | ';' | '"' | '\'');
    text.split(MODULE_DIR)
        .skip(1)
        .map(|tail| {
            let tail = &tail[..tail.find(ends).unwrap_or(tail.len())];
            match tail.strip_prefix('/').unwrap_or(tail) {
                "" => ModulePath::Folder,
                name => ModulePath::File(name.to_owned()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_wherever_they_stand_in_a_word() {
        let file = |name: &str| ModulePath::File(name.to_owned());
        assert_eq!(module_paths("plain"), []);
        assert_eq!(module_paths("${module.dir}/a.creds"), [file("a.creds")]);
        assert_eq!(module_paths("--x=${module.dir}/a,${module.dir}/b:ro"), [file("a"), file("b")]);
        assert_eq!(module_paths("${module.dir}"), [ModulePath::Folder]);
        assert_eq!(module_paths("${module.dir}/"), [ModulePath::Folder]);
        assert_eq!(module_paths("${module.dir}/a/b"), [file("a/b")]);
        assert_eq!(module_paths("${module.dir}${module.dir}/x"), [ModulePath::Folder, file("x")]);
        assert_eq!(module_paths("${data.dir}/x"), []);
    }
}
