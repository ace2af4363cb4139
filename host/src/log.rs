//! The host's one mouth: lines on stderr, which is its log once it runs detached.

use jiff::Timestamp;

/// One line, with the time.
#[allow(clippy::print_stderr)] // the one place where the host speaks
pub fn line(text: &str) {
    eprintln!("{} {text}", Timestamp::now());
}
