//! A whole mesh for one test: raised by the command, with a root, a prefix and ports of its own, taken down by the
//! command when the test ends, also when it fails.
//!
//! In: the command's words. Out: what it said; what seat, host and engine say. What `mesh down` should have removed
//! and did not is a failure of the test, and is removed here. Not here: what must be so; the tests say that.

pub mod marks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use camino::Utf8PathBuf;
use mesh_engine::{Container, Engine, LabelSelector};
use mesh_installer::door::Door;
use mesh_installer::mesh_file::MeshFile;
use mesh_installer::prober::{self, Figures, Prober};
use mesh_protocol::door::{LedgerEntry, Observed};
use mesh_protocol::handover::State;
use mesh_protocol::id::{InstanceId, MeshId};
use mesh_protocol::layout::{Layout, label};
use mesh_protocol::report::{NodeState, Runtime};
use mesh_protocol::verb::StatusAnswer;
use tempfile::TempDir;

use crate::command::{self, As, Said};
use crate::load::ANSWERED_WITHIN;
use crate::mesh::marks::Marks;
use crate::names::{self, Names};
use crate::parts::{Binary, repository, search_path};
use crate::process::Process;
use crate::until::eventually;
use crate::{engine, images};

/// No command takes longer, but for one that waits for what never comes.
pub const LIMIT: Duration = Duration::from_secs(90);

/// What was begun is done within milliseconds, on a machine that has nothing else to do.
const SOON: Duration = Duration::from_secs(60);

/// How much of the host's log is shown where a test fails.
const LOG_LINES: usize = 80;

/// How much of each program's.
const PROGRAM_LINES: usize = 8;

/// Most tests are about what comes first and what then, not about how long it takes.
const CHECK_INTERVAL: &str = "200ms";

/// A mesh, or what is to become one.
#[derive(Debug)]
pub struct Mesh {
    /// Goes last.
    _folder: TempDir,
    layout: Layout,
    prefix: Option<String>,
    name: String,
    check_interval: String,
    environment: Vec<(String, String)>,
    controller: PathBuf,
    /// Where it has the names that are the machine's. Nobody else has them before it was taken down.
    names: Option<Names>,
}

/// The environment of every command: the programs of bus and store, and the engine as this process finds it.
#[must_use]
pub fn environment() -> Vec<(String, String)> {
    let engine = ["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "HOME"];
    let given = engine.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    given.chain([("PATH".to_owned(), search_path())]).collect()
}

impl Mesh {
    /// One that shares no name with any other.
    pub async fn new() -> Self {
        let (folder, prefix) = Self::unshared();
        Self::in_folder(folder, Some(prefix)).await
    }

    /// A folder, and a prefix that is no other's.
    fn unshared() -> (TempDir, String) {
        let folder = folder();
        let random = folder.path().file_name().unwrap().to_str().unwrap().trim_start_matches("mt-");
        let prefix = format!("mt-{}", random.to_ascii_lowercase());
        (folder, prefix)
    }

    /// One for an engine that has no image of bus and store, and shall have none before the command puts it there.
    ///
    /// # Panics
    /// When there is no folder for it.
    #[must_use]
    pub fn without_images() -> Self {
        let (folder, prefix) = Self::unshared();
        Self::made_in(folder, Some(prefix))
    }

    /// One whose containers and accounts have the names that their manifests say.
    pub async fn without_prefix() -> Self {
        let names = names::without_prefix().await;
        let mut mesh = Self::in_folder(folder(), None).await;
        mesh.names = Some(names);
        mesh
    }

    async fn in_folder(folder: TempDir, prefix: Option<String>) -> Self {
        images::ensure().await;
        Self::made_in(folder, prefix)
    }

    fn made_in(folder: TempDir, prefix: Option<String>) -> Self {
        let root = Utf8PathBuf::try_from(folder.path().join("r")).unwrap();
        Self {
            _folder: folder,
            layout: Layout::new(root),
            prefix,
            name: "lab".to_owned(),
            check_interval: CHECK_INTERVAL.to_owned(),
            environment: environment(),
            controller: repository().join("controller"),
            names: None,
        }
    }

    /// With another time between two checks.
    #[must_use]
    pub fn checking_every(mut self, interval: &str) -> Self {
        interval.clone_into(&mut self.check_interval);
        self
    }

    /// Raised from this folder of the controller.
    #[must_use]
    pub fn from(mut self, controller: &Path) -> Self {
        controller.clone_into(&mut self.controller);
        self
    }

    /// Whose commands run in this environment: with another engine, without the programs of bus and store.
    #[must_use]
    pub fn in_environment(mut self, environment: Vec<(String, String)>) -> Self {
        self.environment = environment;
        self
    }

    /// Where its things lie.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A name as engine and system know it.
    #[must_use]
    pub fn prefixed(&self, name: &str) -> String {
        self.prefix.as_ref().map_or_else(|| name.to_owned(), |prefix| format!("{prefix}-{name}"))
    }

    /// Runs the command on this mesh.
    pub async fn run(&self, words: &[&str]) -> Said {
        self.run_within(LIMIT, words).await
    }

    /// Runs the command on this mesh, with a deadline of its own.
    pub async fn run_within(&self, limit: Duration, words: &[&str]) -> Said {
        self.run_as(As::Myself, &self.environment, limit, words).await
    }

    /// Runs the command on this mesh, as somebody and with an environment.
    pub async fn run_as(
        &self,
        user: As,
        environment: &[(String, String)],
        limit: Duration,
        words: &[&str],
    ) -> Said {
        let words: Vec<&str> = words.iter().copied().chain(["--root", self.layout.root().as_str()]).collect();
        command::run(&Binary::Mesh.path(), &words, environment, user, limit).await
    }

    /// The words of `mesh genesis` for this mesh, and more.
    #[must_use]
    pub fn genesis_words<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut words = vec!["genesis", "--offline", "--name", &self.name];
        words.extend(["--check-interval", &self.check_interval]);
        words.extend(["--controller", self.controller.to_str().unwrap()]);
        if let Some(prefix) = &self.prefix {
            words.extend(["--prefix", prefix]);
            // Half a second for each of a hundred meshes; a mesh of a user's own is looked at in full.
            words.extend(["--skip", "container-image"]);
        }
        for port in ["--bus-port", "--store-port"] {
            if !more.contains(&port) {
                words.extend([port, "0"]);
            }
        }
        words.extend(more);
        words
    }

    /// Runs `mesh genesis`.
    pub async fn genesis(&self, more: &[&str]) -> Said {
        self.run(&self.genesis_words(more)).await
    }

    /// Raises it to the end.
    ///
    /// # Panics
    /// When that fails.
    pub async fn raise(&self) -> Said {
        self.genesis(&[]).await.exited(0)
    }

    /// Raises it until its controller serves as a container and the store answers: a lab's test bed for handovers.
    ///
    /// # Panics
    /// When that fails.
    pub async fn raise_until_store(&self) -> Said {
        self.genesis(&["--until", "store"]).await.exited(0)
    }

    /// Pushes a module to this machine.
    pub async fn push(&self, folder: &Path, more: &[&str]) -> Said {
        let mut words = vec!["push", folder.to_str().unwrap(), "--no-build"];
        words.extend(more);
        self.run(&words).await
    }

    /// What it kept of what cannot be observed.
    ///
    /// # Panics
    /// When there is no mesh.
    #[must_use]
    pub fn file(&self) -> MeshFile {
        MeshFile::must_read(&self.layout).unwrap()
    }

    /// Its id.
    ///
    /// # Panics
    /// When there is no mesh.
    #[must_use]
    pub fn id(&self) -> MeshId {
        self.file().mesh
    }

    /// All that its host knows.
    ///
    /// # Panics
    /// When no host answers.
    pub async fn observe(&self) -> Observed {
        Door::new(self.layout.door()).observe().await.unwrap()
    }

    /// What its host holds under this id.
    ///
    /// # Panics
    /// When it holds nothing of that id.
    pub async fn held(&self, id: &str) -> LedgerEntry {
        let ledger = self.observe().await.ledger;
        let found = ledger.iter().find(|entry| entry.id.to_string() == id);
        found.unwrap_or_else(|| panic!("the host does not hold {id}: {ledger:?}")).clone()
    }

    /// The process that its host holds under this id, as the machine knows it.
    ///
    /// # Panics
    /// When it holds none of that id that runs, or is about to.
    pub async fn process(&self, id: &str) -> Process {
        let looking = async || {
            let Some(Runtime::Process { pid: Some(pid), start_time, .. }) = self.held(id).await.runtime
            else {
                return None;
            };
            Process::of(pid).filter(|process| Some(process.start_time) == start_time)
        };
        eventually(&format!("{id} runs, as the host holds it"), SOON, looking).await
    }

    /// The host itself.
    ///
    /// # Panics
    /// When none answers.
    pub async fn host(&self) -> Process {
        Process::of(self.observe().await.pid).expect("the host that answers runs")
    }

    /// What `mesh status --json` says.
    ///
    /// # Panics
    /// When the seat does not answer.
    pub async fn status(&self) -> StatusAnswer {
        self.run(&["status", "--json"]).await.exited(0).json()
    }

    /// The instance that holds the seat alone, as `mesh status` says.
    ///
    /// # Panics
    /// When there is none, or more than one.
    pub async fn only_instance(&self) -> InstanceId {
        let status = self.status().await;
        let [one] = &status.seat.instances[..] else { panic!("expected one instance: {:?}", status.seat) };
        one.instance.clone()
    }

    /// Waits until the seat is answered.
    ///
    /// # Panics
    /// When it is not after `limit`.
    pub async fn answered_within(&self, limit: Duration) {
        let looking = async || (self.run(&["status"]).await.code == Some(0)).then_some(());
        eventually("the seat is answered", limit, looking).await;
    }

    /// Waits until no handover is under way and the node is as declared; the host may be away meanwhile.
    ///
    /// # Panics
    /// When that is not so after `limit`.
    pub async fn is_handed_over(&self, limit: Duration) {
        let done = async || {
            let report = Door::new(self.layout.door()).observe().await.ok()?.report;
            let is_done = report.handovers.iter().all(|handover| handover.state == State::Done);
            (is_done && report.state == NodeState::Converged).then_some(())
        };
        eventually("the handover is done, and the node is as declared", limit, done).await;
    }

    /// Begins to ask the seat 200 times a second, on a connection of its own.
    ///
    /// # Panics
    /// When the bus does not take the prober's credential.
    pub async fn probe(&self) -> Prober {
        let ask = prober::open(&self.layout, &self.file()).await.unwrap();
        Prober::start(ask, prober::EVERY, ANSWERED_WITHIN)
    }

    /// What selects its containers.
    #[must_use]
    pub fn selector(&self) -> LabelSelector {
        LabelSelector::is(label::MESH, self.id().as_str())
    }

    /// What selects the controller's container.
    #[must_use]
    pub fn controller_container(&self) -> LabelSelector {
        self.selector().and_is(label::RESOURCE, &self.file().inputs.replaces.to_string())
    }

    /// Its containers in the engine, whatever they are doing.
    pub async fn containers(&self) -> Vec<Container> {
        self.engine().await.list(&self.selector()).await.unwrap()
    }

    /// The engine.
    pub async fn engine(&self) -> Engine {
        engine::connect().await
    }

    /// Takes it down by its name, as a test's last act or when it ends.
    pub async fn down(&self) -> Said {
        self.run(&["down", "--yes", "--destroy", &self.name]).await
    }

    fn show_logs(&self) {
        let entries = std::fs::read_dir(self.layout.logs()).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        paths.sort();
        for path in paths {
            let log = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let is_hosts = path == self.layout.log("host");
            let most = if is_hosts { LOG_LINES } else { PROGRAM_LINES };
            let last = &lines[lines.len().saturating_sub(most)..];
            eprintln!("--- {}\n{}", path.display(), last.join("\n"));
        }
        eprintln!("---");
    }

    async fn take_down_at_the_end(&self) -> Vec<String> {
        let marks = Marks::of(self);
        let said = self.down().await;
        let mut found = marks.remove_what_is_left().await;
        if said.code != Some(0) {
            found.insert(0, said.to_string());
        }
        found
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.show_logs();
        }
        let found = std::thread::scope(|scope| {
            // A runtime of its own: the test's may be the one that is just being ended.
            let cleaning = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(self.take_down_at_the_end())
            });
            cleaning.join().unwrap_or_else(|_| vec!["taking it down broke off".to_owned()])
        });
        if found.is_empty() {
            return;
        }
        let text = format!("mesh down left something of mesh {}:\n{}", self.name, found.join("\n"));
        if std::thread::panicking() {
            eprintln!("{text}");
        } else {
            panic!("{text}");
        }
    }
}

/// A folder that every account may pass through: processes run from below it.
fn folder() -> TempDir {
    let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    tempfile::Builder::new().prefix("mt-").permissions(permissions).tempdir_in("/tmp").unwrap()
}

/// Whether the seat was held without anybody noticing that something went on at it: each attempt was answered, and
/// the longest time between two answers was a tenth of a second at most, and as much more as the machine itself stood still.
///
/// # Errors
/// What was noticed.
pub fn unnoticed(figures: &Figures, stood_still: Duration) -> Result<(), String> {
    let longest_gap_us = 100_000 + u64::try_from(stood_still.as_micros()).unwrap_or(u64::MAX);
    let told = figures.lines().join("\n");
    if figures.asked == 0 {
        return Err("nobody asked".to_owned());
    }
    if figures.failed > 0 {
        return Err(format!("{} of {} attempts failed\n{told}", figures.failed, figures.asked));
    }
    if figures.longest_gap_us > longest_gap_us {
        return Err(format!(
            "{} us without an answer, at most {longest_gap_us} expected\n{told}",
            figures.longest_gap_us
        ));
    }
    Ok(())
}
