//! Manifests as a whole: the workspace's own, the schema, what people read, and what is written and read back.

use proptest::prelude::*;

use super::GOOD;
use crate::manifest::*;
use crate::testing::{held_in, manifest_text, manifests, workspace};

#[test]
fn the_modules_of_this_workspace_are_right() {
    let controller = Manifest::parse("controller/module.toml", &workspace("controller/module.toml")).unwrap();
    assert_eq!(controller.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(controller.secrets(), ["seat.creds", "state.creds"]);
    assert_eq!(controller.seat_holder().unwrap().to_string(), "process:mesh-controller");
    assert_eq!(controller.source_folder("/src/controller".into()), "/src/controller/..");
    assert!(controller.containers.is_empty());
    for (name, secret) in [("mesh-bus", "nats.conf"), ("mesh-store", "config.yml")] {
        let path = format!("installer/modules/{name}/module.toml");
        let template = workspace(&path);
        assert_eq!(template.matches("\"@IMAGE@\"").count(), 1, "{path}");
        let manifest =
            Manifest::parse(&path, &template.replace("\"@IMAGE@\"", "\"docker.io/library/x:1\"")).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.version.as_str()), (name, "1"));
        assert_eq!(manifest.secrets(), [secret]);
        assert_eq!(manifest.containers[0].image, "docker.io/library/x:1");
        assert!(manifest.containers[0].run.last().unwrap().ends_with(secret));
    }
}

#[test]
fn the_schema_in_the_documentation_is_that_of_the_types() {
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    held_in("docs/manifest.schema.json", |_| schema);
}

#[test]
fn the_schema_knows_every_section_and_no_image_of_own_code() {
    let schema = schema();
    let sections: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(sections, ["account", "bundle", "container", "file", "module", "process"]);
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["required"], serde_json::json!(["module"]));
    let container = &schema["$defs"]["ContainerForm"];
    assert!(container["properties"].get("build").is_none());
    assert_eq!(container["additionalProperties"], false);
    assert_eq!(container["required"], serde_json::json!(["name", "image", "account"]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_written_reads_back(manifest in manifests()) {
        let text = manifest_text(&manifest);
        let read = Manifest::parse("module.toml", &text).map_err(|errors| TestCaseError::fail(format!("{errors}\n{text}")))?;
        prop_assert_eq!(read, Manifest { text, ..manifest });
    }

    #[test]
    fn no_mutation_is_too_much(cuts in prop::collection::vec((0..GOOD.len(), 0..8_usize, "[\\PC\n\"\\[\\]{}$=.]{0,4}"), 1..6)) {
        let mut text = GOOD.to_owned();
        for (start, length, new) in cuts {
            let start = start.min(text.len());
            let end = (start + length).min(text.len());
            if text.is_char_boundary(start) && text.is_char_boundary(end) {
                text.replace_range(start..end, &new);
            }
        }
        if let Err(errors) = Manifest::parse("module.toml", &text) {
            prop_assert!(!errors.all().is_empty());
            let lines = text.lines().count() + 1;
            prop_assert!(errors.all().iter().all(|error| (1..=lines).contains(&error.line)));
        }
    }
}

#[test]
fn what_people_read() {
    let text = r#"[module]
name = "Web"
version = "1"
seat = "web"
owner = "me"

[[file]]
path = "${module.dir}/key"
mode = "4755"
account = "nobody"

[[process]]
name = "web"
bundle = "wep"
run = ["sh", "-c", "${home}"]
account = "web"
replaces = "process:web"

[[container]]
name = "own"
image = "own:1"
build = "."
account = "web"
mount = [{ source = "/etc", access = "read" }]
"#;
    insta::assert_snapshot!(Manifest::parse("web/module.toml", text).unwrap_err(), @r#"
    web/module.toml:2:8: found the module name "Web", expected 1 to 63 of a-z, 0-9 and '-', neither first nor last a '-'
    web/module.toml:4:8: found a seat in a module with 2 that could hold it, expected exactly one process or container, which holds the seat
    web/module.toml:5:1: found `owner`, which is not a key of [module], expected one of `name`, `seat`, `source`, `version`
    web/module.toml:8:8: found a file of nothing, expected either `secret` or `content`
    web/module.toml:9:8: found the mode "4755", expected no set-user, set-group or sticky bit
    web/module.toml:10:11: found the account nobody, which nobody declares, expected a [[account]] with name = "nobody"
    web/module.toml:14:10: found the bundle wep, which nobody declares, expected a [[bundle]] with name = "wep"
    web/module.toml:15:8: found the program "sh", expected a program in the bundle: "./" and its path there, without '..'
    web/module.toml:15:20: found the unknown variable ${home}, expected one of ${module.dir}, ${data.dir}, ${run.dir}, ${mesh.id}, ${mesh.name}, ${mesh.bus}, ${mesh.store}, ${node.name}
    web/module.toml:16:11: found the account web, which nobody declares, expected a [[account]] with name = "web"
    web/module.toml:17:12: found process:web, which replaces itself, expected what it takes the place of, or no `replaces`: a new version takes the old one's place by itself
    web/module.toml:22:1: found a [[container]] with a `build` key: an image of the module's own code, expected no `build` in a container: ship it as a bundle and a process
    web/module.toml:23:11: found the account web, which nobody declares, expected a [[account]] with name = "web"
    web/module.toml:24:21: found the source "/etc", expected ${module.dir}, ${module.dir}/NAME, ${data.dir} or ${run.dir}
    "#);
}
