//! The container engine: where it is, whether it is there, runs, may be spoken to, and is one that does.
//!
//! In: the endpoint, what came of connecting to it, what it says of itself. Out: findings. Not here: what is in it.

use std::os::unix::fs::MetadataExt as _;

use mesh_engine::{Address, Endpoint, Engine, Error, Facts, FoundBy, Silence, Swarm};
use mesh_protocol::chain::chain;
use mesh_protocol::id::System;

use super::check::{Expected, Finding, expect, wrong};
use super::machine::PATIENCE;
use super::name::Name;
use crate::machine::{Room, find_program, room};
use crate::output::{Code, Failure};
use crate::world::World;

/// The daemons that can be an engine.
const DAEMONS: [&str; 2] = ["dockerd", "podman"];

/// What is known of the engine.
#[derive(Debug)]
pub(super) struct Seen {
    /// Where it is, or why that cannot be told.
    pub(super) endpoint: Result<Endpoint, Failure>,
    /// Why nothing can be asked of it; none where it answers.
    pub(super) silent: Option<Error>,
    /// A daemon that is installed.
    pub(super) daemon: Option<String>,
    /// The group whose members may speak to its socket.
    pub(super) group: Option<String>,
    /// What it says of itself.
    pub(super) facts: Option<Facts>,
    /// The room where it keeps what it has.
    pub(super) room: Result<Room, String>,
}

/// Looks for it, and asks it what it is.
pub(super) async fn look(world: &World) -> (Seen, Option<Engine>) {
    let endpoint = mesh_engine::endpoint::resolve(None, &world.engine_environment()).map_err(|error| {
        Failure::of(Code::EngineEndpoint, &error)
            .hint("mend DOCKER_HOST, DOCKER_CONTEXT or docker's current context")
    });
    let path = world.variable("PATH");
    let daemon = DAEMONS.into_iter().find_map(|name| find_program(name, path)).map(String::from);
    let group = endpoint.as_ref().ok().and_then(group_of);
    let mut seen = Seen {
        endpoint,
        silent: None,
        daemon,
        group,
        facts: None,
        room: Err("no engine answers".to_owned()),
    };
    let Ok(endpoint) = &seen.endpoint else { return (seen, None) };
    let hangs = || Err(Error::TimedOut { what: "answer".to_owned(), limit: PATIENCE });
    let asking = async {
        let engine =
            tokio::time::timeout(PATIENCE, Engine::connect(endpoint)).await.unwrap_or_else(|_| hangs())?;
        let facts = engine.facts().await?;
        Ok((engine, facts))
    };
    match asking.await {
        Ok((engine, facts)) => {
            seen.room = room_of(&facts);
            seen.facts = Some(facts);
            (seen, Some(engine))
        }
        Err(error) => {
            seen.silent = Some(error);
            (seen, None)
        }
    }
}

fn room_of(facts: &Facts) -> Result<Room, String> {
    let folder = camino::Utf8Path::new(&facts.root_folder);
    if !folder.is_dir() {
        return Err("there is no such folder on this machine".to_owned());
    }
    room(folder).map_err(|error| error.to_string())
}

/// The group of a socket's file.
fn group_of(endpoint: &Endpoint) -> Option<String> {
    let Address::Unix(path) = &endpoint.address else { return None };
    let number = std::fs::metadata(path).ok()?.gid().to_string();
    let groups = std::fs::read_to_string("/etc/group").ok()?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

impl Seen {
    /// The endpoint, for people.
    pub(super) fn place(&self) -> String {
        match &self.endpoint {
            Ok(endpoint) => endpoint.to_string(),
            Err(failure) => failure.what.clone(),
        }
    }

    /// Whether the engine's place is what nobody said, so that its absence means that none is installed.
    fn is_default(&self) -> bool {
        self.endpoint.as_ref().is_ok_and(|endpoint| endpoint.found_by == FoundBy::Default)
    }

    /// Whether there is no engine's socket, and no daemon that could make one.
    fn is_not_installed(&self) -> bool {
        let no_socket = matches!(self.silent, Some(Error::Unreachable { silence: Silence::NoSocket, .. }));
        no_socket && self.is_default() && self.daemon.is_none()
    }

    fn facts_or(&self, check: Expected, judge: impl FnOnce(Expected, &Facts) -> Finding) -> Finding {
        match &self.facts {
            Some(facts) => judge(check, facts),
            None => check.skipped(NO_ENGINE),
        }
    }
}

/// Why something is not looked at where there is no engine.
pub(super) const NO_ENGINE: &str = "no engine answers";

/// What says where it is must be right: it is never passed over.
pub(super) fn endpoint(seen: &Seen) -> Finding {
    let check = expect(
        "DOCKER_HOST, DOCKER_CONTEXT or docker's current context to name an engine of this machine, or nothing",
    );
    match &seen.endpoint {
        Ok(endpoint) => check.met(endpoint.to_string()),
        Err(failure) => check.failed(failure.clone()),
    }
}

/// One must be installed.
pub(super) fn installed(seen: &Seen) -> Finding {
    let check = expect("a container engine on this machine");
    if seen.is_not_installed() {
        return check.failed(wrong(
            Code::EngineUnreachable,
            "no container engine is installed on this machine",
            format!("no socket at {}, and no {}", seen.place(), DAEMONS.join(" or ")),
            "install one (on Debian: apt-get install docker.io), or say with DOCKER_HOST where it is",
        ));
    }
    match (&seen.endpoint, &seen.silent, &seen.daemon) {
        (Err(_), _, _) => check.skipped(format!("needs what {} looks at", Name::EngineEndpoint)),
        (_, None, _) => check.met("it answers"),
        (_, _, Some(daemon)) => check.met(daemon.clone()),
        (_, Some(_), None) => check.met(format!("whatever is at {}", seen.place())),
    }
}

/// It must run.
pub(super) fn running(seen: &Seen) -> Finding {
    let check = expect("a container engine that answers");
    let place = seen.place();
    let failure =
        |what: String, found: String, remedy: String| wrong(Code::EngineUnreachable, what, found, remedy);
    match &seen.silent {
        _ if seen.endpoint.is_err() => check.skipped(format!("needs what {} looks at", Name::EngineEndpoint)),
        _ if seen.is_not_installed() => {
            check.skipped(format!("needs what {} looks at", Name::EngineInstalled))
        }
        Some(error @ Error::Unreachable { silence, .. }) => {
            let what = match (silence, &seen.daemon) {
                (Silence::NoSocket | Silence::NobodyAnswers, Some(_)) if seen.is_default() => {
                    format!("the container engine is installed and not started: {}", chain(error))
                }
                _ => chain(error),
            };
            let remedy = match (silence, seen.is_default()) {
                (Silence::NoSocket | Silence::NobodyAnswers, true) => {
                    "start the container engine (systemctl start docker, or dockerd)".to_owned()
                }
                (Silence::NoSocket | Silence::NobodyAnswers, false) => {
                    format!("start the engine that is meant by {}, or mend what names it", said_by(seen))
                }
                (Silence::BrokeOff, _) => error.remedy().unwrap_or_default(),
            };
            check.failed(failure(what, format!("looked at {place}"), remedy))
        }
        Some(error @ Error::TimedOut { .. }) => {
            let what = format!("the container engine at {place} hangs: {error}");
            let remedy = "see whether `docker ps` answers; restart the engine if it does not (systemctl restart docker)";
            check.failed(failure(what, format!("no answer from {place}"), remedy.to_owned()))
        }
        _ => check.met(format!("it answers at {place}")),
    }
}

fn said_by(seen: &Seen) -> String {
    seen.endpoint.as_ref().map(|endpoint| endpoint.found_by.to_string()).unwrap_or_default()
}

/// This user must be let in.
pub(super) fn permitted(seen: &Seen) -> Finding {
    let check = expect("a socket that this user may write to");
    match &seen.silent {
        _ if seen.endpoint.is_err() => check.skipped(format!("needs what {} looks at", Name::EngineEndpoint)),
        Some(error @ Error::NotPermitted { .. }) => {
            let remedy = match &seen.group {
                Some(group) => format!(
                    "run this as root; for docker's own use without root: usermod -aG {group} USER, and log in again"
                ),
                None => error.remedy().unwrap_or_else(|| "run this as root".to_owned()),
            };
            let group =
                seen.group.as_ref().map(|group| format!(", which is for group {group}")).unwrap_or_default();
            let found = format!("no permission for {}{group}", seen.place());
            check.failed(wrong(Code::EngineNotPermitted, chain(error), found, remedy))
        }
        Some(Error::Unreachable { .. } | Error::TimedOut { .. }) => check.skipped(NO_ENGINE),
        _ => check.met("it lets us in"),
    }
}

/// It must speak what we speak.
pub(super) fn version(seen: &Seen) -> Finding {
    let (oldest, newest) = (mesh_engine::OLDEST_API, mesh_engine::NEWEST_API);
    let check = expect(format!("an engine that speaks an API between {oldest} (Docker 20.10) and {newest}"));
    match &seen.silent {
        Some(Error::Unreachable { .. } | Error::TimedOut { .. } | Error::NotPermitted { .. }) => {
            check.skipped(NO_ENGINE)
        }
        Some(error) => {
            let remedy =
                error.remedy().unwrap_or_else(|| "see whether `docker version` answers there".to_owned());
            check.failed(wrong(Code::Engine, chain(error), seen.place(), remedy))
        }
        None => {
            seen.facts_or(check, |check, facts| check.met(format!("{}, API {}", facts.version, facts.api)))
        }
    }
}

/// Bundles and the images made of them are for this machine's system.
pub(super) fn platform(seen: &Seen) -> Finding {
    let system = System::of_this_program();
    seen.facts_or(expect(format!("an engine for {system}, as the bundles are")), |check, facts| {
        let found = format!("{}/{}", facts.os, facts.architecture);
        if found == system.to_string() {
            return check.met(found);
        }
        check.failed(wrong(
            Code::UnsupportedSystem,
            format!("the engine runs containers of {found}, and the bundles are for {system}"),
            found,
            "use the engine of this machine itself, or the programs that are built for the engine's",
        ))
    })
}

/// An engine without root has a network and users of its own: what it runs is not on this machine's loopback.
pub(super) fn rootful(seen: &Seen) -> Finding {
    let check =
        expect("an engine that runs as root, so that containers share this machine's network and users");
    seen.facts_or(check, |check, facts| {
        if facts.security.iter().any(|option| option.contains("rootless")) {
            return check.failed(wrong(
                Code::Engine,
                "the engine runs without root: its containers are not on this machine's network",
                facts.security.join("; "),
                "use the machine's own engine: unset DOCKER_HOST, or docker context use default",
            ));
        }
        let security =
            if facts.security.is_empty() { "nothing".to_owned() } else { facts.security.join("; ") };
        check.met(format!("it confines containers by {security}"))
    })
}

/// In a swarm others decide as well what the engine runs.
pub(super) fn swarm(seen: &Seen) -> Finding {
    seen.facts_or(expect("an engine that is in no swarm"), |check, facts| match facts.swarm {
        Swarm::Apart => check.met("it is in none"),
        Swarm::Member => check.warned(wrong(
            Code::Engine,
            "the engine is part of a swarm: services of others may take names, ports and room on it",
            "member of a swarm",
            "keep the mesh's ports out of the swarm's published ones; docker swarm leave, if it is not used",
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    pub(super) fn silent(error: Error, found_by: FoundBy, daemon: Option<&str>) -> Seen {
        let address: Address = "unix:///var/run/docker.sock".parse().unwrap();
        Seen {
            endpoint: Ok(Endpoint { address, found_by }),
            silent: Some(error),
            daemon: daemon.map(str::to_owned),
            group: None,
            facts: None,
            room: Err(NO_ENGINE.to_owned()),
        }
    }

    fn unreachable(silence: Silence) -> Error {
        let address = "unix:///var/run/docker.sock".parse().unwrap();
        Error::Unreachable { address, silence, source: std::io::ErrorKind::NotFound.into() }
    }

    fn states(seen: &Seen) -> [State; 4] {
        [installed(seen), running(seen), permitted(seen), version(seen)].map(|finding| finding.state)
    }

    #[test]
    fn of_the_ways_to_have_no_engine_each_is_told_once() {
        use State::{Failed, Passed, Skipped};
        let none = silent(unreachable(Silence::NoSocket), FoundBy::Default, None);
        assert_eq!(states(&none), [Failed, Skipped, Skipped, Skipped]);
        let stopped = silent(unreachable(Silence::NoSocket), FoundBy::Default, Some("/usr/sbin/dockerd"));
        assert_eq!(states(&stopped), [Passed, Failed, Skipped, Skipped]);
        assert!(running(&stopped).problem.unwrap().what.contains("installed and not started"));
        let elsewhere = silent(unreachable(Silence::NoSocket), FoundBy::DockerHost, None);
        assert_eq!(states(&elsewhere), [Passed, Failed, Skipped, Skipped]);
        let what = running(&elsewhere).problem.unwrap();
        assert!(what.hint.as_ref().unwrap().contains("DOCKER_HOST"), "{what:?}");
        let address = || "unix:///var/run/docker.sock".parse().unwrap();
        let source = std::io::ErrorKind::PermissionDenied.into();
        let closed = silent(Error::NotPermitted { address: address(), source }, FoundBy::Default, None);
        assert_eq!(states(&closed), [Passed, Passed, Failed, Skipped]);
        let found = mesh_engine::ApiVersion { major: 1, minor: 40 };
        let old = silent(Error::TooOld { address: address(), found }, FoundBy::Default, None);
        assert_eq!(states(&old), [Passed, Passed, Passed, Failed]);
    }
}
