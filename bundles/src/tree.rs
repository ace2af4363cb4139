//! Whether entries go together as one tree: pure, and the same for packing and for unpacking.
//!
//! In: paths and kinds, in the archive's order. Out: yes, or the first thing that is wrong. Not here: disks.
//! What matters most: a symbolic link may name only what is in the same bundle, reached through real
//! folders, so that no chain of links leads out of it, whatever the order in which links are made.

use std::collections::BTreeMap;

use crate::path::BundlePath;

/// How entries do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeFault {
    /// Two entries of one path.
    #[error("{path} is there twice")]
    Duplicate {
        /// The path.
        path: BundlePath,
    },
    /// Two entries that are one on a file system which ignores case.
    #[error("{path} and {other} differ in case only")]
    DuplicateInCase {
        /// The later one.
        path: BundlePath,
        /// The earlier one.
        other: BundlePath,
    },
    /// Something lies in what is not a folder.
    #[error("{path} lies in {parent}, which is not a folder")]
    ParentNotFolder {
        /// The path.
        path: BundlePath,
        /// What it lies in.
        parent: BundlePath,
    },
    /// The folder has no entry of its own before this.
    #[error("{path} comes before an entry for its folder {parent}")]
    ParentMissing {
        /// The path.
        path: BundlePath,
        /// The folder.
        parent: BundlePath,
    },
    /// A link begins at the root.
    #[error("symbolic link {path} names {target:?}, which is absolute: expected a target in the bundle")]
    LinkAbsolute {
        /// The link.
        path: BundlePath,
        /// What it names.
        target: String,
    },
    /// A link leads out of the bundle.
    #[error("symbolic link {path} names {target:?}, which is outside the bundle")]
    LinkOutside {
        /// The link.
        path: BundlePath,
        /// What it names.
        target: String,
    },
    /// A link goes through another link.
    #[error("symbolic link {path} names {target:?}, which goes through {through}, which is not a folder")]
    LinkThrough {
        /// The link.
        path: BundlePath,
        /// What it names.
        target: String,
        /// What is on the way.
        through: String,
    },
    /// A link to nothing.
    #[error("symbolic link {path} names {target:?}, which is not in the bundle")]
    LinkDangling {
        /// The link.
        path: BundlePath,
        /// What it names.
        target: String,
    },
    /// Links in a circle.
    #[error("symbolic link {path} leads back to itself")]
    LinkCircle {
        /// The link.
        path: BundlePath,
    },
    /// A link's target is nothing that a path could be.
    #[error("symbolic link {path} names {target:?}, which is not a plain path")]
    LinkMalformed {
        /// The link.
        path: BundlePath,
        /// What it names.
        target: String,
    },
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File,
    Link { target: String },
}

/// The entries so far.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: BTreeMap<BundlePath, Kind>,
    folded: BTreeMap<String, BundlePath>,
}

impl Tree {
    /// One more entry, whose folder has come before it.
    pub(crate) fn add(&mut self, path: &BundlePath, kind: Kind) -> Result<(), TreeFault> {
        if let Some(parent) = path.parent() {
            match self.entries.get(&parent) {
                Some(Kind::Folder) => {}
                Some(_) => return Err(TreeFault::ParentNotFolder { path: path.clone(), parent }),
                None => return Err(TreeFault::ParentMissing { path: path.clone(), parent }),
            }
        }
        if self.entries.contains_key(path) {
            return Err(TreeFault::Duplicate { path: path.clone() });
        }
        if let Some(other) = self.folded.insert(path.as_str().to_lowercase(), path.clone()) {
            return Err(TreeFault::DuplicateInCase { path: path.clone(), other });
        }
        self.entries.insert(path.clone(), kind);
        Ok(())
    }

    /// All entries are there: do the links stay inside?
    pub(crate) fn finish(&self) -> Result<(), TreeFault> {
        for (path, kind) in &self.entries {
            let Kind::Link { target } = kind else { continue };
            let mut at = (path.clone(), target.clone());
            // A chain that visits each entry once has at most this many steps.
            for _ in 0..=self.entries.len() {
                let next = self.resolve(&at.0, &at.1)?;
                match next.as_ref().and_then(|next| self.entries.get(next)) {
                    Some(Kind::Link { target }) => at = (next.unwrap_or(at.0), target.clone()),
                    _ => {
                        at.1.clear();
                        break;
                    }
                }
            }
            if !at.1.is_empty() {
                return Err(TreeFault::LinkCircle { path: path.clone() });
            }
        }
        Ok(())
    }

    /// What the link at `path` names, one step; none for the bundle's own folder.
    fn resolve(&self, path: &BundlePath, target: &str) -> Result<Option<BundlePath>, TreeFault> {
        let names = || (path.clone(), target.to_owned());
        let malformed = || TreeFault::LinkMalformed { path: path.clone(), target: target.to_owned() };
        if target.starts_with('/') {
            let (path, target) = names();
            return Err(TreeFault::LinkAbsolute { path, target });
        }
        if target.is_empty() || target.chars().any(|c| c.is_control() || c == '\\') {
            return Err(malformed());
        }
        let mut at: Vec<&str> = path.as_str().split('/').collect();
        at.pop();
        let mut names_left = target.split('/').peekable();
        while let Some(name) = names_left.next() {
            match name {
                "" => return Err(malformed()),
                "." => {}
                ".." => {
                    if at.pop().is_none() {
                        let (path, target) = names();
                        return Err(TreeFault::LinkOutside { path, target });
                    }
                }
                name => {
                    at.push(name);
                    let here = at.join("/");
                    let kind = here.parse().ok().and_then(|here: BundlePath| self.entries.get(&here));
                    match (kind, names_left.peek()) {
                        (None, _) => {
                            let (path, target) = names();
                            return Err(TreeFault::LinkDangling { path, target });
                        }
                        (Some(Kind::Folder), _) | (Some(_), None) => {}
                        (Some(_), Some(_)) => {
                            let (path, target) = names();
                            return Err(TreeFault::LinkThrough { path, target, through: here });
                        }
                    }
                }
            }
        }
        if at.is_empty() { Ok(None) } else { at.join("/").parse().map(Some).map_err(|_| malformed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> BundlePath {
        text.parse().unwrap()
    }

    fn tree(links: &[(&str, &str)]) -> Result<(), TreeFault> {
        let mut tree = Tree::default();
        for folder in ["d", "d/e"] {
            tree.add(&path(folder), Kind::Folder).unwrap();
        }
        tree.add(&path("d/f"), Kind::File).unwrap();
        for (link, target) in links {
            tree.add(&path(link), Kind::Link { target: (*target).to_owned() })?;
        }
        tree.finish()
    }

    #[test]
    fn links_inside_are_right() {
        tree(&[("l", "d/f"), ("m", "l"), ("d/e/n", "../f"), ("d/o", "e"), ("d/p", "../m"), ("q", ".")])
            .unwrap();
    }

    #[test]
    fn each_wrong_link_has_its_own_fault() {
        let fault = |links: &[(&str, &str)]| tree(links).unwrap_err();
        assert!(matches!(fault(&[("l", "/etc/passwd")]), TreeFault::LinkAbsolute { .. }));
        assert!(matches!(fault(&[("l", "../x")]), TreeFault::LinkOutside { .. }));
        assert!(matches!(fault(&[("d/e/l", "../../../x")]), TreeFault::LinkOutside { .. }));
        assert!(matches!(fault(&[("l", "nothing")]), TreeFault::LinkDangling { .. }));
        assert!(matches!(fault(&[("l", "m"), ("m", "l")]), TreeFault::LinkCircle { .. }));
        assert!(matches!(fault(&[("l", "d/f/x")]), TreeFault::LinkThrough { .. }));
        assert!(matches!(fault(&[("l", "d//f")]), TreeFault::LinkMalformed { .. }));
        assert!(matches!(fault(&[("l", "")]), TreeFault::LinkMalformed { .. }));
    }

    #[test]
    fn two_links_together_do_not_lead_out() {
        // Each looks harmless by its text alone; through the first, the second would be `../..`.
        let fault = tree(&[("d/e/up", ".."), ("d/e/out", "up/../../x")]).unwrap_err();
        assert!(matches!(fault, TreeFault::LinkThrough { through, .. } if through == "d/e/up"));
    }

    #[test]
    fn entries_go_together() {
        let mut tree = Tree::default();
        tree.add(&path("f"), Kind::File).unwrap();
        assert!(matches!(tree.add(&path("f"), Kind::File), Err(TreeFault::Duplicate { .. })));
        assert!(matches!(tree.add(&path("F"), Kind::File), Err(TreeFault::DuplicateInCase { .. })));
        assert!(matches!(tree.add(&path("f/g"), Kind::File), Err(TreeFault::ParentNotFolder { .. })));
        assert!(matches!(tree.add(&path("d/g"), Kind::File), Err(TreeFault::ParentMissing { .. })));
    }
}
