//! What the tests of this room share.
//!
//! In and out: documents of this repository. Not here: the product.

/// Fails when a document is not this text; with UPDATE_DOCS=1 it is rewritten.
pub(crate) fn held_in(path: &str, made: &str) {
    let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    let found = std::fs::read_to_string(&place).unwrap_or_default();
    if found == made {
        return;
    }
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::write(place, made).unwrap();
    } else {
        panic!("{path} is not what the code makes of it: expected, with UPDATE_DOCS=1 to write it,\n{made}");
    }
}
