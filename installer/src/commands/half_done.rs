//! A mesh at which nothing runs, explained from what genesis wrote.
//!
//! In: the journal, the lock, the mesh's file. Out: lines for people, and the failure that says how to go on. Not here:
//! what the journal means (`journal::story`).

use mesh_protocol::layout::Layout;

use crate::journal;
use crate::journal::story::{self, Story};
use crate::lock;
use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Line, Result};

/// Every line of the journal.
pub(super) fn journal(layout: &Layout) -> Result<Vec<Line>> {
    let path = layout.journal();
    journal::read(&path)
        .map_err(|error| Failure::because(Code::Io, &format!("journal {path} cannot be read"), &error))
}

/// What the journal tells of the last command.
pub(super) fn story(layout: &Layout) -> Result<Option<Story>> {
    Ok(story::tell(&journal(layout)?))
}

/// The same for people, with who is at it now.
pub(super) fn lines(layout: &Layout, story: Option<&Story>) -> Vec<String> {
    let Some(story) = story else { return vec!["the journal has nothing".to_owned()] };
    let holder = lock::holder(&layout.installer_lock());
    let mut lines = vec!["the last that its journal has:".to_owned()];
    lines.extend(story.lines(holder.as_deref()).into_iter().map(|line| format!("  {line}")));
    lines
}

/// That no host runs, and what to do: a mesh that was whole has its host started, any other is gone on with.
pub(super) fn how_to_go_on(layout: &Layout, mesh: Option<&MeshFile>, story: Option<&Story>) -> Failure {
    // What a restore has not brought to its end has no host to start.
    let is_whole = layout.host_file().exists() && mesh.is_some_and(|mesh| mesh.process_since.is_some());
    let hint = match (is_whole, story, lock::holder(&layout.installer_lock())) {
        (_, _, Some(holder)) => format!("wait for {holder}"),
        (true, _, None) => "start it: mesh up".to_owned(),
        (false, Some(story), None) => format!("go on with: {}", story.goes_on_with()),
        (false, None, None) => "go on with: mesh genesis".to_owned(),
    };
    Failure::new(Code::HostUnreachable, "no host runs on this machine").hint(hint)
}
