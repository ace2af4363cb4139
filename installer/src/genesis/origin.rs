//! What a mesh is raised from, by digest: the controller's words and programs, and the host's.
//!
//! In: files as they lie there now. Out: [`Origin`], kept with the mesh once its bundle is packed, and what of it is another
//! now. It counts until the controller is a process; from then on new versions are pushed. Not here: options, which are
//! `mesh_file`'s.

use std::collections::BTreeMap;

use camino::Utf8Path;
use mesh_protocol::genesis_form;
use mesh_protocol::id::{Digest, System};
use serde::{Deserialize, Serialize};

use crate::config::HOST_PROGRAM;
use crate::controller_source::ControllerSource;
use crate::mesh_file::Difference;

/// The files that a mesh is raised from, by what they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Origin(BTreeMap<String, Digest>);

impl Origin {
    /// Of the files as they are now. What cannot be read is not in it: whoever needs it says so.
    pub(super) fn now(source: &ControllerSource, host_program: &Utf8Path) -> Self {
        let module = &source.module;
        let system = System::of_this_program();
        let form = module.folder.join(genesis_form::FILE_NAME);
        let mut files = vec![
            (module.path.file_name().unwrap_or_default().to_owned(), module.path.clone()),
            (genesis_form::FILE_NAME.to_owned(), form),
            (HOST_PROGRAM.to_owned(), host_program.to_owned()),
        ];
        for bundle in module.manifest.bundles.iter().filter(|bundle| bundle.system == system) {
            files.push((bundle.program().to_owned(), module.binary(bundle)));
            let more = bundle.files.iter();
            files.extend(more.map(|(name, from)| (name.to_string(), module.source().join(from))));
        }
        let digests = files.into_iter().filter_map(|(name, path)| {
            let bytes = std::fs::read(path).ok()?;
            Some((name, Digest::of(&bytes)))
        });
        Self(digests.collect())
    }

    /// What is another now. What is not there now is no difference: it is built, or missed by whoever needs it.
    pub(super) fn differences(&self, now: &Self) -> Vec<Difference> {
        let is = |digest: &Digest| format!("({})", digest.short());
        let pairs = now.0.iter().filter(|(name, digest)| self.0.get(*name) != Some(digest));
        pairs
            .map(|(name, digest)| Difference {
                option: name.clone(),
                before: self.0.get(name).map_or_else(|| "(none)".to_owned(), is),
                now: is(digest),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(files: &[(&str, &str)]) -> Origin {
        Origin(files.iter().map(|(name, text)| ((*name).to_owned(), Digest::of(text.as_bytes()))).collect())
    }

    #[test]
    fn what_is_another_is_named_with_both_digests() {
        let before = origin(&[("module.toml", "a"), ("mesh-controller", "b")]);
        assert!(before.differences(&before).is_empty());
        assert!(
            before.differences(&origin(&[("module.toml", "a")])).is_empty(),
            "what is not there is built"
        );
        let now = origin(&[("module.toml", "a"), ("mesh-controller", "c"), ("more", "d")]);
        let found: Vec<String> = before
            .differences(&now)
            .into_iter()
            .map(|d| format!("{} {} {}", d.option, d.before.len() > 6, d.before != d.now))
            .collect();
        assert_eq!(found, ["mesh-controller true true", "more false true"]);
    }
}
