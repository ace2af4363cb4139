//! Which bundles of a module have to be built for a push: for each system of the nodes that need one, whether its binary
//! lies there, the store has it, it can be built here, or there is no way.
//!
//! In: what the assigned nodes need, as the controller says; the module on its author's disk; the store. Out: a plan
//! (pure), and what is wrong with it, each with the nodes that wait for it. Not here: building, packing and publishing.

use mesh_bundles::inputs::BuildInputs;
use mesh_bundles::manifest::system_tag;
use mesh_bundles::store::{Store, StoreError, Trouble, Wanted};
use mesh_protocol::id::{Digest, NodeName, System};
use mesh_protocol::manifest::Bundle;
use mesh_protocol::plan::Published;
use mesh_protocol::verb::BundleNeed;

use crate::inputs;
use crate::module::Module;
use crate::output::{Code, Failure, Result};
use crate::registry;

/// How a bundle that is needed is had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Its binary lies there: it is packed.
    Pack,
    /// The store has it.
    Stored(Published),
    /// It has to be built first.
    Build,
    /// There is none.
    None,
}

/// What is known of one bundle for one system.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Whether its binary lies there.
    pub has_binary: bool,
    /// Whether the manifest says how it is built.
    pub has_build: bool,
    /// What it must be, where the manifest pins it.
    pub pin: Option<&'a Digest>,
    /// What it would be built from here.
    pub here: &'a BuildInputs,
    /// What the store has for the module's version.
    pub stored: Option<&'a Stored>,
}

/// What the store has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The bundle.
    pub published: Published,
    /// What it was built from, where it says so.
    pub build: Option<BuildInputs>,
}

/// A binary that lies there is what its author wants to push. Without one, what the store has is taken where it is what
/// would be built, or cannot be built here; a version that was published from another source is no reason not to build.
#[must_use]
pub fn decide(facts: &Facts<'_>) -> Way {
    if facts.has_binary {
        return Way::Pack;
    }
    let stored = facts.stored.filter(|stored| facts.pin.is_none_or(|pin| *pin == stored.published.digest));
    let is_sure = |stored: &&Stored| {
        let same = stored.build.as_ref().is_some_and(|build| inputs::are_same(build, facts.here));
        facts.pin.is_some() || same
    };
    match (stored.filter(is_sure), facts.has_build, stored) {
        (Some(sure), _, _) => Way::Stored(sure.published.clone()),
        (None, true, _) => Way::Build,
        (None, false, Some(stored)) => Way::Stored(stored.published.clone()),
        (None, false, None) => Way::None,
    }
}

/// How each bundle that is needed is had.
#[derive(Debug)]
pub struct Planned<'a> {
    /// What is needed, and by whom.
    pub need: &'a BundleNeed,
    /// As the manifest has it.
    pub bundle: &'a Bundle,
    /// How it is had.
    pub way: Way,
}

/// Plans for all that is needed.
///
/// # Errors
/// When the store does not answer; all that cannot be had, each with the nodes that need it.
pub async fn plan<'a>(
    module: &'a Module,
    needs: &'a [BundleNeed],
    store: &Store,
) -> Result<Vec<Planned<'a>>> {
    let (mut planned, mut faults) = (Vec::new(), Vec::new());
    for need in needs {
        let Some(bundle) = module.manifest.bundle(&need.bundle, need.system) else {
            let what = format!("bundle {} is not declared for {}", need.bundle, need.system);
            let expected = format!("a [[bundle]] with system = \"{}\" in {}", need.system, module.path);
            faults.push(Failure::new(Code::Missing, what).expected(expected).hint(needed_by(&need.nodes)));
            continue;
        };
        let has_binary = module.binary(bundle).is_file();
        let stored = if has_binary { None } else { stored(module, bundle, store).await? };
        // What it would be built from is looked for only where it is to be compared.
        let here = match &stored {
            Some(_) => inputs::of(&module.source(), &bundle.build),
            None => BuildInputs::default(),
        };
        let facts = Facts {
            has_binary,
            has_build: !bundle.build.is_empty(),
            pin: bundle.pin.as_ref(),
            here: &here,
            stored: stored.as_ref(),
        };
        match decide(&facts) {
            Way::None => faults.push(no_way(module, bundle, &need.nodes)),
            way => planned.push(Planned { need, bundle, way }),
        }
    }
    if faults.is_empty() {
        return Ok(planned);
    }
    Err(Failure::all(Code::BinaryMissing, "not all bundles that are needed can be had", faults))
}

/// What the store has of a bundle: what is pinned, else what its version and system are called.
async fn stored(module: &Module, bundle: &Bundle, store: &Store) -> Result<Option<Stored>> {
    let repository = store.repository(&bundle.name);
    let wanted = match &bundle.pin {
        Some(pin) => Wanted::Digest(pin.clone()),
        None => match system_tag(&module.manifest.version, bundle.system).parse() {
            Ok(tag) => Wanted::Tag(tag),
            Err(_) => return Ok(None),
        },
    };
    let found = match store.resolve_for(&repository, &wanted, bundle.system).await {
        Ok(found) => found,
        Err(error)
            if error.trouble() == Trouble::Missing || matches!(error, StoreError::NotBundle { .. }) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(registry::failure(&error)),
    };
    let Some(size) = found.size else { return Ok(None) };
    let build = match &found.manifest {
        Some(manifest) => {
            let config = store.config(&repository, manifest).await;
            config.map_err(|error| registry::failure(&error))?.build
        }
        None => None,
    };
    Ok(Some(Stored { published: Published { digest: found.bundle, size }, build }))
}

fn no_way(module: &Module, bundle: &Bundle, nodes: &[NodeName]) -> Failure {
    let Bundle { name, system, .. } = bundle;
    let version = &module.manifest.version;
    Failure::new(Code::BinaryMissing, format!("bundle {name} for {system} cannot be had"))
        .expected(format!(
            "its binary at {}, a `build` in {}, or {name} {version} for {system} in the store",
            module.binary(bundle),
            module.path
        ))
        .found("none of them")
        .hint(needed_by(nodes))
}

/// `node n2 needs it`
#[must_use]
pub fn needed_by(nodes: &[NodeName]) -> String {
    match nodes {
        [] => "no node needs it yet".to_owned(),
        [one] => format!("node {one} needs it"),
        many => {
            let names: Vec<&str> = many.iter().map(NodeName::as_str).collect();
            format!("nodes {} need it", names.join(", "))
        }
    }
}

/// `build mesh-host for linux/arm64 with: scripts/build linux/arm64 (node n2 needs it)`
#[must_use]
pub fn build_line(planned: &Planned<'_>) -> String {
    let Bundle { name, system, build, .. } = planned.bundle;
    format!("build {name} for {system} with: {} ({})", build.join(" "), needed_by(&planned.need.nodes))
}

/// What would have to be built, where nothing may be.
#[must_use]
pub fn not_built(planned: &[Planned<'_>]) -> Option<Failure> {
    let faults: Vec<Failure> = planned
        .iter()
        .filter(|planned| planned.way == Way::Build)
        .map(|planned| Failure::new(Code::BuildNeeded, format!("would have to {}", build_line(planned))))
        .collect();
    let what = "nothing was pushed: not all that is needed is built";
    (!faults.is_empty()).then(|| {
        Failure::all(Code::BuildNeeded, what, faults)
            .hint("run it without --no-build, or build it yourself first")
    })
}

/// A build that failed, with those who wait for it.
#[must_use]
pub fn failed(failure: Failure, system: System, nodes: &[NodeName]) -> Failure {
    failure.details([format!("for {system}: {}", needed_by(nodes))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_bundles::inputs::SourceTree;

    fn inputs(revision: &str) -> BuildInputs {
        BuildInputs {
            revision: Some(revision.to_owned()),
            tree: Some(SourceTree::Clean),
            command: vec!["make".to_owned()],
            ..BuildInputs::default()
        }
    }

    fn stored(content: &[u8], build: Option<BuildInputs>) -> Stored {
        Stored { published: Published { digest: Digest::of(content), size: 1 }, build }
    }

    #[test]
    fn a_binary_that_lies_there_is_packed_whatever_the_store_has() {
        let (here, stored) = (inputs("r1"), stored(b"x", Some(inputs("r1"))));
        let facts =
            Facts { has_binary: true, has_build: true, pin: None, here: &here, stored: Some(&stored) };
        assert_eq!(decide(&facts), Way::Pack);
    }

    #[test]
    fn without_one_it_is_taken_from_the_store_or_built_or_there_is_no_way() {
        let here = inputs("r1");
        let way = |has_build, pin: Option<&Digest>, stored: Option<&Stored>| {
            decide(&Facts { has_binary: false, has_build, pin, here: &here, stored })
        };
        let (same, other) = (stored(b"x", Some(inputs("r1"))), stored(b"y", Some(inputs("r2"))));
        let unknown = stored(b"z", None);
        let taken = |stored: &Stored| Way::Stored(stored.published.clone());
        // Of the same source: nothing is built twice.
        assert_eq!(way(true, None, Some(&same)), taken(&same));
        assert_eq!(way(false, None, Some(&same)), taken(&same));
        // Of another, or of who knows which: built, where it can be.
        for stored in [&other, &unknown] {
            assert_eq!(way(true, None, Some(stored)), Way::Build);
            assert_eq!(way(false, None, Some(stored)), taken(stored));
        }
        // What is pinned is what it must be, or it is nothing.
        let pin = other.published.digest.clone();
        assert_eq!(way(true, Some(&pin), Some(&other)), taken(&other));
        assert_eq!(way(true, Some(&pin), Some(&same)), Way::Build);
        assert_eq!(way(false, Some(&pin), Some(&same)), Way::None);
        assert_eq!((way(true, None, None), way(false, None, None)), (Way::Build, Way::None));
    }

    #[test]
    fn who_waits_is_named() {
        let nodes =
            |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<NodeName>>();
        assert_eq!(needed_by(&nodes(&["n2"])), "node n2 needs it");
        assert_eq!(needed_by(&nodes(&["n2", "n3"])), "nodes n2, n3 need it");
    }
}
