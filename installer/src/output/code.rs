//! The codes of all failures: stable words for programs, each with what it means and what to do.
//!
//! In: nothing. Out: [`Code`]; docs/errors.md is made from it. Not here: what is told of one failure (`failure`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::failure::Failure;

macro_rules! codes {
    ($($name:ident = $word:literal: $meaning:literal, $remedy:literal;)*) => {
        /// What went wrong, for programs: the words are stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        pub enum Code {$(
            #[doc = $meaning]
            #[serde(rename = $word)]
            $name,
        )*}

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// As it is written: `port-taken`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {$(Self::$name => $word,)*}
            }

            /// As it stands in the source.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {$(Self::$name => stringify!($name),)*}
            }

            /// What it means.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {$(Self::$name => $meaning,)*}
            }

            /// What to do, where the failure itself does not say it better.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {$(Self::$name => $remedy,)*}
            }
        }
    };
}

codes! {
    Usage = "usage": "The command line was not understood.",
        "See the command's `--help`.";
    Interrupted = "interrupted": "It was interrupted.",
        "Run the same command again: it goes on from where it was.";
    Detached = "detached": "It was interrupted while it followed a plan, and the plan goes on by itself.",
        "See `mesh plans`.";
    HandedBack = "handed-back": "The new holder of a seat did not prove itself: the one before serves on.",
        "See why in what was printed and in the log of the new one; push a mended version, or `mesh retry`.";
    PlanFailed = "plan-failed": "Something that a plan changes did not come true.",
        "Mend what is named, and push again; see `mesh nodes` and `mesh plans`.";
    PlanAborted = "plan-aborted": "A plan was given up, as somebody asked.",
        "Push again where it is wanted after all.";
    PlanStillOpen = "plan-still-open": "A plan has not ended in the time that was given; it goes on by itself.",
        "Wait longer with `--timeout`, see what it waits for in `mesh plans`, or give it up with `--abort`.";
    PlanOpen = "plan-open": "Another plan is open, and only one is carried out at a time.",
        "Wait for its end, or give it up: `mesh plans PLAN --abort`.";
    NotRoot = "not-root": "This user may not do that: a mesh's folder is root's.",
        "Run it as root.";
    EngineUnreachable = "engine-unreachable": "The container engine does not answer.",
        "Start it, or say where it is: `DOCKER_HOST`, `DOCKER_CONTEXT`.";
    EngineNotPermitted = "engine-not-permitted": "This user may not speak to the container engine.",
        "Run it as root.";
    EngineEndpoint = "engine-endpoint": "Where the container engine is cannot be told from the surroundings.",
        "Mend `DOCKER_HOST`, `DOCKER_CONTEXT` or docker's current context.";
    Engine = "engine": "The container engine refused something.",
        "See its own words in the failure.";
    PortTaken = "port-taken": "A port that the mesh needs is held by another program.",
        "Choose another, or end that program.";
    ManifestInvalid = "manifest-invalid": "A manifest cannot be read, or is not right.",
        "Mend it where the failure says, file and line.";
    ReplacesInvalid = "replaces-invalid": "The controller's manifest does not say which container its process replaces.",
        "Mend `replaces` in its module.toml.";
    BinaryMissing = "binary-missing": "A program that is needed is not there and cannot be had.",
        "Build it, or say where it is.";
    BinaryUnfit = "binary-unfit": "A program is not what a bundle holds: a static binary of the right system.",
        "Build it as such.";
    BuildFailed = "build-failed": "A module's own build command failed.",
        "See its last lines in the failure.";
    BuildNeeded = "build-needed": "Something would have to be built, and `--no-build` forbids it.",
        "Run it without `--no-build`, or build it first.";
    NameTaken = "name-taken": "A container of that name is there and not this mesh's.",
        "Take another `--prefix`, or remove that container.";
    AccountTaken = "account-taken": "An account of that name is there and not this mesh's.",
        "Take another `--prefix`, or remove that account.";
    ProgramMissing = "program-missing": "A program of the system, or of the mesh, is not on this machine.",
        "Install it, or run `mesh genesis` again where it is the mesh's own.";
    DiskFull = "disk-full": "There is too little room on the disk.",
        "Make room, or take another `--root`.";
    MemoryShort = "memory-short": "There is too little memory for what a mesh runs.",
        "End what takes it, or take a machine with more.";
    ClockWrong = "clock-wrong": "This machine's clock is not right, or disagrees with another that it must agree with.",
        "Set the clock, and have it kept right.";
    LoopbackUnusable = "loopback-unusable": "The programs of a mesh could not speak to each other over the loopback.",
        "See what was found; a loopback that is down: `ip link set lo up`.";
    ContainerUnusable = "container-unusable": "The engine does not start, stop or remove a container as a mesh's are.",
        "See the engine's own words in the failure: a security profile may forbid it.";
    RootUnusable = "root-unusable": "A folder cannot be a mesh's root.",
        "Take another `--root`, or empty it.";
    Preflight = "preflight": "More than one thing stands in the way; each is named with its own code.",
        "Mend each of them.";
    InputsDiffer = "inputs-differ": "The mesh was begun with other inputs.",
        "Run it with the same ones, or take the mesh down first.";
    Locked = "locked": "Another command is changing this mesh.",
        "Wait for its end.";
    NoMesh = "no-mesh": "There is no mesh in the folder.",
        "Create one: `mesh genesis`, or say where it is: `--root`.";
    HostUnreachable = "host-unreachable": "The host does not answer at its door.",
        "Start it: `mesh up`, or go on with `mesh genesis` where the mesh is half done.";
    HostNotStarted = "host-not-started": "The host was started and is not there.",
        "See its log: `mesh logs host`.";
    HostRefused = "host-refused": "The host refused what it was asked.",
        "See why in the failure.";
    HostAnswer = "host-answer": "An answer of the host or the controller cannot be read.",
        "Use the `mesh` that belongs to this mesh.";
    SeatUnreachable = "seat-unreachable": "Nobody answers the controller's seat.",
        "See `mesh status`; where its holder is broken: `mesh recover`.";
    SeatRefused = "seat-refused": "The controller does not know that verb.",
        "Use the `mesh` that belongs to this mesh.";
    StandingBy = "standing-by": "The one that answered stands by, and may change nothing.",
        "Ask again: the holder of the seat does it.";
    InvalidRequest = "invalid-request": "What was asked for makes no sense there.",
        "See why in the failure.";
    NotFound = "not-found": "There is nothing of that name.",
        "See what there is: `mesh modules`, `mesh nodes`, `mesh plans`.";
    Conflict = "conflict": "What was asked for contradicts what is there.",
        "See with what in the failure.";
    Missing = "missing": "Something that a module needs is not there: a secret, a bundle, a node's report.",
        "See what in the failure, and put it there.";
    Unavailable = "unavailable": "The bus's state cannot be read or written now.",
        "Try again; see the log of the bus: `mesh logs container:mesh-bus`.";
    NotPermitted = "not-permitted": "The bus does not let this user in, or not do that.",
        "Is another mesh's bus on this port? See `mesh status`.";
    BusUnreachable = "bus-unreachable": "The bus does not answer.",
        "See what the host says: `mesh status`; start it where it does not run: `mesh up`.";
    StoreUnreachable = "store-unreachable": "The artifact store does not answer.",
        "See `mesh logs container:mesh-store`, or whether its address is right.";
    StoreAddress = "store-address": "That is no address of a store, or one that is not spoken to without encryption.",
        "Write host:port, or https://host/path; `--plain-http` where no encryption is meant.";
    StoreUnauthorized = "store-unauthorized": "The store does not let this user do that.",
        "Log in as for other tools (`docker login`), or give `--credentials FILE`.";
    StoreCertificates = "store-certificates": "There are no certificates to trust the store by.",
        "Give some: `--ca FILE`.";
    Store = "store": "The store refused something.",
        "See its own words in the failure.";
    BundleInvalid = "bundle-invalid": "A bundle is damaged, or not what it should be.",
        "Pack or fetch it again.";
    BackupInvalid = "backup-invalid": "A backup is damaged, of a newer form, or none.",
        "Take another one, or the `mesh` that made it.";
    RestoreBegun = "restore-begun": "A restore was begun in the root, and that has not ended.",
        "Go on with it: `mesh restore FILE` with the same file, or remove what was begun: `mesh down`.";
    GenesisBegun = "genesis-begun": "A genesis was begun in the root, and that has not ended.",
        "Go on with it: `mesh genesis`, or remove what was begun: `mesh down`.";
    ImageMissing = "image-missing": "An image is not there and cannot be had or made.",
        "See what was tried in the failure; `--images DIR` takes archives.";
    NotReached = "not-reached": "A step did what it could, and its goal did not come true in time.",
        "See what it waited for; the same command waits again.";
    WasAProcess = "was-a-process": "The controller of this mesh is a process: no container is raised for it.",
        "Bring it back with `mesh recover`.";
    DownBegun = "down-begun": "The mesh is being taken down, and that has not ended.",
        "End it first: `mesh down`.";
    DestroyNotConfirmed = "destroy-not-confirmed": "A mesh whose seat has answered is not removed without its name.",
        "Say it: `mesh down --destroy NAME`.";
    NotConfirmed = "not-confirmed": "Nothing was removed, for nobody confirmed it.",
        "Run it with `--yes`.";
    LeftBehind = "left-behind": "Not all of the mesh could be removed.",
        "See what in the failure; run it again, or remove it by hand.";
    UnsupportedSystem = "unsupported-system": "The module has no bundle for this system.",
        "Build it for this system, and name it in its module.toml.";
    Io = "io": "A file cannot be read or written.",
        "See which and why in the failure.";
    Internal = "internal": "This program contradicts itself: a defect.",
        "Tell its makers, with what was printed.";
}

/// docs/errors.md.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(HEAD);
    for code in Code::ALL {
        let failure = Failure::new(*code, "");
        let exits = match (failure.exit() as u8, failure.part_way().exit() as u8) {
            (first, then) if first == then => first.to_string(),
            (first, then) => format!("{first}, {then}"),
        };
        let (word, meaning, remedy) = (code.as_str(), code.meaning(), code.remedy());
        text.push_str(&format!("| `{word}` | {exits} | {meaning} | {remedy} |\n"));
    }
    text
}

const HEAD: &str = "# Errors

Generated from `installer/src/output/code.rs`, and held to it by a test.

Every failure of `mesh` has a code. For people it stands first, `error[port-taken]: ...`; with `--json` it is
`failure.code` of the last line, whose `event` is `failed` ([events.schema.json](events.schema.json)). The words are
stable, and none is there that no test produces.

The exit status follows from the code and from whether something had been done before it went wrong: where two are
named, the second says that something was done, and that the same command goes on from there.

| code | exit status | what it means | what to do |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::held_in;

    #[test]
    fn the_documentation_has_every_code() {
        held_in("docs/errors.md", &document());
    }

    #[test]
    fn a_code_is_its_word() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            let kebab = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(code.as_str().chars().all(kebab), "{}", code.as_str());
        }
    }
}
