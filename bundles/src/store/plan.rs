//! What publishing a bundle takes, given what the store has: pure.

use mesh_protocol::id::Digest;

/// Is something in the store?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// No.
    Absent,
    /// Yes, with so many bytes, where the store says.
    There(Option<u64>),
}

/// A part of a bundle in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The archive.
    Archive,
    /// The configuration.
    Config,
}

/// What was seen in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The manifest, by its digest.
    pub manifest: Presence,
    /// What the tag of its version and system names.
    pub tag: Option<Digest>,
    /// What the version's index has for its system.
    pub listed: Option<Digest>,
    /// The archive.
    pub archive: Presence,
    /// The configuration; a store takes a manifest only when what it names is there, so nobody looks for it then.
    pub config: Presence,
}

/// Something to do, in this order; but the two blobs may go at once, and so may the manifest and the reading back of the
/// archive that it names. No tag comes before all of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send a blob.
    Send(Part),
    /// Put the manifest under its digest.
    PutManifest,
    /// Put it under its tag.
    PutTag,
    /// Put an index that has it under the version's tag.
    PutIndex,
}

/// What to do: blobs before the manifest that names them, the digest before the tags that people see. Empty when
/// everything is as it should be.
#[must_use]
pub fn decide(seen: &Seen, manifest: &Digest) -> Vec<Action> {
    let mut actions = Vec::new();
    if seen.archive == Presence::Absent {
        actions.push(Action::Send(Part::Archive));
    }
    if seen.manifest == Presence::Absent {
        if seen.config == Presence::Absent {
            actions.push(Action::Send(Part::Config));
        }
        actions.push(Action::PutManifest);
    }
    let is_tagged = seen.tag.as_ref() == Some(manifest);
    if !is_tagged {
        actions.push(Action::PutTag);
    }
    // An index is derived from the tags: where one is put, the index is looked at after it.
    if !is_tagged || seen.listed.as_ref() != Some(manifest) {
        actions.push(Action::PutIndex);
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    const THERE: Presence = Presence::There(Some(1));

    #[test]
    fn only_what_is_missing_is_done_in_order() {
        let (ours, other) = (Digest::of(b"ours"), Digest::of(b"other"));
        let seen = |manifest, tag: Option<&Digest>, archive, config| Seen {
            manifest,
            tag: tag.cloned(),
            listed: tag.cloned(),
            archive,
            config,
        };
        let (no, put, tag) = (Presence::Absent, Action::PutManifest, Action::PutTag);
        let (archive, config) = (Action::Send(Part::Archive), Action::Send(Part::Config));
        let index = Action::PutIndex;
        assert_eq!(decide(&seen(no, None, no, no), &ours), [archive, config, put, tag, index]);
        assert_eq!(decide(&seen(no, Some(&other), THERE, no), &ours), [config, put, tag, index]);
        assert_eq!(decide(&seen(no, None, THERE, THERE), &ours), [put, tag, index]);
        assert_eq!(decide(&seen(THERE, Some(&other), THERE, no), &ours), [tag, index]);
        let unlisted = Seen { listed: None, ..seen(THERE, Some(&ours), THERE, no) };
        assert_eq!(decide(&unlisted, &ours), [index]);
        let untagged = Seen { tag: None, ..seen(THERE, Some(&ours), THERE, no) };
        assert_eq!(decide(&untagged, &ours), [tag, index]);
        assert_eq!(decide(&seen(THERE, Some(&ours), no, no), &ours), [archive]);
        assert_eq!(decide(&seen(THERE, Some(&ours), THERE, no), &ours), []);
    }
}
