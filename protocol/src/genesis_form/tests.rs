//! The two forms of the controller agree; every way in which they could not is found; and what genesis raises is
//! named by what the process replaces.

use super::*;
use crate::id::Digest;
use crate::testing::{held_in, workspace};

fn form_text() -> String {
    workspace("controller/genesis.toml")
}

fn manifest_text() -> String {
    workspace("controller/module.toml")
}

fn form(text: &str) -> GenesisForm {
    GenesisForm::parse("genesis.toml", text).unwrap()
}

fn manifest(text: &str) -> Manifest {
    Manifest::parse("module.toml", text).unwrap()
}

fn secrets() -> Vec<SecretHeld> {
    ["seat.creds", "state.creds"]
        .map(|name| SecretHeld {
            module: "mesh-controller".parse().unwrap(),
            name: name.to_owned(),
            digest: Digest::of(name.as_bytes()),
        })
        .to_vec()
}

/// What is found when something is put in the place of something else, in either file.
fn planted(in_form: (&str, &str), in_manifest: (&str, &str)) -> Vec<Disagreement> {
    let (form_text, manifest_text) = (form_text(), manifest_text());
    assert!(form_text.contains(in_form.0) && manifest_text.contains(in_manifest.0));
    let form = form(&form_text.replacen(in_form.0, in_form.1, 1));
    agree(&form, &manifest(&manifest_text.replacen(in_manifest.0, in_manifest.1, 1)))
}

#[test]
fn the_two_forms_of_the_controller_agree() {
    let found = agree(&form(&form_text()), &manifest(&manifest_text()));
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_mount_that_nobody_declares_is_found() {
    let more = "[[mount]]\npath = \"${module.dir}/ca.pem\"\nsecret = \"ca.pem\"\nmode = \"0400\"\nmeaning = \"x\"\n[[mount]]";
    let found = planted(("[[mount]]", more), ("", ""));
    assert_eq!(found, [Disagreement::Undeclared { path: "${module.dir}/ca.pem".to_owned() }]);
}

#[test]
fn another_secret_is_found() {
    let found = planted(("secret  = \"seat.creds\"", "secret = \"other.creds\""), ("", ""));
    assert!(
        matches!(&found[..], [Disagreement::Secret { mounted, .. }] if mounted == "other.creds"),
        "{found:?}"
    );
    let found = planted(("", ""), ("secret  = \"seat.creds\"", "content = \"seat.creds\""));
    assert!(matches!(&found[..], [Disagreement::Secret { .. }]), "{found:?}");
}

#[test]
fn another_mode_is_found() {
    let found = planted(("\"0400\"", "\"0440\""), ("", ""));
    assert!(matches!(&found[..], [Disagreement::Mode { mounted: 0o440, declared: 0o400, .. }]), "{found:?}");
}

#[test]
fn a_file_of_another_account_is_found() {
    let other = "[[account]]\nname = \"other\"\n\n[[file]]";
    let text = manifest_text().replacen("[[file]]", other, 1).replacen(
        "mode    = \"0400\"\naccount = \"mesh-controller\"",
        "mode = \"0400\"\naccount = \"other\"",
        1,
    );
    let found = agree(&form(&form_text()), &manifest(&text));
    assert!(matches!(&found[..], [Disagreement::Account { found, .. }] if found == "other"), "{found:?}");
}

#[test]
fn other_words_are_found() {
    let found = planted(("\"--name\"", "\"--nom\""), ("", ""));
    assert!(matches!(&found[..], [Disagreement::Word { number: 4, .. }]), "{found:?}");
    let found = planted(("", ""), ("\"--run-dir\"", "\"--verbose\", \"--run-dir\""));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        matches!(found.last(), Some(Disagreement::Word { number: 14, mounted, .. }) if mounted == "missing"),
        "{found:?}"
    );
}

#[test]
fn a_path_that_no_file_declares_is_found() {
    let both = ("\"--run-dir\"", "\"--ca\", \"/etc/mesh/ca.pem\", \"--run-dir\"");
    let found = planted(both, both);
    let path = "/etc/mesh/ca.pem".to_owned();
    assert_eq!(
        found,
        [Disagreement::ProcessReads { path: path.clone() }, Disagreement::ContainerReads { path }]
    );
    // What the manifest's own checks let by is found here all the same.
    let mut undeclared = manifest(&manifest_text());
    undeclared.files.remove(1);
    let found = agree(&form(&form_text()), &undeclared);
    let path = "${module.dir}/state.creds".to_owned();
    assert_eq!(found, [Disagreement::Undeclared { path: path.clone() }, Disagreement::ProcessReads { path }]);
}

#[test]
fn a_file_that_is_declared_and_not_mounted_is_found() {
    let text = form_text();
    let start = text.find("[[mount]]").unwrap();
    let end = start + text[start + 1..].find("[[mount]]").unwrap() + 1;
    let found = agree(&form(&format!("{}{}", &text[..start], &text[end..])), &manifest(&manifest_text()));
    let path = "${module.dir}/seat.creds".to_owned();
    assert_eq!(
        found,
        [Disagreement::ContainerReads { path: path.clone() }, Disagreement::Unmounted { path }]
    );
    let text = text.replacen(
        "path    = \"${run.dir}\"",
        "path = \"${module.dir}/x\"\nsecret = \"x\"\nmode = \"0400\"",
        1,
    );
    let found = agree(&form(&text), &manifest(&manifest_text()));
    assert!(found.contains(&Disagreement::ContainerReads { path: "${run.dir}".to_owned() }), "{found:?}");
}

#[test]
fn a_form_that_is_wrong_says_where() {
    let errors = |old: &str, new: &str| {
        let text = form_text();
        assert!(text.contains(old), "{old}");
        let errors = GenesisForm::parse("genesis.toml", &text.replacen(old, new, 1)).unwrap_err();
        errors.all().iter().map(|error| error.code).collect::<Vec<_>>()
    };
    assert_eq!(errors("secret  =", "sekret ="), [Code::MissingKey, Code::UnknownKey]);
    assert_eq!(errors("mode    = \"0400\"", "mode = \"0444\""), [Code::InvalidMode]);
    assert_eq!(errors("path    = \"${module.dir}/seat.creds\"", "path = \"/etc/x\""), [Code::InvalidPath]);
    assert_eq!(errors("${mesh.id}", "${mesh.uid}"), [Code::UnknownVariable]);
    assert_eq!(
        errors("path    = \"${run.dir}\"", "path = \"${run.dir}\"\nmode = \"0755\""),
        [Code::InvalidMount]
    );
    assert_eq!(errors("meaning =", "# meaning ="), [Code::MissingKey]);
    assert_eq!(errors("meaning = \"the run", "meaning = the run")[0], Code::Syntax);
}

#[test]
fn the_genesis_container_is_named_by_what_the_process_replaces() {
    for name in ["mesh-controller", "seat-of-lab-7"] {
        let text = manifest_text().replace("container:mesh-controller", &format!("container:{name}"));
        let manifest = manifest(&text);
        let section = section(&form(&form_text()), &manifest, "worn:1", &secrets()).unwrap();
        assert_eq!((section.revision, section.version.as_str()), (0, "0.1.0"));
        assert_eq!(section.manifest, text);
        assert!(section.accounts.is_empty() && section.bundles.is_empty() && section.processes.is_empty());
        assert_eq!(section.seat_holder().unwrap().to_string(), format!("container:{name}"));
        let container = &section.containers[0];
        assert_eq!((&container.image[..], &container.owner), ("worn:1", &Owner::User(65534)));
        assert_eq!(container.run, manifest.processes[0].run);
        assert!(section.files.iter().all(|file| file.owner == Owner::User(65534) && file.mode == 0o400));
        let writable: Vec<&str> = container
            .mounts
            .iter()
            .filter(|mount| mount.access == Access::Write)
            .map(|mount| &mount.source[..])
            .collect();
        assert_eq!(writable, ["${run.dir}"]);
        assert!(container.mounts.iter().all(|mount| mount.source == mount.target));
    }
}

#[test]
fn a_manifest_that_takes_over_from_no_container_is_refused() {
    let line = "replaces = \"container:mesh-controller\"\n";
    let refused = |new: &str| {
        let manifest = manifest(&manifest_text().replace(line, new));
        section(&form(&form_text()), &manifest, "worn:1", &secrets()).unwrap_err()
    };
    assert!(matches!(&refused("")[..], [FormError::ReplacesMissing { .. }]));
    assert!(matches!(&refused("replaces = \"process:old\"\n")[..], [FormError::ReplacesNoContainer { .. }]));
    for taken in ["mesh-bus", "mesh-store"] {
        let errors = refused(&format!("replaces = \"container:{taken}\"\n"));
        assert!(matches!(&errors[..], [FormError::ReplacesTaken { .. }]));
        assert!(errors[0].to_string().contains(taken), "{}", errors[0]);
    }
    let seatless = manifest_text().replace("seat    = \"mesh-controller\"\n", "");
    assert!(matches!(container_name(&manifest(&seatless)), Err(FormError::NoSeat { .. })));
    let empty = manifest("[module]\nname = \"x\"\nversion = \"1\"\n");
    assert!(matches!(container_name(&empty), Err(FormError::NoSeat { .. })));
}

#[test]
fn secrets_that_are_not_there_are_named_all_at_once() {
    let errors = section(&form(&form_text()), &manifest(&manifest_text()), "worn:1", &[]).unwrap_err();
    assert_eq!(errors.len(), 2);
    assert!(errors[1].to_string().contains("state.creds"), "{}", errors[1]);
}

#[test]
fn the_table_in_the_documentation_is_that_of_the_two_files() {
    const BEGIN: &str = "<!-- mounts:begin -->\n";
    const END: &str = "<!-- mounts:end -->";
    let table = mounts_table(&form(&form_text()), &manifest(&manifest_text()));
    held_in("docs/handover.md", |found| {
        let (before, rest) = found.split_once(BEGIN).expect("docs/handover.md has its markers");
        let (_, after) = rest.split_once(END).expect("docs/handover.md has its markers");
        format!("{before}{BEGIN}{table}{END}{after}")
    });
}
