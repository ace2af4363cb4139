//! A corner of the real engine for one test: what is made in it carries a label, and goes when the test ends.

use std::collections::BTreeMap;
use std::future::ready;
use std::io::Cursor;
use std::sync::atomic::{AtomicU32, Ordering};

use mesh_engine::container::User;
use mesh_engine::{ContainerRequest, Engine, Environment, Image, LabelSelector, Signal, endpoint};

use crate::program;

const LABEL: &str = "mesh.test";

/// One test's corner.
pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) image: Image,
    pub(crate) reference: String,
    name: String,
}

impl World {
    /// Loads an image of the test's own.
    pub(crate) async fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("mesh-engine-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let engine = connect().await;
        let reference = format!("{name}:1");
        let archive = program::archive(&reference, &[(LABEL, &name), ("of", "image")]);
        let image = engine.load_image(|| ready(Ok(Cursor::new(archive.clone())))).await.unwrap().remove(0);
        Self { engine, image, reference, name }
    }

    pub(crate) fn selector(&self) -> LabelSelector {
        LabelSelector::is(LABEL, &self.name)
    }

    /// The archive that was loaded, once more.
    pub(crate) fn archive(&self) -> Vec<u8> {
        program::archive(&self.reference, &self.labels())
    }

    pub(crate) fn labels(&self) -> [(&str, &str); 2] {
        [(LABEL, &self.name), ("of", "image")]
    }

    pub(crate) fn request(&self, name: &str, command: &[&str]) -> ContainerRequest {
        let command = std::iter::once("/program").chain(command.iter().copied());
        ContainerRequest {
            name: format!("{}-{name}", self.name).parse().unwrap(),
            image: self.reference.clone(),
            command: command.map(str::to_owned).collect(),
            user: User { uid: 65534, gid: 65534 },
            working_directory: None,
            mounts: Vec::new(),
            labels: BTreeMap::from([
                (LABEL.to_owned(), self.name.clone()),
                ("of".to_owned(), "container".to_owned()),
            ]),
        }
    }
}

pub(crate) async fn connect() -> Engine {
    let endpoint = endpoint::resolve(None, &Environment::of_this_process()).unwrap();
    Engine::connect(&endpoint).await.unwrap()
}

impl Drop for World {
    fn drop(&mut self) {
        let selector = self.selector();
        // On a thread of its own: the test's runtime may be the one that is just being ended.
        let cleaning = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let engine = connect().await;
                for container in engine.list(&selector).await.unwrap() {
                    engine.kill(&container.id, Signal::Kill).await.unwrap();
                    engine.wait(&container.id, std::time::Duration::from_secs(10)).await.unwrap();
                    engine.remove(&container.id).await.unwrap();
                }
                for image in engine.list_images(&selector).await.unwrap() {
                    engine.remove_image(&image.id).await.unwrap();
                }
            });
        });
        if cleaning.join().is_err() {
            eprintln!("{}: what this test made in the engine could not be removed", self.name);
        }
    }
}
