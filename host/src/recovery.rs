//! A seat that was recovered by hand: which version it was brought back to, and for how long that overrides what is
//! declared.
//!
//! In: what a person asked for at the local door, the seat's holder, what is declared for the seat, the versions that
//! served for long. Out: the section that takes the place of the declared one, or why there is none; and whether it still
//! does. Pure. Not here: writing it down, and the handover that follows, which is one like any other: from the present
//! holder, which fails, to the version that is brought back.
//!
//! It stands until a person says otherwise: a declaration that has another spec for the seat, or the same one pushed
//! again, or `mesh retry`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mesh_protocol::declaration::{BundleSpec, Declaration, ModuleSection};
use mesh_protocol::door::LedgerEntry;
use mesh_protocol::id::{Digest, ResourceId, ResourceKind, SeatName};
use serde::{Deserialize, Serialize};

use crate::steady::Steady;

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// A seat that was recovered by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// [`FORMAT`].
    pub format: u32,
    /// The seat.
    pub seat: SeatName,
    /// What is wanted in place of what is declared.
    pub section: ModuleSection,
    /// What is declared, and waits.
    pub overridden: Overridden,
    /// When it was asked for.
    pub at: Timestamp,
}

/// What is declared, and waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overridden {
    /// The resource that holds the seat.
    pub id: ResourceId,
    /// Its spec digest.
    pub digest: Digest,
    /// Its module's revision: a higher one of the same spec was pushed by somebody who wants it tried.
    pub revision: u64,
    /// Its version, for people.
    pub version: String,
}

/// What a seat is brought back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The last version that served for long, other than the one that holds the seat.
    Steady,
    /// What is declared, with another bundle.
    Bundle {
        /// Of the tar.gz.
        digest: Digest,
        /// Of the tar.gz, in bytes.
        size: u64,
        /// The version that it will say it is, where it is not the declared one.
        version: Option<String>,
    },
}

/// Why a seat is not brought back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is not held here.
    #[error("nobody holds the seat {seat} on this node: expected a process that does")]
    NoHolder {
        /// Which.
        seat: SeatName,
    },
    /// It is held by what genesis raised.
    #[error(
        "the seat {seat} is held by {holder}: expected a process, for nothing brings a container back; push the module's manifest"
    )]
    Container {
        /// Which.
        seat: SeatName,
        /// Its holder.
        holder: ResourceId,
    },
    /// Nothing is declared for it.
    #[error(
        "nothing is declared for the seat {seat}: expected a declaration that a recovery can take the place of"
    )]
    NotDeclared {
        /// Which.
        seat: SeatName,
    },
    /// No other version served for long.
    #[error(
        "no version but the one that holds the seat {seat} has served for long on this node: expected one to go back to; give a bundle: mesh recover --bundle FILE"
    )]
    NoneServed {
        /// Which.
        seat: SeatName,
    },
    /// The version is of another resource.
    #[error(
        "the version that served for long is {found}, and {holder} holds the seat: expected the same resource; give a bundle: mesh recover --bundle FILE"
    )]
    OtherResource {
        /// That of the version.
        found: ResourceId,
        /// The holder.
        holder: ResourceId,
    },
    /// The process that is declared has no bundle.
    #[error("{id} is not declared with a bundle: expected one that another can take the place of")]
    NoBundle {
        /// Which.
        id: ResourceId,
    },
    /// That version is what is declared.
    #[error("that version of {id} is what is declared: expected another; to try it again: mesh retry {id}")]
    IsDeclared {
        /// Which.
        id: ResourceId,
    },
    /// That version holds the seat.
    #[error("that version holds the seat {seat} already: expected another")]
    HoldsIt {
        /// Which.
        seat: SeatName,
    },
}

/// The recovery of a seat.
///
/// # Errors
/// Why there is none.
pub fn recover(
    seat: &SeatName,
    target: &Target,
    holder: Option<&LedgerEntry>,
    declared: Option<&ModuleSection>,
    steady: Option<&Steady>,
    now: Timestamp,
) -> Result<Recovery, Unfit> {
    let seat_name = || seat.clone();
    let holder = holder.ok_or_else(|| Unfit::NoHolder { seat: seat_name() })?;
    if holder.id.kind() != ResourceKind::Process {
        return Err(Unfit::Container { seat: seat_name(), holder: holder.id.clone() });
    }
    let declared = declared.ok_or_else(|| Unfit::NotDeclared { seat: seat_name() })?;
    let overridden = Overridden::of(declared).ok_or_else(|| Unfit::NotDeclared { seat: seat_name() })?;
    let section = match target {
        Target::Steady => {
            let other = steady.and_then(|steady| steady.other_than(&holder.digest));
            other.ok_or_else(|| Unfit::NoneServed { seat: seat_name() })?.section.clone()
        }
        Target::Bundle { digest, size, version } => {
            let bundle = (digest.clone(), *size);
            with_bundle(declared, &overridden.id, bundle, version.clone())?
        }
    };
    let id = section.seat_holder();
    if id.as_ref() != Some(&holder.id) {
        let found = id.unwrap_or_else(|| overridden.id.clone());
        return Err(Unfit::OtherResource { found, holder: holder.id.clone() });
    }
    if section.spec_digest(&holder.id).as_ref() == Some(&holder.digest) {
        return Err(Unfit::HoldsIt { seat: seat_name() });
    }
    if section.spec_digest(&overridden.id).as_ref() == Some(&overridden.digest) {
        return Err(Unfit::IsDeclared { id: overridden.id });
    }
    Ok(Recovery { format: FORMAT, seat: seat_name(), section, overridden, at: now })
}

/// What is declared, with another bundle in the place of the process's.
fn with_bundle(
    declared: &ModuleSection,
    id: &ResourceId,
    (digest, size): (Digest, u64),
    version: Option<String>,
) -> Result<ModuleSection, Unfit> {
    let mut section = declared.clone();
    let process = declared.processes.iter().find(|process| &ResourceId::process(&process.name) == id);
    let bundle: Option<&mut BundleSpec> =
        process.and_then(|process| section.bundles.iter_mut().find(|bundle| bundle.name == process.bundle));
    let bundle = bundle.ok_or_else(|| Unfit::NoBundle { id: id.clone() })?;
    bundle.digest = digest;
    bundle.size = size;
    if let Some(version) = version {
        section.version = version;
    }
    Ok(section)
}

impl Overridden {
    fn of(declared: &ModuleSection) -> Option<Self> {
        let id = declared.seat_holder()?;
        let digest = declared.spec_digest(&id)?;
        Some(Self { id, digest, revision: declared.revision, version: declared.version.clone() })
    }
}

impl Recovery {
    /// Whether it still takes the place of what is declared for its seat. Where nothing is, it does: a seat is not
    /// emptied by absence.
    #[must_use]
    pub fn stands(&self, declared: Option<&ModuleSection>) -> bool {
        let Some(declared) = declared.and_then(Overridden::of) else { return true };
        let same = (&declared.id, &declared.digest) == (&self.overridden.id, &self.overridden.digest);
        same && declared.revision <= self.overridden.revision
    }

    /// What there is to say of the resource that is declared.
    #[must_use]
    pub fn note(&self) -> String {
        let id = &self.overridden.id;
        format!(
            "recovered by hand to version {} (spec {}); the declared version {} (spec {}) waits: push another version, \
             or mesh retry {id}",
            self.section.version,
            self.digest().map(|digest| digest.short().to_owned()).unwrap_or_default(),
            self.overridden.version,
            self.overridden.digest.short()
        )
    }

    /// The spec digest of what it wants.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.section.spec_digest(&self.overridden.id)
    }
}

/// What is wanted of this node: what is declared, but for the seats that were recovered by hand.
#[must_use]
pub fn wanted(declaration: &Declaration, recoveries: &BTreeMap<SeatName, Recovery>) -> Declaration {
    let mut wanted = declaration.clone();
    for section in &mut wanted.modules {
        let recovery = section.seat.as_ref().and_then(|seat| recoveries.get(seat));
        if let Some(recovery) = recovery.filter(|recovery| recovery.stands(Some(section))) {
            *section = recovery.section.clone();
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container_section, declaration, held, process_section};
    use mesh_protocol::door::Standing;

    fn seat() -> SeatName {
        "mesh-controller".parse().unwrap()
    }

    fn bad() -> ModuleSection {
        ModuleSection { revision: 6, version: "2.0.0".to_owned(), ..process_section("--bad", None) }
    }

    fn good() -> ModuleSection {
        ModuleSection { revision: 5, version: "1.0.0".to_owned(), ..process_section("--good", None) }
    }

    fn entry(section: &ModuleSection) -> LedgerEntry {
        held(section, Standing::Declared)
    }

    fn steady(sections: &[ModuleSection]) -> Steady {
        let mut steady = None;
        for section in sections {
            let with = Steady::with(steady.as_ref(), &seat(), &entry(section), Timestamp::UNIX_EPOCH);
            steady = with.or(steady);
        }
        steady.unwrap()
    }

    fn ask(target: &Target, steady: Option<&Steady>) -> Result<Recovery, Unfit> {
        let (bad, now) = (bad(), Timestamp::UNIX_EPOCH);
        recover(&seat(), target, Some(&entry(&bad)), Some(&bad), steady, now)
    }

    #[test]
    fn it_goes_back_to_the_last_that_served_and_is_not_the_one_that_fails() {
        let recovery = ask(&Target::Steady, Some(&steady(&[good()]))).unwrap();
        assert_eq!(recovery.section, good());
        assert_eq!((recovery.overridden.revision, recovery.overridden.version.as_str()), (6, "2.0.0"));
        let recovery = ask(&Target::Steady, Some(&steady(&[good(), bad()]))).unwrap();
        assert_eq!(recovery.section, good());
        for none in [None, Some(&steady(&[bad()]))] {
            assert_eq!(ask(&Target::Steady, none), Err(Unfit::NoneServed { seat: seat() }));
        }
    }

    #[test]
    fn a_bundle_takes_the_place_of_the_declared_one_and_of_nothing_else() {
        let digest = Digest::of(b"mended");
        let target = Target::Bundle { digest: digest.clone(), size: 9, version: Some("1.5.0".to_owned()) };
        let recovery = ask(&target, None).unwrap();
        assert_eq!(
            (&recovery.section.bundles[0].digest, recovery.section.version.as_str()),
            (&digest, "1.5.0")
        );
        assert_eq!(recovery.section.processes, bad().processes);
        let same = Target::Bundle { digest: bad().bundles[0].digest.clone(), size: 6, version: None };
        assert_eq!(ask(&same, None), Err(Unfit::HoldsIt { seat: seat() }));
        let (good, bad) = (entry(&good()), bad());
        let found = recover(&seat(), &same, Some(&good), Some(&bad), None, Timestamp::UNIX_EPOCH);
        assert!(matches!(found, Err(Unfit::IsDeclared { .. })), "{found:?}");
    }

    #[test]
    fn what_cannot_be_recovered_says_why() {
        let (bad, now, target) = (bad(), Timestamp::UNIX_EPOCH, Target::Steady);
        let steady = steady(&[good()]);
        let of = |holder: Option<&LedgerEntry>, declared| {
            recover(&seat(), &target, holder, declared, Some(&steady), now).unwrap_err()
        };
        assert!(matches!(of(None, Some(&bad)), Unfit::NoHolder { .. }));
        let container = entry(&container_section("mesh-controller"));
        assert!(matches!(of(Some(&container), Some(&bad)), Unfit::Container { .. }));
        assert!(matches!(of(Some(&entry(&bad)), None), Unfit::NotDeclared { .. }));
        let mut renamed = bad.clone();
        renamed.processes[0].name = "another".parse().unwrap();
        assert!(matches!(of(Some(&entry(&renamed)), Some(&renamed)), Unfit::OtherResource { .. }));
    }

    #[test]
    fn it_stands_until_another_spec_is_declared_or_the_same_pushed_again() {
        let recovery = ask(&Target::Steady, Some(&steady(&[good()]))).unwrap();
        assert!(recovery.stands(Some(&bad())) && recovery.stands(None));
        let other = ModuleSection { revision: 7, ..process_section("--mended", None) };
        assert!(!recovery.stands(Some(&other)));
        assert!(!recovery.stands(Some(&ModuleSection { revision: 7, ..bad() })));
    }

    #[test]
    fn only_the_recovered_seat_is_wanted_otherwise_than_declared() {
        let recovery = ask(&Target::Steady, Some(&steady(&[good()]))).unwrap();
        let mut other = process_section("--other", None);
        other.seat = Some("another".parse().unwrap());
        let declared = declaration(9, (1, 1), vec![bad(), other.clone()]);
        let recoveries = BTreeMap::from([(seat(), recovery)]);
        assert_eq!(wanted(&declared, &recoveries).modules, [good(), other.clone()]);
        let mended = declaration(10, (1, 1), vec![process_section("--mended", None), other]);
        assert_eq!(wanted(&mended, &recoveries).modules, mended.modules);
    }

    #[test]
    fn the_note_says_to_what_and_how_to_go_on() {
        let note = ask(&Target::Steady, Some(&steady(&[good()]))).unwrap().note();
        assert!(note.starts_with("recovered by hand to version 1.0.0 (spec "), "{note}");
        assert!(note.ends_with("push another version, or mesh retry process:mesh-controller"), "{note}");
    }
}
