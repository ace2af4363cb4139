//! A container that is really started, looked at, stopped and removed, confined as a mesh's are.
//!
//! In: an engine, the smallest program. Out: what came of each step, each of which something on a machine forbids: an engine
//! elsewhere does not see this machine's files, a security profile does not let it stop what it started. What is made
//! carries who made it, and goes; what a kill leaves ends by itself after a minute, and is removed by the next look. Not
//! here: what a mesh runs.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use mesh_bundles::image::PROGRAM_LABEL;
use mesh_engine::{
    Access, Container, ContainerId, ContainerRequest, Engine, Error, LabelSelector, Mount, Removed, Signal,
    State, User,
};
use mesh_protocol::chain::chain;

use super::check::{Finding, Tried, expect, wrong};
use super::maker::Maker;
use super::name::Name;
use super::place::{PROGRAM, Place, Sweep};
use crate::images::{self, OWN_REGISTRY};
use crate::output::Code;

/// The label of such a container: who made it.
const LABEL: &str = "mesh.probe";

/// Where it sees the folder that it is given.
const SEEN_AT: &str = "/probe";

/// All of it takes a second; a machine that does something else as well, several.
const LIMIT: Duration = Duration::from_secs(20);

/// The program ends at once, but where nothing runs at once.
const GRACE: Duration = Duration::from_secs(3);

/// How long the program may take to wait for its signal, and how often it is looked.
const SOON: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);

const NOBODY: User = User { uid: 65534, gid: 65534 };

/// What came of each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trials {
    pub(super) image: Tried,
    pub(super) start: Tried,
    pub(super) network: Tried,
    pub(super) mount: Tried,
    pub(super) stop: Tried,
    pub(super) remove: Tried,
}

impl Trials {
    /// Of all the same.
    pub(super) fn all(tried: &Tried) -> Self {
        let [image, start, network, mount, stop, remove] = [(); 6].map(|()| tried.clone());
        Self { image, start, network, mount, stop, remove }
    }

    fn stopped_at(name: Name, image: Tried, start: Tried) -> Self {
        Self { image, start, ..Self::all(&Tried::without(name)) }
    }
}

/// Does all of it, and takes away whatever came of it.
pub(super) async fn try_all(engine: &Engine, place: &Place, maker: &Maker) -> Trials {
    let reference = format!("{OWN_REGISTRY}/{PROGRAM}:{}", maker.token());
    let trying = async {
        if let Err(why) = load(engine, place, &reference).await {
            let without = Tried::without(Name::ContainerImage);
            return Trials::stopped_at(Name::ContainerImage, Tried::Failed(why), without);
        }
        let image = Tried::Worked("an image was put into the engine".to_owned());
        let trials = of_container(engine, place, maker, (&reference, image)).await;
        let removed = engine.remove_image(&reference).await;
        match (&trials.remove, removed) {
            (Tried::Worked(_), Err(error)) => Trials { remove: Tried::Failed(chain(&error)), ..trials },
            _ => trials,
        }
    };
    let late = || Tried::Failed(format!("not done within {} s", LIMIT.as_secs()));
    tokio::time::timeout(LIMIT, trying)
        .await
        .unwrap_or_else(|_| Trials { start: late(), ..Trials::all(&Tried::without(Name::ContainerStart)) })
}

async fn load(engine: &Engine, place: &Place, reference: &str) -> Result<(), String> {
    let binary = place.program();
    let made = images::Program { binary: &binary, name: PROGRAM, arguments: &[] };
    let archive =
        images::of_program(&made, reference, place.folder()).await.map_err(|failure| failure.what.clone())?;
    images::load(engine, &archive).await.map(drop).map_err(|failure| failure.what.clone())
}

async fn of_container(
    engine: &Engine,
    place: &Place,
    maker: &Maker,
    (reference, image): (&str, Tried),
) -> Trials {
    let failed = |error: &Error| Tried::Failed(chain(error));
    let name = format!("{PROGRAM}-{}", maker.token());
    let Ok(name) = name.parse() else {
        return Trials::stopped_at(
            Name::ContainerStart,
            image,
            Tried::Failed(format!("{name:?} is no name")),
        );
    };
    let request = ContainerRequest {
        name,
        image: reference.to_owned(),
        command: Vec::new(),
        user: NOBODY,
        working_directory: None,
        mounts: vec![Mount {
            source: place.folder().as_std_path().to_owned(),
            target: SEEN_AT.into(),
            access: Access::ReadOnly,
        }],
        labels: BTreeMap::from([(LABEL.to_owned(), maker.token().to_owned())]),
    };
    let id = match Box::pin(engine.create(&request)).await {
        Ok(id) => id,
        Err(error) if chain(&error).contains("source path does not exist") => {
            let without = Tried::without(Name::ContainerMount);
            return Trials {
                mount: failed(&error),
                ..Trials::stopped_at(Name::ContainerMount, image, without)
            };
        }
        Err(error) => return Trials::stopped_at(Name::ContainerStart, image, failed(&error)),
    };
    let started = match engine.start(&id).await {
        Ok(_) => engine.inspect(&id).await,
        Err(error) => Err(error),
    };
    let (start, pid) = match started {
        Ok(Some(Container { state: State::Running { pid, .. }, .. })) => {
            (Tried::Worked("a container was started".to_owned()), Some(pid))
        }
        Ok(other) => {
            let state = other.map_or_else(|| "gone".to_owned(), |container| container.state.to_string());
            (Tried::Failed(format!("it is {state} right after it was started")), None)
        }
        Err(error) => (failed(&error), None),
    };
    let trials = match pid {
        Some(pid) => running(engine, place, &id, pid, Trials { start, ..Trials::all(&image) }).await,
        None => Trials::stopped_at(Name::ContainerStart, image, start),
    };
    Trials { remove: remove(engine, &id).await, ..trials }
}

/// What can be seen of one that runs, and its end.
async fn running(engine: &Engine, place: &Place, id: &ContainerId, pid: u32, trials: Trials) -> Trials {
    let waits = async {
        while hears(pid) == Some(false) {
            tokio::time::sleep(POLL).await;
        }
    };
    // One that is not seen to wait is asked to end all the same.
    let _ = tokio::time::timeout(SOON, waits).await;
    let network = tried(on_our_network(pid), "its program is a process of this machine, on its network");
    let mount = tried(sees_our_files(pid, place), "it sees this machine's files");
    let stop = match engine.stop(id, GRACE).await {
        Ok(_) => match engine.inspect(id).await.map(|found| found.map(|container| container.state)) {
            Ok(Some(State::Exited { code: 0, .. })) => {
                Tried::Worked("it ended when it was asked to".to_owned())
            }
            Ok(Some(state)) => Tried::Failed(format!("{state}, and not because it was asked to")),
            Ok(None) => Tried::Failed("somebody else removed it".to_owned()),
            Err(error) => Tried::Failed(chain(&error)),
        },
        Err(error) => Tried::Failed(chain(&error)),
    };
    Trials { network, mount, stop, ..trials }
}

fn tried(result: Result<(), String>, how: &str) -> Tried {
    match result {
        Ok(()) => Tried::Worked(how.to_owned()),
        Err(why) => Tried::Failed(why),
    }
}

/// Whether the program of this pid is ours and waits for its signal: it sleeps nowhere else. None where the process is not
/// to be seen.
pub(super) fn hears(pid: u32) -> Option<bool> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.contains(&format!("({PROGRAM}) S ")))
}

fn on_our_network(pid: u32) -> Result<(), String> {
    if hears(pid).is_none() {
        return Err(format!("its program, process {pid} as the engine says, is no process of this machine"));
    }
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net")).map_err(|error| error.to_string());
    let (own, its) = (network("self")?, network(&pid.to_string())?);
    if own == its {
        Ok(())
    } else {
        Err(format!("it is on {}, and this program on {}", its.display(), own.display()))
    }
}

fn sees_our_files(pid: u32, place: &Place) -> Result<(), String> {
    let seen = format!("/proc/{pid}/root{SEEN_AT}/{PROGRAM}");
    let seen = fs::read(&seen).map_err(|error| format!("{seen}: {error}"))?;
    let own = fs::read(place.program()).map_err(|error| error.to_string())?;
    if own == seen { Ok(()) } else { Err("it sees other files in that folder".to_owned()) }
}

async fn remove(engine: &Engine, id: &ContainerId) -> Tried {
    let removing = async {
        // One that did not end when it was asked to is ended.
        engine.kill(id, Signal::Kill).await?;
        engine.wait(id, SOON).await?;
        engine.remove(id).await
    };
    match removing.await {
        Ok(Removed::Removed | Removed::Gone) => Tried::Worked("nothing of it is left".to_owned()),
        Ok(Removed::StillRunning) => Tried::Failed("it still runs".to_owned()),
        Err(error) => Tried::Failed(chain(&error)),
    }
}

/// Removes the containers and images that an earlier look left in the engine; or only tells of them.
pub(super) async fn sweep(engine: &Engine, sweep: Sweep) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    for container in engine.list(&LabelSelector::has(LABEL)).await? {
        let token = container.labels.get(LABEL).map(String::as_str).unwrap_or_default();
        let age = container
            .started_at
            .and_then(|at| Duration::try_from(at.duration_until(jiff::Timestamp::now())).ok());
        if Maker::is_gone(token, age) {
            if sweep == Sweep::Removed {
                remove(engine, &container.id).await;
            }
            found.push(format!("container {}", container.name));
        }
    }
    for image in engine.list_images(&LabelSelector::is(PROGRAM_LABEL, PROGRAM)).await? {
        for reference in &image.references {
            let token = reference.rsplit_once(':').map_or("", |(_, tag)| tag);
            if Maker::is_gone(token, None) {
                if sweep == Sweep::Removed {
                    engine.remove_image(reference).await?;
                }
                found.push(format!("image {reference}"));
            }
        }
    }
    Ok(found)
}

/// Images are loaded, not pulled.
pub(super) fn image(tried: &Tried) -> Finding {
    expect("an engine that takes an image").tried(tried, |why| {
        let what = format!("no image can be put into the engine: {why}");
        wrong(
            Code::ContainerUnusable,
            what,
            why,
            "see what the engine's log says (journalctl -u docker): its disk, its storage driver",
        )
    })
}

/// What is started is confined: a read-only root, no capabilities, no new privileges.
pub(super) fn start(tried: &Tried) -> Finding {
    expect("an engine that starts a container").tried(tried, |why| {
        let what = format!("no container can be started: {why}");
        wrong(Code::ContainerUnusable, what, why, "see what the engine's log says (journalctl -u docker): its runtime, control groups, a security profile")
    })
}

/// All parts of a mesh meet on the loopback.
pub(super) fn network(tried: &Tried) -> Finding {
    expect("containers that are processes of this machine, on its network").tried(tried, |why| {
        let what = format!("containers are not on this machine's network: {why}");
        wrong(
            Code::ContainerUnusable,
            what,
            why,
            "use an engine that runs on this machine itself, not in a virtual one and not without root",
        )
    })
}

/// Bus, store and controller see their files where the machine has them.
pub(super) fn mount(tried: &Tried) -> Finding {
    expect("containers that see this machine's files").tried(tried, |why| {
        let what = format!("containers do not see the folder that the mesh shall lie in: {why}");
        wrong(Code::ContainerUnusable, what, why, "choose a --root that the engine sees (one from a snap sees home folders alone), or use the machine's own engine")
    })
}

/// A profile may let the engine start what it then may not stop.
pub(super) fn stop(tried: &Tried) -> Finding {
    expect("an engine that stops what it started").tried(tried, |why| {
        let what = format!("a container does not end when it is asked to: {why}");
        wrong(Code::ContainerUnusable, what, why, "have the security profile (AppArmor, SELinux) let the engine send signals: aa-status, journalctl -k")
    })
}

/// Nothing may be left.
pub(super) fn removal(tried: &Tried) -> Finding {
    expect("an engine that removes what was stopped").tried(tried, |why| {
        let what = format!("a container cannot be removed: {why}");
        wrong(Code::ContainerUnusable, what, why, "see what the engine's log says (journalctl -u docker)")
    })
}
