//! `mesh.json`: what cannot be observed of a mesh, kept on its machine.
//!
//! In and out: [`MeshFile`]. What genesis was asked for is in it, so that the same command goes on and another is
//! refused with the difference shown. Not here: keys (`identity`), and anything the world itself can tell.

use std::io;

use camino::{Utf8Path, Utf8PathBuf};
use jiff::Timestamp;
use mesh_protocol::id::{Digest, MeshId, MeshName, NodeName, ResourceId};
use mesh_protocol::layout::{HostFile, Layout};
use serde::{Deserialize, Serialize};

use crate::cli::Wanted;
use crate::genesis::origin::Origin;
use crate::output::{Code, Failure, Result};
use mesh_durable as durable;

/// The version of this file's form.
pub const FORMAT: u32 = 1;

/// The bus's port, unless another is asked for.
pub const DEFAULT_BUS_PORT: u16 = 4222;

/// The store's.
pub const DEFAULT_STORE_PORT: u16 = 5000;

/// What cannot be observed of a mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeshFile {
    /// [`FORMAT`].
    pub format: u32,
    /// The mesh.
    pub mesh: MeshId,
    /// When it was first asked for.
    pub created: Timestamp,
    /// What genesis was asked for, resolved: a port of 0 has become the one that was chosen.
    pub inputs: Inputs,
    /// Of `inputs`: tells a file that was edited by hand.
    pub inputs_digest: Digest,
    /// The images that this mesh put into the engine: what `down` may take out again.
    pub images: Vec<LoadedImage>,
    /// Whether the seat was ever seen to answer: then `down` wants the mesh's name.
    pub seat_answered: Option<Timestamp>,
    /// Since when it is being taken down: from then on it is not raised any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_since: Option<Timestamp>,
    /// What in the root is not the mesh's, as `down` found it while the records to tell by were there: it stays, whatever
    /// that `down` came to remove before it was killed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<Utf8PathBuf>,
    /// The files that it is raised from, once its bundle was packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Since when the controller is a process, once it was seen to be: from then on no container is raised for it,
    /// whatever became of the host's own record.
    pub process_since: Option<Timestamp>,
}

/// What genesis was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    /// The mesh's folder: paths in it are in all that was made since.
    pub root: Utf8PathBuf,
    /// The mesh's name.
    pub name: MeshName,
    /// Before the names of containers and accounts; empty for none.
    pub prefix: String,
    /// This machine.
    pub node: NodeName,
    /// The bus's port.
    pub bus_port: u16,
    /// The store's port.
    pub store_port: u16,
    /// The time between two checks of a handover, in milliseconds.
    pub check_interval_ms: u64,
    /// What the controller's process replaces: the name under which genesis raises its container.
    pub replaces: ResourceId,
}

/// An image that this mesh put into the engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedImage {
    /// By what it is asked for.
    pub reference: String,
    /// The engine's id of it.
    pub id: String,
}

impl MeshFile {
    /// The first one of a mesh.
    #[must_use]
    pub fn new(mesh: MeshId, created: Timestamp, inputs: Inputs) -> Self {
        let inputs_digest = Digest::of_json(&inputs);
        Self {
            format: FORMAT,
            mesh,
            created,
            inputs,
            inputs_digest,
            images: Vec::new(),
            seat_answered: None,
            down_since: None,
            foreign: Vec::new(),
            origin: None,
            process_since: None,
        }
    }

    /// The mesh of a root; none where there is none.
    ///
    /// # Errors
    /// When it is there and cannot be read or believed.
    pub fn read(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.mesh_file();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Failure::because(Code::NotRoot, &format!("{path} cannot be read"), &error)
                    .hint("run this as root"));
            }
            Err(error) => return Err(Failure::because(Code::Io, &format!("{path} cannot be read"), &error)),
        };
        let file: Self =
            serde_json::from_slice(&bytes).map_err(|error| invalid(&path).found(error.to_string()))?;
        if file.format != FORMAT {
            return Err(invalid(&path)
                .expected(format!("format {FORMAT}"))
                .found(format!("format {}", file.format)));
        }
        if Digest::of_json(&file.inputs) != file.inputs_digest {
            return Err(invalid(&path)
                .expected(format!("inputs of digest {}", file.inputs_digest))
                .found("others"));
        }
        Ok(Some(file))
    }

    /// The mesh of a root, which must be there.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn must_read(layout: &Layout) -> Result<Self> {
        Self::read(layout)?.ok_or_else(|| {
            Failure::new(Code::NoMesh, format!("there is no mesh in {}", layout.root()))
                .expected(format!("{}", layout.mesh_file()))
                .hint("say where it is with --root, or create one: mesh genesis")
        })
    }

    /// Keeps it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, layout: &Layout) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(|error| Failure::of(Code::Internal, &error))?;
        durable::write(&layout.mesh_file(), &text, 0o600).map_err(|error| Failure::of(Code::Io, &error))
    }

    /// Where the bus is.
    #[must_use]
    pub fn bus(&self) -> String {
        format!("nats://127.0.0.1:{}", self.inputs.bus_port)
    }

    /// Where the artifact store is.
    #[must_use]
    pub fn store(&self) -> String {
        format!("http://127.0.0.1:{}", self.inputs.store_port)
    }

    /// What the host is told at its start.
    #[must_use]
    pub fn host_file(&self, engine: String) -> HostFile {
        HostFile {
            format: 1,
            mesh: self.mesh.clone(),
            name: self.inputs.name.clone(),
            prefix: self.inputs.prefix.clone(),
            node: self.inputs.node.clone(),
            bus: self.bus(),
            store: self.store(),
            check_interval_ms: self.inputs.check_interval_ms,
            engine,
            steady_after_ms: mesh_protocol::layout::STEADY_AFTER_MS,
        }
    }

    /// The mark that an account of this mesh carries in its GECOS field.
    #[must_use]
    pub fn account_mark(&self) -> String {
        account_mark(&self.mesh)
    }
}

/// The mark that an account of a mesh carries in its GECOS field.
#[must_use]
pub fn account_mark(mesh: &MeshId) -> String {
    format!("mesh {mesh}")
}

fn invalid(path: &Utf8Path) -> Failure {
    Failure::new(Code::Io, format!("{path} is not the file that genesis wrote"))
        .hint("was it edited, or written by another version? bring back the file as it was")
}

/// An input that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The option that says it.
    pub option: String,
    /// As the mesh was begun.
    pub before: String,
    /// As it is asked for now.
    pub now: String,
}

/// What of `now` is not as it was. Only what was said is compared: the rest is as it was.
#[must_use]
pub fn differences(before: &Inputs, now: &Asked) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut compare = |option: &str, before: String, now: Option<String>| {
        if let Some(now) = now
            && now != before
        {
            found.push(Difference { option: option.to_owned(), before, now });
        }
    };
    let port = |port: Option<u16>| port.filter(|port| *port != 0).map(|port| port.to_string());
    compare("--root", before.root.to_string(), now.root.as_ref().map(ToString::to_string));
    compare("--name", before.name.to_string(), now.name.as_ref().map(ToString::to_string));
    compare("--prefix", before.prefix.clone(), now.prefix.clone());
    compare("--node", before.node.to_string(), now.node.as_ref().map(ToString::to_string));
    compare("--bus-port", before.bus_port.to_string(), port(now.bus_port));
    compare("--store-port", before.store_port.to_string(), port(now.store_port));
    compare(
        "--check-interval",
        format!("{}ms", before.check_interval_ms),
        now.check_interval_ms.map(|ms| format!("{ms}ms")),
    );
    compare("replaces", before.replaces.to_string(), now.replaces.as_ref().map(ToString::to_string));
    found
}

/// What genesis is asked for this time; what is not said is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// `--root`, where it is another folder than the one that the mesh was begun in
    pub root: Option<Utf8PathBuf>,
    /// `--name`
    pub name: Option<MeshName>,
    /// `--prefix`
    pub prefix: Option<String>,
    /// `--node`
    pub node: Option<NodeName>,
    /// `--bus-port`; 0: any
    pub bus_port: Option<u16>,
    /// `--store-port`; 0: any
    pub store_port: Option<u16>,
    /// `--check-interval`
    pub check_interval_ms: Option<u64>,
    /// What the manifest's process replaces; none once the controller is a process, for then it is history.
    pub replaces: Option<ResourceId>,
}

impl Asked {
    /// What a command line says of it.
    #[must_use]
    pub fn of(wanted: &Wanted) -> Self {
        Self {
            root: None,
            name: wanted.name.clone(),
            prefix: wanted.prefix.as_ref().map(ToString::to_string),
            node: wanted.node.clone(),
            bus_port: wanted.bus_port,
            store_port: wanted.store_port,
            check_interval_ms: None,
            replaces: None,
        }
    }
}

/// The refusal of other inputs.
#[must_use]
pub fn refusal(root: &Utf8Path, differences: &[Difference]) -> Failure {
    let side = |pick: fn(&Difference) -> &String| {
        let parts: Vec<String> = differences.iter().map(|d| format!("{} {}", d.option, pick(d))).collect();
        parts.join(", ")
    };
    Failure::new(Code::InputsDiffer, format!("the mesh in {root} was begun with other inputs"))
        .expected(side(|d| &d.before))
        .found(side(|d| &d.now))
        .hint("run the command as it was run first, or choose another --root; `mesh down` removes what was begun")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn inputs() -> Inputs {
        Inputs {
            root: "/r".into(),
            name: "lab".parse().unwrap(),
            prefix: String::new(),
            node: "n1".parse().unwrap(),
            bus_port: 4222,
            store_port: 5000,
            check_interval_ms: 2000,
            replaces: "container:mesh-controller".parse().unwrap(),
        }
    }

    #[test]
    fn what_is_not_said_is_as_it_was() {
        assert!(differences(&inputs(), &Asked::default()).is_empty());
        let same = Asked { name: Some("lab".parse().unwrap()), bus_port: Some(0), ..Asked::default() };
        assert!(differences(&inputs(), &same).is_empty());
    }

    #[test]
    fn what_is_said_otherwise_is_shown() {
        let asked = Asked {
            name: Some("live".parse().unwrap()),
            store_port: Some(5001),
            replaces: Some("container:seat-of-lab-7".parse().unwrap()),
            ..Asked::default()
        };
        let failure = refusal(Utf8Path::new("/r"), &differences(&inputs(), &asked));
        insta::assert_snapshot!(failure.lines().join("\n"), @r"
        error[inputs-differ]: the mesh in /r was begun with other inputs
          expected: --name lab, --store-port 5000, replaces container:mesh-controller
          found: --name live, --store-port 5001, replaces container:seat-of-lab-7
          hint: run the command as it was run first, or choose another --root; `mesh down` removes what was begun
        ");
    }

    #[test]
    fn the_file_reads_back_and_an_edited_one_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8Path::from_path(temp.path()).unwrap());
        assert_eq!(MeshFile::read(&layout).unwrap(), None);
        assert_eq!(MeshFile::must_read(&layout).unwrap_err().code, Code::NoMesh);
        let file = MeshFile::new("m1".parse().unwrap(), Timestamp::UNIX_EPOCH, inputs());
        file.write(&layout).unwrap();
        assert_eq!(MeshFile::must_read(&layout).unwrap(), file);
        let edited = std::fs::read_to_string(layout.mesh_file()).unwrap().replace("4222", "4223");
        std::fs::write(layout.mesh_file(), edited).unwrap();
        assert!(
            MeshFile::read(&layout).unwrap_err().expected.as_deref().unwrap().starts_with("inputs of digest")
        );
    }
}
