//! Each thing that can be wrong with a manifest, with its line; and that what is right reads back.

mod whole;

use super::*;
use crate::declaration::{Access, AccountOrigin, Owner};

const GOOD: &str = r#"[module]
name = "web"
version = "1.2.3"

[[account]]
name = "web"

[[bundle]]
name = "web"
system = "linux/amd64"
binary = "out/web"

[[file]]
path = "${module.dir}/key"
secret = "key"
mode = "0400"
account = "web"

[[process]]
name = "web"
bundle = "web"
run = ["./web", "--key", "${module.dir}/key"]
account = "web"

[[container]]
name = "cache"
image = "cache:1"
run = ["--data", "${data.dir}"]
account = "web"
mount = [{ source = "${data.dir}", access = "write" }]
"#;

fn errors(text: &str) -> Vec<ManifestError> {
    match Manifest::parse("module.toml", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.all().to_vec(),
    }
}

/// The faults of the good manifest with one piece put in the place of another: code and line.
fn with(old: &str, new: &str) -> Vec<(Code, usize)> {
    assert!(GOOD.contains(old), "{old:?}");
    errors(&GOOD.replacen(old, new, 1)).iter().map(|error| (error.code, error.line)).collect()
}

fn words(old: &str, new: &str) -> String {
    errors(&GOOD.replacen(old, new, 1)).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_good_manifest_is_read_whole() {
    let manifest = Manifest::parse("module.toml", GOOD).unwrap();
    assert_eq!(manifest.text, GOOD);
    assert_eq!(manifest.name.as_str(), "web");
    assert_eq!(manifest.accounts[0].origin, AccountOrigin::Made);
    assert_eq!(manifest.bundles[0].program(), "web");
    assert_eq!(manifest.files[0].path(), "${module.dir}/key");
    assert_eq!(manifest.files[0].mode, 0o400);
    assert_eq!(manifest.secrets(), ["key"]);
    assert_eq!(manifest.processes[0].run[0], "./web");
    assert_eq!(manifest.containers[0].owner, Owner::Account("web".parse().unwrap()));
    let mount = &manifest.containers[0].mounts[0];
    assert_eq!((mount.target.as_str(), mount.access), ("${data.dir}", Access::Write));
    assert_eq!(manifest.seat_holder(), None);
    assert_eq!(manifest.source_folder("x/y".into()), "x/y");
}

#[test]
fn syntax_errors_have_their_place() {
    assert_eq!(with("version = \"1.2.3\"", "version = "), [(Code::Syntax, 3)]);
    assert_eq!(
        with("name = \"web\"\nversion", "name = \"web\"\nname = \"web\"\nversion"),
        [(Code::Syntax, 3)]
    );
}

#[test]
fn unknown_keys_are_named_with_what_was_meant() {
    assert_eq!(with("secret = \"key\"", "secret = \"key\"\nmoed = \"0400\""), [(Code::UnknownKey, 16)]);
    assert_eq!(
        words("[[account]]\nname", "[[account]]\nexsting = true\nname"),
        "module.toml:6:1: found `exsting`, which is not a key of [[account]], expected `existing`, perhaps"
    );
    assert_eq!(
        words("[[account]]\nname", "[[account]]\nshell = 1\nname"),
        "module.toml:6:1: found `shell`, which is not a key of [[account]], expected one of `existing`, `name`"
    );
    assert_eq!(with("access = \"write\"", "access = \"write\", ro = true"), [(Code::UnknownKey, 30)]);
    assert_eq!(
        words("[[account]]\n", "[[acount]]\nname = \"x\"\n[[account]]\n"),
        "module.toml:5:3: found `acount`, which is not a section, expected `account`, perhaps"
    );
}

#[test]
fn keys_that_must_be_there_are_named_with_what_they_are_for() {
    assert_eq!(
        words("name = \"web\"\nbundle", "bundle"),
        "module.toml:19:1: found no `name` in [[process]], expected `name`: the process's name"
    );
    assert_eq!(errors("")[0].code, Code::MissingKey);
}

#[test]
fn wrong_types_are_told_apart() {
    assert_eq!(
        words("mode = \"0400\"", "mode = 0o400"),
        "module.toml:16:8: found integer `256`, expected a string"
    );
    assert_eq!(with("[[account]]", "[account]"), [(Code::WrongType, 5)]);
    assert_eq!(with("access = \"write\"", "access = \"rw\""), [(Code::WrongType, 30)]);
    assert!(words("access = \"write\"", "access = \"rw\"").contains("expected `read` or `write`"));
}

#[test]
fn all_is_told_at_once() {
    let text = GOOD
        .replacen("1.2.3", "one", 1)
        .replacen("\"0400\"", "\"0666\"", 1)
        .replacen("linux/amd64", "plan9/amd64", 1)
        .replacen("--key\", \"${module.dir}/key", "--key\", \"${module.dir}/kee", 1)
        .replacen("[[account]]", "color = 1\n[[account]]", 1);
    let found: Vec<(Code, usize)> = errors(&text).iter().map(|error| (error.code, error.line)).collect();
    assert_eq!(
        found,
        [
            (Code::InvalidVersion, 3),
            (Code::UnknownKey, 5),
            (Code::InvalidSystem, 11),
            (Code::InvalidMode, 17),
            (Code::UndeclaredFile, 23),
        ]
    );
    assert_eq!(Manifest::parse("m", &text).unwrap_err().to_string().lines().count(), 5);
}

#[test]
fn names_are_labels() {
    assert_eq!(with("name = \"web\"\nversion", "name = \"Web\"\nversion"), [(Code::InvalidName, 2)]);
    assert_eq!(with("name = \"cache\"", "name = \"a/b\""), [(Code::InvalidName, 26)]);
    assert_eq!(with("secret = \"key\"", "secret = \"../key\""), [(Code::InvalidName, 15)]);
}

#[test]
fn a_version_is_numbers_and_what_semver_allows() {
    for right in ["1", "0.1.0", "2.0", "1.0.0-rc.1", "1.0.0+build.5", "1.0.0-a+b"] {
        assert_eq!(with("1.2.3", right), [], "{right}");
    }
    for wrong in ["", "v1", "1.2.3.4", "1..2", "01.2.3", "1.0.0-", "1.0.0+", "1.0.0-a..b", "1 "] {
        assert_eq!(with("1.2.3", wrong), [(Code::InvalidVersion, 3)], "{wrong:?}");
    }
}

#[test]
fn a_digest_is_checked_for_its_form() {
    let right = format!("binary = \"out/web\"\ndigest = \"sha256:{}\"", "0".repeat(64));
    assert_eq!(with("binary = \"out/web\"", &right), []);
    assert_eq!(
        with("binary = \"out/web\"", "binary = \"out/web\"\ndigest = \"sha256:12\""),
        [(Code::InvalidDigest, 12)]
    );
}

#[test]
fn paths_stay_where_they_belong() {
    for wrong in ["/out/web", "../web", "out/../web", "", "out//web", "./web", "${data.dir}/web", "web/"] {
        let found = with("binary = \"out/web\"", &format!("binary = \"{wrong}\""));
        assert!(found.contains(&(Code::InvalidPath, 11)), "{wrong:?}: {found:?}");
    }
    assert_eq!(with("version", "source = \"..\"\nversion"), []);
    assert_eq!(with("version", "source = \"../../x/y\"\nversion"), []);
    for wrong in ["/x", "x/../y", "", "${data.dir}"] {
        let new = format!("source = \"{wrong}\"\nversion");
        assert_eq!(with("version", &new), [(Code::InvalidPath, 3)], "{wrong:?}");
    }
    let files =
        |line: &str| with("binary = \"out/web\"", &format!("binary = \"out/web\"\nfiles = {{ {line} }}"));
    assert_eq!(files("\"share/a.txt\" = \"assets/a.txt\""), []);
    assert_eq!(files("\"../a.txt\" = \"assets/a.txt\""), [(Code::InvalidPath, 12)]);
    assert_eq!(files("\"web\" = \"assets/a.txt\""), [(Code::InvalidPath, 12)]);
    for wrong in ["/etc/key", "${module.dir}/a/b", "${module.dir}/.key", "${data.dir}/key", "key"] {
        let found = with("path = \"${module.dir}/key\"", &format!("path = \"{wrong}\""));
        assert!(found.contains(&(Code::InvalidPath, 14)), "{wrong:?}: {found:?}");
    }
}

#[test]
fn a_mode_gives_no_more_than_it_should() {
    for right in ["0400", "400", "0440", "0600"] {
        assert_eq!(with("\"0400\"", &format!("\"{right}\"")), [], "{right}");
    }
    for wrong in ["4400", "0402", "0444", "0040", "0800", "40", "r--", "00400", ""] {
        assert_eq!(with("\"0400\"", &format!("\"{wrong}\"")), [(Code::InvalidMode, 16)], "{wrong}");
    }
    assert_eq!(with("secret = \"key\"\nmode = \"0400\"", "content = \"key\"\nmode = \"0444\""), []);
    assert_eq!(
        with("secret = \"key\"\nmode = \"0400\"", "content = \"key\"\nmode = \"0446\""),
        [(Code::InvalidMode, 16)]
    );
}

#[test]
fn a_file_is_a_secret_or_a_content() {
    assert_eq!(with("secret = \"key\"\n", ""), [(Code::InvalidSource, 14)]);
    assert_eq!(with("secret = \"key\"", "secret = \"key\"\ncontent = \"\""), [(Code::InvalidSource, 16)]);
    assert_eq!(with("secret = \"key\"", "content = \"$${other} is left as it is\""), []);
}

#[test]
fn a_process_runs_a_program_of_its_bundle() {
    for wrong in ["/bin/sh", "web", "./../web", "./${data.dir}"] {
        assert_eq!(with("\"./web\"", &format!("\"{wrong}\""))[0], (Code::InvalidRun, 22), "{wrong}");
    }
    assert_eq!(with("\"./web\"", "\"./other\""), [(Code::InvalidRun, 22)]);
    assert_eq!(with("[\"./web\", \"--key\", \"${module.dir}/key\"]", "[]"), [(Code::InvalidRun, 22)]);
    assert_eq!(with("binary = \"out/web\"", "binary = \"out/web\"\nbuild = []"), [(Code::InvalidRun, 12)]);
}

#[test]
fn variables_are_known_and_closed() {
    assert_eq!(with("\"--key\"", "\"${mesh.buss}\""), [(Code::UnknownVariable, 22)]);
    assert!(
        words("\"--key\"", "\"${mesh.buss}\"")
            .ends_with("found the unknown variable ${mesh.buss}, expected ${mesh.bus}, perhaps")
    );
    assert_eq!(with("\"--key\"", "\"${mesh.bus\""), [(Code::UnclosedVariable, 22)]);
    assert_eq!(with("\"--data\"", "\"${x}\""), [(Code::UnknownVariable, 28)]);
    assert_eq!(
        with("{ source = \"${data.dir}\"", "{ source = \"${dta.dir}\""),
        [(Code::UnmountedPath, 28), (Code::UnknownVariable, 30)]
    );
}

#[test]
fn a_resource_is_declared_once() {
    let again = |section: &str| {
        errors(&format!("{GOOD}\n{section}")).iter().map(|e| (e.code, e.line)).collect::<Vec<_>>()
    };
    assert_eq!(again("[[account]]\nname = \"web\""), [(Code::DuplicateResource, 33)]);
    assert_eq!(
        again("[[file]]\npath = \"${module.dir}/key\"\ncontent = \"\"\nmode = \"0400\"\naccount = \"web\""),
        [(Code::DuplicateResource, 33)]
    );
    assert_eq!(
        again("[[process]]\nname = \"web\"\nbundle = \"web\"\nrun = [\"./web\"]\naccount = \"web\""),
        [(Code::DuplicateResource, 33)]
    );
    assert_eq!(
        again("[[container]]\nname = \"cache\"\nimage = \"x\"\naccount = \"web\""),
        [(Code::DuplicateResource, 33)]
    );
    assert_eq!(
        again("[[process]]\nname = \"cache\"\nbundle = \"web\"\nrun = [\"./web\"]\naccount = \"web\""),
        []
    );
    let bundle = |system: &str| {
        again(&format!("[[bundle]]\nname = \"web\"\nsystem = \"{system}\"\nbinary = \"arm/web\""))
    };
    assert_eq!(bundle("linux/arm64"), []);
    assert_eq!(bundle("linux/amd64"), [(Code::DuplicateBundle, 33)]);
}

#[test]
fn what_one_part_names_another_declares() {
    assert_eq!(
        with("bundle = \"web\"", "bundle = \"wob\""),
        [(Code::UnusedBundle, 9), (Code::UndeclaredBundle, 21)]
    );
    assert_eq!(
        with(
            "[[bundle]]\n",
            "[[bundle]]\nname = \"spare\"\nsystem = \"linux/amd64\"\nbinary = \"x\"\n[[bundle]]\n"
        ),
        [(Code::UnusedBundle, 9)]
    );
    assert_eq!(
        with("mode = \"0400\"\naccount = \"web\"", "mode = \"0400\"\naccount = \"wob\""),
        [(Code::UndeclaredAccount, 17)]
    );
    assert_eq!(
        with("/key\"]\naccount = \"web\"", "/key\"]\naccount = \"wob\""),
        [(Code::UndeclaredAccount, 23)]
    );
    assert_eq!(
        with("${data.dir}\"]\naccount = \"web\"", "${data.dir}\"]\naccount = \"x\""),
        [(Code::UndeclaredAccount, 29)]
    );
    assert_eq!(
        words("\"--key\", \"${module.dir}/key\"", "\"--key=${module.dir}/other.pem\""),
        "module.toml:22:17: found ${module.dir}/other.pem, a path that process:web reads and no file declares, \
         expected a [[file]] with path = \"${module.dir}/other.pem\""
    );
    assert_eq!(
        with("mount = [", "mount = [{ source = \"${module.dir}/x\", access = \"read\" }, "),
        [(Code::UndeclaredFile, 30)]
    );
}

#[test]
fn a_seat_has_exactly_one_holder() {
    assert_eq!(with("version", "seat = \"web\"\nversion"), [(Code::SeatHolder, 3)]);
    let one = GOOD.split("[[container]]").next().unwrap().replacen("version", "seat = \"web\"\nversion", 1);
    let manifest = Manifest::parse("m", &one).unwrap();
    assert_eq!(manifest.seat_holder().unwrap().to_string(), "process:web");
    let none = "[module]\nname = \"x\"\nversion = \"1\"\nseat = \"x\"\n";
    assert_eq!(errors(none)[0].code, Code::SeatHolder);
}

#[test]
fn what_is_replaced_is_something_else() {
    let replaces =
        |target: &str| with("bundle = \"web\"\n", &format!("bundle = \"web\"\nreplaces = \"{target}\"\n"));
    assert_eq!(replaces("container:old"), []);
    assert_eq!(replaces("process:old"), []);
    for wrong in [
        "process:web",
        "container:cache",
        "account:web",
        "file:web/key",
        "bundle:web",
        "old",
        "container:",
        "",
    ] {
        assert_eq!(replaces(wrong), [(Code::InvalidReplaces, 22)], "{wrong:?}");
    }
}

#[test]
fn the_gate_lets_no_image_of_own_code_through() {
    for module in ["web", "mesh-controller"] {
        let text = GOOD.replacen("name = \"web\"", &format!("name = \"{module}\""), 1);
        let text =
            text.replacen("image = \"cache:1\"", "image = \"cache:1\"\nbuild = { context = \".\" }", 1);
        let errors = errors(&text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!((errors[0].code, errors[0].line), (Code::ContainerBuild, 28));
        assert!(errors[0].to_string().contains("ship it as a bundle and a process"), "{}", errors[0]);
    }
}

#[test]
fn mounts_are_of_the_modules_own_places() {
    for wrong in ["/var/run/docker.sock", "${module.dir}/../x", "${data.dir}/x", "${mesh.id}", ""] {
        let found = with(
            "{ source = \"${data.dir}\"",
            &format!("{{ target = \"${{data.dir}}\", source = \"{wrong}\""),
        );
        assert!(found.contains(&(Code::InvalidMount, 30)), "{wrong:?}: {found:?}");
    }
    for wrong in ["x", "/", "/a/../b", ""] {
        let found = with("{ source", &format!("{{ target = \"{wrong}\", source"));
        assert!(found.contains(&(Code::InvalidMount, 30)), "{wrong:?}: {found:?}");
    }
    assert_eq!(with("{ source", "{ target = \"/data\", source"), [(Code::UnmountedPath, 28)]);
    let key = "mount = [{ source = \"${module.dir}/key\", access = \"write\" }, ";
    assert_eq!(with("mount = [", key), [(Code::InvalidMount, 30)]);
    let twice = "mount = [{ source = \"${data.dir}\", access = \"read\" }, ";
    assert_eq!(with("mount = [", twice), [(Code::InvalidMount, 30)]);
    assert_eq!(with("\"cache:1\"", "\"\""), [(Code::InvalidImage, 27)]);
    assert_eq!(with("\"cache:1\"", "\"@IMAGE@\""), [(Code::InvalidImage, 27)]);
}

#[test]
fn what_a_container_is_told_of_it_is_given() {
    assert_eq!(with("\"--data\"", "\"--key=${module.dir}/key\""), [(Code::UnmountedPath, 28)]);
    let both = GOOD.replacen("\"--data\"", "\"--key=${module.dir}/key\"", 1).replacen(
        "mount = [",
        "mount = [{ source = \"${module.dir}/key\", access = \"read\" }, ",
        1,
    );
    assert_eq!(errors(&both), []);
    assert_eq!(with("\"${data.dir}\"]", "\"${data.dir}/sub\"]"), []);
}
