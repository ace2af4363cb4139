//! The real parts: the container engine, the host behind its door, the seat on the bus, the store.
//!
//! In: where they are. Out: what they say. Connections are made when they are first needed, and kept. Not here: what follows
//! from it.

use std::time::Duration;

use camino::Utf8Path;
use mesh_bundles::image::ImageArchive;
use mesh_bundles::store::{Store, Trouble};
use mesh_engine::{Engine, Image, LabelSelector};
use mesh_protocol::declaration::Declaration;
use mesh_protocol::door::{DoorAnswer, DoorRequest, LedgerEntry, Observed, Tombstone};
use mesh_protocol::handover::{Form, State};
use mesh_protocol::id::{ModuleName, PlanId, SeatName};
use mesh_protocol::layout::{Layout, label};
use mesh_protocol::plan::{Action, ModuleRecord};
use mesh_protocol::report::ResourceState;
use mesh_protocol::verb::{ModulesAnswer, PlansAnswer, PushRequest, StatusAnswer, Verb};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::OnceCell;

use super::super::plan::{Controller, controller_of};
use super::{HostSeen, Parts, Patience, Removal, SeatSeen};
use crate::daemon::{self, Started};
use crate::doctor::{self, Examined, Intent};
use crate::door::{self, Door, unexpected};
use crate::follow;
use crate::genesis::engine_failure;
use crate::images;
use crate::mesh_file::MeshFile;
use crate::module::PackedBundle;
use crate::output::{Code, Failure, Printer, Result};
use crate::prober::{self, Figures, Prober};
use crate::push::{self, PublishedNow};
use crate::registry;
use crate::session::{Nothing, Session};
use crate::third_party::ThirdParty;
use crate::world::World;

/// A seat that is held answers in a millisecond or two.
const SEAT_LIMIT: Duration = Duration::from_secs(1);

/// The same while it is waited for, and the next look comes soon.
const ANSWER: Duration = Duration::from_millis(500);

/// Them.
#[derive(Debug)]
pub struct Real<'a> {
    world: &'a World,
    layout: Layout,
    printer: &'a Printer,
    door: Door,
    seat: SeatName,
    engine: OnceCell<Engine>,
    session: OnceCell<Session>,
    store: OnceCell<Store>,
}

impl<'a> Real<'a> {
    /// Those of the mesh in this folder, as far as they are there.
    #[must_use]
    pub fn new(world: &'a World, layout: Layout, seat: SeatName, printer: &'a Printer) -> Self {
        let door = Door::new(layout.door());
        let (engine, session, store) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
        Self { world, layout, printer, door, seat, engine, session, store }
    }

    async fn engine(&self) -> Result<&Engine> {
        self.engine.get_or_try_init(|| images::engine(self.world)).await
    }

    async fn session(&self, mesh: &MeshFile) -> Result<&Session> {
        self.session.get_or_try_init(|| Session::open(&self.layout, mesh)).await
    }

    async fn store(&self, mesh: &MeshFile) -> Result<&Store> {
        self.store.get_or_try_init(|| async { registry::of_mesh(mesh, None) }).await
    }

    /// What a host that does not run wrote down; nothing where none ever ran.
    fn left_by_host(&self) -> Result<HostSeen> {
        #[derive(Default, Deserialize)]
        struct Ledger {
            entries: Vec<LedgerEntry>,
            tombstones: Vec<Tombstone>,
        }
        #[derive(Default, Deserialize)]
        struct Accepted {
            declaration: Option<Declaration>,
        }
        let Ledger { entries, tombstones } = read(&self.layout.ledger())?.unwrap_or_default();
        let Accepted { declaration } = read(&self.layout.declaration())?.unwrap_or_default();
        Ok(HostSeen { declaration, ledger: entries, tombstones, ..HostSeen::default() })
    }
}

fn read<T: DeserializeOwned>(path: &Utf8Path) -> Result<Option<T>> {
    mesh_durable::read_json(path).map_err(|error| Failure::of(Code::Io, &error))
}

impl Parts for Real<'_> {
    async fn examine(&self, intent: &Intent<'_>) -> Examined {
        doctor::examine(intent).await
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>> {
        self.engine().await?.find_image(reference).await.map_err(|error| engine_failure(&error))
    }

    async fn assembled(&self, wanted: ThirdParty) -> Result<Option<String>> {
        images::assembled_before(self.engine().await?, wanted).await
    }

    async fn load(&self, archive: &ImageArchive) -> Result<Image> {
        images::load(self.engine().await?, archive).await
    }

    async fn load_file(&self, path: &Utf8Path) -> Result<Vec<Image>> {
        images::load_file(self.engine().await?, path).await
    }

    async fn pull(&self, reference: &str, limit: Duration) -> Result<Image> {
        self.engine().await?.pull_image(reference, limit).await.map_err(|error| engine_failure(&error))
    }

    async fn host(&self) -> Result<HostSeen> {
        match self.door.observe_if_there().await? {
            Some(observed) => Ok(observed.into()),
            None => self.left_by_host(),
        }
    }

    async fn start_host(&self, mesh: &MeshFile) -> Result<Started> {
        daemon::start(self.world, &self.layout, &mesh.mesh).await
    }

    fn host_gone(&self) -> impl Future<Output = Failure> + 'static {
        door::gone(self.door.clone())
    }

    async fn pivot(&self, declaration: Declaration) -> Result<()> {
        let request = DoorRequest::Pivot { declaration: Box::new(declaration) };
        match self.door.ask(&request, door::QUICK).await? {
            DoorAnswer::Accepted | DoorAnswer::Already => Ok(()),
            other => Err(unexpected("take generation 1", &other)),
        }
    }

    async fn awaited(&self, mesh: &MeshFile) -> Result<Option<String>> {
        let observed = self.door.observe().await?;
        if let Some(failure) = hopeless(&observed) {
            return Err(failure);
        }
        let waits = |otherwise: &str| Ok(Some(not_right(&observed).unwrap_or_else(|| otherwise.to_owned())));
        if observed.report.applied.is_none() {
            return waits("the host to carry out generation 1");
        }
        let session = match self.session(mesh).await {
            Ok(session) => session,
            Err(failure) if failure.code == Code::BusUnreachable => return waits("the bus"),
            Err(failure) => return Err(failure),
        };
        let asked = session.ask_once::<_, StatusAnswer>(Verb::Status, &Nothing {}, ANSWER).await;
        let Ok((status, _)) = asked else {
            return waits("the controller to answer its seat");
        };
        let node = &mesh.inputs.node;
        if status.nodes.iter().any(|known| &known.name == node) {
            return Ok(None);
        }
        Ok(Some(format!("node {node} to be registered")))
    }

    async fn seat(&self, mesh: &MeshFile, module: &ModuleName) -> Option<SeatSeen> {
        // That nobody answers is an answer: what there is to say about it, the steps say.
        let session = self.session(mesh).await.ok()?;
        let asked = session.ask_once::<_, IgnoredAny>(Verb::Status, &Nothing {}, SEAT_LIMIT).await;
        let (_, by) = asked.ok()?;
        let ours = |action: &Action| matches!(action, Action::Push { .. }) && action.module() == module;
        let plans: Option<PlansAnswer> = session.ask(Verb::Plans, &Nothing {}).await.ok();
        let mut plans = plans.map(|answer| answer.plans).unwrap_or_default().into_iter();
        let open = plans.find(|plan| ours(&plan.action) && !plan.state.is_ended());
        Some(SeatSeen { form: by.form, open_plan: open.map(|plan| plan.id) })
    }

    async fn modules(&self, mesh: &MeshFile, patience: Patience) -> Result<Option<Vec<ModuleRecord>>> {
        let answer: ModulesAnswer = match patience {
            Patience::Patient => self.session(mesh).await?.ask(Verb::Modules, &Nothing {}).await?,
            Patience::Once => {
                let Ok(session) = self.session(mesh).await else { return Ok(None) };
                match session.ask_once(Verb::Modules, &Nothing {}, SEAT_LIMIT).await {
                    Ok((answer, _)) => answer,
                    Err(_) => return Ok(None),
                }
            }
        };
        Ok(Some(answer.modules))
    }

    async fn push(&self, mesh: &MeshFile, request: &PushRequest) -> Result<PlanId> {
        let planned = push::ask_in_turn(self.session(mesh).await?, request, self.printer).await?;
        push::say_plan(&planned.plan, self.printer);
        Ok(planned.plan.id)
    }

    async fn follow(&self, mesh: &MeshFile, plan: &PlanId, limit: Duration) -> Result<()> {
        follow::follow(self.session(mesh).await?, plan, limit, self.printer).await.map(drop)
    }

    async fn removal(&self, mesh: &MeshFile) -> Result<Removal> {
        let container = &mesh.inputs.replaces;
        let seen = HostSeen::from(self.door.observe().await?);
        let report = seen.handovers.iter().find(|report| report.seat == self.seat);
        if let Some(pending) = report.and_then(|report| report.cleanup_pending.clone()) {
            return Ok(Removal::Pending(pending));
        }
        let held = seen.ledger.iter().any(|entry| &entry.id == container);
        let is_done = report.is_none_or(|report| report.state == State::Done);
        let is_process = controller_of(&seen, container, &self.seat) == Controller::Process;
        Ok(if is_process && !held && is_done { Removal::Done } else { Removal::Waits })
    }

    async fn store_answers(&self, mesh: &MeshFile) -> Result<bool> {
        match self.store(mesh).await?.ping().await {
            Ok(()) => Ok(true),
            Err(error) if error.trouble() == Trouble::Surroundings => Ok(false),
            Err(error) => Err(registry::failure(&error)),
        }
    }

    async fn is_published(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<Option<bool>> {
        match self.store(mesh).await?.lacks(&push::publication(bundle)).await {
            Ok(lacks) => Ok(Some(lacks.is_empty())),
            Err(error) if error.trouble() == Trouble::Surroundings => Ok(None),
            Err(error) => Err(registry::failure(&error)),
        }
    }

    async fn publish(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<PublishedNow> {
        push::publish(self.store(mesh).await?, bundle, self.printer).await
    }

    async fn probe(&self, mesh: &MeshFile) -> Result<Option<Prober>> {
        let ask = prober::open(&self.layout, mesh).await?;
        Ok(Some(Prober::start(ask, prober::EVERY, prober::LIMIT)))
    }

    async fn probe_for(&self, mesh: &MeshFile, time: Duration) -> Result<Option<Figures>> {
        let ask = prober::open(&self.layout, mesh).await?;
        Ok(Some(prober::probe_for(ask, time).await))
    }

    async fn verify(&self, mesh: &MeshFile) -> Result<String> {
        let session = self.session(mesh).await?;
        let (status, by) = session.ask_once::<_, StatusAnswer>(Verb::Status, &Nothing {}, SEAT_LIMIT).await?;
        let instances: Vec<String> = status
            .seat
            .instances
            .iter()
            .map(|instance| {
                format!("{} ({}, {})", instance.instance, instance.form.as_str(), instance.role.as_str())
            })
            .collect();
        let wrong = |what: &str| {
            Failure::new(Code::NotReached, what.to_owned())
                .expected("one instance, a process, that answers")
                .found(format!("answered by {}; {}", by.instance, instances.join(", ")))
                .hint("see mesh status and mesh logs host")
        };
        if by.form != Form::Process {
            return Err(wrong("the seat is answered by a container"));
        }
        match &status.seat.instances[..] {
            [one] if one.form == Form::Process && one.instance == by.instance => {}
            _ => return Err(wrong("the seat is not held by one process alone")),
        }
        let selector = LabelSelector::is(label::MESH, mesh.mesh.as_str())
            .and_is(label::RESOURCE, &mesh.inputs.replaces.to_string());
        let left = self.engine().await?.list(&selector).await.map_err(|error| engine_failure(&error))?;
        if let Some(container) = left.first() {
            let what = format!(
                "container {} ({}) of the controller is still in the engine",
                container.name,
                container.id.short()
            );
            return Err(wrong(&what));
        }
        Ok(format!("one controller, {} (a process, version {}), answers the seat", by.instance, by.version))
    }
}

/// A resource that is held is not tried again by itself: waiting for it would be waiting for ever.
fn hopeless(observed: &Observed) -> Option<Failure> {
    let held = observed.report.resources.iter().find(|r| matches!(r.state, ResourceState::Held(_)))?;
    let (_, detail) = held.state.parts();
    Some(
        Failure::new(
            Code::NotReached,
            format!("{} is held: {}", held.id, detail.unwrap_or("no reason is known")),
        )
        .hint(format!("mend it, then: mesh retry {}", held.id)),
    )
}

fn not_right(observed: &Observed) -> Option<String> {
    let resource = observed.report.resources.iter().find(|resource| !resource.state.is_right())?;
    let (state, detail) = resource.state.parts();
    Some(match detail {
        Some(detail) => format!("{}, which is {state}: {detail}", resource.id),
        None => format!("{}, which is {state}", resource.id),
    })
}
