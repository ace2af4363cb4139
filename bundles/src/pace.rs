//! How fast bytes go by, and how long the rest will take: pure.
//!
//! In: how many are done, of how many, and when: what a [`Progress`](crate::Progress) is told. Out: a rate and a time, or
//! none while too little is known. Not here: a clock, and how it is shown.

use std::time::{Duration, Instant};

/// Rates of less time than this say nothing.
const SHORTEST: Duration = Duration::from_millis(200);
/// How much an older rate counts for each second that has passed since.
const MEMORY: f64 = 0.7;

/// What goes by.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// When the present stretch began, and with how much done.
    since: (Instant, u64),
    rate: Option<f64>,
}

/// How fast it goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Bytes a second.
    pub rate: Option<f64>,
    /// The time that the rest takes at this rate.
    pub left: Option<Duration>,
}

impl Pace {
    /// Begins now, with so much done before.
    #[must_use]
    pub fn new(now: Instant, done: u64) -> Self {
        Self { since: (now, done), rate: None }
    }

    /// So much is done now. Less than before is a transfer that was started afresh: what was known of it still holds.
    pub fn at(&mut self, now: Instant, done: u64, total: Option<u64>) -> Figures {
        let (before, had) = self.since;
        let passed = now.saturating_duration_since(before);
        if done < had {
            self.since = (now, done);
        } else if passed >= SHORTEST {
            #[allow(clippy::cast_precision_loss)] // a rate that is told to three digits
            let present = (done - had) as f64 / passed.as_secs_f64();
            let weight = MEMORY.powf(passed.as_secs_f64());
            self.rate = Some(self.rate.map_or(present, |rate| rate * weight + present * (1.0 - weight)));
            self.since = (now, done);
        }
        let rate = self.rate.filter(|rate| *rate > 0.0);
        let rest = total.and_then(|total| total.checked_sub(done));
        #[allow(clippy::cast_precision_loss)] // as above
        let left =
            rate.zip(rest).and_then(|(rate, rest)| Duration::try_from_secs_f64(rest as f64 / rate).ok());
        Figures { rate: self.rate, left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_transfer_takes_as_long_as_it_says() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin, 0);
        assert_eq!(pace.at(begin, 0, Some(1000)), Figures { rate: None, left: None });
        for second in 1..=5 {
            let figures = pace.at(begin + Duration::from_secs(second), second * 100, Some(1000));
            let rate = figures.rate.unwrap();
            assert!((rate - 100.0).abs() < 0.001, "{rate}");
            assert_eq!(figures.left.unwrap().as_secs_f64().round(), (10 - second) as f64);
        }
    }

    #[test]
    fn a_change_of_rate_is_followed_and_a_stall_is_not_for_ever() {
        let begin = Instant::now();
        let at = |second| begin + Duration::from_secs(second);
        let mut pace = Pace::new(begin, 0);
        pace.at(at(1), 1000, None);
        let rates: Vec<f64> = (2..30).map(|second| pace.at(at(second), 1000, None).rate.unwrap()).collect();
        assert!(rates.is_sorted_by(|one, next| one > next));
        assert!(rates.last().unwrap() < &1.0);
    }

    #[test]
    fn a_transfer_that_starts_afresh_keeps_its_rate_and_nothing_is_divided_by_nothing() {
        let begin = Instant::now();
        let mut pace = Pace::new(begin, 0);
        pace.at(begin + Duration::from_secs(1), 500, Some(1000));
        let figures = pace.at(begin + Duration::from_secs(2), 0, Some(1000));
        assert_eq!((figures.rate, figures.left), (Some(500.0), Some(Duration::from_secs(2))));
        let mut still = Pace::new(begin, 0);
        let figures = still.at(begin + Duration::from_secs(1), 0, Some(1000));
        assert_eq!(figures, Figures { rate: Some(0.0), left: None });
        assert_eq!(still.at(begin, 7, Some(3)).left, None);
    }
}
