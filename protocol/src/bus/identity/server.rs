//! The texts of files that come from the keys: credentials and the server's configuration.
//!
//! In: keys, who, settings. Out: texts. Not here: writing them.

use std::fmt::Write as _;

use camino::Utf8PathBuf;
use jiff::Timestamp;
use nkeys::KeyPair;

use crate::id::MeshId;

use super::jwt::{self, JetStream};
use super::keys::{IdentityError, MeshKeys};
use super::rights::{Account, Rights, Shared, Sharing, User, shared};

/// A declaration carries the manifests it was composed from: the server's own limit of 1 MiB is near.
const MAX_PAYLOAD: u32 = 8 * 1024 * 1024;

/// Where the server listens and keeps its store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Host and port: `127.0.0.1:4222`.
    pub listen: String,
    /// Its store, as the server sees it.
    pub store_dir: Utf8PathBuf,
}

/// The text of a user's credential file, with a key of its own.
///
/// # Errors
/// When a key cannot be used.
pub fn credential(
    keys: &MeshKeys,
    mesh: &MeshId,
    user: &User,
    now: Timestamp,
) -> Result<String, IdentityError> {
    credential_with(keys, user.account(), &user.name(), &user.rights(mesh), now)
}

/// The text of a credential file with any rights.
///
/// # Errors
/// When a key cannot be used.
pub fn credential_with(
    keys: &MeshKeys,
    account: Account,
    name: &str,
    rights: &Rights,
    now: Timestamp,
) -> Result<String, IdentityError> {
    let issuer = match account {
        Account::Control => &keys.control,
        Account::Nodes => &keys.nodes,
    };
    let own = KeyPair::new_user();
    let claims = jwt::user(rights);
    let token = jwt::token(issuer, &own.public_key(), name, now.as_second(), &claims)?;
    let seed = own.seed()?;
    Ok(format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    ))
}

/// The text of the server's configuration: operator mode, both accounts and what passes between them. There
/// is no monitoring port. The same keys and settings always make the same text.
///
/// # Errors
/// When a key cannot be used.
pub fn server_configuration(
    keys: &MeshKeys,
    mesh: &MeshId,
    settings: &ServerSettings,
) -> Result<String, IdentityError> {
    let issued = keys.created.as_second();
    let operator = &keys.operator;
    let sign = |subject: &KeyPair, name: &str, claims| {
        jwt::token(operator, &subject.public_key(), name, issued, &claims)
    };
    let shared = shared(mesh);
    let control = keys.control.public_key();
    // The server knows the system's account before it listens, and so each account that this one takes something
    // from. Otherwise CTRL is known when its first user comes; where one of NODES comes at the same moment (it
    // takes from CTRL too), 2.9 sets up CTRL's JetStream twice at once, fails, and NODES is never heard there.
    let hints: Vec<Shared> =
        shared.iter().filter(|one| one.sharing == Sharing::Stream).take(1).cloned().collect();
    let accounts = [
        (&keys.control, "CTRL", jwt::account(JetStream::On, &shared, &[], "")),
        (&keys.nodes, "NODES", jwt::account(JetStream::Off, &[], &shared, &control)),
        (&keys.system, "SYS", jwt::account(JetStream::Off, &[], &hints, &control)),
    ];
    let mut preload = String::new();
    for (key, name, claims) in accounts {
        let token = sign(key, name, claims)?;
        let _ = writeln!(preload, "  {}: {token}", key.public_key());
    }
    let ServerSettings { listen, store_dir } = settings;
    let operator_token = sign(operator, &format!("mesh-{mesh}"), jwt::operator())?;
    let system = keys.system.public_key();
    Ok(format!(
        "server_name: \"mesh-{mesh}\"\n\
         listen: \"{listen}\"\n\
         max_payload: {MAX_PAYLOAD}\n\
         jetstream {{\n  store_dir: \"{store_dir}\"\n}}\n\
         operator: {operator_token}\n\
         system_account: {system}\n\
         resolver: MEMORY\n\
         resolver_preload: {{\n{preload}}}\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_keys_make_the_same_configuration() {
        let keys = MeshKeys::generate(Timestamp::UNIX_EPOCH);
        let settings = ServerSettings { listen: "127.0.0.1:4222".to_owned(), store_dir: "/data".into() };
        let mesh: MeshId = "m1".parse().unwrap();
        let make = || server_configuration(&keys, &mesh, &settings).unwrap();
        assert_eq!(make(), make());
        assert!(!make().contains("http"));
    }

    #[test]
    fn a_token_fits_the_servers_control_line_with_the_longest_names() {
        let keys = MeshKeys::generate(Timestamp::UNIX_EPOCH);
        let long = "a".repeat(63);
        let mesh: MeshId = long.parse().unwrap();
        let users = [
            User::ControllerState,
            User::ControllerSeat,
            User::Host(long.parse().unwrap()),
            User::Operator(long.parse().unwrap()),
            User::Prober,
        ];
        for user in users {
            let text = credential(&keys, &mesh, &user, Timestamp::UNIX_EPOCH).unwrap();
            let token = text.lines().nth(1).unwrap();
            // The line carries a signature, a key and the library's own words beside: under 700 bytes.
            assert!(token.len() < 4096 - 700, "{user:?}: {}", token.len());
        }
    }
}
