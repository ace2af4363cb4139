//! By what a mesh's things are recognised on this machine: the label of its containers, the name of its image, the
//! comment of its accounts, the folder of its programs, the control groups of its runs.
//!
//! In: the marks, read while the mesh was there. Out: what still carries them; removed, where that is asked for. Not
//! here: `mesh down`, whose work is judged by this.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mesh_bundles::image::BUNDLE_LABEL;
use mesh_engine::{LabelSelector, Signal};
use mesh_installer::mesh_file::MeshFile;
use mesh_protocol::id::MeshId;
use mesh_protocol::layout::label;

use super::Mesh;
use crate::process::Process;
use crate::{account, engine};

/// What becomes of what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// It is only told.
    Stays,
    /// It is removed.
    IsRemoved,
}

/// Where the control groups of runs are.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// By what a mesh's things are recognised.
#[derive(Debug, Clone)]
pub struct Marks {
    root: PathBuf,
    mesh: Option<MeshId>,
    groups: Vec<PathBuf>,
}

impl Marks {
    /// The marks of a mesh as it is now.
    #[must_use]
    pub fn of(mesh: &Mesh) -> Self {
        let runs = std::fs::read_dir(mesh.layout.incarnations()).into_iter().flatten().flatten();
        let groups = runs.flat_map(|run| {
            let name = format!("mesh-{}", run.file_name().to_string_lossy());
            GROUPS.map(|folder| Path::new(folder).join(&name))
        });
        let file = MeshFile::read(&mesh.layout).ok().flatten();
        Self {
            root: mesh.layout.root().as_std_path().to_owned(),
            mesh: file.map(|file| file.mesh),
            groups: groups.collect(),
        }
    }

    /// What still carries them.
    pub async fn left(&self) -> Vec<String> {
        self.look(Left::Stays).await
    }

    /// The same, and removes it.
    pub async fn remove_what_is_left(&self) -> Vec<String> {
        self.look(Left::IsRemoved).await
    }

    async fn look(&self, left: Left) -> Vec<String> {
        let mut found = Vec::new();
        self.processes(left, &mut found);
        if let Some(mesh) = &self.mesh {
            containers(mesh, left, &mut found).await;
            images(mesh, left, &mut found).await;
            accounts(mesh, left, &mut found);
        }
        for group in self.groups.iter().filter(|group| group.exists()) {
            found.push(format!("control group {}", group.display()));
            if left == Left::IsRemoved {
                // Empty by now, or its processes are not the mesh's; either way nothing more can be done.
                let _ = std::fs::remove_dir(group);
            }
        }
        if self.root.exists() {
            found.push(format!("folder {}", self.root.display()));
            if left == Left::IsRemoved {
                let _ = std::fs::remove_dir_all(&self.root);
            }
        }
        found
    }

    fn processes(&self, left: Left, found: &mut Vec<String>) {
        for process in Process::all_from(&self.root) {
            found.push(format!("process {} ({})", process.pid, process.program.display()));
            if left == Left::IsRemoved {
                process.kill();
            }
        }
    }
}

async fn containers(mesh: &MeshId, left: Left, found: &mut Vec<String>) {
    let engine = engine::connect().await;
    for container in engine.list(&LabelSelector::is(label::MESH, mesh.as_str())).await.unwrap() {
        found.push(format!("container {} ({})", container.name, container.id.short()));
        if left == Left::IsRemoved {
            engine.kill(&container.id, Signal::Kill).await.unwrap();
            engine.wait(&container.id, Duration::from_secs(30)).await.unwrap();
            engine.remove(&container.id).await.unwrap();
        }
    }
}

/// The controller's image has the mesh's id in its name.
async fn images(mesh: &MeshId, left: Left, found: &mut Vec<String>) {
    let engine = engine::connect().await;
    let images = engine.list_images(&LabelSelector::has(BUNDLE_LABEL)).await.unwrap();
    let references = images.iter().flat_map(|image| &image.references);
    for reference in references.filter(|reference| reference.contains(&format!("/{mesh}/"))) {
        found.push(format!("image {reference}"));
        if left == Left::IsRemoved {
            engine.remove_image(reference).await.unwrap();
        }
    }
}

fn accounts(mesh: &MeshId, left: Left, found: &mut Vec<String>) {
    let mark = mesh_installer::mesh_file::account_mark(mesh);
    for account in account::all().into_iter().filter(|account| account.gecos == mark) {
        found.push(format!("account {}", account.name));
        if left == Left::IsRemoved {
            account::remove(&account.name);
        }
    }
}
