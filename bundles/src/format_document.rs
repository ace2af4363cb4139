//! Holds docs/bundle-format.md against what the code writes: its examples are of one bundle, byte for byte. With
//! `MESH_WRITE_EXAMPLES` set, the test writes them instead.

use std::fmt::Write as _;
use std::path::Path;

use mesh_protocol::id::System;

use crate::image::worn;
use crate::inputs::{BuildInputs, SourceTree};
use crate::manifest::{Descriptor, Index, Manifest};
use crate::testing::{a_bundle, packed};

fn examples() -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("b");
    let packed = packed(a_bundle("prog", "1.0.0"), &archive);
    let build = BuildInputs {
        source: Some("https://example.org/prog".to_owned()),
        revision: Some("4b825dc642cb6eb9a060e54bf8d69288fbee4904".to_owned()),
        tree: Some(SourceTree::Clean),
        command: vec!["scripts/build".to_owned(), "linux/amd64".to_owned()],
        tools: [("rustc".to_owned(), "rustc 1.95.0".to_owned())].into(),
    };
    let image = worn(packed.at(&archive), System::LinuxAmd64, "mesh/prog:1.0.0").unwrap();
    let config = packed.config.with_build(build);
    let manifest = Manifest::new(&config, &packed.digest, packed.size, None).to_bytes();
    let index = Index::new("prog", "1.0.0", [Descriptor::of_bundle(&manifest, System::LinuxAmd64)]);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    vec![
        ("config", text(config.to_bytes())),
        ("manifest", text(manifest)),
        ("index", text(index.to_bytes())),
        ("image", text(image.config_bytes().to_vec())),
    ]
}

#[test]
fn the_examples_are_what_the_code_writes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/bundle-format.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let mut right = String::new();
    let mut rest = document.as_str();
    for (name, example) in examples() {
        let begin = format!("<!-- example: {name} -->\n```json\n");
        let (before, after) = rest.split_once(&begin).unwrap_or_else(|| panic!("no example of the {name}"));
        let (_, after) = after.split_once("```\n").unwrap();
        write!(right, "{before}{begin}{example}\n```\n").unwrap();
        rest = after;
    }
    right.push_str(rest);
    if std::env::var_os("MESH_WRITE_EXAMPLES").is_some() {
        std::fs::write(&path, &right).unwrap();
    } else {
        assert!(document == right, "run once with MESH_WRITE_EXAMPLES=1, and look at what changed");
    }
}

#[test]
fn the_limits_are_the_ones_that_are_written_down() {
    let limits = crate::archive::Limits::default();
    assert_eq!((limits.compressed, limits.unpacked, limits.entries), (1 << 30, 4 << 30, 65_536));
    assert_eq!((crate::path::MAX_PATH, crate::path::MAX_NAME, crate::path::MAX_DEPTH), (3072, 255, 64));
    assert_eq!(crate::gunzip::RATIO, 200);
}
