//! A recording as a picture: who answered, over time.
//!
//! In: a [`Recording`]. Out: an SVG, the same text for the same recording. Two lanes (the old one, the new one; more where
//! more instances answered), a bar for each bin's answers; what failed, in red, below them; a line for each state. Not here:
//! recording, and where the picture goes.

use std::fmt::Write as _;

use mesh_protocol::handover::{Form, State};
use mesh_protocol::id::InstanceId;

use crate::recording::{Mark, Recording};

/// The picture's width, and the places of its parts, in pixels.
const WIDTH: u64 = 1200;
const LEFT: u64 = 190;
const RIGHT: u64 = 30;
const LANE: u64 = 96;
const GAP: u64 = 18;
const TOP: u64 = 150;
const FAILED: u64 = 34;

/// Wider apart than this the time axis has no mark.
const LEAST_TICK: u64 = 70;

const STYLE: &str = "\
text{font-family:'DejaVu Sans',Verdana,Arial,sans-serif;font-size:13px;fill:#24292f}\
.title{font-size:20px;font-weight:bold}.soft{fill:#57606a}.small{font-size:11.5px}\
.lane{fill:#f6f8fa}.old{fill:#bf8700}.new{fill:#0969da}.another{fill:#8250df}.failed{fill:#cf222e}\
.state{stroke:#57606a;stroke-width:1;stroke-dasharray:4 3}.axis{stroke:#8c959f;stroke-width:1}\
.label{font-size:12px;font-weight:bold;paint-order:stroke;stroke:#ffffff;stroke-width:4px}.bad{fill:#cf222e;font-weight:bold}.good{fill:#1a7f37;font-weight:bold}";

struct Shown<'a> {
    name: String,
    role: &'a str,
    form: Form,
    answers: &'a [u32],
}

/// The picture of a recording.
#[must_use]
pub fn draw(recording: &Recording) -> String {
    let lanes = lanes(recording);
    let scale = Scale::of(recording);
    let count = u64::try_from(lanes.len()).unwrap_or_default();
    let lanes_end = TOP + count * (LANE + GAP);
    let failed_top = lanes_end;
    let axis = failed_top + FAILED + GAP;
    let caption = caption(recording);
    let height = axis + 58 + 20 * u64::try_from(caption.len()).unwrap_or_default();
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\n<style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    text(&mut svg, 24, 38, "title", &title(recording));
    text(&mut svg, 24, 62, "soft", &subtitle(recording));
    for (place, lane) in (0..).zip(&lanes) {
        draw_lane(&mut svg, lane, TOP + place * (LANE + GAP), &scale);
    }
    draw_failed(&mut svg, recording, failed_top, &scale);
    draw_states(&mut svg, recording, axis, &scale);
    draw_axis(&mut svg, axis, &scale);
    for (place, line) in (0..).zip(&caption) {
        let class = if place == 0 { "" } else { "soft" };
        text(&mut svg, 24, axis + 62 + 20 * place, class, line);
    }
    svg.push_str("</svg>\n");
    svg
}

fn title(recording: &Recording) -> String {
    let to = |party: &crate::recording::Party| {
        let instance = party.instance.as_ref().map(|instance| format!(" {instance}")).unwrap_or_default();
        format!("{}{instance}", party.form().as_str())
    };
    format!("{}: from {} to {}", recording.seat, to(&recording.old), to(&recording.new))
}

fn subtitle(recording: &Recording) -> String {
    let plan = recording.plan.as_ref().map(|plan| format!(", plan {plan}")).unwrap_or_default();
    format!(
        "mesh {} ({}), mesh {}{plan}, {:.0}; answers per {} ms, one attempt each",
        recording.name, recording.mesh, recording.command, recording.began, recording.timeline.bin_ms
    )
}

/// The old one first, the new one next, then whoever else answered; the two also where they never did.
fn lanes(recording: &Recording) -> Vec<Shown<'_>> {
    let find = |instance: Option<&InstanceId>| {
        recording.timeline.lanes.iter().find(|lane| Some(&lane.instance) == instance)
    };
    let mut shown = Vec::new();
    for (role, party) in [("old", &recording.old), ("new", &recording.new)] {
        let answers = find(party.instance.as_ref()).map(|lane| &lane.answers[..]).unwrap_or_default();
        let name = party.instance.as_ref().map_or_else(|| "never started".to_owned(), ToString::to_string);
        shown.push(Shown { name, role, form: party.form(), answers });
    }
    let both = [&recording.old.instance, &recording.new.instance];
    for lane in &recording.timeline.lanes {
        if !both.contains(&&Some(lane.instance.clone())) {
            let (name, form) = (lane.instance.to_string(), lane.form);
            shown.push(Shown { name, role: "another", form, answers: &lane.answers });
        }
    }
    shown
}

/// From bins and counts to pixels.
struct Scale {
    bin_ms: u64,
    bins: u64,
    most: u32,
}

impl Scale {
    fn of(recording: &Recording) -> Self {
        let timeline = &recording.timeline;
        let last = recording.marks.iter().map(|mark| mark.at_ms / timeline.bin_ms.max(1) + 1).max();
        let bins = u64::try_from(timeline.bins()).unwrap_or(u64::MAX).max(last.unwrap_or(0)).max(1);
        let counts = timeline.lanes.iter().flat_map(|lane| &lane.answers);
        let most = counts.chain(&timeline.failed).copied().max().unwrap_or(1).max(1);
        Self { bin_ms: timeline.bin_ms.max(1), bins, most }
    }

    const fn width(&self) -> u64 {
        WIDTH - LEFT - RIGHT
    }

    /// Where a bin begins, in hundredths of a pixel.
    const fn x(&self, bin: u64) -> u64 {
        LEFT * 100 + self.width() * 100 * bin / self.bins
    }

    fn x_at(&self, at_ms: u64) -> u64 {
        (LEFT * 100 + self.width() * 100 * at_ms / (self.bins * self.bin_ms)).min((WIDTH - RIGHT) * 100)
    }

    /// How high a bar is, in hundredths of a pixel, of `full` pixels.
    fn height(&self, count: u32, full: u64) -> u64 {
        full * 100 * u64::from(count) / u64::from(self.most)
    }
}

/// Hundredths as a decimal.
fn decimal(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn text(svg: &mut String, x: u64, y: u64, class: &str, words: &str) {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\"{class}>{}</text>", escape(words));
}

/// What XML 1.0 reserves in text.
fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn draw_lane(svg: &mut String, lane: &Shown<'_>, top: u64, scale: &Scale) {
    let width = scale.width();
    let _ =
        writeln!(svg, "<rect class=\"lane\" x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{LANE}\"/>");
    text(svg, 24, top + 34, "label", &format!("{} {}", lane.role, lane.form.as_str()));
    text(svg, 24, top + 54, "soft", &lane.name);
    let total: u64 = lane.answers.iter().map(|count| u64::from(*count)).sum();
    text(svg, 24, top + 74, "soft small", &format!("{total} answers"));
    bars(svg, lane.role, lane.answers, top + LANE, LANE - 4, scale);
}

/// All bars of one colour as one path: a handover has a thousand of them.
fn bars(svg: &mut String, class: &str, counts: &[u32], bottom: u64, full: u64, scale: &Scale) {
    let mut path = String::new();
    for (bin, count) in (0..).zip(counts) {
        if *count == 0 {
            continue;
        }
        let (from, to) = (scale.x(bin), scale.x(bin + 1));
        // A hair's breadth between two bars, where there is room for one.
        let wide = if to - from > 250 { to - from - 60 } else { to - from };
        let high = scale.height(*count, full).max(100);
        let _ = write!(
            path,
            "M{} {bottom}v-{}h{}v{}z",
            decimal(from),
            decimal(high),
            decimal(wide),
            decimal(high)
        );
    }
    if !path.is_empty() {
        let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    }
}

fn draw_failed(svg: &mut String, recording: &Recording, top: u64, scale: &Scale) {
    let width = scale.width();
    let _ = writeln!(
        svg,
        "<rect class=\"lane\" x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"{FAILED}\"/>"
    );
    let failed: u64 = recording.timeline.failed.iter().map(|count| u64::from(*count)).sum();
    let class = if failed == 0 { "good" } else { "bad" };
    text(svg, 24, top + 22, class, &format!("{failed} failed"));
    bars(svg, "failed", &recording.timeline.failed, top + FAILED, FAILED - 4, scale);
}

/// Rows for the labels of states that follow each other closely.
const ROWS: [u64; 4] = [TOP - 14, TOP - 30, TOP - 46, TOP - 62];
/// The width of a label's letter, at the most.
const LETTER: u64 = 8;

fn draw_states(svg: &mut String, recording: &Recording, axis: u64, scale: &Scale) {
    let mut ends = [0_u64; ROWS.len()];
    let mut labels = Vec::new();
    for (place, mark) in recording.marks.iter().enumerate() {
        let x = scale.x_at(mark.at_ms) / 100;
        let label = state_label(recording, place, mark);
        let long = u64::try_from(label.chars().count()).unwrap_or_default() * LETTER;
        let from = x.min(WIDTH - RIGHT - long.min(WIDTH - RIGHT - LEFT)) + 3;
        let row = ends.iter().position(|end| *end < from).unwrap_or(ROWS.len() - 1);
        ends[row] = from + long;
        let y = ROWS[row];
        let _ =
            writeln!(svg, "<line class=\"state\" x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{axis}\"/>", y - 10);
        let class = if matches!(mark.state, State::Aborting | State::Held) { "label bad" } else { "label" };
        labels.push((from, y, class, label));
    }
    // Over all lines, for a line of a later state may pass.
    for (x, y, class, label) in labels {
        text(svg, x, y, class, &label);
    }
}

/// The state, and how long it lasted.
fn state_label(recording: &Recording, place: usize, mark: &Mark) -> String {
    let state = mark.state.as_str();
    match recording.marks.get(place + 1) {
        Some(next) => format!("{state} {}", time(next.at_ms.saturating_sub(mark.at_ms))),
        None => state.to_owned(),
    }
}

fn draw_axis(svg: &mut String, y: u64, scale: &Scale) {
    let end = WIDTH - RIGHT;
    let _ = writeln!(svg, "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{y}\" x2=\"{end}\" y2=\"{y}\"/>");
    let whole = scale.bins * scale.bin_ms;
    let step = tick(whole, scale.width());
    let mut at = 0;
    while at <= whole {
        let x = scale.x_at(at) / 100;
        let _ = writeln!(svg, "<line class=\"axis\" x1=\"{x}\" y1=\"{y}\" x2=\"{x}\" y2=\"{}\"/>", y + 5);
        let _ = writeln!(
            svg,
            "<text class=\"soft small\" text-anchor=\"middle\" x=\"{x}\" y=\"{}\">{}</text>",
            y + 20,
            time(at)
        );
        at += step;
    }
}

/// The narrowest of 1, 2, 5 times a power of ten milliseconds that leaves room for its words.
fn tick(whole_ms: u64, width: u64) -> u64 {
    let mut power = 10;
    loop {
        for times in [1, 2, 5] {
            let step = power * times;
            if width * step >= LEAST_TICK * whole_ms || step > whole_ms {
                return step;
            }
        }
        power *= 10;
    }
}

fn time(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds} ms"),
        _ if milliseconds.is_multiple_of(1000) => format!("{} s", milliseconds / 1000),
        _ if milliseconds.is_multiple_of(100) => {
            format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
        }
        _ => format!("{}.{:02} s", milliseconds / 1000, milliseconds % 1000 / 10),
    }
}

fn caption(recording: &Recording) -> Vec<String> {
    let figures = &recording.figures;
    let mut lines = figures.lines();
    if let Some(first) = lines.first_mut() {
        first.push_str(&format!(
            "; slowest answer {}.{} ms",
            figures.slowest_us / 1000,
            figures.slowest_us % 1000 / 100
        ));
    }
    if let Some(reason) = &recording.reason {
        lines.push(format!("handed back: {reason}"));
    }
    lines.push(
        "the figures are of the whole command, the picture of the part in which the seat changed hands"
            .to_owned(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::timeline::Lane;
    use crate::prober::{Figures, Timeline};
    use crate::recording::{FORMAT, Party};
    use jiff::Timestamp;
    use mesh_protocol::handover::Reason;

    /// A handover of three seconds: the old one answers, then both, then the new one.
    pub(crate) fn recording() -> Recording {
        let old = (0..300).map(|bin| match bin {
            0..160 => 2,
            160..180 => 1 + bin % 2,
            _ => 0,
        });
        let new = (0..300).map(|bin| match bin {
            0..160 => 0,
            160..180 => 1 - bin % 2,
            _ => 2,
        });
        let lane = |instance: &str, form, answers: Vec<u32>| Lane {
            instance: instance.parse().unwrap(),
            form,
            answers,
        };
        let lanes = vec![
            lane("c-0a1b2c3d4e", Form::Container, old.collect()),
            lane("p-5f6a7b8c9d", Form::Process, new.collect()),
        ];
        let party = |resource: &str, instance: &str| Party {
            resource: resource.parse().unwrap(),
            instance: Some(instance.parse().unwrap()),
        };
        let mark = |state, at_ms| Mark { state, at_ms };
        Recording {
            format: FORMAT,
            mesh: "m1".parse().unwrap(),
            name: "lab".parse().unwrap(),
            seat: "mesh-controller".parse().unwrap(),
            command: "push".to_owned(),
            plan: Some("abcdefghijkl".parse().unwrap()),
            began: Timestamp::from_second(1_767_225_600).unwrap(),
            old: party("container:mesh-controller", "c-0a1b2c3d4e"),
            new: party("process:mesh-controller", "p-5f6a7b8c9d"),
            marks: vec![
                mark(State::Planned, 700),
                mark(State::Trial, 760),
                mark(State::Joined, 1600),
                mark(State::Alone, 1690),
                mark(State::Removing, 2160),
                mark(State::Done, 2300),
            ],
            reason: None,
            timeline: Timeline { bin_ms: 10, lanes, failed: vec![0; 300] },
            figures: Figures {
                asked: 600,
                longest_gap_us: 8400,
                slowest_us: 3100,
                forms: [("container".to_owned(), 330), ("process".to_owned(), 270)].into(),
                ..Figures::default()
            },
        }
    }

    #[test]
    fn the_same_recording_gives_the_same_picture() {
        insta::assert_snapshot!(draw(&recording()));
    }

    #[test]
    fn what_failed_is_red_and_why_it_was_handed_back_is_told() {
        let mut bad = recording();
        bad.timeline.failed[100] = 3;
        bad.marks.push(Mark { state: State::Held, at_ms: 2900 });
        bad.reason = Some(Reason::Exited { code: 7 });
        let svg = draw(&bad);
        assert!(svg.contains("class=\"failed\" d=\"M") && svg.contains(">3 failed<"), "{svg}");
        assert!(svg.contains("class=\"label bad\"") && svg.contains("it exited with status 7"), "{svg}");
    }

    #[test]
    fn a_third_instance_has_a_lane_and_one_that_never_ran_an_empty_one() {
        let mut third = recording();
        third.new.instance = None;
        let names: Vec<(String, String)> =
            lanes(&third).iter().map(|lane| (lane.role.to_owned(), lane.name.clone())).collect();
        let expected = [("old", "c-0a1b2c3d4e"), ("new", "never started"), ("another", "p-5f6a7b8c9d")];
        assert_eq!(names, expected.map(|(role, name)| (role.to_owned(), name.to_owned())));
    }

    #[test]
    fn nothing_at_all_is_a_picture_too() {
        let mut empty = recording();
        empty.timeline = Timeline::default();
        empty.marks.clear();
        assert!(draw(&empty).ends_with("</svg>\n"));
    }

    #[test]
    fn the_axis_has_room_for_its_words() {
        assert_eq!(tick(3000, 980), 500);
        assert_eq!(tick(9000, 980), 1000);
        assert_eq!(tick(300_000, 980), 50_000);
        assert_eq!(
            (time(500), time(2000), time(1500)),
            ("500 ms".to_owned(), "2 s".to_owned(), "1.5 s".to_owned())
        );
    }
}
