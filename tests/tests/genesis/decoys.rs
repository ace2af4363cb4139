//! What is nearly the mesh's and is not: put beside and into what the mesh has, and still there, untouched and told of,
//! when the mesh is gone; with a host that helps, without host and bus, and where the engine does not answer at first.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_engine::{Container, ContainerRequest, Signal, State, User};
use mesh_protocol::layout::label;
use mesh_tests::account::{self, Foreign};
use mesh_tests::command::As;
use mesh_tests::engine::{Corner, connect};
use mesh_tests::images;
use mesh_tests::mesh::marks::Marks;
use mesh_tests::mesh::{LIMIT, Mesh, environment};
use mesh_tests::parts::Part;
use mesh_tests::process::Process;
use mesh_tests::until::until;

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_with_a_host_leaves_alone_and_lists_what_is_not_the_meshs() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let host = mesh.host().await;
    // The host would make again what is taken from it.
    host.freeze();
    let decoys = Decoys::put(&mesh, "mesh-store", mesh.file().inputs.store_port).await;
    host.thaw();
    decoys.outlive(&mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_without_host_and_bus_leaves_alone_and_lists_what_is_not_the_meshs() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let host = mesh.host().await;
    host.kill();
    until("the host is killed", SOON, || (!host.is_alive()).then_some(()));
    fs::remove_file(mesh.layout().programs().join("mesh-host")).unwrap();
    let decoys = Decoys::put(&mesh, "mesh-bus", mesh.file().inputs.bus_port).await;
    decoys.outlive(&mesh).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_that_cannot_ask_the_engine_fails_and_the_next_one_leaves_alone_what_is_not_the_meshs() {
    let mesh = Mesh::new().await;
    let _ = mesh.raise().await;
    let host = mesh.host().await;
    host.freeze();
    let decoys = Decoys::put(&mesh, "mesh-store", mesh.file().inputs.store_port).await;
    host.thaw();
    let mut without_engine = environment();
    without_engine.retain(|(name, _)| name != "DOCKER_HOST");
    let nowhere = mesh.layout().root().join("nowhere.sock");
    without_engine.push(("DOCKER_HOST".to_owned(), format!("unix://{nowhere}")));
    let words = ["down", "--yes", "--destroy", mesh.name()];
    let said = mesh.run_as(As::Myself, &without_engine, LIMIT, &words).await.exited(3);
    let _ = said.says(&["error[left-behind]", "containers cannot be told"]);
    assert!(mesh.layout().mesh_file().exists(), "what says whose the rest is stays");
    decoys.are_untouched(&mesh).await;
    decoys.outlive(&mesh).await;
}

/// What is beside a mesh, and in its folders, and not its own.
struct Decoys {
    containers: Vec<Container>,
    corner: Corner,
    account: Foreign,
    images: Tags,
    program: Listener,
    /// Each file, and what is told of it: itself, or the foreign folder that it lies in.
    files: BTreeMap<Utf8PathBuf, Utf8PathBuf>,
}

impl Decoys {
    /// Puts them there. The mesh's container of this name is taken away by hand, its name and port by somebody else.
    async fn put(mesh: &Mesh, taken: &str, port: u16) -> Self {
        let engine = connect().await;
        let corner = Corner::of("mesh.test", &mesh.prefixed("decoys"));
        let name = mesh.prefixed(taken);
        let ours = engine.find(&name.parse().unwrap()).await.unwrap().unwrap();
        engine.kill(&ours.id, Signal::Kill).await.unwrap();
        engine.wait(&ours.id, SOON).await.unwrap();
        engine.remove(&ours.id).await.unwrap();

        // The labels of one of ours, with another mesh's id, and without any.
        let mut neighbouring = ours.labels.clone();
        let _ = neighbouring.insert(label::MESH.to_owned(), format!("{}x", mesh.id()));
        let mut unlabelled = ours.labels.clone();
        let _ = unlabelled.remove(label::MESH);
        let mut containers = Vec::new();
        for (name, labels) in [
            (name, BTreeMap::new()),
            (mesh.prefixed("mesh-somebody"), BTreeMap::new()),
            (mesh.prefixed("mesh-neighbour"), neighbouring),
            (mesh.prefixed("mesh-unlabelled"), unlabelled),
        ] {
            containers.push(start(&name, labels, &corner).await);
        }
        let image =
            mesh.file().images.first().expect("the controller's image is the mesh's").reference.clone();
        let id = mesh.id();
        let tags =
            [format!("{}/somebody:1", mesh.prefixed("decoy")), image.replace(id.as_str(), &format!("{id}x"))];
        Self {
            containers,
            corner,
            account: Foreign::make(&mesh.prefixed("mesh-bus2")),
            images: Tags::put(&image, &tags),
            program: Listener::on(port),
            files: files(mesh),
        }
    }

    /// Takes the mesh down, by its name.
    async fn outlive(self, mesh: &Mesh) {
        let marks = Marks::of(mesh);
        let root = mesh.layout().root().to_owned();
        let said = mesh.run(&["down", "--destroy", mesh.name()]).await.exited(0);
        let said = said.says(&["mesh lab is gone from this machine"]);
        for told in self.files.values() {
            let line = format!("stays, for it is not the mesh's: {told}\n");
            assert!(said.stdout.contains(&line) && said.stderr.contains(&line), "{told} is not told: {said}");
        }
        self.are_untouched(mesh).await;
        let left: BTreeSet<Utf8PathBuf> = files_below(&root).into_iter().collect();
        let foreign: BTreeSet<Utf8PathBuf> = self.files.keys().cloned().collect();
        assert_eq!(left, foreign, "what was the mesh's is gone, and nothing else: {said}");
        assert_eq!(marks.left().await, [format!("folder {root}")], "{said}");
        fs::remove_dir_all(root).unwrap();
        drop(self.corner);
    }

    async fn are_untouched(&self, mesh: &Mesh) {
        let engine = connect().await;
        for before in &self.containers {
            let after = engine.inspect(&before.id).await.unwrap();
            let after = after.unwrap_or_else(|| panic!("container {} is gone", before.name));
            assert_eq!((&after.name, after.started_at), (&before.name, before.started_at));
            assert_eq!(after.state, before.state, "{}", before.name);
        }
        let account = self.account.account();
        assert_eq!(account::named(&account.name).as_ref(), Some(account));
        for (tag, id) in &self.images.0 {
            let found = engine.find_image(tag).await.unwrap();
            assert_eq!(found.map(|image| image.id).as_ref(), Some(id), "{tag}");
        }
        assert!(self.program.process.is_alive(), "{:?} was ended", self.program.process);
        assert!(TcpStream::connect(("127.0.0.1", self.program.port)).is_ok(), "it still listens");
        for file in self.files.keys() {
            assert_eq!(fs::read_to_string(file).unwrap(), "mine", "{file}");
        }
        assert!(mesh.layout().root().exists());
    }
}

/// Files and folders of somebody else, in each folder of the mesh.
fn files(mesh: &Mesh) -> BTreeMap<Utf8PathBuf, Utf8PathBuf> {
    let layout = mesh.layout();
    let first_in = |folder: Utf8PathBuf| {
        let mut entries = folder.read_dir_utf8().unwrap().map(|entry| entry.unwrap().into_path());
        entries.find(|path| path.is_dir()).unwrap()
    };
    let data = layout.root().join("data");
    let all = [
        layout.root().to_owned(),
        layout.host(),
        layout.incarnations(),
        first_in(layout.incarnations()),
        data.join("mesh-bus"),
        data.join("mesh-bus/jetstream"),
        data,
        layout.all_secrets(),
        layout.all_secrets().join("mesh-controller"),
        layout.runs(),
        first_in(layout.runs()),
        layout.modules().join("mesh-bus"),
        first_in(layout.modules().join("mesh-bus")),
        layout.bundles(),
        first_in(layout.bundles()),
        layout.logs(),
        layout.programs(),
    ];
    let mut files = BTreeMap::new();
    for folder in all {
        let (notes, album) = (folder.join("notes"), folder.join("album"));
        fs::create_dir(&album).unwrap();
        for (file, told) in [(notes.clone(), notes), (album.join("picture"), album)] {
            fs::write(&file, "mine").unwrap();
            let _ = files.insert(file, told);
        }
    }
    files
}

fn files_below(folder: &Utf8Path) -> Vec<Utf8PathBuf> {
    let entries = folder.read_dir_utf8().unwrap().map(|entry| entry.unwrap());
    let below = entries.flat_map(|entry| {
        if entry.file_type().unwrap().is_dir() { files_below(entry.path()) } else { vec![entry.into_path()] }
    });
    below.collect()
}

/// A container that no mesh made, beside the mesh's.
async fn start(name: &str, mut labels: BTreeMap<String, String>, corner: &Corner) -> Container {
    let engine = connect().await;
    let (key, value) = corner.label();
    let _ = labels.insert(key.to_owned(), value.to_owned());
    let request = ContainerRequest {
        name: name.parse().unwrap(),
        image: images::bus().await,
        // Any free port.
        command: ["--addr", "127.0.0.1", "--port", "-1"].map(str::to_owned).to_vec(),
        user: User { uid: 65534, gid: 65534 },
        working_directory: None,
        mounts: Vec::new(),
        labels,
    };
    let id = engine.create(&request).await.unwrap();
    engine.start(&id).await.unwrap();
    let container = engine.inspect(&id).await.unwrap().unwrap();
    assert!(matches!(container.state, State::Running { .. }), "{}", container.state);
    container
}

/// More names of an image of the mesh, and the image's id.
struct Tags(Vec<(String, String)>);

impl Tags {
    fn put(image: &str, tags: &[String]) -> Self {
        let tag = |tag: &String| {
            docker(&["tag", image, tag]);
            let id = docker(&["image", "inspect", "--format", "{{.Id}}", tag]);
            (tag.clone(), id.trim().to_owned())
        };
        Self(tags.iter().map(tag).collect())
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        for (tag, _) in &self.0 {
            let _ = Command::new("docker").args(["rmi", tag]).stdin(Stdio::null()).output();
        }
    }
}

fn docker(words: &[&str]) -> String {
    let output = Command::new("docker").args(words).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Somebody else's program on a port on which one of ours does not listen any more.
struct Listener {
    child: Child,
    process: Process,
    port: u16,
}

impl Listener {
    fn on(port: u16) -> Self {
        let mut child = Command::new(Part::NatsServer.path())
            .args(["--addr", "127.0.0.1", "--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("somebody else listens on the port", SOON, || {
            assert_eq!(child.try_wait().unwrap(), None, "the port {port} is not free");
            TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        });
        let process = Process::of(child.id()).unwrap();
        Self { child, process, port }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
