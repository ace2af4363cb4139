//! What genesis looks at and changes outside of its own folder, as one seam: engine, host, seat, store, this machine.
//!
//! In: questions and deeds. Out: answers. Genesis decides from these answers alone, so that what a dry run lists and what
//! a run does is one decision; and so that it can be made from a thousand states that no machine need be brought into. Not
//! here: deciding. The real parts are in `real`; the fakes, in the tests, pass the same tests as they (`contract`).

pub mod real;

use std::time::Duration;

use camino::Utf8Path;
use mesh_bundles::image::ImageArchive;
use mesh_engine::Image;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::door::{LedgerEntry, Observed, Tombstone};
use mesh_protocol::handover::{Form, HandoverReport};
use mesh_protocol::id::{MeshId, ModuleName, PlanId};
use mesh_protocol::plan::ModuleRecord;
use mesh_protocol::verb::PushRequest;

use crate::daemon::Started;
use crate::doctor::{Examined, Intent};
use crate::mesh_file::MeshFile;
use crate::module::PackedBundle;
use crate::output::{Failure, Result};
use crate::prober::{Figures, Prober};
use crate::push::PublishedNow;
use crate::third_party::ThirdParty;

/// How patient to be with the seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It is there, or comes back in a moment: that it is not is a failure.
    Patient,
    /// One quick question: that nobody answers is an answer.
    Once,
}

/// What the host says, or what it wrote down where it does not run.
#[derive(Debug, Clone, Default)]
pub struct HostSeen {
    /// What it says of itself; none where it does not run.
    pub running: Option<Running>,
    /// The declaration that it accepted last.
    pub declaration: Option<Declaration>,
    /// What it holds.
    pub ledger: Vec<LedgerEntry>,
    /// What it removed for good.
    pub tombstones: Vec<Tombstone>,
    /// Its handovers, as it reports them.
    pub handovers: Vec<HandoverReport>,
}

/// A host that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Whose it is.
    pub mesh: MeshId,
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
}

impl From<Observed> for HostSeen {
    fn from(observed: Observed) -> Self {
        let Observed { pid, report, declaration, ledger, tombstones, .. } = observed;
        Self {
            running: Some(Running { mesh: report.mesh, version: report.host_version, pid }),
            declaration: declaration.map(|declaration| *declaration),
            ledger,
            tombstones,
            handovers: report.handovers,
        }
    }
}

/// Who answers the controller's seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeatSeen {
    /// In which form.
    pub form: Form,
    /// A plan for the controller's own module that has not ended.
    pub open_plan: Option<PlanId>,
}

/// What is left of the container that was handed over from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Nothing.
    Done,
    /// The host goes on without: what is left to do.
    Pending(String),
    /// It is still there.
    Waits,
}

/// What genesis looks at, and what it does to it. Whatever is named a look changes nothing.
#[allow(async_fn_in_trait, reason = "one run of the command drives it, on one thread")]
pub trait Parts {
    /// A look at this machine, before anything is done; it may try things out, and leaves nothing behind.
    async fn examine(&self, intent: &Intent<'_>) -> Examined;

    /// A look: the engine's image of this name.
    ///
    /// # Errors
    /// When the engine does not answer.
    async fn image(&self, reference: &str) -> Result<Option<Image>>;

    /// A look: an image that a genesis assembled before from this program.
    ///
    /// # Errors
    /// When the engine does not answer.
    async fn assembled(&self, wanted: ThirdParty) -> Result<Option<String>>;

    /// Puts an image into the engine.
    ///
    /// # Errors
    /// When the engine does not take it.
    async fn load(&self, archive: &ImageArchive) -> Result<Image>;

    /// Puts all images of an archive into the engine.
    ///
    /// # Errors
    /// When it cannot be read, or the engine does not take it.
    async fn load_file(&self, path: &Utf8Path) -> Result<Vec<Image>>;

    /// Has the engine pull an image.
    ///
    /// # Errors
    /// When no registry that has it is in reach.
    async fn pull(&self, reference: &str, limit: Duration) -> Result<Image>;

    /// A look: the host, or what it left.
    ///
    /// # Errors
    /// When it is there and does not answer, or what it left cannot be read.
    async fn host(&self) -> Result<HostSeen>;

    /// Makes the host run.
    ///
    /// # Errors
    /// When it cannot be started.
    async fn start_host(&self, mesh: &MeshFile) -> Result<Started>;

    /// Ends when the host that ran is gone for good; never where it goes on.
    fn host_gone(&self) -> impl Future<Output = Failure> + 'static;

    /// Gives the host its first declaration.
    ///
    /// # Errors
    /// When it does not take it.
    async fn pivot(&self, declaration: Declaration) -> Result<()>;

    /// A look: what is still waited for until bus and controller are up; none when they are.
    ///
    /// # Errors
    /// When waiting is no use.
    async fn awaited(&self, mesh: &MeshFile) -> Result<Option<String>>;

    /// A look: who answers the seat, asked once. `module` is the controller's.
    async fn seat(&self, mesh: &MeshFile, module: &ModuleName) -> Option<SeatSeen>;

    /// A look: the mesh's modules; none where nobody answers, and that is an answer.
    ///
    /// # Errors
    /// When nobody answers those who are patient.
    async fn modules(&self, mesh: &MeshFile, patience: Patience) -> Result<Option<Vec<ModuleRecord>>>;

    /// Asks for a push, and waits for its turn; the plan that it becomes.
    ///
    /// # Errors
    /// When it is refused.
    async fn push(&self, mesh: &MeshFile, request: &PushRequest) -> Result<PlanId>;

    /// Waits for a plan's end.
    ///
    /// # Errors
    /// When it fails, is given up, or takes longer.
    async fn follow(&self, mesh: &MeshFile, plan: &PlanId, limit: Duration) -> Result<()>;

    /// A look: what is left of the container.
    ///
    /// # Errors
    /// When the host does not answer.
    async fn removal(&self, mesh: &MeshFile) -> Result<Removal>;

    /// A look: whether the store answers.
    ///
    /// # Errors
    /// When it answers as no store does.
    async fn store_answers(&self, mesh: &MeshFile) -> Result<bool>;

    /// A look: whether the store has all that publishing would put there; none where it does not answer.
    ///
    /// # Errors
    /// When it answers as no store does.
    async fn is_published(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<Option<bool>>;

    /// Puts a bundle into the store.
    ///
    /// # Errors
    /// When the store does not take it.
    async fn publish(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<PublishedNow>;

    /// Begins to probe the seat, where there is a bus to probe it over.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn probe(&self, mesh: &MeshFile) -> Result<Option<Prober>>;

    /// Probes the seat for a moment.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn probe_for(&self, mesh: &MeshFile, time: Duration) -> Result<Option<Figures>>;

    /// A look: whether one controller, a process, answers its seat, and nothing is left of the container.
    ///
    /// # Errors
    /// What is not so.
    async fn verify(&self, mesh: &MeshFile) -> Result<String>;
}
