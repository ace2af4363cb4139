//! What a command says with `--json`, held against the published schema and against the types it was made from.
//!
//! In: what a command said. Out: its events. Not here: documents, which have a form of their own.

use boon::{Compiler, SchemaIndex, Schemas};
use mesh_installer::output::Line;

use crate::command::Said;
use crate::parts::repository;

/// Where the compiler of schemas knows it by.
const NAME: &str = "https://mesh.invalid/events.schema.json";

/// The published schema.
struct Published {
    schemas: Schemas,
    index: SchemaIndex,
}

impl Published {
    fn read() -> Self {
        let text = std::fs::read_to_string(repository().join("docs/events.schema.json")).unwrap();
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.enable_format_assertions();
        compiler.add_resource(NAME, serde_json::from_str(&text).unwrap()).unwrap();
        let index = compiler.compile(NAME, &mut schemas).unwrap();
        Self { schemas, index }
    }
}

/// The events among the lines of standard output.
///
/// # Panics
/// When a line that has an event is not as published, or has more than the types know of.
#[must_use]
pub fn of(said: &Said) -> Vec<Line> {
    let published = Published::read();
    let mut events = Vec::new();
    for text in said.stdout.lines() {
        let value: serde_json::Value =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON: {error}: {text}: {said}"));
        if value.get("event").is_none() {
            continue;
        }
        if let Err(error) = published.schemas.validate(&value, published.index) {
            panic!("not as docs/events.schema.json has it: {error}: {text}");
        }
        let line: Line = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&line).unwrap(), value, "the types do not know all of it");
        events.push(line);
    }
    events
}
