//! An error with its causes as one line of text, for where an error crosses a border (a wire, a report).
//!
//! In: an error. Out: text. Not here: how a person is shown it; the installer's output does that.

use std::error::Error;

/// `outer: cause: cause of the cause`. A cause that repeats what stands before it is left out.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the ledger cannot be read")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn the_causes_follow_once_each() {
        let error = Outer(std::io::Error::other("disk on fire"));
        assert_eq!(chain(&error), "the ledger cannot be read: disk on fire");
    }
}
