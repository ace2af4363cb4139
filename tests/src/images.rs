//! The images of bus and store, put into the engine once for all tests, so that each test measures meshes and not
//! the assembling of images; and so that no mesh takes an image away that another is about to use, for a mesh
//! removes only what it put there itself.
//!
//! In: the programs of bus and store. Out: images in the engine, by way of `mesh genesis --until images` in a folder
//! that is then forgotten. They stay when the tests end. Not here: the controller's, which each mesh has of its own.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use camino::Utf8PathBuf;
use mesh_bundles::image::PROGRAM_LABEL;
use mesh_engine::{Engine, Image, LabelSelector};
use mesh_installer::mesh_file::MeshFile;
use mesh_installer::third_party::ThirdParty;
use mesh_protocol::layout::Layout;

use crate::command::{self, As};
use crate::engine;
use crate::mesh::environment;
use crate::parts::{Binary, repository};

/// Where genesis names what it assembles; an image of the same program under another name is another test's own.
const ASSEMBLED: &str = "mesh.local/";

/// Packing and loading takes some seconds; beside a compiler, many.
const LIMIT: Duration = Duration::from_secs(120);

/// Puts them there, unless they are. Tests that come at the same time wait for the first of them.
///
/// # Panics
/// When they cannot be put there.
pub async fn ensure() {
    let folder = repository().join("target/mesh-tests");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("images.lock")).unwrap();
    let lock = tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap();
    let engine = engine::connect().await;
    if find(&engine, ThirdParty::Bus).await.is_some() && find(&engine, ThirdParty::Store).await.is_some() {
        return;
    }
    let temp = tempfile::Builder::new().prefix("mt-images-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(temp.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    raise_until_images(&engine, temp.path()).await;
    for third_party in ThirdParty::ALL {
        let found = find(&engine, third_party).await;
        assert!(
            found.is_some(),
            "genesis put the image of {} elsewhere than it is looked for",
            third_party.name()
        );
    }
    drop(lock);
}

/// The reference of the bus's image.
///
/// # Panics
/// When it cannot be put there.
pub async fn bus() -> String {
    ensure().await;
    let references = find(&engine::connect().await, ThirdParty::Bus).await.unwrap().references;
    let assembled = references.iter().find(|reference| reference.starts_with(ASSEMBLED));
    assembled.unwrap_or(&references[0]).clone()
}

/// The official image, or the one that was assembled from this machine's program.
async fn find(engine: &Engine, third_party: ThirdParty) -> Option<Image> {
    let official = engine.find_image(third_party.official_image()).await.unwrap();
    if official.is_some() {
        return official;
    }
    let selector = LabelSelector::is(PROGRAM_LABEL, third_party.program());
    let images = engine.list_images(&selector).await.unwrap();
    let assembled = |image: &Image| image.references.iter().any(|reference| reference.starts_with(ASSEMBLED));
    images.into_iter().find(assembled)
}

/// Nothing but images is made outside of the folder `temp`.
async fn raise_until_images(engine: &Engine, temp: &Path) {
    let controller = repository().join("controller");
    let root = Utf8PathBuf::try_from(temp.join("root")).unwrap();
    let mut words = vec!["genesis", "--root", root.as_str(), "--controller", controller.to_str().unwrap()];
    words.extend(["--prefix", "mt-images", "--bus-port", "0", "--store-port", "0"]);
    words.extend(["--offline", "--until", "images"]);
    let said = command::run(&Binary::Mesh.path(), &words, &environment(), As::Myself, LIMIT).await;
    let _ = said.exited(0);
    let mesh = MeshFile::must_read(&Layout::new(root)).unwrap();
    for image in mesh.images.iter().filter(|image| image.reference.contains(mesh.mesh.as_str())) {
        engine.remove_image(&image.reference).await.unwrap();
    }
}
