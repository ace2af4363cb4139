//! What genesis relies on in its parts, whichever they are: after a deed, the looks say that it is done; a look changes
//! nothing. The fakes are held to it in this crate's tests, the real parts by an end-to-end test that raises a mesh.
//!
//! In: parts. Out: the same parts, which fail the test where they do not keep to it. Not here: what they are.

use std::time::Duration;

use camino::Utf8Path;
use mesh_bundles::image::ImageArchive;
use mesh_bundles::image::export::{self, layer_of};
use mesh_engine::Image;
use mesh_installer::daemon::Started;
use mesh_installer::doctor::{Examined, Intent};
use mesh_installer::genesis::parts::{HostSeen, Parts, Patience, Removal, SeatSeen};
use mesh_installer::mesh_file::MeshFile;
use mesh_installer::module::PackedBundle;
use mesh_installer::output::{Failure, Result};
use mesh_installer::prober::{Figures, Prober};
use mesh_installer::push::PublishedNow;
use mesh_installer::third_party::ThirdParty;
use mesh_protocol::declaration::Declaration;
use mesh_protocol::handover::Form;
use mesh_protocol::id::{ModuleName, PlanId};
use mesh_protocol::manifest::Manifest;
use mesh_protocol::plan::ModuleRecord;
use mesh_protocol::verb::PushRequest;

/// Parts that are held to the contract.
#[derive(Debug)]
#[allow(unreachable_pub, reason = "the end-to-end tests include this file, too")]
pub struct Held<P>(pub P);

impl<P: Parts> Held<P> {
    /// An image that was loaded is found under its name, made of the layer that was given; and so is what genesis looks
    /// for that it assembled.
    async fn is_loaded(&self, listed: &[export::ListedImage]) {
        for image in listed {
            for reference in &image.references {
                let found = self.0.image(reference).await.unwrap().expect("what was loaded is found");
                if let Some(layer) = &image.layer {
                    assert_eq!(layer_of(&found.labels).as_ref(), Some(layer), "{reference}");
                }
                let own =
                    ThirdParty::ALL.into_iter().find(|one| image.program.as_deref() == Some(one.program()));
                if let Some(own) =
                    own.filter(|own| reference.starts_with(&format!("mesh.local/{}:", own.program())))
                {
                    assert!(self.0.assembled(own).await.unwrap().is_some(), "{reference}");
                }
            }
        }
    }
}

impl<P: Parts> Parts for Held<P> {
    async fn examine(&self, intent: &Intent<'_>) -> Examined {
        self.0.examine(intent).await
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>> {
        let found = self.0.image(reference).await?;
        let again = self.0.image(reference).await?;
        assert_eq!(found.as_ref().map(|image| &image.id), again.as_ref().map(|image| &image.id));
        Ok(found)
    }

    async fn assembled(&self, wanted: ThirdParty) -> Result<Option<String>> {
        let found = self.0.assembled(wanted).await?;
        if let Some(reference) = &found {
            assert!(self.0.image(reference).await?.is_some(), "{reference} is told of, and not there");
        }
        Ok(found)
    }

    async fn load(&self, archive: &ImageArchive) -> Result<Image> {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("image.tar");
        archive.write_to(&copy).unwrap();
        let image = self.0.load(archive).await?;
        self.is_loaded(&export::list(&copy).unwrap()).await;
        Ok(image)
    }

    async fn load_file(&self, path: &Utf8Path) -> Result<Vec<Image>> {
        let images = self.0.load_file(path).await?;
        self.is_loaded(&export::list(path.as_std_path()).unwrap()).await;
        Ok(images)
    }

    async fn pull(&self, reference: &str, limit: Duration) -> Result<Image> {
        let pulled = self.0.pull(reference, limit).await;
        assert_eq!(pulled.is_ok(), self.0.image(reference).await?.is_some(), "{reference}");
        pulled
    }

    async fn host(&self) -> Result<HostSeen> {
        self.0.host().await
    }

    async fn start_host(&self, mesh: &MeshFile) -> Result<Started> {
        let ran = self.0.host().await?.running.is_some();
        let started = self.0.start_host(mesh).await?;
        assert_eq!(started, if ran { Started::Already } else { Started::Now });
        let running = self.0.host().await?.running.expect("a host that was started runs");
        assert_eq!(running.mesh, mesh.mesh);
        assert_eq!(self.0.start_host(mesh).await?, Started::Already);
        Ok(started)
    }

    fn host_gone(&self) -> impl Future<Output = Failure> + 'static {
        self.0.host_gone()
    }

    async fn pivot(&self, declaration: Declaration) -> Result<()> {
        assert!(self.0.host().await?.declaration.is_none());
        self.0.pivot(declaration.clone()).await?;
        assert_eq!(self.0.host().await?.declaration.as_ref(), Some(&declaration));
        // As after a kill that came before it was known.
        self.0.pivot(declaration).await
    }

    async fn awaited(&self, mesh: &MeshFile) -> Result<Option<String>> {
        self.0.awaited(mesh).await
    }

    async fn seat(&self, mesh: &MeshFile, module: &ModuleName) -> Option<SeatSeen> {
        self.0.seat(mesh, module).await
    }

    async fn modules(&self, mesh: &MeshFile, patience: Patience) -> Result<Option<Vec<ModuleRecord>>> {
        let told = self.0.modules(mesh, patience).await?;
        assert!(patience == Patience::Once || told.is_some(), "whoever is patient is answered or fails");
        Ok(told)
    }

    async fn push(&self, mesh: &MeshFile, request: &PushRequest) -> Result<PlanId> {
        let plan = self.0.push(mesh, request).await?;
        assert_eq!(plan, request.request);
        Ok(plan)
    }

    async fn follow(&self, mesh: &MeshFile, plan: &PlanId, limit: Duration) -> Result<()> {
        self.0.follow(mesh, plan, limit).await?;
        let modules = self.0.modules(mesh, Patience::Patient).await?.unwrap();
        let record = modules.iter().find(|record| record.plan.as_ref() == Some(plan));
        let record = record.expect("what a plan brought is told");
        assert!(record.nodes.contains(&mesh.inputs.node) && record.revision > 0);
        let manifest = Manifest::parse("module.toml", &record.manifest).unwrap();
        if manifest.seat.is_some() {
            let seat = self.0.seat(mesh, &record.name).await.expect("the seat is answered");
            assert_eq!((seat.form, seat.open_plan), (Form::Process, None));
        } else {
            let told = self.0.host().await?.declaration.expect("the host was told");
            let section = told.module(&record.name).expect("of this module");
            assert_eq!(section.revision, record.revision, "a dry run goes by it where nobody answers");
        }
        Ok(())
    }

    async fn removal(&self, mesh: &MeshFile) -> Result<Removal> {
        let removal = self.0.removal(mesh).await?;
        if removal == Removal::Done {
            let tombstones = self.0.host().await?.tombstones;
            assert!(tombstones.iter().any(|stone| stone.id == mesh.inputs.replaces));
        }
        Ok(removal)
    }

    async fn store_answers(&self, mesh: &MeshFile) -> Result<bool> {
        self.0.store_answers(mesh).await
    }

    async fn is_published(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<Option<bool>> {
        let answers = self.0.store_answers(mesh).await?;
        let told = self.0.is_published(mesh, bundle).await?;
        assert_eq!(told.is_some(), answers);
        Ok(told)
    }

    async fn publish(&self, mesh: &MeshFile, bundle: &PackedBundle) -> Result<PublishedNow> {
        let was_there = self.0.is_published(mesh, bundle).await? == Some(true);
        let now = self.0.publish(mesh, bundle).await?;
        assert_eq!(now, if was_there { PublishedNow::WasThere } else { PublishedNow::Sent });
        assert_eq!(self.0.is_published(mesh, bundle).await?, Some(true));
        assert_eq!(self.0.publish(mesh, bundle).await?, PublishedNow::WasThere);
        Ok(now)
    }

    async fn probe(&self, mesh: &MeshFile) -> Result<Option<Prober>> {
        self.0.probe(mesh).await
    }

    async fn probe_for(&self, mesh: &MeshFile, time: Duration) -> Result<Option<Figures>> {
        self.0.probe_for(mesh, time).await
    }

    async fn verify(&self, mesh: &MeshFile) -> Result<String> {
        self.0.verify(mesh).await
    }
}
