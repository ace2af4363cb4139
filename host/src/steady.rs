//! Which versions of a seat's holder served for long: what a seat can be brought back to when its present holder turns
//! out to be no good after its handover was done.
//!
//! In: how the holder does, look by look. Out: what is written down, newest first. Pure. Not here: looking, writing, and
//! bringing back ([`crate::recovery`]).
//!
//! A version counts from the moment in which one run of it has served without a break for the whole time; a run that
//! ended, fell silent or stood by begins anew. So does a host: what it did not see did not happen.

use std::time::Duration;

use jiff::Timestamp;
use mesh_protocol::declaration::ModuleSection;
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::id::{Digest, InstanceId, ResourceId, SeatName};
use serde::{Deserialize, Serialize};

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// How many versions are remembered: the present holder, which may be the one that fails, and one before it.
const REMEMBERED: usize = 2;

/// The versions of one seat that served for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steady {
    /// [`FORMAT`].
    pub format: u32,
    /// The seat.
    pub seat: SeatName,
    /// Newest first.
    pub versions: Vec<Served>,
}

/// A version that served for long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Which resource.
    pub id: ResourceId,
    /// Its spec digest.
    pub digest: Digest,
    /// The section it was made from, whole.
    pub section: ModuleSection,
    /// When it had served for long.
    pub at: Timestamp,
}

/// A holder that is being watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watched {
    /// The run.
    instance: InstanceId,
    /// Since when it has served without a break.
    since: Duration,
}

/// One look more: `serving` is the run that serves now, and nothing else does.
#[must_use]
pub fn watch(last: Option<Watched>, serving: Option<&InstanceId>, now: Duration) -> Option<Watched> {
    let instance = serving?;
    Some(match last {
        Some(last) if &last.instance == instance => last,
        _ => Watched { instance: instance.clone(), since: now },
    })
}

impl Watched {
    /// Whether it has served for so long.
    #[must_use]
    pub fn has_served(&self, now: Duration, long: Duration) -> bool {
        now.saturating_sub(self.since) >= long
    }
}

impl Steady {
    /// What is written down once a holder has served for long; none where that is written already.
    #[must_use]
    pub fn with(last: Option<&Self>, seat: &SeatName, holder: &LedgerEntry, now: Timestamp) -> Option<Self> {
        let versions = last.map(|last| last.versions.clone()).unwrap_or_default();
        if versions.first().is_some_and(|newest| newest.digest == holder.digest) {
            return None;
        }
        let (id, digest, section) = (holder.id.clone(), holder.digest.clone(), holder.section.clone());
        let mut all = vec![Served { id, digest, section, at: now }];
        all.extend(versions.into_iter().filter(|version| version.digest != holder.digest));
        all.truncate(REMEMBERED);
        Some(Self { format: FORMAT, seat: seat.clone(), versions: all })
    }

    /// The newest version that is not this one.
    #[must_use]
    pub fn other_than(&self, digest: &Digest) -> Option<&Served> {
        self.versions.iter().find(|version| &version.digest != digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{held, process_section};
    use mesh_protocol::door::Standing;

    const LONG: Duration = Duration::from_secs(600);

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn holder(word: &str) -> LedgerEntry {
        held(&process_section(word, None), Standing::Declared)
    }

    fn with(last: Option<&Steady>, word: &str) -> Option<Steady> {
        Steady::with(last, &"mesh-controller".parse().unwrap(), &holder(word), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn only_one_run_without_a_break_counts() {
        let (one, two): (InstanceId, InstanceId) = ("p-1".parse().unwrap(), "p-2".parse().unwrap());
        let began = watch(None, Some(&one), seconds(10));
        let later = watch(began.clone(), Some(&one), seconds(609));
        assert!(!later.as_ref().unwrap().has_served(seconds(609), LONG));
        assert!(later.clone().unwrap().has_served(seconds(610), LONG));
        assert_eq!(watch(later.clone(), None, seconds(620)), None);
        let another = watch(later, Some(&two), seconds(620)).unwrap();
        assert!(!another.has_served(seconds(621), LONG));
    }

    #[test]
    fn the_last_two_are_remembered_each_once() {
        let first = with(None, "--a").unwrap();
        assert_eq!(with(Some(&first), "--a"), None);
        let second = with(Some(&first), "--b").unwrap();
        let third = with(Some(&second), "--c").unwrap();
        let digests = |steady: &Steady| steady.versions.iter().map(|v| v.digest.clone()).collect::<Vec<_>>();
        assert_eq!(digests(&third), [holder("--c").digest, holder("--b").digest]);
        let back = with(Some(&third), "--b").unwrap();
        assert_eq!(digests(&back), [holder("--b").digest, holder("--c").digest]);
    }

    #[test]
    fn what_fails_is_not_what_is_gone_back_to() {
        let second = with(with(None, "--a").as_ref(), "--b").unwrap();
        let of = |word: &str| second.other_than(&holder(word).digest).map(|served| served.digest.clone());
        assert_eq!(of("--b"), Some(holder("--a").digest));
        assert_eq!(of("--new"), Some(holder("--b").digest));
        assert_eq!(with(None, "--a").unwrap().other_than(&holder("--a").digest), None);
    }
}
