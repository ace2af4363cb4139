//! What several tests of this crate share: the workspace's own files, documents that are held to what generates
//! them, and arbitrary manifests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::declaration::{Access, AccountOrigin, AccountSpec, ContainerSpec, MountSpec, Owner, ProcessSpec};
use crate::id::{Digest, ResourceName, System};
use crate::manifest::{Bundle, File, FileBytes, Manifest};

fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// A file of the workspace.
pub(crate) fn workspace(path: &str) -> String {
    std::fs::read_to_string(place(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Fails when a document is not what `make` makes of it; with UPDATE_DOCS=1 it is rewritten.
pub(crate) fn held_in(path: &str, make: impl FnOnce(&str) -> String) {
    let found = std::fs::read_to_string(place(path)).unwrap_or_default();
    let made = make(&found);
    if found == made {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(place(path), made).unwrap();
    } else {
        panic!("{path} is not what the code makes of it: expected, with UPDATE_DOCS=1 to write it,\n{made}");
    }
}

/// A manifest as text: the opposite of reading one.
pub(crate) fn manifest_text(manifest: &Manifest) -> String {
    let mut text = String::from("[module]\n");
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let list = |words: &[String]| {
        format!("[{}]", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(", "))
    };
    let key = |text: &mut String, key: &str, value: &str| writeln!(text, "{key} = {value}").unwrap();
    key(&mut text, "name", &quoted(manifest.name.as_str()));
    key(&mut text, "version", &quoted(&manifest.version));
    if let Some(seat) = &manifest.seat {
        key(&mut text, "seat", &quoted(seat.as_str()));
    }
    key(&mut text, "source", &quoted(manifest.source.as_str()));
    for account in &manifest.accounts {
        text.push_str("[[account]]\n");
        key(&mut text, "name", &quoted(account.name.as_str()));
        key(&mut text, "existing", &(account.origin == AccountOrigin::Existing).to_string());
    }
    for bundle in &manifest.bundles {
        text.push_str("[[bundle]]\n");
        key(&mut text, "name", &quoted(bundle.name.as_str()));
        key(&mut text, "system", &quoted(&bundle.system.to_string()));
        key(&mut text, "binary", &quoted(bundle.binary.as_str()));
        if !bundle.build.is_empty() {
            key(&mut text, "build", &list(&bundle.build));
        }
        if let Some(pin) = &bundle.pin {
            key(&mut text, "digest", &quoted(pin.as_str()));
        }
        let files = bundle
            .files
            .iter()
            .map(|(path, from)| format!("{} = {}", quoted(path.as_str()), quoted(from.as_str())));
        key(&mut text, "files", &format!("{{ {} }}", files.collect::<Vec<_>>().join(", ")));
    }
    for file in &manifest.files {
        text.push_str("[[file]]\n");
        key(&mut text, "path", &quoted(&file.path()));
        match &file.bytes {
            FileBytes::Secret(name) => key(&mut text, "secret", &quoted(name)),
            FileBytes::Content(content) => key(&mut text, "content", &quoted(content)),
        }
        key(&mut text, "mode", &quoted(&format!("{:04o}", file.mode)));
        key(&mut text, "account", &quoted(file.account.as_str()));
    }
    for process in &manifest.processes {
        text.push_str("[[process]]\n");
        key(&mut text, "name", &quoted(process.name.as_str()));
        key(&mut text, "bundle", &quoted(process.bundle.as_str()));
        key(&mut text, "run", &list(&process.run));
        key(&mut text, "account", &quoted(process.account.as_str()));
        if let Some(replaces) = &process.replaces {
            key(&mut text, "replaces", &quoted(&replaces.to_string()));
        }
    }
    for container in &manifest.containers {
        text.push_str("[[container]]\n");
        key(&mut text, "name", &quoted(container.name.as_str()));
        key(&mut text, "image", &quoted(&container.image));
        key(&mut text, "run", &list(&container.run));
        let Owner::Account(account) = &container.owner else {
            panic!("a manifest's container has an account")
        };
        key(&mut text, "account", &quoted(account.as_str()));
        for mount in &container.mounts {
            text.push_str("[[container.mount]]\n");
            key(&mut text, "source", &quoted(&mount.source));
            key(&mut text, "target", &quoted(&mount.target));
            key(&mut text, "access", &quoted(if mount.access == Access::Read { "read" } else { "write" }));
        }
        if let Some(replaces) = &container.replaces {
            // After [[container.mount]] a key belongs to the mount, so a container of this kind has none.
            assert!(container.mounts.is_empty());
            key(&mut text, "replaces", &quoted(&replaces.to_string()));
        }
    }
    text
}

/// Manifests that are right, of any kind of content.
pub(crate) fn manifests() -> impl Strategy<Value = Manifest> {
    let word = "[ -#%-~äöü€\n\t]{0,12}";
    let words = prop::collection::vec(word, 0..4);
    let file = ("[A-Za-z0-9_-][A-Za-z0-9._-]{0,8}", prop::bool::ANY, word);
    (
        ("[a-z0-9]{1,8}", "[0-9]\\.[1-9]{1,3}(\\.0)?(-rc\\.[1-9])?", prop::bool::ANY),
        (prop::bool::ANY, prop::bool::ANY, words.clone()),
        prop::collection::vec(file, 0..4),
        (prop::option::of("[a-z]{1,6}"), 1..3_usize, words, prop::bool::ANY),
    )
        .prop_map(
            |(
                (name, version, up),
                (existing, pinned, mut run),
                files,
                (replaced, processes, mut build, arm),
            )| {
                let account: crate::id::AccountName = format!("{name}-user").parse().unwrap();
                let mut names = std::collections::BTreeSet::new();
                let files: Vec<File> = files
                    .into_iter()
                    .filter(|(name, _, _)| names.insert(name.clone()))
                    .map(|(name, secret, content)| File {
                        mode: if secret { 0o400 } else { 0o644 },
                        bytes: if secret {
                            FileBytes::Secret(name.clone())
                        } else {
                            FileBytes::Content(content)
                        },
                        name,
                        account: account.clone(),
                    })
                    .collect();
                let program: ResourceName = format!("{name}-server").parse().unwrap();
                let systems = if arm { &System::ALL[..] } else { &System::ALL[..1] };
                if !build.is_empty() {
                    build.insert(0, "make".to_owned());
                }
                let bundles = systems.iter().map(|system| Bundle {
                    name: program.clone(),
                    system: *system,
                    binary: format!("out/{}/{program}", system.dashed()).into(),
                    build: build.clone(),
                    pin: pinned.then(|| Digest::of(name.as_bytes())),
                    files: BTreeMap::from([("share/a b.txt".into(), "assets/ä.txt".into())]),
                });
                run.insert(0, format!("./{program}"));
                run.extend(files.iter().map(|file| format!("--file={}", file.path())));
                let processes = (0..processes).map(|number| ProcessSpec {
                    name: format!("{name}-{number}").parse().unwrap(),
                    bundle: program.clone(),
                    run: run.clone(),
                    account: account.clone(),
                    replaces: replaced.as_ref().map(|old| format!("container:old-{old}").parse().unwrap()),
                });
                let processes: Vec<ProcessSpec> = processes.collect();
                let seat = (processes.len() == 1).then(|| name.parse().unwrap());
                let mut containers = Vec::new();
                if seat.is_none() {
                    let mounts = files.iter().map(|file| MountSpec {
                        source: file.path(),
                        target: format!("/etc/{}", file.name),
                        access: Access::Read,
                    });
                    containers.push(ContainerSpec {
                        name: "cache".parse().unwrap(),
                        image: "registry:5000/cache:1".to_owned(),
                        run: vec!["--quiet".to_owned()],
                        owner: Owner::Account(account.clone()),
                        mounts: mounts.collect(),
                        replaces: None,
                    });
                }
                Manifest {
                    text: String::new(),
                    name: name.parse().unwrap(),
                    version,
                    seat,
                    source: if up { "..".into() } else { ".".into() },
                    accounts: vec![AccountSpec {
                        name: account,
                        origin: if existing { AccountOrigin::Existing } else { AccountOrigin::Made },
                    }],
                    bundles: bundles.collect(),
                    files,
                    processes,
                    containers,
                }
            },
        )
}
