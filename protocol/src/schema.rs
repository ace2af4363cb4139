//! What stands in a JSON Schema for what has no schema of its own.
//!
//! In: nothing. Out: types whose schema is taken for a field of another type. Not here: the schemas themselves; they
//! are made from the types that travel.

use schemars::JsonSchema;

/// A moment: RFC 3339, in UTC.
#[derive(JsonSchema)]
#[schemars(inline, extend("format" = "date-time"))]
#[allow(dead_code, reason = "stands for a text in the schema only")]
pub struct Time(String);
