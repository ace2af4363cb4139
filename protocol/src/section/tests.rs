//! Composing: the same for the same input, whole or with all that is lacking.

use proptest::prelude::*;

use super::*;
use crate::declaration::{Access, MountSpec};
use crate::testing::{manifest_text, manifests, workspace};

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn controller() -> Manifest {
    Manifest::parse("module.toml", &workspace("controller/module.toml")).unwrap()
}

fn published(name: &str, system: System) -> BTreeMap<ResourceName, BTreeMap<System, Published>> {
    let published = Published { digest: digest("bundle"), size: 6 };
    BTreeMap::from([(name.parse().unwrap(), BTreeMap::from([(system, published)]))])
}

fn held(module: &str, names: &[&str]) -> Vec<SecretHeld> {
    let held = |name: &&str| SecretHeld {
        module: module.parse().unwrap(),
        name: (*name).to_owned(),
        digest: digest(name),
    };
    names.iter().map(held).collect()
}

#[test]
fn a_section_has_what_the_manifest_says_and_the_node_knows() {
    let manifest = controller();
    let bundles = published("mesh-controller", System::LinuxAmd64);
    let secrets = held("mesh-controller", &["seat.creds", "state.creds"]);
    let node = NodeContext { system: System::LinuxAmd64, bundles: &bundles, secrets: &secrets, revision: 7 };
    let section = compose(&manifest, &node).unwrap();
    assert_eq!((section.revision, section.version.as_str()), (7, "0.1.0"));
    assert_eq!(section.manifest, manifest.text);
    assert_eq!(
        section.bundles,
        [BundleSpec { name: "mesh-controller".parse().unwrap(), digest: digest("bundle"), size: 6 }]
    );
    assert_eq!(
        section.files[1].source,
        FileSource::Secret { name: "state.creds".to_owned(), digest: digest("state.creds") }
    );
    assert_eq!(section.files[1].owner, Owner::Account("mesh-controller".parse().unwrap()));
    let ids: Vec<String> = section.resource_ids().iter().map(ToString::to_string).collect();
    assert_eq!(
        ids,
        [
            "account:mesh-controller",
            "bundle:mesh-controller",
            "file:mesh-controller/seat.creds",
            "file:mesh-controller/state.creds",
            "process:mesh-controller"
        ]
    );
    assert_eq!(section.seat_holder().unwrap().to_string(), "process:mesh-controller");
}

#[test]
fn all_that_is_lacking_is_named_with_what_to_do() {
    let manifest = controller();
    let bundles = published("mesh-controller", System::LinuxArm64);
    let secrets = held("another", &["seat.creds"]);
    let node = NodeContext { system: System::LinuxAmd64, bundles: &bundles, secrets: &secrets, revision: 1 };
    let words: Vec<String> = compose(&manifest, &node).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(words.len(), 3);
    assert!(words[0].starts_with("bundle mesh-controller is not published for linux/amd64"), "{}", words[0]);
    assert!(words[0].contains("mesh bundle publish"), "{}", words[0]);
    assert!(words[1].contains("secret seat.creds of module mesh-controller"), "{}", words[1]);
    let node = NodeContext { system: System::LinuxArm64, ..node };
    let missing = compose(&manifest, &node).unwrap_err();
    assert!(matches!(missing[0], Missing::Declaration { .. }), "{}", missing[0]);
}

#[test]
fn a_bundle_other_than_the_pinned_one_is_refused() {
    let mut manifest = controller();
    let bundles = published("mesh-controller", System::LinuxAmd64);
    let secrets = held("mesh-controller", &["seat.creds", "state.creds"]);
    let node = NodeContext { system: System::LinuxAmd64, bundles: &bundles, secrets: &secrets, revision: 1 };
    manifest.bundles[0].pin = Some(digest("bundle"));
    compose(&manifest, &node).unwrap();
    manifest.bundles[0].pin = Some(digest("another"));
    let missing = compose(&manifest, &node).unwrap_err();
    assert!(matches!(&missing[..], [Missing::Pin { .. }]), "{missing:?}");
}

#[test]
fn the_bus_is_composed_with_its_mounts_in_order() {
    let text = workspace("installer/modules/mesh-bus/module.toml").replace("@IMAGE@", "nats:2");
    let manifest = Manifest::parse("module.toml", &text).unwrap();
    let secrets = held("mesh-bus", &["nats.conf"]);
    let bundles = BTreeMap::new();
    let node = NodeContext { system: System::LinuxAmd64, bundles: &bundles, secrets: &secrets, revision: 0 };
    let section = compose(&manifest, &node).unwrap();
    let mount =
        |place: &str, access| MountSpec { source: place.to_owned(), target: place.to_owned(), access };
    let expected = [mount("${data.dir}", Access::Write), mount("${module.dir}/nats.conf", Access::Read)];
    assert_eq!(section.containers[0].mounts, expected);
    // What genesis raised is what is pushed: the revision is another, the thing is the same.
    let pushed = compose(&manifest, &NodeContext { revision: 1, ..node }).unwrap();
    for id in section.resource_ids() {
        assert_eq!(section.spec_digest(&id), pushed.spec_digest(&id), "{id}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_in_the_manifest_does_not_matter(manifest in manifests()) {
        let mut turned = manifest.clone();
        turned.accounts.reverse();
        turned.bundles.reverse();
        turned.files.reverse();
        turned.processes.reverse();
        for container in &mut turned.containers {
            container.mounts.reverse();
        }
        let bundles: BTreeMap<_, _> = manifest.bundles.iter().map(|bundle| {
            let digest = bundle.pin.clone().unwrap_or_else(|| digest("bundle"));
            (bundle.name.clone(), BTreeMap::from([(System::LinuxAmd64, Published { digest, size: 1 })]))
        }).collect();
        let secrets = held(manifest.name.as_str(), &manifest.secrets());
        let node = NodeContext { system: System::LinuxAmd64, bundles: &bundles, secrets: &secrets, revision: 1 };
        let section = compose(&manifest, &node);
        prop_assert!(section.is_ok(), "{:?}", section);
        prop_assert_eq!(&section, &compose(&turned, &node));
        let read = Manifest::parse("m", &manifest_text(&turned)).unwrap();
        let again = compose(&read, &node).unwrap();
        for (id, digest) in section.unwrap().resource_ids().iter().map(|id| (id.clone(), again.spec_digest(id))) {
            prop_assert!(digest.is_some(), "{id}");
        }
    }
}
