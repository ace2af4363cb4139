//! What shall become the controller: its manifest, the form that genesis raises, and its binary.
//!
//! In: the controller's folder. Out: findings. Builds nothing. Not here: what the controller is given.

use mesh_protocol::genesis_form;
use mesh_protocol::id::System;

use super::check::{Expected, Finding, expect, wrong};
use super::name::Name;
use crate::controller_source::ControllerSource;
use crate::output::{Code, Failure};

/// The controller, as far as it is needed.
#[derive(Debug, Clone)]
pub(super) enum Source {
    /// It was read, or why it was not.
    Read(Box<Result<ControllerSource, Failure>>),
    /// The mesh has its own, and another comes by `mesh push` alone.
    NotNeeded,
}

impl Source {
    /// It, where there is one.
    pub(super) fn get(&self) -> Option<&ControllerSource> {
        match self {
            Self::Read(read) => read.as_ref().as_ref().ok(),
            Self::NotNeeded => None,
        }
    }

    fn or(&self, check: Expected, judge: impl FnOnce(Expected, &ControllerSource) -> Finding) -> Finding {
        match (self, self.get()) {
            (Self::NotNeeded, _) => check.met(NOT_NEEDED),
            (Self::Read(_), Some(source)) => judge(check, source),
            (Self::Read(_), None) => {
                check.skipped(format!("needs what {} looks at", Name::ControllerManifest))
            }
        }
    }
}

const NOT_NEEDED: &str = "not needed: the controller of this mesh is a process";

/// The manifest, and what its process replaces.
pub(super) fn manifest(source: &Source) -> Finding {
    let check = expect("a valid manifest, whose process replaces the container that genesis raises");
    let read = match source {
        Source::NotNeeded => return check.met(NOT_NEEDED),
        Source::Read(read) => read,
    };
    match read.as_ref() {
        Err(failure) => {
            let failure = failure.clone();
            let hint = failure
                .hint
                .clone()
                .unwrap_or_else(|| "mend it, or say with --controller where it is".to_owned());
            check.failed(failure.hint(hint))
        }
        Ok(source) => match source.container() {
            Ok(container) => check.met(format!("{}, which replaces {container}", source.module.path)),
            Err(failure) => check.failed(failure),
        },
    }
}

/// What the container is given is what the process declares.
pub(super) fn form(source: &Source) -> Finding {
    let check = expect("a genesis form that gives the container what the manifest declares");
    source.or(check, |check, source| {
        let faults = genesis_form::agree(&source.form, &source.module.manifest);
        if faults.is_empty() {
            return check.met("it agrees with the manifest");
        }
        let what = format!("the genesis form beside {} does not agree with it", source.module.path);
        let count = faults.len();
        let failure = wrong(
            Code::ManifestInvalid,
            what,
            format!("{count} differences"),
            "mend genesis.toml or the manifest",
        );
        check.failed(failure.details(faults.iter().map(ToString::to_string)))
    })
}

/// The binary of this machine's system.
pub(super) fn binary(source: &Source) -> Finding {
    let system = System::of_this_program();
    let check = expect(format!("a static binary for {system}"));
    source.or(check, |check, source| {
        let module = &source.module;
        let bundles: Vec<_> =
            module.manifest.bundles.iter().filter(|bundle| bundle.system == system).collect();
        if bundles.is_empty() {
            let has: Vec<String> =
                module.manifest.bundles.iter().map(|bundle| bundle.system.to_string()).collect();
            let found = if has.is_empty() { "no bundle".to_owned() } else { has.join(", ") };
            let failure =
                Failure::new(Code::UnsupportedSystem, format!("{} has no bundle for {system}", module.path))
                    .expected(format!("a [[bundle]] with system = \"{system}\""))
                    .found(found);
            return check.failed(failure.hint("add one to the manifest"));
        }
        let failures: Vec<Failure> = bundles.iter().filter_map(|bundle| module.check(bundle).err()).collect();
        if failures.is_empty() {
            let paths: Vec<String> = bundles.iter().map(|bundle| module.binary(bundle).to_string()).collect();
            return check.met(paths.join(", "));
        }
        let failure = Failure::all(Code::BinaryUnfit, "the controller's binaries are not right", failures);
        let hint = failure.hint.clone().unwrap_or_else(|| "build them again".to_owned());
        check.failed(failure.hint(hint))
    })
}
