//! Asks a seat on a fixed schedule and counts what becomes of it: how a handover looks from outside.
//!
//! In: something to ask. Out: [`Figures`], and who answered when. One attempt each, with a limit and no retry; an attempt is made when it
//! is due, whether or not the one before was answered, so that a seat that hangs is not asked less often. Not here:
//! judging the figures.

pub mod figures;
mod seat;
pub mod timeline;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

pub use figures::{Answerer, Figures, Outcome, Tally};
pub use seat::{CREDENTIAL, asking, open};
pub use timeline::Timeline;

/// 200 a second.
pub const EVERY: Duration = Duration::from_millis(5);

/// Past this an attempt failed.
pub const LIMIT: Duration = Duration::from_secs(1);

/// One attempt.
pub type Attempt = Pin<Box<dyn Future<Output = Result<Answerer, String>> + Send>>;

/// Makes attempts.
pub type Ask = Arc<dyn Fn() -> Attempt + Send + Sync>;

/// A prober that runs until it is stopped, or dropped.
#[derive(Debug)]
pub struct Prober {
    began: Timestamp,
    stop: oneshot::Sender<()>,
    task: JoinHandle<(Figures, Timeline)>,
}

/// All that a prober has to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// When it began.
    pub began: Timestamp,
    /// How the seat answered.
    pub figures: Figures,
    /// Who answered when, since it began.
    pub timeline: Timeline,
}

impl Prober {
    /// Begins to ask.
    #[must_use]
    pub fn start(ask: Ask, every: Duration, limit: Duration) -> Self {
        let (stop, stopped) = oneshot::channel();
        Self { began: Timestamp::now(), stop, task: tokio::spawn(run(ask, every, limit, stopped)) }
    }

    /// When it began.
    #[must_use]
    pub const fn began(&self) -> Timestamp {
        self.began
    }

    /// Stops asking, waits for the attempts that are under way, and tells.
    pub async fn stop(self) -> Figures {
        self.stop_and_tell().await.figures
    }

    /// As [`Self::stop`], and tells who answered when.
    pub async fn stop_and_tell(self) -> Probed {
        // A task that has ended by itself has nothing more to be told.
        let _ = self.stop.send(());
        let (figures, timeline) = self.task.await.unwrap_or_default();
        Probed { began: self.began, figures, timeline }
    }
}

async fn run(
    ask: Ask,
    every: Duration,
    limit: Duration,
    mut stopped: oneshot::Receiver<()>,
) -> (Figures, Timeline) {
    let begin = Instant::now();
    let mut schedule = tokio::time::interval_at(begin, every);
    // A prober that was held up makes the attempts that it owes.
    schedule.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (sender, mut outcomes) = mpsc::unbounded_channel();
    let mut tally = Tally::default();
    let mut timeline = Timeline::default();
    let mut count = |outcome: &Outcome| {
        tally.count(outcome);
        timeline.count(outcome);
    };
    loop {
        tokio::select! {
            biased;
            // cancel safe: a oneshot receiver that is polled again goes on waiting. A dropped prober stops too.
            _ = &mut stopped => break,
            // cancel safe: no tick is lost when another branch is taken.
            due = schedule.tick() => {
                let attempt = ask();
                let sender = sender.clone();
                tokio::spawn(async move {
                    let answer = match tokio::time::timeout_at(due + limit, attempt).await {
                        Ok(answer) => answer,
                        Err(_) => Err(format!("no answer within {} ms", limit.as_millis())),
                    };
                    let outcome = Outcome { due: due - begin, ended: begin.elapsed(), answer };
                    let _ = sender.send(outcome);
                });
            }
            // cancel safe: a message stays in the channel until it is received.
            Some(outcome) = outcomes.recv() => count(&outcome),
        }
    }
    drop(sender);
    while let Some(outcome) = outcomes.recv().await {
        count(&outcome);
    }
    (tally.figures(), timeline)
}

/// Probes for `time`, for a seat at which nothing is going on.
pub async fn probe_for(ask: Ask, time: Duration) -> Figures {
    let prober = Prober::start(ask, EVERY, LIMIT);
    tokio::time::sleep(time).await;
    prober.stop().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use mesh_protocol::handover::Form;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn answerer() -> Answerer {
        Answerer { form: Form::Process, instance: "p-1".parse().unwrap() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_that_hangs_is_asked_as_often() {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        let ask: Ask = Arc::new(move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                if number == 10 {
                    std::future::pending::<()>().await;
                }
                Ok(answerer())
            })
        });
        let figures = probe_for(ask, Duration::from_millis(500)).await;
        assert!((100..=101).contains(&figures.asked), "{figures:?}");
        assert_eq!(figures.failed, 1);
        assert_eq!(figures.failures["no answer within 1000 ms"], 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_that_answers_has_no_failure() {
        let ask: Ask = Arc::new(|| Box::pin(async { Ok(answerer()) }));
        let figures = probe_for(ask, Duration::from_millis(100)).await;
        assert_eq!((figures.failed, figures.forms["process"]), (0, figures.asked));
        assert!(figures.longest_gap_us <= 6000, "{figures:?}");
    }
}
