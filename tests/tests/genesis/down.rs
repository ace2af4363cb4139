//! The end of a mesh: all of it, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use mesh_engine::{Container, ContainerRequest, State, User};
use mesh_tests::engine::{Corner, connect};
use mesh_tests::images;
use mesh_tests::mesh::Mesh;
use mesh_tests::mesh::marks::Marks;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn down_leaves_nothing_of_the_mesh_and_does_not_touch_a_foreign_container() {
    let mesh = Mesh::new().await;
    let corner = Corner::of("mesh.test", &mesh.prefixed("down"));
    let foreign = start_foreign(&mesh, &corner).await;
    let _ = mesh.raise().await;
    let marks = Marks::of(&mesh);
    let there = marks.left().await;
    for kind in ["process", "container", "image", "account", "folder"] {
        assert!(there.iter().any(|thing| thing.starts_with(kind)), "there is no {kind}: {there:?}");
    }

    let _ = mesh.run(&["down", "--yes"]).await.exited(1).says(&["destroy-not-confirmed", "--destroy lab"]);
    let _ =
        mesh.run(&["down", "--yes", "--destroy", "other"]).await.exited(1).says(&["destroy-not-confirmed"]);
    let _ = mesh.run(&["down", "--dry-run"]).await.exited(0).says(&["container ", "account ", "folder "]);
    assert_eq!(marks.left().await, there, "nothing was removed");
    mesh.answered_within(Duration::from_secs(60)).await;

    let _ = mesh.down().await.exited(0).says(&["mesh lab is gone from this machine"]);
    let left = marks.left().await;
    assert!(left.is_empty(), "{left:?}");
    let after = connect().await.inspect(&foreign.id).await.unwrap().unwrap();
    assert_eq!((after.state, after.started_at), (foreign.state, foreign.started_at));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_meshes_live_on_one_engine_and_one_goes_alone() {
    let (one, other) = (Mesh::new().await, Mesh::new().await);
    let _ = tokio::join!(one.raise(), other.raise());
    assert_ne!(one.id(), other.id());
    let before = other.containers().await;
    assert_eq!(before.len(), 2, "{before:?}");
    let instance = other.only_instance().await;
    let marks = Marks::of(&one);
    let _ = one.down().await.exited(0);
    assert_eq!(marks.left().await, Vec::<String>::new());
    assert_eq!(other.containers().await, before);
    assert_eq!(other.only_instance().await, instance);
}

/// A container that no mesh made, beside the mesh's.
async fn start_foreign(mesh: &Mesh, corner: &Corner) -> Container {
    let engine = connect().await;
    let (label, value) = corner.label();
    let request = ContainerRequest {
        name: mesh.prefixed("somebody-elses").parse().unwrap(),
        image: images::bus().await,
        // Any free port.
        command: ["--addr", "127.0.0.1", "--port", "-1"].map(str::to_owned).to_vec(),
        user: User { uid: 65534, gid: 65534 },
        working_directory: None,
        mounts: Vec::new(),
        labels: BTreeMap::from([(label.to_owned(), value.to_owned())]),
    };
    let id = engine.create(&request).await.unwrap();
    engine.start(&id).await.unwrap();
    let container = engine.inspect(&id).await.unwrap().unwrap();
    assert!(matches!(container.state, State::Running { .. }), "{}", container.state);
    container
}
