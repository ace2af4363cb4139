//! A real OCI registry for one test: docker-registry on a free port of loopback, with its blobs in a folder of its
//! own. Both go when the test ends.

use std::fs::{File, read_to_string};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::parts::Part;
use crate::until::until;

/// A registry's start takes a tenth of a second; a machine that compiles beside it, a few.
const START: Duration = Duration::from_secs(30);

/// A store that answers.
#[derive(Debug)]
pub struct Store {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Store {
    /// Starts one, and returns when it answers.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let configuration = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\n  delete:\n    enabled: true\nhttp:\n  addr: 127.0.0.1:0\n",
            folder.path().join("blobs").display()
        );
        let file = folder.path().join("config.yml");
        std::fs::write(&file, configuration).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(Part::DockerRegistry.path())
            .arg("serve")
            .arg(&file)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        // From here on it is ended whatever happens.
        let mut store = Self { child, folder, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        store.address = until("the store says where it listens", START, || {
            if let Some(status) = store.child.try_wait().unwrap() {
                panic!("docker-registry ended with {status}: {}", store.log());
            }
            listening(&store.log())
        });
        until("the store answers", START, || store.answers().then_some(()));
        store
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it keeps its blobs, for tests that damage them.
    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.folder.path().join("blobs")
    }

    /// What it said so far.
    ///
    /// # Panics
    /// When the log cannot be read.
    #[must_use]
    pub fn log(&self) -> String {
        read_to_string(self.folder.path().join("log")).unwrap()
    }

    fn answers(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"GET /v2/ HTTP/1.1\r\nHost: store\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }
}

/// The address in a line such as `... msg="listening on 127.0.0.1:41567" ...`.
fn listening(log: &str) -> Option<SocketAddr> {
    let (_, behind) = log.split_once("listening on ")?;
    behind.split(['"', ',', ' ', '\n']).next()?.parse().ok()
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stores_live_side_by_side_and_go() {
        let (one, other) = (Store::start(), Store::start());
        assert_ne!(one.address(), other.address());
        let address = one.address();
        drop(one);
        assert!(TcpStream::connect(address).is_err());
        assert!(other.answers());
    }
}
