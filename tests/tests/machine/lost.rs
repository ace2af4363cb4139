//! A machine that lost its mesh gets it back from a backup: the seat is answered by a process, and the next push works.

use std::path::Path;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::image::PROGRAM_LABEL;
use mesh_durable::checkpoint::{Blow, Moment};
use mesh_engine::LabelSelector;
use mesh_protocol::handover::{Form, Role};
use mesh_protocol::verb::{HistoryAnswer, ModulesAnswer};
use mesh_tests::checkpoints::Checkpoints;
use mesh_tests::command::{self, As};
use mesh_tests::mesh::marks::Marks;
use mesh_tests::mesh::{Mesh, environment};
use mesh_tests::parts::Binary;
use mesh_tests::private::{self, Machine};
use mesh_tests::source::Source;
use mesh_tests::versions::Versions;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_mesh_comes_back_from_its_backup_and_the_next_push_works() {
    private::run(
        concat!(module_path!(), "::a_mesh_comes_back_from_its_backup_and_the_next_push_works"),
        comes_back,
    );
}

/// The engine is the test's own: what the mesh put into it goes with the mesh, and comes back out of the backup.
async fn comes_back(_machine: Machine) {
    let mesh = Mesh::without_images();
    let _ = mesh.raise().await;
    let sleeper = Source::of_a_sleeper();
    let _ = mesh.push(&sleeper.folder(), &[]).await.exited(0);
    let versions = Versions::default().next();
    let _ = mesh.push(&versions.source().folder(), &[]).await.exited(0);
    let before = Known::of(&mesh).await;

    let temp = tempfile::tempdir().unwrap();
    let file = Utf8Path::from_path(temp.path()).unwrap().join("lab.tar");
    // The prober asks while the backup is made: nobody notices.
    let prober = mesh.probe().await;
    let said = mesh.run(&["backup", file.as_str()]).await.exited(0).says(&["has mesh lab as of"]);
    let figures = prober.stop().await;
    assert!(figures.asked > 0 && figures.failed == 0, "{figures:?}: {said}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    eprintln!("a backup of {} bytes took {:?}", std::fs::metadata(&file).unwrap().len(), said.took);

    // As long as the mesh is there, nothing is put over it.
    let _ = mesh
        .run(&["restore", file.as_str()])
        .await
        .exited(1)
        .says(&["error[root-unusable]", "mesh down --root"]);
    let beside = temp.path().join("beside");
    let words = ["restore", file.as_str(), "--root", beside.to_str().unwrap()];
    let said = command::run(&Binary::Mesh.path(), &words, &environment(), As::Myself, LIMIT).await;
    let _ = said.exited(1).says(&[
        "root-unusable: folder ",
        "name-taken: mesh lab is on this machine",
        "port-taken: port ",
    ]);
    assert!(!beside.exists(), "nothing was made");

    let marks = Marks::of(&mesh);
    let _ = mesh.down().await.exited(0);
    assert_eq!(marks.left().await, Vec::<String>::new());
    assert_eq!(images(&mesh).await, 0, "the engine has none of its images any more");
    is_refused_where_it_is_damaged(&mesh, &file).await;
    is_refused_where_a_genesis_was_begun(&mesh, &file).await;

    is_killed_on_the_way(&mesh, &file).await;
    let said = mesh.run(&["restore", file.as_str(), "--verbose"]).await.exited(0);
    eprintln!("a restore took {:?}\n{}", said.took, said.stderr);
    // A restore ends when the host has reported who serves: the first look shows it.
    let instances = mesh.status().await.seat.instances;
    let [instance] = &instances[..] else { panic!("{instances:?}") };
    assert_eq!((instance.form, instance.role), (Form::Process, Role::Serving));
    mesh.is_handed_over(LIMIT).await;
    let after = Known::of(&mesh).await;
    assert_eq!(after, before, "what was known is known");
    assert_eq!(mesh.containers().await.len(), 2, "the bus and the store, and no container of the controller");
    let _ = mesh.process("process:sleeper").await;
    assert_eq!(images(&mesh).await, 2, "they came out of the backup");

    let _ = mesh.push(&versions.next().source().folder(), &[]).await.exited(0);
    let _ = mesh.run(&["rollback", "mesh-controller"]).await.exited(0);
    let said = mesh.raise().await.says(&["nothing was changed"]);
    assert!(!said.stdout.contains("asked 0"), "{said}");
}

/// How many images the engine has of the bus and the store.
async fn images(mesh: &Mesh) -> usize {
    let all = mesh.engine().await.list_images(&LabelSelector::has(PROGRAM_LABEL)).await.unwrap();
    all.len()
}

/// What must survive of the bus's state.
#[derive(Debug, PartialEq)]
struct Known {
    modules: Vec<(String, u64)>,
    revisions: Vec<u64>,
}

impl Known {
    async fn of(mesh: &Mesh) -> Self {
        let modules: ModulesAnswer = mesh.run(&["modules", "--json"]).await.exited(0).json();
        let history: HistoryAnswer =
            mesh.run(&["history", "mesh-controller", "--json"]).await.exited(0).json();
        let of = |module: &mesh_protocol::plan::ModuleRecord| (module.name.to_string(), module.revision);
        Self {
            modules: modules.modules.iter().map(of).collect(),
            revisions: history.revisions.iter().map(|revision| revision.revision).collect(),
        }
    }
}

/// Wherever it is killed, the next one goes on; and what is half there says with what command.
async fn is_killed_on_the_way(mesh: &Mesh, file: &Utf8Path) {
    let watched = file.with_extension("checkpoints");
    let checkpoints = Checkpoints::at(watched.clone());
    let mut environment = environment();
    environment.push(("MESH_CHECKPOINTS".to_owned(), watched.to_string()));
    let mut struck = 0;
    for number in [2, 9, 25] {
        checkpoints.strike(number, Moment::After, Blow::Kill);
        let said = mesh.run_as(As::Myself, &environment, LIMIT, &["restore", file.as_str()]).await;
        if checkpoints.has_struck() {
            assert_eq!(said.code, None, "{said}");
            struck += 1;
        }
        if mesh.layout().genesis_work().join("restore.json").exists() {
            let refused = mesh.genesis(&[]).await.exited(1);
            let _ = refused.says(&["error[restore-begun]", "go on with it: mesh restore FILE --root"]);
        }
        let half_done = mesh.run(&["status"]).await;
        if !mesh.layout().host_file().exists() && mesh.layout().mesh_file().exists() {
            let _ = half_done.exited(1).says(&["hint: go on with: mesh restore"]);
        }
    }
    assert!(struck > 1, "it was killed {struck} times");
    let _ = std::fs::remove_file(&watched);
}

/// Nothing is put in place of a backup that is not whole.
async fn is_refused_where_it_is_damaged(mesh: &Mesh, file: &Utf8Path) {
    let damaged: Utf8PathBuf = file.with_extension("damaged");
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&damaged, bytes).unwrap();
    let _ = mesh.run(&["restore", damaged.as_str()]).await.exited(1).says(&["error[backup-invalid]"]);
    assert!(!Path::new(mesh.layout().root().as_str()).exists(), "nothing was made");
}

/// Nor over what a genesis began, which is told by name; what it began is removed by down, as ever.
async fn is_refused_where_a_genesis_was_begun(mesh: &Mesh, file: &Utf8Path) {
    let _ = mesh.genesis(&["--until", "identity"]).await.exited(0);
    let id = mesh.id();
    let said = mesh.run(&["restore", file.as_str()]).await.exited(1);
    let _ = said.says(&["error[genesis-begun]", "go on with it: mesh genesis --root"]);
    assert_eq!(mesh.id(), id, "nothing was put over it");
    let _ = mesh.down().await.exited(0);
}
