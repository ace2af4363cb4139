//! Images for a genesis without network: made, exported, taken away, and loaded again, in an engine that has nothing else.

use mesh_engine::{ImageRemoved, LabelSelector};
use mesh_protocol::handover::Form;
use mesh_tests::command::{self, As, Said};
use mesh_tests::engine;
use mesh_tests::mesh::{LIMIT, Mesh, environment};
use mesh_tests::parts::{Binary, Part, repository};
use mesh_tests::private::{self, Machine};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Made {
    reference: String,
    id: String,
    changed: bool,
}

#[derive(Debug, Deserialize)]
struct Exported {
    changed: bool,
    images: Vec<Made>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    images: Vec<serde_json::Value>,
}

#[test]
fn one_archive_has_all_that_a_genesis_without_network_needs() {
    private::run(
        concat!(module_path!(), "::one_archive_has_all_that_a_genesis_without_network_needs"),
        all_in_one_archive,
    );
}

async fn all_in_one_archive(_machine: Machine) {
    let mut variables = environment();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("mesh-images.tar");
    let run = async |words: &[&str]| -> Said {
        command::run(&Binary::Mesh.path(), words, &variables, As::Myself, LIMIT).await
    };

    // One archive, the same bytes whenever it is made; made once, it is not made again.
    let (file, controller) = (archive.to_str().unwrap(), repository().join("controller"));
    let controller = controller.to_str().unwrap();
    let export = ["image", "export", file, "--controller", controller, "--json"];
    let exported: Exported = run(&export).await.exited(0).json();
    assert!(exported.changed && exported.images.len() == 3, "{exported:?}");
    let written = archive.metadata().unwrap().modified().unwrap();
    assert!(!run(&export).await.exited(0).json::<Exported>().changed);
    assert_eq!(archive.metadata().unwrap().modified().unwrap(), written);

    // What is built here has the ids that the archive has, and what is built already is left alone.
    let nats = Part::NatsServer.path();
    let builds = [
        vec!["image", "build", controller, "--json"],
        vec!["image", "build", "--from-binary", nats.to_str().unwrap(), "--name", "nats-server", "--json"],
    ];
    for (words, image) in builds.iter().zip(&exported.images) {
        let made: Made = run(words).await.exited(0).json();
        assert_eq!((&made.reference, &made.id, made.changed), (&image.reference, &image.id, true));
        let again: Made = run(words).await.exited(0).json();
        assert_eq!((&again.id, again.changed), (&image.id, false));
    }
    let listed: Listed = run(&["image", "list", "--json"]).await.exited(0).json();
    assert_eq!(listed.images.len(), 2, "{listed:?}");
    let _ = run(&["image", "load", file]).await.exited(0).says(&["nats-server", "docker-registry"]);
    let _ = run(&["image", "load", file]).await.exited(0).says(&["is in the engine already"]);

    // They go, all of them, and with them the programs that they could be made from again.
    let engine = engine::connect().await;
    for image in &exported.images {
        assert_eq!(engine.remove_image(&image.reference).await.unwrap(), ImageRemoved::Removed);
    }
    assert_eq!(run(&["image", "list", "--json"]).await.exited(0).json::<Listed>().images.len(), 0);
    variables.retain(|(name, _)| name != "PATH");
    variables.push(("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()));

    let mesh = Mesh::without_images().in_environment(variables);
    let images = folder.path().to_str().unwrap();
    let said = mesh.genesis(&["--images", images]).await.exited(0);
    let said = said.says(&["loads ", "mesh-images.tar"]);
    assert!(!said.to_string().contains("assembles"), "{said}");
    let status = mesh.status().await;
    assert!(status.seat.instances.iter().all(|one| one.form == Form::Process), "{:?}", status.seat);
    let running = engine.list(&mesh.selector()).await.unwrap();
    assert_eq!(running.len(), 2, "bus and store: {running:?}");

    // What came with the archive goes with the mesh.
    let _ = mesh.down().await.exited(0);
    let left = engine.list_images(&LabelSelector::has(mesh_bundles::image::PROGRAM_LABEL)).await.unwrap();
    let left: Vec<_> = left.into_iter().flat_map(|image| image.references).collect();
    assert!(left.is_empty(), "{left:?}");
}
