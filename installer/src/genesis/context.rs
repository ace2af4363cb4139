//! What the steps of one genesis hand on to each other.
//!
//! In: options and surroundings. Out: the mesh as far as it is known, and the ways to speak to its parts. Not here:
//! what is done with them.

use std::time::Instant;

use camino::{Utf8Path, Utf8PathBuf};
use mesh_engine::Endpoint;
use mesh_protocol::id::{MeshName, ModuleName, PlanId, SeatName};
use mesh_protocol::layout::Layout;
use mesh_protocol::subject::CONTROLLER_SEAT;

use super::origin::Origin;
use super::parts::Parts;
use super::step::Step;
use crate::cli;
use crate::config;
use crate::controller_source::ControllerSource;
use crate::follow::watch::Watch;
use crate::images;
use crate::journal::Journal;
use crate::mesh_file::{self, Asked, DEFAULT_BUS_PORT, DEFAULT_STORE_PORT, Inputs, MeshFile};
use crate::module::PackedBundle;
use crate::output::event::Stage;
use crate::output::{Code, Event, Failure, Printer, Result};
use crate::prober::{Figures, Prober};
use crate::recording::{self, Occasion};
use crate::world::World;

/// Whether anything may be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Touch {
    /// It may.
    World,
    /// A dry run.
    Nothing,
}

/// The references of the three images.
#[derive(Debug, Clone, Default)]
pub(super) struct Images {
    pub(super) controller: Option<String>,
    pub(super) bus: Option<String>,
    pub(super) store: Option<String>,
}

/// Something that is done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deed {
    pub(super) step: Step,
    pub(super) what: String,
}

/// What the steps hand on to each other.
pub(super) struct Context<'a, P> {
    pub(super) world: &'a World,
    pub(super) layout: Layout,
    pub(super) options: cli::Genesis,
    pub(super) printer: &'a Printer,
    pub(super) touch: Touch,
    pub(super) holds_lock: bool,
    pub(super) step: Step,
    pub(super) journal: Option<Journal>,
    pub(super) mesh: Option<MeshFile>,
    pub(super) parts: P,
    pub(super) seat: SeatName,
    pub(super) controller: Option<ControllerSource>,
    pub(super) packed: Option<PackedBundle>,
    pub(super) images: Images,
    pub(super) plan: Option<PlanId>,
    pub(super) prober: Option<Prober>,
    pub(super) figures: Option<Figures>,
    /// A dry run that found no host has it started, as far as what comes later is concerned.
    pub(super) host_starts: bool,
    /// All that was done, or would be, in this order.
    pub(super) deeds: Vec<Deed>,
    /// Where a dry run packs: nothing of it is in the mesh's folder, and it goes with this value.
    aside: Option<tempfile::TempDir>,
    watch: Watch,
    began: Instant,
}

/// The seat that all this is about.
pub(super) fn controller_seat() -> Result<SeatName> {
    CONTROLLER_SEAT.parse().map_err(|error| Failure::of(Code::Internal, &error))
}

impl<'a, P: Parts> Context<'a, P> {
    pub(super) fn new(
        world: &'a World,
        layout: Layout,
        options: cli::Genesis,
        printer: &'a Printer,
        parts: P,
    ) -> Result<Self> {
        let touch = if options.dry_run { Touch::Nothing } else { Touch::World };
        Ok(Self {
            world,
            layout,
            options,
            printer,
            touch,
            holds_lock: false,
            step: Step::Preflight,
            journal: None,
            mesh: None,
            parts,
            seat: controller_seat()?,
            controller: None,
            packed: None,
            images: Images::default(),
            plan: None,
            prober: None,
            figures: None,
            host_starts: false,
            deeds: Vec::new(),
            aside: None,
            watch: Watch::new(printer.now()),
            began: Instant::now(),
        })
    }

    /// What was said on the command line.
    fn asked(&self) -> Asked {
        let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let check_interval_ms = self.options.check_interval.map(milliseconds);
        Asked { check_interval_ms, ..Asked::of(&self.options.wanted) }
    }

    /// Refuses other inputs than those the mesh was begun with. What the manifest replaces counts for as long as the
    /// container of that name may still be raised; later it is history.
    pub(super) fn check_inputs(&self) -> Result<()> {
        let Some(mesh) = &self.mesh else { return Ok(()) };
        if let Some(since) = mesh.down_since {
            return Err(Failure::new(
                Code::DownBegun,
                format!("mesh {} in {} is being taken down", mesh.inputs.name, self.layout.root()),
            )
            .found(format!("`mesh down` was begun at {since:.0} and has not ended"))
            .hint(format!("end it first: mesh down --destroy {}", mesh.inputs.name)));
        }
        let mut asked = self.asked();
        if mesh.process_since.is_none() {
            // What is wrong with the manifest is for preflight to say.
            let container = self.load_controller().ok().and_then(|controller| controller.container().ok());
            asked.replaces = container;
        }
        if !is_same_folder(&mesh.inputs.root, self.layout.root()) {
            asked.root = Some(self.layout.root().to_owned());
        }
        let mut differences = mesh_file::differences(&mesh.inputs, &asked);
        if mesh.process_since.is_none()
            && let (Some(before), Ok(now)) = (&mesh.origin, self.origin())
        {
            differences.extend(before.differences(&now));
        }
        if differences.is_empty() {
            return Ok(());
        }
        Err(mesh_file::refusal(self.layout.root(), &differences))
    }

    /// The files that this mesh is raised from, as they are now.
    pub(super) fn origin(&self) -> Result<Origin> {
        Ok(Origin::now(&self.load_controller()?, &config::host_program(self.world)))
    }

    /// The inputs, resolved for a mesh that is begun now. `port` finds a free port where any will do.
    pub(super) fn inputs(&self, port: impl Fn() -> Result<u16>) -> Result<Inputs> {
        let asked = self.asked();
        let default_name = || "mesh".parse::<MeshName>().map_err(|error| Failure::of(Code::Internal, &error));
        let node = match asked.node {
            Some(node) => node,
            None => config::node_name(&crate::machine::host_name())
                .map_or_else(|| "control".parse().map_err(|error| Failure::of(Code::Internal, &error)), Ok)?,
        };
        let (bus_port, store_port) = two_ports(asked.bus_port, asked.store_port, port)?;
        Ok(Inputs {
            root: self.layout.root().to_owned(),
            name: asked.name.map_or_else(default_name, Ok)?,
            prefix: asked.prefix.unwrap_or_default(),
            node,
            bus_port,
            store_port,
            check_interval_ms: asked.check_interval_ms.unwrap_or(2000),
            replaces: self.controller()?.container()?,
        })
    }

    pub(super) fn load_controller(&self) -> Result<ControllerSource> {
        let folder = config::controller_folder(self.world, self.options.wanted.controller.as_deref())?;
        ControllerSource::load(&folder)
    }

    /// The controller's manifest and form, read once.
    pub(super) fn controller(&self) -> Result<ControllerSource> {
        match &self.controller {
            Some(controller) => Ok(controller.clone()),
            None => self.load_controller(),
        }
    }

    /// The controller's module, where its manifest can be read.
    pub(super) fn controller_module(&self) -> Option<ModuleName> {
        self.controller().ok().map(|controller| controller.module.manifest.name)
    }

    pub(super) fn mesh(&self) -> Result<&MeshFile> {
        self.mesh
            .as_ref()
            .ok_or_else(|| Failure::new(Code::Internal, "a step came before the mesh had an id"))
    }

    /// Changes and keeps `mesh.json`.
    pub(super) fn change_mesh(&mut self, change: impl FnOnce(&mut MeshFile)) -> Result<()> {
        let mut mesh = self.mesh()?.clone();
        change(&mut mesh);
        if self.mesh.as_ref() != Some(&mesh) {
            if self.touch == Touch::World {
                mesh.write(&self.layout)?;
            }
            self.mesh = Some(mesh);
        }
        Ok(())
    }

    /// The endpoint of the engine, and how it was found.
    pub(super) fn endpoint(&self) -> Result<Endpoint> {
        images::endpoint(self.world)
    }

    /// Ends the probing of the seat: its figures are kept, and the recording of the handover.
    pub(super) async fn end_probe(&mut self) {
        let Some(prober) = self.prober.take() else { return };
        let probed = prober.stop_and_tell().await;
        self.figures = Some(probed.figures.clone());
        let Ok(seen) = self.parts.host().await else { return };
        let handover = seen.handovers.iter().find(|handover| handover.seat == self.seat);
        if let (Some(handover), Some(mesh)) = (handover, &self.mesh) {
            let occasion = Occasion { command: "genesis", plan: self.plan.as_ref() };
            let recording = recording::compose(mesh, occasion, &probed, handover);
            crate::carry::keep(&self.layout, &recording, self.printer);
        }
    }

    /// Writes an event down, without saying it.
    pub(super) fn note(&mut self, event: Event) -> Result<()> {
        match &mut self.journal {
            Some(journal) => journal.note(event),
            None => Ok(()),
        }
    }

    /// Writes an event down, then says it.
    pub(super) fn tell(&mut self, event: &Event) -> Result<()> {
        self.note(event.clone())?;
        self.printer.event(event);
        Ok(())
    }

    /// Writes down and says what is about to be done; and whether it is: a dry run only says it. So the two list the same,
    /// where what they decide from is the same.
    pub(super) fn shall(&mut self, what: impl Into<String>) -> Result<bool> {
        let (step, what) = (self.step, what.into());
        self.deeds.push(Deed { step, what: what.clone() });
        match self.touch {
            Touch::World => self.tell(&Event::Effect { step: step.to_string(), what }).map(|()| true),
            Touch::Nothing => {
                self.printer.event(&Event::WouldDo { step: step.to_string(), what });
                Ok(false)
            }
        }
    }

    /// Says something about the present step.
    pub(super) fn say(&self, text: impl Into<String>) {
        self.printer.event(&Event::Note { step: self.step.to_string(), text: text.into() });
    }

    /// Says what is waited for: at its begin, while it lasts, and when something else is waited for.
    pub(super) fn waits(&mut self, waiting_for: &str) {
        self.see_wait(Some(waiting_for));
    }

    /// Nothing is waited for any more.
    pub(super) fn waits_no_more(&mut self) {
        self.see_wait(None);
    }

    fn see_wait(&mut self, waiting_for: Option<&str>) {
        let mut events = Vec::new();
        self.watch.see_wait(waiting_for, self.step.as_str(), self.began.elapsed(), &mut events);
        for event in events {
            if matches!(event, Event::Waiting { stage: Stage::Begun, .. }) {
                // What cannot be noted is not more important than what is waited for.
                let _ = self.journal.as_mut().map(|journal| journal.remark(event.clone()));
            }
            self.printer.event(&event);
        }
    }

    /// Where packed bundles and layers lie until they are published.
    pub(super) fn work_folder(&self) -> Utf8PathBuf {
        self.layout.genesis_work()
    }

    /// Where a bundle is packed that is only to be looked at.
    pub(super) fn aside(&mut self) -> Result<Utf8PathBuf> {
        let failed = |error: &std::io::Error| Failure::because(Code::Io, "no room to pack", error);
        if self.aside.is_none() {
            self.aside = Some(tempfile::tempdir().map_err(|error| failed(&error))?);
        }
        let path = self.aside.as_ref().map(|folder| folder.path().to_owned()).unwrap_or_default();
        Utf8PathBuf::try_from(path).map_err(|error| Failure::of(Code::Io, &error))
    }
}

/// The bus's port and the store's: as said, or as they are by default, or, where any will do, a free one; never one for
/// both by chance. A port that was free a moment ago may be told of once more.
fn two_ports(bus: Option<u16>, store: Option<u16>, port: impl Fn() -> Result<u16>) -> Result<(u16, u16)> {
    const TRIES: usize = 100;
    let said = |asked: Option<u16>, default: u16| match asked {
        Some(0) => None,
        Some(said) => Some(said),
        None => Some(default),
    };
    let free_but = |other: Option<u16>| {
        for _ in 0..TRIES {
            let found = port()?;
            if Some(found) != other {
                return Ok(found);
            }
        }
        Err(Failure::new(Code::PortTaken, "no second port is free"))
    };
    let (bus, store) = (said(bus, DEFAULT_BUS_PORT), said(store, DEFAULT_STORE_PORT));
    let bus = bus.map_or_else(|| free_but(store), Ok)?;
    let store = store.map_or_else(|| free_but(Some(bus)), Ok)?;
    Ok((bus, store))
}

/// Whether both are one folder, by whichever names.
fn is_same_folder(one: &Utf8Path, other: &Utf8Path) -> bool {
    let real = |path: &Utf8Path| path.canonicalize_utf8().unwrap_or_else(|_| path.to_owned());
    one == other || real(one) == real(other)
}

/// What the engine said, as a failure.
pub(crate) fn engine_failure(error: &mesh_engine::Error) -> Failure {
    let code = match error {
        mesh_engine::Error::Unreachable { .. } => Code::EngineUnreachable,
        mesh_engine::Error::NotPermitted { .. } => Code::EngineNotPermitted,
        _ => Code::Engine,
    };
    Failure::of(code, error).maybe_hint(error.remedy())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn two_free_ports_are_two() {
        let told = RefCell::new(vec![4222, 7, 7, 8]);
        let port = || Ok(told.borrow_mut().remove(0));
        assert_eq!(two_ports(Some(0), Some(0), port).unwrap(), (4222, 7));
        assert_eq!(two_ports(Some(0), Some(7), port).unwrap(), (8, 7));
        let never = || Err(Failure::new(Code::PortTaken, "none"));
        assert_eq!(two_ports(None, Some(9), never).unwrap(), (4222, 9));
        // What was said is for preflight to judge.
        assert_eq!(two_ports(Some(9), Some(9), never).unwrap(), (9, 9));
        assert_eq!(two_ports(Some(0), Some(9), || Ok(9)).unwrap_err().code, Code::PortTaken);
    }

    #[test]
    fn what_an_engine_refuses_is_told_from_one_that_is_away() {
        let what = "load an image archive".to_owned();
        let nonsense = mesh_engine::Error::Nonsense { what, found: "\"x\" names no image".to_owned() };
        assert_eq!(engine_failure(&nonsense).code, Code::Engine);
    }
}
