//! Whether the clocks of whoever takes part agree: this machine's, the engine's, the store's, and the times that came over
//! the bus.
//!
//! In: times, each with the moment at which it was told. Out: findings, which say what was compared. Not here: setting one.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use mesh_engine::Facts;
use mesh_protocol::verb::{StatusAnswer, Verb};

use super::check::{Finding, expect, wrong};
use super::intent::Intent;
use crate::output::Code;
use crate::registry;
use crate::session::{Nothing, Session};

/// What is told in whole seconds, by a machine that is busy, is off by less.
const MOST: SignedDuration = SignedDuration::from_secs(5);

/// Bus and store of a mesh that runs answer in milliseconds.
const SOON: Duration = Duration::from_secs(1);

/// A time that was told, and our own at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    /// By whom.
    pub(super) by: String,
    /// What.
    pub(super) time: Timestamp,
    /// Our own.
    pub(super) here: Timestamp,
}

/// Why there is nothing to compare, or what there is.
pub(super) type Asked = Result<Told, String>;

/// What the engine said.
pub(super) fn of_engine(facts: Option<&Facts>, here: Timestamp) -> Asked {
    let facts = facts.ok_or_else(|| super::engine::NO_ENGINE.to_owned())?;
    let time = facts.time.ok_or_else(|| "it does not say".to_owned())?;
    Ok(Told { by: "what the engine says the time is".to_owned(), time, here })
}

/// The newest time that the controller was told by a host, over the bus; the bus itself tells no time.
pub(super) async fn of_bus(intent: &Intent<'_>) -> Asked {
    let Some(mesh) = intent.mesh.filter(|mesh| mesh.seat_answered.is_some()) else {
        return Err("no bus runs here yet".to_owned());
    };
    let asking = async {
        let session = Session::open(intent.layout, mesh).await?;
        session.ask_once::<_, StatusAnswer>(Verb::Status, &Nothing {}, SOON).await
    };
    let asked =
        tokio::time::timeout(SOON, asking).await.map_err(|_| "the bus does not answer in time".to_owned())?;
    let (status, _) = asked.map_err(|failure| failure.what.clone())?;
    let newest = status.nodes.into_iter().max_by_key(|node| node.reported);
    let node = newest.ok_or_else(|| "no node has reported".to_owned())?;
    let by = format!("the newest report that the controller has, of node {}", node.name);
    Ok(Told { by, time: node.reported, here: (intent.world.clock)() })
}

/// The date of the store's answer.
pub(super) async fn of_store(intent: &Intent<'_>) -> Asked {
    let Some(mesh) = intent.mesh.filter(|mesh| mesh.seat_answered.is_some()) else {
        return Err("no store runs here yet".to_owned());
    };
    let store = registry::of_mesh(mesh, None).map_err(|failure| failure.what.clone())?;
    let asked = tokio::time::timeout(SOON, store.date()).await;
    let date = asked
        .map_err(|_| "the store does not answer in time".to_owned())?
        .map_err(|error| mesh_protocol::chain::chain(&error))?
        .ok_or_else(|| "the store's answer has no date".to_owned())?;
    let time = jiff::fmt::rfc2822::parse(&date)
        .map_err(|error| format!("{date:?} is no date: {error}"))?
        .timestamp();
    Ok(Told { by: "the date of the store's answer".to_owned(), time, here: (intent.world.clock)() })
}

/// How a time may differ from ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum May {
    /// Neither way.
    Not,
    /// It may be earlier: it was told before.
    BeEarlier,
}

/// The two must agree.
pub(super) fn agree(asked: &Asked, may: May) -> Finding {
    let what = match may {
        May::Not => format!("a clock that differs by {} s at most", MOST.as_secs()),
        May::BeEarlier => format!("no time that is more than {} s ahead of this machine's", MOST.as_secs()),
    };
    let check = expect(what);
    let told = match asked {
        Ok(told) => told,
        Err(why) => return check.skipped(why.clone()),
    };
    let off = told.here.duration_until(told.time);
    let by = difference(off);
    let found = format!("{}: {by}", told.by);
    let is_right = off <= MOST && (may == May::BeEarlier || off >= -MOST);
    if is_right {
        return check.met(found);
    }
    check.warned(wrong(
        Code::ClockWrong,
        format!("clocks disagree: {} differs from this machine's clock by {by}", told.by),
        found,
        "set the clock that is wrong (timedatectl set-ntp true, or date -s)",
    ))
}

/// `+0.3 s`
fn difference(off: SignedDuration) -> String {
    let seconds = (off.as_secs_f64() * 10.0).round() / 10.0;
    // Nothing has no sign.
    if seconds == 0.0 { "0.0 s".to_owned() } else { format!("{seconds:+.1} s") }
}

#[cfg(test)]
mod tests {
    use super::super::check::State;
    use super::*;

    #[test]
    fn a_report_may_be_old_and_an_answer_may_not() {
        let told = |seconds: i64| {
            let here = Timestamp::UNIX_EPOCH;
            Ok(Told { by: "x".to_owned(), time: here + SignedDuration::from_secs(seconds), here })
        };
        for (seconds, may, state) in [
            (0, May::Not, State::Passed),
            (5, May::Not, State::Passed),
            (6, May::Not, State::Warned),
            (-6, May::Not, State::Warned),
            (-600, May::BeEarlier, State::Passed),
            (6, May::BeEarlier, State::Warned),
        ] {
            assert_eq!(agree(&told(seconds), may).state, state, "{seconds} {may:?}");
        }
        assert_eq!(agree(&Err("no bus".to_owned()), May::Not).state, State::Skipped);
    }

    #[test]
    fn a_difference_has_a_sign_and_none_has_not() {
        let text = |milliseconds| difference(SignedDuration::from_millis(milliseconds));
        assert_eq!([text(-3), text(-1250), text(40)], ["0.0 s", "-1.3 s", "0.0 s"]);
    }

    #[test]
    fn a_store_writes_its_date_as_http_does() {
        let time = jiff::fmt::rfc2822::parse("Mon, 30 Nov 2026 20:08:23 GMT").unwrap().timestamp();
        assert_eq!(time.to_string(), "2026-11-30T20:08:23Z");
    }
}
