//! How long something that ended waits before it is started again: longer each time it ends soon after.

use std::collections::BTreeMap;
use std::time::Duration;

use mesh_protocol::id::{InstanceId, ResourceId};

/// The pauses, in milliseconds. The first is short, for most ends are a kill from outside; the last is what a
/// person who mends something will wait.
const PAUSES: [u64; 8] = [100, 500, 1000, 2000, 4000, 8000, 16_000, 30_000];
/// What ran for this long ended for a new reason.
const STEADY: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
struct Pause {
    run: Option<InstanceId>,
    started: Duration,
    ended: u32,
    until: Duration,
}

/// The pauses of all that is run.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    by_id: BTreeMap<ResourceId, Pause>,
}

impl Pauses {
    /// A run was started.
    pub(super) fn started(&mut self, id: &ResourceId, run: &InstanceId, now: Duration) {
        let ended = self.by_id.get(id).map_or(0, |pause| pause.ended);
        let until = self.by_id.get(id).map_or(Duration::ZERO, |pause| pause.until);
        self.by_id.insert(id.clone(), Pause { run: Some(run.clone()), started: now, ended, until });
    }

    /// A run was seen to have ended, or an attempt failed; counted once a run.
    pub(super) fn ended(&mut self, id: &ResourceId, run: Option<&InstanceId>, now: Duration) {
        let pause = self.by_id.entry(id.clone()).or_insert(Pause {
            run: run.cloned(),
            started: now,
            ended: 0,
            until: Duration::ZERO,
        });
        if run.is_some() && pause.run.is_none() {
            return;
        }
        if pause.run.take().is_some() && now.saturating_sub(pause.started) >= STEADY {
            pause.ended = 0;
        }
        let last = u32::try_from(PAUSES.len() - 1).unwrap_or(u32::MAX);
        let step = PAUSES[usize::try_from(pause.ended.min(last)).unwrap_or_default()];
        pause.ended += 1;
        pause.until = now + Duration::from_millis(step);
    }

    /// Whether its pause is over.
    pub(super) fn is_over(&self, id: &ResourceId, now: Duration) -> bool {
        self.by_id.get(id).is_none_or(|pause| now >= pause.until)
    }

    /// How often it ended soon after it was started, in a row.
    pub(super) fn ends(&self, id: &ResourceId) -> u32 {
        self.by_id.get(id).map_or(0, |pause| pause.ended)
    }

    /// For how long the present run has been running.
    pub(super) fn running_for(&self, id: &ResourceId, now: Duration) -> Option<Duration> {
        let pause = self.by_id.get(id)?;
        pause.run.as_ref().map(|_| now.saturating_sub(pause.started))
    }

    /// Somebody asked for one more try.
    pub(super) fn clear(&mut self, id: &ResourceId) {
        if let Some(pause) = self.by_id.get_mut(id) {
            pause.ended = 0;
            pause.until = Duration::ZERO;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_waits_longer_and_a_steady_run_begins_again() {
        let id: ResourceId = "process:a".parse().unwrap();
        let run = |n: u32| format!("p-{n}").parse::<InstanceId>().unwrap();
        let mut pauses = Pauses::default();
        let mut now = Duration::from_secs(1);
        for (n, pause) in (0..).zip([100, 500, 1000]) {
            pauses.started(&id, &run(n), now);
            pauses.ended(&id, Some(&run(n)), now);
            pauses.ended(&id, Some(&run(n)), now);
            assert!(!pauses.is_over(&id, now + Duration::from_millis(pause - 1)));
            now += Duration::from_millis(pause);
            assert!(pauses.is_over(&id, now));
        }
        assert_eq!(pauses.ends(&id), 3);
        pauses.started(&id, &run(9), now);
        now += STEADY;
        pauses.ended(&id, Some(&run(9)), now);
        assert_eq!(pauses.ends(&id), 1);
    }
}
