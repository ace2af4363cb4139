//! Fakes of the parts, for states that no machine need be brought into: an engine, a host, a seat and a store in memory.
//!
//! In: the same questions and deeds. Out: what the real ones would say, which `contract` holds them to; and a deed that a
//! kill came before or behind. Not here: time, which nothing in here takes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use camino::Utf8Path;
use jiff::Timestamp;
use mesh_bundles::image::export;
use mesh_bundles::image::{ImageArchive, LAYER_LABEL, PROGRAM_LABEL};
use mesh_engine::Image;
use mesh_protocol::declaration::{Declaration, ModuleSection};
use mesh_protocol::door::Tombstone;
use mesh_protocol::handover::Form;
use mesh_protocol::id::{Digest, Generation, MeshId, ModuleName, PlanId};
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::ModuleRecord;
use mesh_protocol::verb::PushRequest;

use super::parts::{HostSeen, Parts, Patience, Removal, Running, SeatSeen};
use crate::controller_source::ControllerSource;
use crate::daemon::Started;
use crate::doctor::{Examined, Intent, Report};
use crate::mesh_file::MeshFile;
use crate::module::PackedBundle;
use crate::output::{Code, Failure, Result};
use crate::prober::{Figures, Prober};
use crate::push::PublishedNow;
use crate::third_party::ThirdParty;

/// All that is outside of the mesh's own folder.
#[derive(Debug, Clone, Default)]
pub(super) struct Outside {
    pub(super) images: BTreeMap<String, Image>,
    pub(super) host: Option<MeshId>,
    pub(super) declaration: Option<Declaration>,
    pub(super) tombstones: Vec<Tombstone>,
    pub(super) modules: BTreeMap<ModuleName, ModuleRecord>,
    pub(super) plans: BTreeMap<PlanId, PushRequest>,
    pub(super) published: BTreeSet<Digest>,
    pub(super) process: bool,
    /// How many deeds there were.
    pub(super) deeds: usize,
}

/// Where a kill comes: at the deed of this number, counted from the first that is still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kill {
    Before(usize),
    Behind(usize),
}

/// Clones are the same parts.
#[derive(Debug, Clone, Default)]
pub(super) struct Fakes {
    pub(super) outside: Rc<RefCell<Outside>>,
    pub(super) kill: Rc<RefCell<Option<Kill>>>,
}

/// What becomes of a run that is killed: nothing that it would do later is done.
fn killed() -> Failure {
    Failure::new(Code::Internal, "killed")
}

impl Fakes {
    /// A deed, and a kill before or behind it.
    fn deed<T>(&self, deed: impl FnOnce(&mut Outside) -> Result<T>) -> Result<T> {
        let mut kill = self.kill.borrow_mut();
        match *kill {
            Some(Kill::Before(0)) => return Err(killed()),
            Some(Kill::Before(left)) => *kill = Some(Kill::Before(left - 1)),
            _ => {}
        }
        let mut outside = self.outside.borrow_mut();
        outside.deeds += 1;
        let done = deed(&mut outside);
        match *kill {
            Some(Kill::Behind(0)) => return Err(killed()),
            Some(Kill::Behind(left)) => *kill = Some(Kill::Behind(left - 1)),
            _ => {}
        }
        done
    }

    fn answers(&self) -> bool {
        self.outside.borrow().declaration.is_some()
    }

    fn load_images(outside: &mut Outside, path: &Utf8Path) -> Result<Vec<Image>> {
        let listed =
            export::list(path.as_std_path()).map_err(|error| Failure::of(Code::ImageMissing, &error))?;
        let mut images = Vec::new();
        for listed in listed {
            let layer = listed.layer.map(|layer| (LAYER_LABEL.to_owned(), layer.to_string()));
            let program = listed.program.map(|program| (PROGRAM_LABEL.to_owned(), program));
            let image = Image {
                id: listed.id.to_string(),
                references: listed.references,
                labels: layer.into_iter().chain(program).collect(),
                size: 1,
            };
            for reference in &image.references {
                outside.images.insert(reference.clone(), image.clone());
            }
            images.push(image);
        }
        Ok(images)
    }
}

impl Outside {
    /// A pushed module is carried out: bus and store become sections with a revision, the controller a process.
    fn carry_out(&mut self, request: &PushRequest) {
        let manifest = Manifest::parse("module.toml", &request.manifest).unwrap();
        let revision = self.modules.get(&manifest.name).map_or(1, |record| record.revision + 1);
        let record = ModuleRecord {
            name: manifest.name.clone(),
            revision,
            version: manifest.version.clone(),
            manifest: request.manifest.clone(),
            bundles: request.bundles.clone(),
            nodes: request.assign.clone(),
            plan: Some(request.request.clone()),
            time: Timestamp::UNIX_EPOCH,
            again: None,
        };
        self.modules.insert(manifest.name.clone(), record);
        let declaration = self.declaration.as_mut().unwrap();
        declaration.generation = Generation(declaration.generation.0 + 1);
        if manifest.seat.is_some() {
            self.process = true;
            declaration.modules.retain(|section| section.name != manifest.name);
            self.tombstones.push(Tombstone {
                id: manifest.processes[0].replaces.clone().unwrap(),
                digest: Digest::of(b""),
                engine_id: None,
                generation: declaration.generation,
                time: Timestamp::UNIX_EPOCH,
            });
            return;
        }
        let section = declaration.modules.iter_mut().find(|section| section.name == manifest.name);
        if let Some(section) = section {
            section.revision = revision;
            return;
        }
        let template = declaration.modules[0].clone();
        declaration.modules.push(ModuleSection { name: manifest.name, revision, ..template });
    }
}

impl Parts for Fakes {
    async fn examine(&self, intent: &Intent<'_>) -> Examined {
        let folder = intent.wanted.controller.as_deref().unwrap();
        Examined {
            report: Report::default(),
            controller: ControllerSource::load(folder).ok(),
            engine: "nowhere".to_owned(),
        }
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>> {
        Ok(self.outside.borrow().images.get(reference).cloned())
    }

    async fn assembled(&self, wanted: ThirdParty) -> Result<Option<String>> {
        let own = format!("mesh.local/{}:", wanted.program());
        Ok(self.outside.borrow().images.keys().find(|reference| reference.starts_with(&own)).cloned())
    }

    async fn load(&self, archive: &ImageArchive) -> Result<Image> {
        let folder = tempfile::tempdir().unwrap();
        let path = Utf8Path::from_path(folder.path()).unwrap().join("image.tar");
        archive.write_to(path.as_std_path()).map_err(|error| Failure::of(Code::ImageMissing, &error))?;
        Ok(self.deed(|outside| Self::load_images(outside, &path))?.remove(0))
    }

    async fn load_file(&self, path: &Utf8Path) -> Result<Vec<Image>> {
        self.deed(|outside| Self::load_images(outside, path))
    }

    async fn pull(&self, reference: &str, _limit: Duration) -> Result<Image> {
        // No registry is in reach.
        Err(Failure::new(Code::Engine, format!("{reference} cannot be pulled")))
    }

    async fn host(&self) -> Result<HostSeen> {
        let outside = self.outside.borrow();
        let running = |mesh| Running { mesh, version: "1".to_owned(), pid: 1 };
        Ok(HostSeen {
            running: outside.host.clone().map(running),
            declaration: outside.declaration.clone(),
            tombstones: outside.tombstones.clone(),
            ..HostSeen::default()
        })
    }

    async fn start_host(&self, mesh: &MeshFile) -> Result<Started> {
        if self.outside.borrow().host.is_some() {
            return Ok(Started::Already);
        }
        self.deed(|outside| {
            outside.host = Some(mesh.mesh.clone());
            Ok(Started::Now)
        })
    }

    fn host_gone(&self) -> impl Future<Output = Failure> + 'static {
        std::future::pending()
    }

    async fn pivot(&self, declaration: Declaration) -> Result<()> {
        assert!(self.outside.borrow().host.is_some(), "a host that does not run was given a declaration");
        self.deed(|outside| {
            outside.declaration.get_or_insert(declaration);
            Ok(())
        })
    }

    async fn awaited(&self, _mesh: &MeshFile) -> Result<Option<String>> {
        Ok((!self.answers()).then(|| "the bus".to_owned()))
    }

    async fn seat(&self, _mesh: &MeshFile, module: &ModuleName) -> Option<SeatSeen> {
        let outside = self.outside.borrow();
        outside.declaration.as_ref()?;
        let is_its = |request: &PushRequest| {
            Manifest::parse("module.toml", &request.manifest).is_ok_and(|manifest| &manifest.name == module)
        };
        let open_plan = outside.plans.iter().find(|(_, request)| is_its(request)).map(|(id, _)| id.clone());
        let form = if outside.process { Form::Process } else { Form::Container };
        Some(SeatSeen { form, open_plan })
    }

    async fn modules(&self, _mesh: &MeshFile, patience: Patience) -> Result<Option<Vec<ModuleRecord>>> {
        match (self.answers(), patience) {
            (true, _) => Ok(Some(self.outside.borrow().modules.values().cloned().collect())),
            (false, Patience::Once) => Ok(None),
            (false, Patience::Patient) => Err(Failure::new(Code::SeatUnreachable, "nobody answers")),
        }
    }

    async fn push(&self, _mesh: &MeshFile, request: &PushRequest) -> Result<PlanId> {
        self.deed(|outside| {
            // Another plan that is open is waited for first.
            for (_, before) in std::mem::take(&mut outside.plans) {
                outside.carry_out(&before);
            }
            outside.plans.insert(request.request.clone(), request.clone());
            Ok(request.request.clone())
        })
    }

    async fn follow(&self, _mesh: &MeshFile, plan: &PlanId, _limit: Duration) -> Result<()> {
        self.deed(|outside| {
            if let Some(request) = outside.plans.remove(plan) {
                outside.carry_out(&request);
            }
            Ok(())
        })
    }

    async fn removal(&self, _mesh: &MeshFile) -> Result<Removal> {
        Ok(if self.outside.borrow().process { Removal::Done } else { Removal::Waits })
    }

    async fn store_answers(&self, _mesh: &MeshFile) -> Result<bool> {
        let store = ThirdParty::Store.module()?;
        Ok(self.outside.borrow().modules.contains_key(&store))
    }

    async fn is_published(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<Option<bool>> {
        if !self.store_answers(mesh).await? {
            return Ok(None);
        }
        Ok(Some(self.outside.borrow().published.contains(&bundle.packed.digest)))
    }

    async fn publish(&self, _mesh: &MeshFile, bundle: &PackedBundle) -> Result<PublishedNow> {
        self.deed(|outside| {
            let is_new = outside.published.insert(bundle.packed.digest.clone());
            Ok(if is_new { PublishedNow::Sent } else { PublishedNow::WasThere })
        })
    }

    async fn probe(&self, _mesh: &MeshFile) -> Result<Option<Prober>> {
        Ok(None)
    }

    async fn probe_for(&self, _mesh: &MeshFile, _time: Duration) -> Result<Option<Figures>> {
        Ok(None)
    }

    async fn verify(&self, _mesh: &MeshFile) -> Result<String> {
        if self.outside.borrow().process {
            return Ok("one controller, a process".to_owned());
        }
        Err(Failure::new(Code::NotReached, "the seat is answered by a container"))
    }
}
