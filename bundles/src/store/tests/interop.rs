//! Programs that are not ours, with what we publish: skopeo copies and inspects it, the ORAS client of Python pulls it,
//! tar and sha256sum agree with it. `scripts/test` has them in target/parts.

use std::path::Path;
use std::process::Command;

use data_encoding::BASE64;
use mesh_protocol::id::System;

use super::authorization::{PASSWORD, USER, client, with_tls_and_htpasswd};
use super::registry::parts;
use super::*;
use crate::manifest::{INDEX_TYPE, Index};
use crate::testing::{for_system, some_bytes};

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; scripts/test has it"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    output.stdout
}

/// skopeo, with nothing of this machine's configuration.
fn skopeo(arguments: &[&str]) -> Vec<u8> {
    let root = parts().join("skopeo/usr");
    let libraries: Vec<_> = std::fs::read_dir(root.join("lib"))
        .unwrap_or_else(|error| panic!("{}: {error}; scripts/test has it", root.display()))
        .map(|found| found.unwrap().path().display().to_string())
        .collect();
    let mut command = Command::new(root.join("bin/skopeo"));
    command.env_clear().env("LD_LIBRARY_PATH", libraries.join(":")).env("TMPDIR", std::env::temp_dir());
    run(command.arg("--insecure-policy").args(arguments))
}

struct Somewhere {
    folder: tempfile::TempDir,
    registry: Registry,
    packed: Vec<(System, Packed)>,
}

/// One version for two systems, in a registry without TLS.
async fn published() -> Somewhere {
    let (folder, registry) = (tempfile::tempdir().unwrap(), Registry::start());
    let store = store(registry.address);
    let mut all = Vec::new();
    for system in System::ALL {
        let archive = folder.path().join(system.dashed());
        let packed = packed(for_system("prog", "1.0", system), &archive);
        let Packed { digest, size, config, .. } = &packed;
        let publication = Publication { archive: &archive, digest, size: *size, config, created: None };
        store.publish(&publication, SILENT).await.unwrap();
        all.push((system, packed));
    }
    Somewhere { folder, registry, packed: all }
}

impl Somewhere {
    /// Is it all in that store too, for each system its own?
    async fn is_in(&self, store: &Store) {
        let repository = "prog".parse().unwrap();
        let wanted = Wanted::Tag("1.0".parse().unwrap());
        for (system, packed) in &self.packed {
            let resolved = store.resolve_for(&repository, &wanted, *system).await.unwrap();
            assert_eq!(resolved.bundle, packed.digest);
            let config = store.config(&repository, &resolved.manifest.unwrap()).await.unwrap();
            assert_eq!(config, packed.config);
            assert_eq!(
                store.verify(&repository, &packed.digest, 1 << 30, SILENT).await.unwrap(),
                packed.size
            );
        }
    }
}

#[tokio::test]
async fn skopeo_copies_every_system_to_another_registry_and_we_read_it_there() {
    let published = published().await;
    let other = Registry::start();
    let at = |registry: &Registry, tag: &str| format!("docker://{}/prog:{tag}", registry.address);
    let (from, to) = (at(&published.registry, "1.0"), at(&other, "1.0"));
    let plain = ["--src-tls-verify=false", "--dest-tls-verify=false", "--preserve-digests", "--all"];
    skopeo(&[&["copy"], &plain[..], &[&from, &to]].concat());
    published.is_in(&store(other.address)).await;

    // One system alone, by its own tag, with skopeo's own defaults.
    let tag = "1.0-linux-arm64";
    let (from, to) = (at(&published.registry, tag), at(&other, tag));
    skopeo(&["copy", "--src-tls-verify=false", "--dest-tls-verify=false", &from, &to]);
    let resolved =
        store(other.address).resolve(&"prog".parse().unwrap(), &Wanted::Tag(tag.parse().unwrap())).await;
    assert_eq!(resolved.unwrap().bundle, published.packed[1].1.digest);
}

#[tokio::test]
async fn skopeo_sees_the_bytes_that_we_publish() {
    let published = published().await;
    let inspect = |tag: &str| {
        let at = format!("docker://{}/prog:{tag}", published.registry.address);
        skopeo(&["inspect", "--raw", "--tls-verify=false", &at])
    };
    let store = store(published.registry.address);
    let repository = "prog".parse().unwrap();
    for tag in ["1.0", "1.0-linux-amd64", "1.0-linux-arm64"] {
        let tagged = store.tagged(&repository, &tag.parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(Digest::of(&inspect(tag)), tagged, "{tag}");
    }
    let index: Index = serde_json::from_slice(&inspect("1.0")).unwrap();
    assert_eq!((index.media_type.as_str(), index.manifests.len()), (INDEX_TYPE, 2));
}

#[tokio::test]
async fn skopeo_and_we_use_the_same_credentials_and_certificates() {
    let published = published().await;
    let (registry, address, root) = with_tls_and_htpasswd();
    let at = |name: &str| published.folder.path().join(name);
    std::fs::create_dir(at("certificates")).unwrap();
    std::fs::write(at("certificates/ca.crt"), &root).unwrap();
    let auth = BASE64.encode(format!("{USER}:{PASSWORD}").as_bytes());
    let file = format!(r#"{{"auths":{{"{}":{{"auth":"{auth}"}}}}}}"#, registry.address);
    std::fs::write(at("auth.json"), file).unwrap();
    let from = format!("docker://{}/prog:1.0", published.registry.address);
    let to = format!("docker://{}/prog:1.0", registry.address);
    let certificates = format!("--dest-cert-dir={}", at("certificates").display());
    let credentials = format!("--dest-authfile={}", at("auth.json").display());
    let arguments = ["copy", "--all", "--preserve-digests", "--src-tls-verify=false"];
    skopeo(&[&arguments[..], &[&certificates, &credentials, &from, &to]].concat());
    let kept = Credentials::Kept(Keychain::of_file(&at("auth.json")));
    published.is_in(&client(&address, kept, &root)).await;
}

#[tokio::test]
async fn the_oras_client_pulls_it_and_gets_the_files() {
    let published = published().await;
    let out = published.folder.path().join("pulled");
    let script = "import sys, oras.client\n\
                  client = oras.client.OrasClient(insecure=True, tls_verify=False)\n\
                  client.pull(target=sys.argv[1], outdir=sys.argv[2])\n";
    let target = format!("{}/prog:1.0-linux-amd64", published.registry.address);
    let python = parts().join("oras/bin/python");
    run(Command::new(python).args(["-c", script, &target]).arg(&out));
    let find = |name: &str| {
        let mut folders = vec![out.clone()];
        while let Some(folder) = folders.pop() {
            for found in std::fs::read_dir(folder).unwrap() {
                let path = found.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.ends_with(name) {
                    return path;
                }
            }
        }
        panic!("{name} is nowhere in {}", out.display())
    };
    assert!(std::fs::read(find("share/data")).unwrap() == some_bytes(700_000));
    assert!(std::fs::read(find("prog")).unwrap().starts_with(b"\x7fELF"));
}

#[tokio::test]
async fn sha256sum_and_tar_agree_with_what_is_in_the_store() {
    let published = published().await;
    let (_, packed) = &published.packed[0];
    let blob = published.registry.blob(&packed.digest);
    let sum = |command: &str, file: &Path| {
        let script = format!("set -o pipefail; {command}");
        let output = run(Command::new("bash").args(["-c", &script, "bash"]).arg(file));
        format!("sha256:{}", String::from_utf8(output).unwrap().split(' ').next().unwrap())
    };
    assert_eq!(sum("sha256sum <\"$1\"", &blob), packed.digest.as_str());
    assert_eq!(sum("gzip -dc \"$1\" | sha256sum", &blob), packed.diff_id.as_str());
    for file in &packed.config.files {
        let extract = format!("tar xzOf \"$1\" '{}' | sha256sum", file.path);
        assert_eq!(sum(&extract, &blob), file.sha256.as_str());
    }
}
