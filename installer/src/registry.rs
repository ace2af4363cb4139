//! Which store is spoken to, and as whom: the mesh's own, or any other registry.
//!
//! In: the options of a command, the environment. Out: a store's client, or a failure that says what to do. Not here:
//! what is asked of it.

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::store::{
    Credentials, Keychain, Options, PlainHttp, Repository, Store, StoreAddress, StoreError, Trouble,
};
use mesh_protocol::layout::Layout;

use crate::config;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};
use crate::world::World;

/// Where systems keep the certificates that they trust, the first that is there.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Which store, as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its address; none: the mesh's own.
    pub store: Option<String>,
    /// The file that has the login.
    pub credentials: Option<Utf8PathBuf>,
    /// The certificates to trust.
    pub ca: Option<Utf8PathBuf>,
    /// Whether it may be spoken to without encryption, wherever it is.
    pub plain_http: bool,
    /// A repository of it that may have what is to be sent.
    pub mount_from: Option<Repository>,
}

/// The store that is wanted.
///
/// # Errors
/// When there is no mesh whose store it could be; when its address, a file or a certificate is not right.
pub fn open(world: &World, layout: &Layout, wanted: &Wanted) -> Result<Store> {
    let mount_from = wanted.mount_from.clone();
    let Some(address) = &wanted.store else {
        return of_mesh(&MeshFile::must_read(layout)?, mount_from);
    };
    let plain = if wanted.plain_http { PlainHttp::Allowed } else { PlainHttp::LoopbackOnly };
    let (address, path) = StoreAddress::parse_with_path(address, plain).map_err(|error| {
        let failure = Failure::of(Code::StoreAddress, &error);
        match (address.starts_with("http://"), plain) {
            (true, PlainHttp::LoopbackOnly) => {
                failure.hint("to speak to it without encryption all the same: --plain-http")
            }
            _ => failure,
        }
    })?;
    let roots =
        if address.url().starts_with("https:") { roots(world, wanted.ca.as_deref())? } else { Vec::new() };
    let keychain = match &wanted.credentials {
        Some(file) => Keychain::of_file(config::absolute(world, file).as_std_path()),
        None => Keychain::of_environment(|name| variable(world, name)),
    };
    let credentials = Credentials::Kept(keychain);
    let options = Options { roots, credentials, path, mount_from, ..Options::default() };
    Store::new(address, &options).map_err(|error| failure(&error))
}

/// The mesh's own store: on this machine, and open to whoever is.
///
/// # Errors
/// When its address is not valid.
pub fn of_mesh(mesh: &MeshFile, mount_from: Option<Repository>) -> Result<Store> {
    let address = StoreAddress::parse(&mesh.store(), PlainHttp::LoopbackOnly);
    let address = address.map_err(|error| Failure::of(Code::StoreUnreachable, &error))?;
    let options = Options { mount_from, ..Options::default() };
    Store::new(address, &options).map_err(|error| failure(&error))
}

fn variable(world: &World, name: &str) -> Option<std::ffi::OsString> {
    match name {
        "HOME" => world.home.as_ref().map(|home| home.as_str().into()),
        name => world.variable(name).map(Into::into),
    }
}

/// The certificates to trust: as said, else where `SSL_CERT_FILE` says, else those of the system.
fn roots(world: &World, said: Option<&Utf8Path>) -> Result<Vec<u8>> {
    let named = said.map(|file| config::absolute(world, file));
    let named = named.or_else(|| world.variable("SSL_CERT_FILE").map(Utf8PathBuf::from));
    let Some(file) = named else {
        let found = SYSTEM_ROOTS.iter().find_map(|file| std::fs::read(file).ok());
        return found.ok_or_else(|| {
            Failure::new(Code::StoreCertificates, "this machine has no certificates to trust a store by")
                .expected(format!("one of {}", SYSTEM_ROOTS.join(", ")))
                .hint("say which to trust with --ca FILE (on Debian: package ca-certificates)")
        });
    };
    std::fs::read(&file).map_err(|error| {
        Failure::because(Code::StoreCertificates, &format!("certificates {file} cannot be read"), &error)
            .expected("a file of PEM")
    })
}

/// What the store said, as a failure.
#[must_use]
pub fn failure(error: &StoreError) -> Failure {
    match (error, error.trouble()) {
        (StoreError::Unauthorized { .. } | StoreError::Credentials(_), _) => Failure::of(Code::StoreUnauthorized, error)
            .hint("log in as for other tools (docker login), or give a file as they write it: --credentials FILE"),
        (StoreError::Certificates { .. }, _) => Failure::of(Code::StoreCertificates, error),
        (_, Trouble::Surroundings) => Failure::of(Code::StoreUnreachable, error).hint(
            "does it speak HTTPS, and is it trusted (--ca FILE)? of the mesh's own store: mesh nodes; mesh logs container:mesh-store",
        ),
        _ => Failure::of(Code::Store, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world() -> World {
        let mut world = World::of_this_process().unwrap();
        world.environment.clear();
        world
    }

    fn open_at(address: &str, plain_http: bool) -> Result<Store> {
        let wanted = Wanted { store: Some(address.to_owned()), plain_http, ..Wanted::default() };
        open(&world(), &Layout::new("/no/such/mesh"), &wanted)
    }

    #[test]
    fn plain_http_is_for_this_machine_unless_it_is_told() {
        assert_eq!(open_at("127.0.0.1:5000", false).unwrap().address().url(), "http://127.0.0.1:5000");
        let failure = open_at("http://store.example", false).unwrap_err();
        assert_eq!(failure.code, Code::StoreAddress);
        assert!(failure.hint.as_deref().unwrap().ends_with("--plain-http"));
        assert_eq!(
            open_at("http://store.example/owner", true).unwrap().address().url(),
            "http://store.example"
        );
        assert_eq!(open_at("a b", false).unwrap_err().hint, None);
    }

    #[test]
    fn without_a_store_it_is_the_mesh_s_own() {
        let layout = Layout::new("/no/such/mesh");
        let failure = open(&world(), &layout, &Wanted::default()).unwrap_err();
        assert_eq!(failure.code, Code::NoMesh);
    }

    #[test]
    fn what_a_store_says_has_the_code_of_its_kind() {
        let digest = mesh_protocol::id::Digest::of(b"one");
        let what = "blob".to_owned();
        let corrupted =
            StoreError::Corrupted { what, expected: digest, found: mesh_protocol::id::Digest::of(b"two") };
        assert_eq!(failure(&corrupted).code, Code::Store);
        let silent =
            StoreError::Silent { url: "http://x".to_owned(), idle: std::time::Duration::from_secs(1) };
        assert_eq!(failure(&silent).code, Code::StoreUnreachable);
    }

    #[test]
    fn certificates_are_read_from_where_it_is_said() {
        let temp = tempfile::tempdir().unwrap();
        let folder = Utf8Path::from_path(temp.path()).unwrap();
        let mut world = world();
        let missing = roots(&world, Some(&folder.join("no"))).unwrap_err();
        assert_eq!(missing.code, Code::StoreCertificates);
        std::fs::write(folder.join("one"), "one").unwrap();
        std::fs::write(folder.join("two"), "two").unwrap();
        world.environment.insert("SSL_CERT_FILE".to_owned(), folder.join("one").to_string());
        assert_eq!(roots(&world, None).unwrap(), b"one");
        assert_eq!(roots(&world, Some(&folder.join("two"))).unwrap(), b"two");
    }
}
