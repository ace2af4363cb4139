//! Who we are for a store: from where the ecosystem keeps such things.
//!
//! In: the address of a store, files that other tools wrote, helper programs. Out: a login, or none. Not here: when
//! it is used, and whom it is sent to (see `auth`). A file that is not there says nothing; one that cannot be read is an
//! error, for else somebody would be told that a password is wrong which was never looked at.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use data_encoding::BASE64;
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;

use super::address::StoreAddress;

/// Somebody may have to unlock a keyring.
const HELPER_LIMIT: Duration = Duration::from_secs(60);
/// The key under which Docker's own registry has always been kept.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// What a helper says when it knows nobody.
const NOT_FOUND: &str = "credentials not found in native keychain";
/// The name that says that the secret is a token.
const TOKEN_USER: &str = "<token>";

/// Something that is not to be seen.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides it.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// What proves who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    /// A name and a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A token that the token server changes for another.
    IdentityToken(Secret),
    /// A token that the store takes as it is.
    RegistryToken(Secret),
}

/// Where to look for a login.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Credentials {
    /// Nowhere.
    #[default]
    Anonymous,
    /// It is this one.
    Given(Login),
    /// In files, when the store asks.
    Kept(Keychain),
}

/// The files in which tools keep logins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keychain {
    files: Vec<PathBuf>,
    presence: FilePresence,
    /// Where helper programs are; none: where this program's own `PATH` says.
    path: Option<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilePresence {
    Needed,
    Optional,
}

/// Why credentials could not be looked up.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file could not be read.
    #[error("cannot read credentials from {path}", path = .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path} is not valid: expected JSON as docker login writes it", path = .path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// An entry is not what it should be.
    #[error("{path} has credentials for {host} that are not valid: expected base64 of name:password", path = .path.display())]
    MalformedEntry {
        /// Which file.
        path: PathBuf,
        /// Which entry.
        host: String,
    },
    /// A helper's name is none.
    #[error("{path} names the credential helper {found:?}: expected a-z, A-Z, 0-9, '-' and '_'", path = .path.display())]
    HelperName {
        /// Which file.
        path: PathBuf,
        /// The name.
        found: String,
    },
    /// A helper cannot be run.
    #[error("the credential helper {helper} cannot be run: expected it in PATH")]
    HelperMissing {
        /// The program.
        helper: String,
        /// Why.
        source: io::Error,
    },
    /// A helper failed.
    #[error("the credential helper {helper} failed: {said:?}")]
    HelperFailed {
        /// The program.
        helper: String,
        /// What it said.
        said: String,
    },
}

impl Keychain {
    /// Where tools look by default: `$DOCKER_CONFIG/config.json` (else `~/.docker`), then
    /// `$XDG_RUNTIME_DIR/containers/auth.json`.
    #[must_use]
    pub fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let docker = folder("DOCKER_CONFIG").or_else(|| Some(folder("HOME")?.join(".docker")));
        let docker = docker.map(|folder| folder.join("config.json"));
        let containers = folder("XDG_RUNTIME_DIR").map(|folder| folder.join("containers/auth.json"));
        let files = docker.into_iter().chain(containers).collect();
        Self { files, presence: FilePresence::Optional, path: variable("PATH") }
    }

    /// One file, which must be there.
    #[must_use]
    pub fn of_file(file: &Path) -> Self {
        Self { files: vec![file.to_path_buf()], presence: FilePresence::Needed, path: None }
    }

    /// The login for a store, if there is one; for a repository of it that of the longest path that a file has.
    ///
    /// # Errors
    /// When a file that is there cannot be read or understood, or the helper that it names fails.
    pub async fn login(
        &self,
        store: &StoreAddress,
        repository: Option<&str>,
    ) -> Result<Option<Login>, CredentialError> {
        for path in &self.files {
            let bytes = match tokio::fs::read(path).await {
                Ok(bytes) => bytes,
                Err(error)
                    if self.presence == FilePresence::Optional
                        && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    continue;
                }
                Err(source) => return Err(CredentialError::Read { path: path.clone(), source }),
            };
            let file: ConfigFile = serde_json::from_slice(&bytes)
                .map_err(|source| CredentialError::Malformed { path: path.clone(), source })?;
            let found = match file.choose(&store.to_string(), repository) {
                Choice::Nothing => None,
                Choice::Entry(host, entry) => {
                    let (path, host) = (path.clone(), host.to_owned());
                    entry.login().map_err(|()| CredentialError::MalformedEntry { path, host })?
                }
                Choice::Helper { helper, server } => self.ask(path, helper, &server).await?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// As `docker login` and all others do: the server's name on stdin, JSON on stdout.
    async fn ask(&self, path: &Path, helper: &str, server: &str) -> Result<Option<Login>, CredentialError> {
        let right = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if helper.is_empty() || !helper.bytes().all(right) {
            return Err(CredentialError::HelperName { path: path.to_path_buf(), found: helper.to_owned() });
        }
        let helper = format!("docker-credential-{helper}");
        let program = self.find(&helper);
        let missing = |source| CredentialError::HelperMissing { helper: helper.clone(), source };
        let failed = |said: String| CredentialError::HelperFailed { helper: helper.clone(), said };
        let mut command = tokio::process::Command::new(program);
        command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.kill_on_drop(true).spawn().map_err(missing)?;
        let mut stdin = child.stdin.take();
        let talk = async {
            if let Some(stdin) = &mut stdin {
                // One that does not read it fails by itself, and says more.
                let _unread = stdin.write_all(server.as_bytes()).await;
            }
            drop(stdin.take());
            child.wait_with_output().await
        };
        let output = match tokio::time::timeout(HELPER_LIMIT, talk).await {
            Ok(output) => output.map_err(missing)?,
            Err(_) => return Err(failed(format!("no answer within {HELPER_LIMIT:?}"))),
        };
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said: String = said.trim().chars().take(300).collect();
            return if said == NOT_FOUND { Ok(None) } else { Err(failed(said)) };
        }
        // What it printed has a secret in it and is not repeated.
        let told: Told = serde_json::from_str(&said).map_err(|_| failed("no JSON".to_owned()))?;
        Ok(told.login())
    }

    fn find(&self, helper: &str) -> PathBuf {
        let in_path = self.path.as_ref().and_then(|path| {
            std::env::split_paths(path).map(|folder| folder.join(helper)).find(|program| program.is_file())
        });
        in_path.unwrap_or_else(|| PathBuf::from(helper))
    }
}

/// `config.json` and `auth.json`, as far as they are about logins.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    auths: BTreeMap<String, Entry>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

#[derive(Debug)]
enum Choice<'a> {
    Nothing,
    Entry(&'a str, &'a Entry),
    Helper { helper: &'a str, server: String },
}

impl ConfigFile {
    /// What is kept for a host: its own helper, then the helper for all, then the file itself. Before that, what is kept
    /// for a part of its repositories, as `host/path`, the longest path first.
    fn choose(&self, store: &str, repository: Option<&str>) -> Choice<'_> {
        let host = normal(store);
        let mut path = repository;
        while let Some(part) = path {
            let scope = format!("{host}/{part}");
            if let Some((_, helper)) = self.cred_helpers.iter().find(|(key, _)| normal(key) == scope) {
                return Choice::Helper { helper, server: scope };
            }
            if let Some((key, entry)) = self.auths.iter().find(|(key, _)| normal(key) == scope) {
                return match &self.creds_store {
                    Some(helper) if !helper.is_empty() && entry.is_empty() => {
                        Choice::Helper { helper, server: scope }
                    }
                    _ => Choice::Entry(key, entry),
                };
            }
            path = part.rsplit_once('/').map(|(parent, _)| parent);
        }
        if let Some((_, helper)) = self.cred_helpers.iter().find(|(key, _)| normal(key) == host) {
            return Choice::Helper { helper, server: server_of(&host) };
        }
        let entry = self.auths.iter().find(|(key, _)| normal(key) == host);
        match (&self.creds_store, entry) {
            // An entry that is there and empty says that the helper has it; one with a content was not moved to it.
            (Some(helper), found)
                if !helper.is_empty() && found.is_none_or(|(_, entry)| entry.is_empty()) =>
            {
                Choice::Helper { helper, server: server_of(&host) }
            }
            (_, Some((key, entry))) => Choice::Entry(key, entry),
            (_, None) => Choice::Nothing,
        }
    }
}

/// `https://host:port/v1/` and `host:port` are the same; so are the names of Docker's own registry.
fn normal(key: &str) -> String {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    let key = ["/v1/", "/v2/", "/v1", "/v2", "/"].iter().find_map(|end| key.strip_suffix(end)).unwrap_or(key);
    match key {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => "index.docker.io".to_owned(),
        key => key.to_ascii_lowercase(),
    }
}

fn server_of(host: &str) -> String {
    if host == "index.docker.io" { DOCKER_HUB.to_owned() } else { host.to_owned() }
}

impl Entry {
    fn is_empty(&self) -> bool {
        let kept = [&self.auth, &self.password, &self.identitytoken, &self.registrytoken];
        kept.into_iter().flatten().all(String::is_empty)
    }

    fn login(&self) -> Result<Option<Login>, ()> {
        let filled = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        if let Some(token) = filled(&self.registrytoken) {
            return Ok(Some(Login::RegistryToken(Secret(token))));
        }
        if let Some(token) = filled(&self.identitytoken) {
            return Ok(Some(Login::IdentityToken(Secret(token))));
        }
        if let Some(auth) = filled(&self.auth) {
            let decoded = BASE64.decode(auth.trim().as_bytes()).map_err(|_| ())?;
            let text = String::from_utf8(decoded).map_err(|_| ())?;
            let (user, password) = text.split_once(':').ok_or(())?;
            // Some tools pad with NUL.
            let password = Secret::new(password.trim_end_matches('\0'));
            return Ok(Some(Login::Password { user: user.to_owned(), password }));
        }
        let pair = filled(&self.username).zip(filled(&self.password));
        Ok(pair.map(|(user, password)| Login::Password { user, password: Secret(password) }))
    }
}

/// What a helper tells.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Told {
    #[serde(default)]
    username: String,
    #[serde(default)]
    secret: String,
}

impl Told {
    fn login(self) -> Option<Login> {
        match (self.username.as_str(), self.secret) {
            (_, secret) if secret.is_empty() => None,
            (TOKEN_USER, secret) => Some(Login::IdentityToken(Secret(secret))),
            (_, secret) => Some(Login::Password { user: self.username, password: Secret(secret) }),
        }
    }
}

#[cfg(test)]
#[path = "tests/credentials.rs"]
mod tests;
