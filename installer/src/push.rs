//! `mesh push`: a module on its author's disk becomes what the mesh has.
//!
//! In: a module's folder. Out: bundles in the store, a plan, its end. Each step looks first: what is built is not
//! built, what is published is not sent. Not here: what the plan changes and how; that is the controller's.

use std::collections::BTreeMap;
use std::time::Duration;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_bundles::store::{Publication, Store};
use mesh_protocol::id::{NodeName, PlanId, ResourceName, System};
use mesh_protocol::manifest::{Bundle, Manifest};
use mesh_protocol::plan::{Action, Change, Plan, Published};
use mesh_protocol::verb::{Mode, ModulesAnswer, PlannedAnswer, PlansAnswer, PushRequest, Verb};

use crate::builds::{self, Planned, Way};
use crate::carry::{Asked, Carried, Means, carry, handover_line, interval};
use crate::follow::{self, Wait};
use crate::interrupt::{Interrupts, interrupted};
use crate::mesh_file::MeshFile;
use crate::module::{self, Build, Module, PackedBundle};
use crate::output::{Code, Event, Failure, Meter, Printer, Result};
use crate::registry;
use crate::session::{Nothing, Session};
use crate::world::World;

/// Plans that an earlier run left open: one; more are somebody else's work.
const MOST_PLANS_BEFORE: usize = 3;

/// What waits for its surroundings waits ten minutes at most.
const OTHER_PLAN_LIMIT: Duration = Duration::from_secs(11 * 60);

/// The bundles of a module, by name and system.
pub type Bundles = BTreeMap<ResourceName, BTreeMap<System, Published>>;

/// How to push.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to do it.
    pub mode: Mode,
    /// Nodes to assign it to, beside those it is on.
    pub assign: Vec<NodeName>,
    /// Whether a build may be run.
    pub build: Build,
    /// Whether to wait for the plan's end.
    pub wait: Wait,
}

/// Pushes the module in a folder.
///
/// # Errors
/// When the manifest or a binary is not right, the store or the seat does not answer, or the plan fails.
pub async fn push(
    world: &World,
    means: Means<'_>,
    folder: &Utf8Path,
    options: &Options,
    interrupts: &mut Interrupts,
) -> Result<()> {
    let module = Module::load(folder)?;
    let preparing = Box::pin(prepare(world, means, &module, options));
    let Some(request) = interrupts.unless(preparing).await.unwrap_or_else(|| Err(interrupted()))? else {
        return Ok(());
    };
    let asked = Asked {
        command: "push",
        verb: Verb::Push,
        body: &request,
        request: &request.request,
        seat: module.manifest.seat.as_ref(),
    };
    if carry(means, asked, options.wait, interrupts).await? == Carried::Done {
        let text = format!("{} {} is as its manifest says", module.manifest.name, module.manifest.version);
        means.printer.event(&Event::Finished { text });
    }
    Ok(())
}

/// Builds, packs and publishes what is needed; the request to push it. None in a dry run, which ends here, and builds
/// nothing.
async fn prepare(
    world: &World,
    means: Means<'_>,
    module: &Module,
    options: &Options,
) -> Result<Option<PushRequest>> {
    let Means { mesh, session, printer, .. } = means;
    let assign = assigned(mesh, session, module, &options.assign).await?;
    let known = request(world, module, Bundles::new(), assign.clone(), Mode::DryRun)?;
    let needs = ask(session, &known).await?;
    let store = registry::of_mesh(mesh, None)?;
    let planned = builds::plan(module, &needs.needs, &store).await?;
    let temp = tempfile::tempdir().map_err(|error| Failure::because(Code::Io, "no room to pack", &error))?;
    let work =
        Utf8PathBuf::try_from(temp.path().to_owned()).map_err(|error| Failure::of(Code::Io, &error))?;
    let deeds = Deeds { mode: options.mode, printer };
    if options.mode == Mode::DryRun {
        for planned in planned.iter().filter(|planned| planned.way == Way::Build) {
            deeds.shall(&planned.bundle.name, builds::build_line(planned));
        }
    } else {
        build(module, &planned, options.build, &deeds).await?;
    }
    let had = have(module, &planned, &work, printer).await?;
    for planned in planned.iter().filter(|planned| !matches!(planned.way, Way::Stored(_))) {
        publish_where_it_lacks(&store, planned.bundle, &had.packed, &deeds).await?;
    }
    let bundles = had.bundles;
    let Manifest { name, version, .. } = &module.manifest;
    if deeds.shall(name, format!("push {name} {version}")) {
        return Ok(Some(request(world, module, bundles, assign, Mode::Do)?));
    }
    let request = request(world, module, bundles, assign, Mode::DryRun)?;
    let answer = ask(session, &request).await?;
    print_planned(means, &answer);
    Ok(None)
}

/// What is done, each told before it is; or only told.
struct Deeds<'a> {
    mode: Mode,
    printer: &'a Printer,
}

impl Deeds<'_> {
    fn shall(&self, about: &impl ToString, what: String) -> bool {
        let (step, is_done) = (about.to_string(), self.mode == Mode::Do);
        let event = if is_done { Event::Effect { step, what } } else { Event::WouldDo { step, what } };
        self.printer.event(&event);
        is_done
    }
}

/// One that is yet to be built is published, for all that a dry run knows.
async fn publish_where_it_lacks(
    store: &Store,
    bundle: &Bundle,
    packed: &[PackedBundle],
    deeds: &Deeds<'_>,
) -> Result<()> {
    let is_its = |packed: &&PackedBundle| {
        let config = &packed.packed.config;
        (&config.name, config.system) == (&bundle.name, bundle.system)
    };
    let packed = packed.iter().find(is_its);
    if let Some(packed) = packed {
        let lacks = store.lacks(&publication(packed)).await.map_err(|error| registry::failure(&error))?;
        if lacks.is_empty() {
            let text = is_there(packed);
            deeds.printer.event(&Event::Note { step: bundle.name.to_string(), text });
            return Ok(());
        }
    }
    let is_done = deeds.shall(&bundle.name, format!("publish bundle {} for {}", bundle.name, bundle.system));
    match packed {
        Some(packed) if is_done => publish(store, packed, deeds.printer).await.map(drop),
        _ => Ok(()),
    }
}

/// Builds what has to be, and looks whether all that is to be packed may be a bundle's program.
async fn build(module: &Module, planned: &[Planned<'_>], build: Build, deeds: &Deeds<'_>) -> Result<()> {
    if build == Build::Never
        && let Some(failure) = builds::not_built(planned)
    {
        return Err(failure);
    }
    let mut faults = Vec::new();
    for planned in planned {
        let Planned { need, bundle, way } = planned;
        let done = match way {
            Way::Build => {
                deeds.shall(&bundle.name, builds::build_line(planned));
                module.build(bundle, deeds.printer).await.and_then(|()| module.check(bundle))
            }
            Way::Pack => module.check(bundle),
            Way::Stored(_) | Way::None => Ok(()),
        };
        faults.extend(done.err().map(|failure| builds::failed(failure, need.system, &need.nodes)));
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::all(Code::BinaryUnfit, "not all bundles can be packed", faults))
}

/// What there is of what is needed.
struct Had {
    /// What was packed here.
    packed: Vec<PackedBundle>,
    /// That, and what the store has.
    bundles: Bundles,
}

/// Packs what lies there. In a dry run, that is not all.
async fn have(module: &Module, planned: &[Planned<'_>], work: &Utf8Path, printer: &Printer) -> Result<Had> {
    let mut packed = Vec::new();
    let mut stored = Vec::new();
    for Planned { bundle, way, .. } in planned {
        match way {
            Way::Stored(published) => {
                let text =
                    format!("{} for {} is in the store: {}", bundle.name, bundle.system, published.digest);
                printer.event(&Event::Note { step: bundle.name.to_string(), text });
                stored.push((*bundle, published.clone()));
            }
            Way::Pack | Way::Build if module.binary(bundle).is_file() => {
                module.check(bundle)?;
                packed.push(module.pack(bundle, &work.join(module::archive_name(bundle)), printer).await?);
            }
            Way::Pack | Way::Build | Way::None => {}
        }
    }
    let mut bundles = by_system(&packed);
    for (bundle, published) in stored {
        bundles.entry(bundle.name.clone()).or_default().insert(bundle.system, published);
    }
    Ok(Had { packed, bundles })
}

/// The nodes to assign a module to: as said; and where nothing is said of one that is on no node yet, this machine,
/// for a module that is nowhere is nothing that anybody pushes.
async fn assigned(
    mesh: &MeshFile,
    session: &Session,
    module: &Module,
    said: &[NodeName],
) -> Result<Vec<NodeName>> {
    if !said.is_empty() {
        return Ok(said.to_vec());
    }
    let known: ModulesAnswer = session.ask(Verb::Modules, &Nothing {}).await?;
    let record = known.modules.iter().find(|record| record.name == module.manifest.name);
    let is_somewhere = record.is_some_and(|record| !record.nodes.is_empty());
    Ok(if is_somewhere { Vec::new() } else { vec![mesh.inputs.node.clone()] })
}

/// A push of a module with these bundles, under a new id.
///
/// # Errors
/// When the system has no randomness.
pub fn request(
    world: &World,
    module: &Module,
    bundles: Bundles,
    assign: Vec<NodeName>,
    mode: Mode,
) -> Result<PushRequest> {
    let path = module.path.to_string();
    request_for(world, &module.manifest, path, bundles, assign, mode)
}

/// As [`request`], for a manifest that lies on no disk.
///
/// # Errors
/// When the system has no randomness.
pub fn request_for(
    world: &World,
    manifest: &Manifest,
    path: String,
    bundles: Bundles,
    assign: Vec<NodeName>,
    mode: Mode,
) -> Result<PushRequest> {
    let request = new_request(world)?;
    Ok(PushRequest { request, path, manifest: manifest.text.clone(), bundles, assign, mode })
}

/// The id of a new request, which becomes its plan's.
///
/// # Errors
/// When the system has no randomness.
pub fn new_request(world: &World) -> Result<PlanId> {
    let label =
        world.random_label(12).map_err(|error| Failure::because(Code::Io, "no randomness", &error))?;
    label.parse().map_err(|error| Failure::of(Code::Internal, &error))
}

/// Asks for it.
///
/// # Errors
/// When nobody answers, or it is refused.
pub async fn ask(session: &Session, request: &PushRequest) -> Result<PlannedAnswer> {
    session.ask(Verb::Push, request).await
}

/// As [`ask`], and waits where another plan is open: one that an earlier run left behind, for example. What that plan
/// comes to is not this one's concern.
///
/// # Errors
/// When nobody answers, it is refused for another reason, or one plan after another is in the way.
pub async fn ask_in_turn(
    session: &Session,
    request: &PushRequest,
    printer: &Printer,
) -> Result<PlannedAnswer> {
    for _ in 0..MOST_PLANS_BEFORE {
        match ask(session, request).await {
            Err(failure) if failure.code == Code::PlanOpen => {}
            other => return other,
        }
        let plans: PlansAnswer = session.ask(Verb::Plans, &Nothing {}).await?;
        if let Some(open) = plans.plans.iter().find(|plan| !plan.state.is_ended()) {
            let module = open.action.module().to_string();
            let text = format!("waits for plan {}, which is open", open.id);
            printer.event(&Event::Note { step: module, text });
            match follow::follow(session, &open.id, OTHER_PLAN_LIMIT, printer).await {
                Err(failure) if failure.code == Code::PlanStillOpen => return Err(failure),
                _ => {}
            }
        }
    }
    ask(session, request).await
}

/// The bundles as the controller is told of them.
#[must_use]
pub fn by_system(packed: &[PackedBundle]) -> Bundles {
    let mut bundles = Bundles::new();
    for bundle in packed {
        let config = &bundle.packed.config;
        bundles.entry(config.name.clone()).or_default().insert(config.system, bundle.published());
    }
    bundles
}

/// What publishing a bundle means.
#[must_use]
pub fn publication(bundle: &PackedBundle) -> Publication<'_> {
    Publication {
        archive: bundle.archive.as_std_path(),
        digest: &bundle.packed.digest,
        size: bundle.packed.size,
        config: &bundle.packed.config,
        created: None,
    }
}

/// Puts a bundle into the store, and says whether that was needed.
///
/// # Errors
/// When the store does not take it.
pub async fn publish(store: &Store, bundle: &PackedBundle, printer: &Printer) -> Result<PublishedNow> {
    let step = bundle.packed.config.name.to_string();
    let publication = publication(bundle);
    let meter = Meter::new(printer, step.as_str(), "sent");
    let told = move |done, total| meter.told(done, total);
    let published = store.publish(&publication, &told).await.map_err(|error| registry::failure(&error))?;
    let now = if published.done.is_empty() { PublishedNow::WasThere } else { PublishedNow::Sent };
    let text = match now {
        PublishedNow::WasThere => is_there(bundle),
        PublishedNow::Sent => {
            format!(
                "published {} ({} bytes) as {}",
                bundle.packed.digest, bundle.packed.size, published.tagged
            )
        }
    };
    printer.event(&Event::Note { step, text });
    Ok(now)
}

fn is_there(bundle: &PackedBundle) -> String {
    format!("{} is in the store already", bundle.packed.digest)
}

/// Whether a bundle had to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishedNow {
    /// It was.
    Sent,
    /// It was in the store.
    WasThere,
}

/// Says what a plan changes.
pub fn say_plan(plan: &Plan, printer: &Printer) {
    let step = plan.action.module().to_string();
    for text in plan_lines(plan) {
        printer.event(&Event::Note { step: step.clone(), text });
    }
}

/// What a plan changes, line by line.
#[must_use]
pub fn plan_lines(plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = plan
        .changes
        .iter()
        .flat_map(|node| {
            node.resources
                .iter()
                .map(|resource| format!("{}: {}", node.node, change_line(&resource.id, &resource.change)))
        })
        .collect();
    if lines.is_empty() {
        lines.push("nothing changes".to_owned());
    }
    lines.extend(plan.remarks.iter().map(|remark| format!("note: {remark}")));
    lines
}

fn change_line(id: &mesh_protocol::id::ResourceId, change: &Change) -> String {
    match change {
        Change::Create => format!("create {id}"),
        Change::Update => format!("update {id}"),
        Change::Remove => format!("remove {id}"),
        Change::TakeOver => format!("take over {id}, untouched"),
        Change::HandOver { from } => format!("hand the seat over from {from} to {id}"),
        Change::Retry => format!("try {id} once more"),
    }
}

fn planned_lines(means: Means<'_>, planned: &PlannedAnswer) -> Vec<String> {
    let what = match &planned.plan.action {
        Action::Push { module } => match module.again {
            Some(revision) => format!("{} {} as revision {revision} had it", module.name, module.version),
            None => format!("push {} {}", module.name, module.version),
        },
        Action::Assign { module, node } => format!("assign {module} to {node}"),
        Action::Unassign { module, node } => format!("unassign {module} from {node}"),
    };
    let mut lines = vec![what];
    lines.extend(plan_lines(&planned.plan).into_iter().map(|line| format!("  {line}")));
    let handovers = planned.handovers.iter();
    lines.extend(
        handovers.map(|handover| format!("  {}", handover_line(handover, interval(means, handover)))),
    );
    for need in &planned.needs {
        let nodes: Vec<&str> = need.nodes.iter().map(NodeName::as_str).collect();
        let published = match &need.published {
            Some(digest) => format!("is {digest}"),
            None => "is to be published".to_owned(),
        };
        lines.push(format!(
            "  bundle {} for {} ({}) {published}",
            need.bundle,
            need.system,
            nodes.join(", ")
        ));
    }
    lines
}

/// Prints what a dry run would do.
pub fn print_planned(means: Means<'_>, planned: &PlannedAnswer) {
    means.printer.document(planned, || planned_lines(means, planned));
}
