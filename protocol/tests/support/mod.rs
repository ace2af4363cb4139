//! A real bus for a test: a server process, its configuration and credentials as a mesh has them, in a
//! temporary folder, on a free port of the loopback. It ends with the value.
//!
//! In: where the server's program lies (`MESH_PARTS`, else `target/parts` of the workspace). Out:
//! connections. Not here: what is asserted.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use mesh_protocol::bus::identity::{
    Account, MeshKeys, Rights, ServerSettings, User, credential, credential_with, server_configuration,
};
use mesh_protocol::bus::{Connection, Settings, State};
use mesh_protocol::id::MeshId;

/// Long enough for anything that happens at all, on a machine that is busy.
pub const SOON: Duration = Duration::from_secs(30);

/// A bus of one mesh.
pub struct Bus {
    folder: tempfile::TempDir,
    port: u16,
    keys: MeshKeys,
    server: Option<Child>,
}

impl Bus {
    /// Starts one, and returns when it takes connections.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let keys = MeshKeys::generate(Timestamp::now());
        let mut bus = Self { folder, port, keys, server: None };
        let settings =
            ServerSettings { listen: format!("127.0.0.1:{port}"), store_dir: bus.path().join("store") };
        let text = server_configuration(&bus.keys, &mesh(), &settings).unwrap();
        std::fs::write(bus.path().join("nats.conf"), text).unwrap();
        bus.go_up().await;
        bus
    }

    pub fn path(&self) -> &Utf8Path {
        Utf8Path::from_path(self.folder.path()).unwrap()
    }

    /// Starts the server on the same port and store.
    pub async fn go_up(&mut self) {
        let log = std::fs::File::options().create(true).append(true).open(self.path().join("log")).unwrap();
        let child = Command::new(program())
            .arg("--config")
            .arg(self.path().join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.server = Some(child);
        let port = self.port;
        let log = self.path().join("log");
        until("the server takes connections", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await
        .unwrap_or_else(|error| panic!("{error}: {}", std::fs::read_to_string(log).unwrap_or_default()));
    }

    /// Kills the server.
    pub fn go_down(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }

    /// Sends the server a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.server.as_ref().unwrap().id();
        let sent = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// The settings of a user, with a new credential.
    pub fn settings(&self, user: &User) -> Settings {
        let text = credential(&self.keys, &mesh(), user, Timestamp::now()).unwrap();
        self.settings_for(&user.name(), &text, user.inbox())
    }

    /// A connection of a user.
    pub async fn connect(&self, user: &User) -> Connection {
        Connection::open(&self.settings(user)).await.unwrap()
    }

    /// A connection with any rights in NODES.
    pub async fn connect_with(&self, name: &str, rights: &Rights, inbox: &str) -> Connection {
        let now = Timestamp::now();
        let text = credential_with(&self.keys, Account::Nodes, name, rights, now).unwrap();
        let settings = self.settings_for(name, &text, inbox.to_owned());
        Connection::open(&settings).await.unwrap()
    }

    /// The state, over a connection of its own.
    pub async fn state(&self, lease: Duration) -> State {
        let connection = self.connect(&User::ControllerState).await;
        State::open(connection, mesh(), lease).await.unwrap()
    }

    fn settings_for(&self, name: &str, credential: &str, inbox: String) -> Settings {
        let path = self.path().join(format!("{name}.creds"));
        std::fs::write(&path, credential).unwrap();
        Settings {
            address: format!("nats://127.0.0.1:{}", self.port),
            credential: path,
            name: name.to_owned(),
            inbox,
        }
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.go_down();
    }
}

pub fn mesh() -> MeshId {
    "m1".parse().unwrap()
}

pub fn host(node: &str) -> User {
    User::Host(node.parse().unwrap())
}

pub fn operator() -> User {
    User::Operator("op1".parse().unwrap())
}

/// Waits until `condition` holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Result<(), String> {
    let started = Instant::now();
    while !condition().await {
        if started.elapsed() > SOON {
            return Err(format!("not within {SOON:?}: {what}"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn program() -> Utf8PathBuf {
    let parts = std::env::var("MESH_PARTS").map_or_else(
        |_| Utf8PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/parts")),
        Utf8PathBuf::from,
    );
    parts.join("nats-server/usr/sbin/nats-server")
}
