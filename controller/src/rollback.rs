//! Which earlier revision a module goes back to, and whether it may.
//!
//! In: the module's record, its history, the revision that was asked for. Out: the record of that revision, or why it
//! is none to go back to. Pure. Not here: making it true again, which is a push like any other.

use mesh_protocol::id::{ModuleName, ResourceKind};
use mesh_protocol::manifest::{Manifest, ManifestErrors};
use mesh_protocol::plan::ModuleRecord;
use mesh_protocol::verb::RefusalCode;

/// Why a module does not go back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// What genesis raised was never a revision.
    #[error(
        "revision 0 of {module} is what genesis raised, a container: expected a revision that was pushed, for nothing \
         brings genesis's container back"
    )]
    Genesis {
        /// Whose.
        module: ModuleName,
    },
    /// A seat's holder of that revision was a container.
    #[error(
        "revision {revision} of {module} holds the seat as a container: expected one whose holder is a process, for a \
         controller that became a process stays one"
    )]
    Container {
        /// Whose.
        module: ModuleName,
        /// Which.
        revision: u64,
    },
    /// There is no such revision.
    #[error("{module} has no revision {revision}: expected one of {known}")]
    Unknown {
        /// Whose.
        module: ModuleName,
        /// Which.
        revision: u64,
        /// Those that there are.
        known: String,
    },
    /// There is nothing to go back to.
    #[error("{module} has no revision before {origin} that had anything else: {what}")]
    NoEarlier {
        /// Whose.
        module: ModuleName,
        /// The revision that first had what there is now.
        origin: u64,
        /// What was before it.
        what: &'static str,
    },
    /// Its manifest was accepted once, and is not right any more.
    #[error("the manifest of {module} revision {revision}, as it is recorded, cannot be read")]
    Manifest {
        /// Whose.
        module: ModuleName,
        /// Which.
        revision: u64,
        /// What is wrong with it.
        #[source]
        errors: ManifestErrors,
    },
}

impl Unfit {
    /// For programs.
    #[must_use]
    pub const fn code(&self) -> RefusalCode {
        match self {
            Self::Genesis { .. } | Self::Container { .. } => RefusalCode::Conflict,
            Self::Unknown { .. } | Self::NoEarlier { .. } => RefusalCode::NotFound,
            Self::Manifest { .. } => RefusalCode::InvalidManifest,
        }
    }
}

/// The revision to go back to, with its manifest. Where none is said it is the newest before the one that first had
/// what there is now: going back twice goes back further, and never to what was left.
///
/// # Errors
/// When there is none, or it may not be gone back to.
pub fn choose<'a>(
    present: &ModuleRecord,
    history: &'a [ModuleRecord],
    to: Option<u64>,
) -> Result<(&'a ModuleRecord, Manifest), Unfit> {
    let module = || present.name.clone();
    let target = match to {
        Some(0) => return Err(Unfit::Genesis { module: module() }),
        Some(revision) => history.iter().find(|record| record.revision == revision).ok_or_else(|| {
            let mut known: Vec<u64> = history.iter().map(|record| record.revision).collect();
            known.sort_unstable();
            let known = known.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            Unfit::Unknown { module: module(), revision, known }
        })?,
        None => {
            let earlier = history.iter().filter(|record| record.revision < present.origin());
            let other = earlier.filter(|record| content(record) != content(present));
            other.max_by_key(|record| record.revision).ok_or_else(|| Unfit::NoEarlier {
                module: module(),
                origin: present.origin(),
                what: before(present),
            })?
        }
    };
    let path = format!("{} revision {}", target.name, target.revision);
    let manifest = Manifest::parse(&path, &target.manifest).map_err(|errors| Unfit::Manifest {
        module: module(),
        revision: target.revision,
        errors,
    })?;
    if holds_as_container(&manifest) {
        return Err(Unfit::Container { module: module(), revision: target.revision });
    }
    Ok((target, manifest))
}

fn content(record: &ModuleRecord) -> (&str, &crate::plan::Bundles) {
    (&record.manifest, &record.bundles)
}

/// What was there before the first push.
fn before(present: &ModuleRecord) -> &'static str {
    let holds_seat =
        Manifest::parse(present.name.as_str(), &present.manifest).is_ok_and(|m| m.seat.is_some());
    if holds_seat {
        "before it the seat was held by genesis's container, which nothing brings back"
    } else {
        "before it there was nothing"
    }
}

fn holds_as_container(manifest: &Manifest) -> bool {
    let holder = manifest.processes.first().map(|_| ResourceKind::Process);
    let holder = holder.or_else(|| manifest.containers.first().map(|_| ResourceKind::Container));
    manifest.seat.is_some() && holder == Some(ResourceKind::Container)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bundles, record, seated, web};

    fn revision(number: u64, content: &str) -> ModuleRecord {
        ModuleRecord { bundles: bundles("web", content), ..record("web", number, &web("1.0.0", ""), &["n1"]) }
    }

    fn chosen(present: &ModuleRecord, history: &[ModuleRecord], to: Option<u64>) -> Result<u64, Unfit> {
        choose(present, history, to).map(|(record, _)| record.revision)
    }

    #[test]
    fn the_one_before_is_the_last_that_had_something_else() {
        let history = [revision(3, "b"), revision(2, "b"), revision(1, "a")];
        assert_eq!(chosen(&history[0], &history, None), Ok(1));
        assert_eq!(chosen(&history[0], &history, Some(2)), Ok(2));
    }

    #[test]
    fn going_back_twice_goes_back_further_and_never_to_what_was_left() {
        let mut back = revision(4, "b");
        back.again = Some(2);
        let history = [back.clone(), revision(3, "bad"), revision(2, "b"), revision(1, "a")];
        assert_eq!(chosen(&back, &history, None), Ok(1));
        let mut further = revision(5, "a");
        further.again = Some(1);
        let refused = chosen(&further, &history, None).unwrap_err();
        assert_eq!(refused.code(), RefusalCode::NotFound);
        assert!(refused.to_string().contains("no revision before 1"), "{refused}");
    }

    #[test]
    fn what_genesis_raised_is_never_gone_back_to() {
        let seated = record("mesh-controller", 1, &seated("1.0.0", ""), &["n1"]);
        let history = [seated.clone()];
        let refused = chosen(&seated, &history, Some(0)).unwrap_err();
        assert_eq!(refused.code(), RefusalCode::Conflict);
        assert!(refused.to_string().contains("a container"), "{refused}");
        let refused = chosen(&seated, &history, None).unwrap_err();
        assert!(refused.to_string().contains("genesis's container, which nothing brings back"), "{refused}");
    }

    #[test]
    fn nor_is_a_revision_that_held_the_seat_as_a_container() {
        let seated = record("mesh-controller", 2, &seated("1.0.0", ""), &["n1"]);
        let mut container = seated.clone();
        container.revision = 1;
        container.manifest = r#"
[module]
name = "mesh-controller"
version = "1.0.0"
seat = "mesh-controller"

[[account]]
name = "mesh-controller"

[[container]]
name = "mesh-controller"
image = "docker.io/library/controller:1"
account = "mesh-controller"
"#
        .to_owned();
        let history = [seated.clone(), container];
        for to in [None, Some(1)] {
            let refused = chosen(&seated, &history, to).unwrap_err();
            assert!(matches!(refused, Unfit::Container { revision: 1, .. }), "{refused}");
        }
    }

    #[test]
    fn one_that_never_was_is_named_with_those_that_were() {
        let history = [revision(2, "b"), revision(1, "a")];
        let refused = chosen(&history[0], &history, Some(7)).unwrap_err();
        assert_eq!(refused.to_string(), "web has no revision 7: expected one of 1, 2");
    }
}
