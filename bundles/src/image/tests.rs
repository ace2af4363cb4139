//! The images, loaded and run by the real engine.

use std::collections::HashMap;

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ImportImageOptions, LogsOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveImageOptionsBuilder, StartContainerOptions, WaitContainerOptions,
};
use futures_util::{StreamExt, TryStreamExt};
use tokio::io::AsyncReadExt as _;

use super::program::{Program, program};
use super::*;
use crate::testing::{a_bundle, packed};

fn parts() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/parts");
    std::env::var_os("MESH_PARTS").map_or_else(default, PathBuf::from)
}

/// A name that no other run has.
fn unique(what: &str) -> String {
    format!("mesh-bundles-test/{what}:{}-{}", std::process::id(), rand())
}

fn rand() -> u32 {
    std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()
}

/// An image in the engine, and one container of it, both gone at the end.
struct Loaded {
    docker: Docker,
    reference: String,
}

impl Loaded {
    async fn load(image: &ImageArchive) -> Self {
        let docker = Docker::connect_with_defaults().unwrap().negotiate_version().await.unwrap();
        let mut archive = Vec::new();
        image.stream().unwrap().read_to_end(&mut archive).await.unwrap();
        let body = bollard::body_full(archive.into());
        docker.import_image(ImportImageOptions::default(), body, None).try_collect::<Vec<_>>().await.unwrap();
        Self { docker, reference: image.reference.clone() }
    }

    /// Runs the image as the controller's container is run, with an entry point or the image's own; its exit code,
    /// and what it said.
    async fn run(
        &self,
        entrypoint: Option<&[&str]>,
        command: &[&str],
    ) -> Result<(i64, String), bollard::errors::Error> {
        let options =
            CreateContainerOptionsBuilder::default().name(&self.reference.replace(['/', ':'], "-")).build();
        let strings = |texts: &[&str]| Some(texts.iter().map(|&text| text.to_owned()).collect());
        let body = ContainerCreateBody {
            image: Some(self.reference.clone()),
            entrypoint: entrypoint.and_then(strings),
            cmd: strings(command),
            user: Some("65534:65534".to_owned()),
            labels: Some(HashMap::from([("mesh-bundles-test".to_owned(), self.reference.clone())])),
            host_config: Some(HostConfig {
                readonly_rootfs: Some(true),
                cap_drop: strings(&["ALL"]),
                network_mode: Some("none".to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let id = self.docker.create_container(Some(options), body).await?.id;
        let ran = self.run_created(&id).await;
        let force = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        self.docker.remove_container(&id, Some(force)).await?;
        ran
    }

    async fn run_created(&self, id: &str) -> Result<(i64, String), bollard::errors::Error> {
        self.docker.start_container(id, None::<StartContainerOptions>).await?;
        let code = match self.docker.wait_container(id, None::<WaitContainerOptions>).next().await {
            Some(Ok(ended)) => ended.status_code,
            Some(Err(bollard::errors::Error::DockerContainerWaitError { code, .. })) => code,
            Some(Err(error)) => return Err(error),
            None => -1,
        };
        let logs = LogsOptionsBuilder::default().stdout(true).stderr(true).build();
        let lines: Vec<_> = self.docker.logs(id, Some(logs)).try_collect().await?;
        Ok((code, lines.iter().map(ToString::to_string).collect()))
    }

    async fn remove(self) {
        let force = RemoveImageOptionsBuilder::default().force(true).build();
        self.docker.remove_image(&self.reference, Some(force), None).await.unwrap();
    }
}

#[tokio::test]
async fn a_bundle_worn_as_an_image_runs_and_its_id_is_the_one_that_was_told() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let packed = packed(a_bundle("prog", "1"), &archive);
    let image = worn(packed.at(&archive), packed.config.system, &unique("worn")).unwrap();
    let loaded = Loaded::load(&image).await;
    let ran = if System::of_this_program() == packed.config.system {
        Some(loaded.run(Some(&["/prog"]), &[]).await)
    } else {
        None
    };
    let found = loaded.docker.inspect_image(&image.reference).await;
    loaded.remove().await;

    let found = found.unwrap();
    assert_eq!(found.id.unwrap(), image.id.as_str());
    let config = found.config.unwrap();
    assert_eq!(config.labels.unwrap()[BUNDLE_LABEL], packed.digest.as_str());
    assert_eq!((config.entrypoint, config.cmd.unwrap_or_default()), (None, vec![]));
    assert_eq!(found.root_fs.unwrap().layers.unwrap(), [packed.diff_id.as_str()]);
    if let Some((code, said)) = ran.transpose().unwrap() {
        assert_eq!(code, 42, "{said}");
    }
}

#[test]
fn docker_load_takes_the_archive_and_docker_run_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let (archive, file) = (folder.path().join("b"), folder.path().join("image.tar"));
    let packed = packed(a_bundle("prog", "1"), &archive);
    let reference = unique("cli");
    let image = worn(packed.at(&archive), packed.config.system, &reference).unwrap();
    image.write_to(&file).unwrap();
    let docker = |arguments: &[&str]| std::process::Command::new("docker").args(arguments).output().unwrap();
    let loaded = docker(&["load", "--quiet", "--input", file.to_str().unwrap()]);
    let user = ["run", "--rm", "--network", "none", "--user", "65534", "--read-only", "--cap-drop", "ALL"];
    let ran = docker(&[&user[..], &[&reference, "/prog"]].concat());
    let id = docker(&["image", "inspect", "--format", "{{.Id}}", &reference]);
    docker(&["image", "rm", "--force", &reference]);
    assert_eq!(String::from_utf8_lossy(&id.stdout).trim(), image.id.as_str());
    assert!(loaded.status.success(), "{}", String::from_utf8_lossy(&loaded.stderr));
    assert!(String::from_utf8_lossy(&loaded.stdout).contains(&reference));
    if System::of_this_program() == packed.config.system {
        assert_eq!(ran.status.code(), Some(42), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

#[tokio::test]
async fn programs_of_this_machine_run_with_what_they_need_and_nothing_else() {
    for (part, says, arguments) in [
        ("nats-server/usr/sbin/nats-server", "nats-server: v", "--version"),
        ("docker-registry/usr/bin/docker-registry", "docker-registry", "--version"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = parts().join(part);
        let name = path.file_name().unwrap().to_str().unwrap();
        let folders = ["data".parse().unwrap()];
        let reference = unique(name);
        let request = Program { path: &path, name, arguments: &[], folders: &folders, reference: &reference };
        let image = program(&request, &folder.path().join("layer"), 2).unwrap();
        let again = program(&request, &folder.path().join("again"), 1).unwrap();
        assert_eq!((&image.id, &image.layer), (&again.id, &again.layer));

        let packed = crate::pack::inspect(&folder.path().join("layer"), Default::default()).unwrap();
        assert!(packed.files.len() <= 6, "{:?}", packed.files);
        let loaded = Loaded::load(&image).await;
        // The program is the image's entry point: what a container is made with are its arguments.
        let ran = loaded.run(None, &[arguments]).await;
        loaded.remove().await;
        let (code, said) = ran.unwrap();
        assert_eq!(code, 0, "{said}");
        assert!(said.contains(says), "{said}");
    }
}

#[test]
fn the_archive_depends_on_the_content_alone_and_tar_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let packed = packed(a_bundle("prog", "1"), &at("b"));
    std::fs::copy(at("b"), at("copy")).unwrap();
    let image = |name: &str| worn(packed.at(&at(name)), packed.config.system, "mesh/prog:1").unwrap();
    let (one, two) = (image("b"), image("copy"));
    assert_eq!(one.id, two.id);
    one.write_to(&at("1.tar")).unwrap();
    two.write_to(&at("2.tar")).unwrap();
    assert!(std::fs::read(at("1.tar")).unwrap() == std::fs::read(at("2.tar")).unwrap());
    let listing = std::process::Command::new("tar").arg("-tf").arg(at("1.tar")).output().unwrap();
    let (id, layer) = (one.id.hex(), one.layer.hex());
    let expected = format!("manifest.json\n{id}.json\n{layer}.tar.gz\n");
    assert_eq!(String::from_utf8(listing.stdout).unwrap(), expected);
}

#[test]
fn what_is_not_right_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let packed = packed(a_bundle("prog", "1"), &archive);
    for bad in ["", "prog", "Prog:1", "prog:", ":1", "prog:a/b", "/prog:1", "pr og:1"] {
        let error = worn(packed.at(&archive), packed.config.system, bad).unwrap_err();
        assert!(matches!(error, ImageError::Reference { found } if found == bad));
    }
    std::fs::write(&archive, "short").unwrap();
    let error = worn(packed.at(&archive), packed.config.system, "localhost:5000/prog:1").unwrap_err();
    assert!(matches!(error, ImageError::LayerChanged { found: 5, .. }));
}
