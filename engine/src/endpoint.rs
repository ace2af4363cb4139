//! Where the engine is, found as the ecosystem finds it, so that `docker` and we speak to the same one.
//!
//! In: an explicit address or none, the environment as a value. Out: an [`Endpoint`] that says how it was found, or
//! an error that names what is wrong with what was said. Not here: whether anything answers there.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use mesh_protocol::id::Digest;
use serde::Deserialize;

/// Where engines listen when nobody says otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// The parts of the surroundings that say where the engine is, as a value.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// The environment's variables.
    pub variables: BTreeMap<String, String>,
    /// The user's home folder.
    pub home: Option<PathBuf>,
}

impl Environment {
    /// What this process was given. Variables that are not UTF-8 are left out.
    #[must_use]
    pub fn of_this_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { variables, home: std::env::home_dir() }
    }

    /// A variable's value. Empty counts as not set, as it does for `docker`.
    fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn docker_folder(&self) -> Option<PathBuf> {
        let said = self.variable("DOCKER_CONFIG").map(PathBuf::from);
        said.or_else(|| self.home.as_ref().map(|home| home.join(".docker")))
    }
}

/// An address that an engine can listen at and that this crate can speak to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// Plain HTTP to this machine itself: whoever speaks to an engine is root on it, so it is spoken to
    /// without TLS over loopback alone.
    Loopback {
        /// A name or number of this machine's loopback.
        host: String,
        /// The port.
        port: u16,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Loopback { host, port } => write!(f, "tcp://{host}:{port}"),
        }
    }
}

/// The port of an engine that listens without TLS, as IANA has it.
const PLAIN_PORT: u16 = 2375;

impl FromStr for Address {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let unsupported = |why| EndpointError::Unsupported { address: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| unsupported("it has no scheme"))?;
        match scheme {
            "unix" if rest.starts_with('/') => Ok(Self::Unix(PathBuf::from(rest))),
            "unix" => Err(unsupported("the path of its socket is not absolute")),
            "tcp" | "http" => loopback(rest).map_err(unsupported),
            "https" => Err(unsupported("an engine behind TLS is not spoken to")),
            "ssh" => Err(unsupported("an engine on another machine is not spoken to")),
            _ => Err(unsupported("its scheme is not known")),
        }
    }
}

fn loopback(rest: &str) -> Result<Address, &'static str> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| "its port is not a number")?)
        }
        _ => (rest, PLAIN_PORT),
    };
    let is_loopback =
        host == "localhost" || host == "[::1]" || host.parse().is_ok_and(|ip: Ipv4Addr| ip.is_loopback());
    if is_loopback {
        Ok(Address::Loopback { host: host.to_owned(), port })
    } else {
        Err("it is not on this machine's loopback")
    }
}

/// What said where the engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundBy {
    /// The caller.
    Explicit,
    /// `DOCKER_HOST`.
    DockerHost,
    /// The context that `DOCKER_CONTEXT` names.
    DockerContext(String),
    /// The current context of the docker configuration.
    CurrentContext(String),
    /// Nobody: it is where engines are.
    Default,
}

impl fmt::Display for FoundBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit => f.write_str("given"),
            Self::DockerHost => f.write_str("DOCKER_HOST"),
            Self::DockerContext(name) => write!(f, "DOCKER_CONTEXT {name:?}"),
            Self::CurrentContext(name) => write!(f, "current docker context {name:?}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Where the engine is, and what said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: Address,
    /// What said so.
    pub found_by: FoundBy,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.found_by)
    }
}

/// Why no endpoint can be told from what was said.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The address is not one that this crate can speak to.
    #[error(
        "engine address {address:?} cannot be used: {why}; expected unix:///absolute/path, or tcp://127.0.0.1:port"
    )]
    Unsupported {
        /// The address as it was found.
        address: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A context was named that the docker configuration does not have.
    #[error("docker context {name:?} ({found_by}) does not exist: expected {}", meta.display())]
    UnknownContext {
        /// Its name.
        name: String,
        /// What named it.
        found_by: FoundBy,
        /// The file that would describe it.
        meta: PathBuf,
    },
    /// A context has no endpoint for docker.
    #[error("docker context {name:?} names no engine: expected Endpoints.docker.Host in {}", meta.display())]
    NoHost {
        /// Its name.
        name: String,
        /// The file that describes it.
        meta: PathBuf,
    },
    /// A context was named, and there is no folder to look it up in.
    #[error("docker context {name:?} cannot be looked up: neither DOCKER_CONFIG nor a home folder is set")]
    NoFolder {
        /// Its name.
        name: String,
    },
    /// A file of the docker configuration cannot be read.
    #[error("docker configuration {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the docker configuration is not what it should be.
    #[error("docker configuration {} is not the JSON that it should be", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// Finds the engine's endpoint: what the caller says, then `DOCKER_HOST`, `DOCKER_CONTEXT`, the current context,
/// and at last the default socket.
///
/// # Errors
/// When what was said cannot be used: it is never passed over for the next in the row.
pub fn resolve(explicit: Option<&str>, environment: &Environment) -> Result<Endpoint, EndpointError> {
    if let Some(address) = explicit {
        return Ok(Endpoint { address: address.parse()?, found_by: FoundBy::Explicit });
    }
    if let Some(host) = environment.variable("DOCKER_HOST") {
        if !host.starts_with("unix://") && environment.variable("DOCKER_TLS_VERIFY").is_some() {
            let why = "DOCKER_TLS_VERIFY asks for TLS, and an engine behind TLS is not spoken to";
            return Err(EndpointError::Unsupported { address: host.to_owned(), why });
        }
        return Ok(Endpoint { address: host.parse()?, found_by: FoundBy::DockerHost });
    }
    let folder = environment.docker_folder();
    let found_by = match environment.variable("DOCKER_CONTEXT") {
        Some(name) => FoundBy::DockerContext(name.to_owned()),
        None => match folder.as_deref().map(current_context).transpose()?.flatten() {
            Some(name) => FoundBy::CurrentContext(name),
            None => FoundBy::Default,
        },
    };
    match &found_by {
        // "default" is docker's name for the absence of a context.
        FoundBy::DockerContext(name) | FoundBy::CurrentContext(name) if name != "default" => {
            let folder = folder.ok_or_else(|| EndpointError::NoFolder { name: name.clone() })?;
            Ok(Endpoint { address: context_address(&folder, name, &found_by)?, found_by })
        }
        _ => Ok(Endpoint { address: Address::Unix(PathBuf::from(DEFAULT_SOCKET)), found_by }),
    }
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(rename = "currentContext", default)]
    current_context: String,
}

#[derive(Deserialize)]
struct MetaFile {
    #[serde(rename = "Endpoints", default)]
    endpoints: BTreeMap<String, MetaEndpoint>,
}

#[derive(Deserialize)]
struct MetaEndpoint {
    #[serde(rename = "Host", default)]
    host: String,
}

fn current_context(folder: &Path) -> Result<Option<String>, EndpointError> {
    let config: Option<ConfigFile> = read_json(&folder.join("config.json"))?;
    Ok(config.map(|config| config.current_context).filter(|name| !name.is_empty()))
}

fn context_address(folder: &Path, name: &str, found_by: &FoundBy) -> Result<Address, EndpointError> {
    let meta = folder.join("contexts/meta").join(Digest::of(name.as_bytes()).hex()).join("meta.json");
    let Some(MetaFile { mut endpoints }) = read_json(&meta)? else {
        return Err(EndpointError::UnknownContext {
            name: name.to_owned(),
            found_by: found_by.clone(),
            meta,
        });
    };
    match endpoints.remove("docker") {
        Some(MetaEndpoint { host }) if !host.is_empty() => host.parse(),
        _ => Err(EndpointError::NoHost { name: name.to_owned(), meta }),
    }
}

/// A file that is not there is `None`: docker's configuration is optional as a whole and in its parts.
fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, EndpointError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(EndpointError::Unreadable { path: path.to_owned(), source });
        }
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| EndpointError::Malformed { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(".docker").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn context(&self, name: &str, host: &str) {
            let hex = Digest::of(name.as_bytes()).hex().to_owned();
            let meta = serde_json::json!({ "Name": name, "Endpoints": { "docker": { "Host": host } } });
            self.write(&format!("contexts/meta/{hex}/meta.json"), &meta.to_string());
        }

        fn resolve(&self, variables: &[(&str, &str)]) -> Result<Endpoint, EndpointError> {
            let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            resolve(None, &Environment { variables, home: Some(self.0.path().to_owned()) })
        }
    }

    fn unix(path: &str) -> Address {
        Address::Unix(PathBuf::from(path))
    }

    #[test]
    fn each_source_gives_way_to_the_one_before_it() {
        let home = Home::new();
        let default = home.resolve(&[("DOCKER_HOST", ""), ("DOCKER_CONTEXT", "")]).unwrap();
        assert_eq!(default, Endpoint { address: unix(DEFAULT_SOCKET), found_by: FoundBy::Default });

        home.context("lab", "unix:///lab.sock");
        home.context("other", "tcp://127.0.0.1:4000");
        home.write("config.json", r#"{ "auths": {}, "currentContext": "lab" }"#);
        let current = home.resolve(&[]).unwrap();
        assert_eq!(current.address, unix("/lab.sock"));
        assert_eq!(current.found_by, FoundBy::CurrentContext("lab".to_owned()));

        let named = home.resolve(&[("DOCKER_CONTEXT", "other")]).unwrap();
        assert_eq!(named.address, Address::Loopback { host: "127.0.0.1".to_owned(), port: 4000 });
        assert_eq!(home.resolve(&[("DOCKER_CONTEXT", "default")]).unwrap().address, unix(DEFAULT_SOCKET));

        let host = home.resolve(&[("DOCKER_CONTEXT", "other"), ("DOCKER_HOST", "unix:///h.sock")]).unwrap();
        assert_eq!(host, Endpoint { address: unix("/h.sock"), found_by: FoundBy::DockerHost });

        let variables = [("DOCKER_HOST".to_owned(), "unix:///h.sock".to_owned())].into();
        let explicit = resolve(Some("unix:///e.sock"), &Environment { variables, home: None }).unwrap();
        assert_eq!(explicit, Endpoint { address: unix("/e.sock"), found_by: FoundBy::Explicit });
    }

    #[test]
    fn docker_config_stands_in_for_the_home_folder() {
        let home = Home::new();
        home.context("lab", "unix:///lab.sock");
        let folder = home.0.path().join(".docker").display().to_string();
        let variables =
            [("DOCKER_CONFIG".to_owned(), folder), ("DOCKER_CONTEXT".to_owned(), "lab".to_owned())].into();
        assert_eq!(resolve(None, &Environment { variables, home: None }).unwrap().address, unix("/lab.sock"));
    }

    #[test]
    fn an_unknown_context_is_named() {
        let home = Home::new();
        let error = home.resolve(&[("DOCKER_CONTEXT", "nowhere")]).unwrap_err();
        assert!(matches!(&error, EndpointError::UnknownContext { name, .. } if name == "nowhere"));
        home.write("config.json", r#"{ "currentContext": "gone" }"#);
        let error = home.resolve(&[]).unwrap_err();
        assert!(error.to_string().contains(r#"docker context "gone""#), "{error}");
    }

    #[test]
    fn what_is_wrong_with_the_configuration_is_said() {
        let home = Home::new();
        home.write("config.json", "{");
        assert!(matches!(home.resolve(&[]).unwrap_err(), EndpointError::Malformed { .. }));
        home.context("empty", "");
        let error = home.resolve(&[("DOCKER_CONTEXT", "empty")]).unwrap_err();
        assert!(matches!(error, EndpointError::NoHost { .. }));
        let tls = [("DOCKER_HOST", "tcp://127.0.0.1:2376"), ("DOCKER_TLS_VERIFY", "1")];
        assert!(matches!(home.resolve(&tls).unwrap_err(), EndpointError::Unsupported { .. }));
    }

    #[test]
    fn only_sockets_and_loopback_are_addresses() {
        for (text, host, port) in [
            ("tcp://localhost", "localhost", 2375),
            ("http://[::1]:99/", "[::1]", 99),
            ("tcp://[::1]", "[::1]", 2375),
        ] {
            assert_eq!(text.parse::<Address>().unwrap(), Address::Loopback { host: host.to_owned(), port });
        }
        let bad = [
            "/run/x.sock",
            "unix://x",
            "tcp://10.0.0.1:2375",
            "https://localhost",
            "ssh://h",
            "fd://",
            "tcp://localhost:x",
        ];
        for text in bad {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
