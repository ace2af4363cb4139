//! A recording: how the seat answered while it changed hands, kept so that it can be drawn later.
//!
//! In: what a prober tells, the handover's own report. Out: one file a handover below the mesh's root, the newest few.
//! Not here: drawing it (`picture`).

use std::time::Duration;

use camino::Utf8PathBuf;
use jiff::Timestamp;
use mesh_protocol::handover::{Form, HandoverReport, Reason, State};
use mesh_protocol::id::{InstanceId, MeshId, MeshName, PlanId, ResourceId, ResourceKind, SeatName};
use mesh_protocol::layout::Layout;
use serde::{Deserialize, Serialize};

use crate::mesh_file::MeshFile;
use crate::output::{Code, Failure, Result};
use crate::prober::{Figures, Probed, Timeline};
use mesh_durable as durable;

/// The version of this document's form.
pub const FORMAT: u32 = 1;

/// How many recordings are kept: each is some ten kilobytes, at most some hundred.
const KEPT: usize = 20;

/// How much is kept of the time before the first state and behind the last.
const MARGIN: Duration = Duration::from_millis(400);

/// How the seat answered while it changed hands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// [`FORMAT`].
    pub format: u32,
    /// The mesh.
    pub mesh: MeshId,
    /// Its name.
    pub name: MeshName,
    /// The seat.
    pub seat: SeatName,
    /// The command that recorded it: `push`, `genesis`, `rollback`, `recover`.
    pub command: String,
    /// The plan that asked for the handover; none where nobody's did.
    pub plan: Option<PlanId>,
    /// When its first bin begins.
    pub began: Timestamp,
    /// The one that held the seat.
    pub old: Party,
    /// The one that shall.
    pub new: Party,
    /// When each state was entered.
    pub marks: Vec<Mark>,
    /// Why the seat was handed back, where it was.
    pub reason: Option<Reason>,
    /// Who answered when, since `began`.
    pub timeline: Timeline,
    /// How the seat answered, from the begin of the command to its end.
    pub figures: Figures,
}

/// One of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Party {
    /// Which resource.
    pub resource: ResourceId,
    /// Its run, where it had one.
    pub instance: Option<InstanceId>,
}

impl Party {
    /// As what it runs.
    #[must_use]
    pub fn form(&self) -> Form {
        if self.resource.kind() == ResourceKind::Container { Form::Container } else { Form::Process }
    }
}

/// A state that was entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Which.
    pub state: State,
    /// When, in milliseconds since the recording's begin.
    pub at_ms: u64,
}

/// What a recording is of.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'a> {
    /// The command that recorded it.
    pub command: &'a str,
    /// The plan that it carried through.
    pub plan: Option<&'a PlanId>,
}

/// The recording of a handover: of what was probed, the part from shortly before it to shortly after it.
#[must_use]
pub fn compose(
    mesh: &MeshFile,
    occasion: Occasion<'_>,
    probed: &Probed,
    handover: &HandoverReport,
) -> Recording {
    let since_began = |at: Timestamp| Duration::try_from(at.duration_since(probed.began)).unwrap_or_default();
    let states: Vec<(State, Duration)> = if handover.passed.is_empty() {
        vec![(handover.state, since_began(handover.since))]
    } else {
        handover.passed.iter().map(|passage| (passage.state, since_began(passage.at))).collect()
    };
    let first = states.iter().map(|(_, at)| *at).min().unwrap_or_default();
    let last = states.iter().map(|(_, at)| *at).max().unwrap_or_default();
    let (timeline, from_ms) = probed.timeline.between(first.saturating_sub(MARGIN), last + MARGIN);
    let from = Duration::from_millis(from_ms);
    let at_ms = |at: Duration| u64::try_from(at.saturating_sub(from).as_millis()).unwrap_or(u64::MAX);
    let party = |side: &mesh_protocol::handover::Side| Party {
        resource: side.resource.clone(),
        instance: side.instance.clone(),
    };
    Recording {
        format: FORMAT,
        mesh: mesh.mesh.clone(),
        name: mesh.inputs.name.clone(),
        seat: handover.seat.clone(),
        command: occasion.command.to_owned(),
        plan: occasion.plan.cloned(),
        began: probed.began.checked_add(from).unwrap_or(probed.began),
        old: party(&handover.old),
        new: party(&handover.new),
        marks: states.into_iter().map(|(state, at)| Mark { state, at_ms: at_ms(at) }).collect(),
        reason: handover.reason.clone(),
        timeline,
        figures: probed.figures.clone(),
    }
}

/// Keeps a recording, and removes the oldest where there are too many. Returns where it lies.
///
/// # Errors
/// When it cannot be written.
pub fn keep(layout: &Layout, recording: &Recording) -> Result<Utf8PathBuf> {
    let folder = layout.reports();
    durable::ensure_folder(&folder, 0o700).map_err(|error| Failure::of(Code::Io, &error))?;
    let text = serde_json::to_vec(recording).map_err(|error| Failure::of(Code::Internal, &error))?;
    let path = folder.join(file_name(recording));
    durable::write(&path, &text, 0o600).map_err(|error| Failure::of(Code::Io, &error))?;
    let all = list(layout)?;
    for old in all.iter().take(all.len().saturating_sub(KEPT)) {
        // One that cannot be removed is one more that is kept.
        let _ = std::fs::remove_file(old);
    }
    Ok(path)
}

/// Sorts by time.
fn file_name(recording: &Recording) -> String {
    let of = recording.plan.as_ref().map_or(recording.command.as_str(), PlanId::as_str);
    format!("{}-{of}.json", recording.began.strftime("%Y%m%dT%H%M%S"))
}

/// The recordings that are kept, oldest first.
///
/// # Errors
/// When their folder is there and cannot be read.
pub fn list(layout: &Layout) -> Result<Vec<Utf8PathBuf>> {
    let folder = layout.reports();
    let failed = |error: std::io::Error| {
        Failure::because(Code::Io, &format!("folder {folder} cannot be read"), &error)
    };
    let entries = match folder.read_dir_utf8() {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.into_path();
        if path.extension() == Some("json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Reads a recording.
///
/// # Errors
/// When it cannot be read, or is of another form.
pub fn read(path: &camino::Utf8Path) -> Result<Recording> {
    let what = format!("recording {path} cannot be read");
    let bytes = std::fs::read(path).map_err(|error| Failure::because(Code::Io, &what, &error))?;
    let recording: Recording =
        serde_json::from_slice(&bytes).map_err(|error| Failure::because(Code::Io, &what, &error))?;
    if recording.format != FORMAT {
        return Err(Failure::new(Code::Io, what)
            .expected(format!("form {FORMAT}"))
            .found(format!("form {}", recording.format)));
    }
    Ok(recording)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh_file::Inputs;
    use crate::prober::{Answerer, Outcome};
    use mesh_protocol::handover::{Passage, Side};
    use mesh_protocol::id::{Digest, Generation};

    fn mesh() -> MeshFile {
        let inputs = Inputs {
            root: "/r".into(),
            name: "lab".parse().unwrap(),
            prefix: String::new(),
            node: "n1".parse().unwrap(),
            bus_port: 1,
            store_port: 2,
            check_interval_ms: 300,
            replaces: "container:mesh-controller".parse().unwrap(),
        };
        MeshFile::new("m1".parse().unwrap(), Timestamp::UNIX_EPOCH, inputs)
    }

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + milliseconds).unwrap()
    }

    fn handover(passed: &[(State, i64)]) -> HandoverReport {
        let side = |resource: &str| Side {
            resource: resource.parse().unwrap(),
            spec: Digest::of(b""),
            instance: Some("p-1".parse().unwrap()),
        };
        HandoverReport {
            seat: "mesh-controller".parse().unwrap(),
            state: State::Done,
            since: at(2000),
            old: side("container:mesh-controller"),
            new: side("process:mesh-controller"),
            generation: Generation(2),
            waiting_for: None,
            checks_passed: 2,
            failed_at: None,
            reason: None,
            log_tail: Vec::new(),
            next_try: None,
            tries: 1,
            cleanup_pending: None,
            passed: passed.iter().map(|(state, ms)| Passage { state: *state, at: at(*ms) }).collect(),
        }
    }

    fn probed() -> Probed {
        let mut timeline = Timeline::default();
        for number in 0..1000 {
            let due = Duration::from_millis(number * 10);
            let answer = Ok(Answerer { form: Form::Process, instance: "p-1".parse().unwrap() });
            timeline.count(&Outcome { due, ended: due, answer });
        }
        Probed { began: at(0), figures: Figures::default(), timeline }
    }

    const OCCASION: Occasion<'static> = Occasion { command: "push", plan: None };

    #[test]
    fn it_is_of_the_handover_with_a_margin() {
        let report = handover(&[(State::Planned, 3000), (State::Trial, 3100), (State::Done, 5000)]);
        let found = compose(&mesh(), OCCASION, &probed(), &report);
        assert_eq!(found.began, at(2600));
        let marks: Vec<u64> = found.marks.iter().map(|mark| mark.at_ms).collect();
        assert_eq!(marks, [400, 500, 2400]);
        assert_eq!(found.timeline.bins(), 281);
    }

    #[test]
    fn where_the_host_remembers_nothing_the_last_state_is_marked() {
        let found = compose(&mesh(), OCCASION, &probed(), &handover(&[]));
        assert_eq!(found.marks, [Mark { state: State::Done, at_ms: 400 }]);
    }

    #[test]
    fn the_newest_few_are_kept() {
        let temp = tempfile::tempdir().unwrap();
        let layout = Layout::new(Utf8PathBuf::try_from(temp.path().to_owned()).unwrap());
        let mut recording = compose(&mesh(), OCCASION, &probed(), &handover(&[]));
        assert_eq!(list(&layout).unwrap(), [""; 0]);
        for second in 0..KEPT + 5 {
            recording.began = at(i64::try_from(second).unwrap() * 1000);
            keep(&layout, &recording).unwrap();
        }
        let all = list(&layout).unwrap();
        assert_eq!(all.len(), KEPT);
        assert_eq!(read(all.last().unwrap()).unwrap(), recording);
    }
}
