//! A real registry as a child, in a folder of its own, ended with whoever started it. Used by the benchmarks too.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mesh_protocol::id::Digest;

/// The folder of the parts that `scripts/test` unpacks.
pub(crate) fn parts() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/parts");
    std::env::var_os("MESH_PARTS").map_or_else(default, PathBuf::from)
}

pub(crate) struct Registry {
    child: Child,
    folder: tempfile::TempDir,
    pub(crate) address: SocketAddr,
}

impl Registry {
    pub(crate) fn start() -> Self {
        Self::configured(tempfile::tempdir().unwrap(), "", "")
    }

    /// With more lines in the section `http`, and more sections.
    pub(crate) fn configured(folder: tempfile::TempDir, http: &str, more: &str) -> Self {
        let config = folder.path().join("config.yml");
        let storage = folder.path().join("storage");
        let text = format!(
            "version: 0.1\nlog:\n  level: info\n  accesslog:\n    disabled: true\nstorage:\n  delete:\n    enabled: true\n  \
             filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n{http}{more}",
            storage.display()
        );
        std::fs::write(&config, text).unwrap();
        let program = parts().join("docker-registry/usr/bin/docker-registry");
        let mut child = Command::new(&program)
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}; scripts/test unpacks it", program.display()));
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .find_map(|line| {
                let line = line.unwrap();
                let (_, rest) = line.split_once("listening on ")?;
                rest.split([',', '"']).next()?.trim().parse().ok()
            })
            .expect("the registry says where it listens");
        // Read on, so that it is never stopped by a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, folder, address }
    }

    /// The file that a blob is in.
    pub(crate) fn blob(&self, digest: &Digest) -> PathBuf {
        let blobs = self.folder.path().join("storage/docker/registry/v2/blobs/sha256");
        blobs.join(&digest.hex()[..2]).join(digest.hex()).join("data")
    }

    /// Loses a tag, as if it had never been put.
    pub(crate) fn forget_tag(&self, repository: &str, tag: &str) {
        let repositories = self.folder.path().join("storage/docker/registry/v2/repositories");
        std::fs::remove_dir_all(repositories.join(repository).join("_manifests/tags").join(tag)).unwrap();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}
