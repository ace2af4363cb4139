//! Amounts as people read them.
//!
//! In: numbers. Out: `12.3 MB`, `4 min`. Not here: programs, which get the numbers themselves.

use std::time::Duration;

/// `532 B`, `12.3 kB`, `4.0 GB`: in powers of ten, as disks and networks are sold.
#[must_use]
pub fn bytes(number: u64) -> String {
    if number < 1000 {
        return format!("{number} B");
    }
    let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
    // In tenths, rounded; each unit up to 999.9.
    let mut divisor: u64 = 1000;
    let mut place = 0;
    loop {
        let tenths = (u128::from(number) * 10 + u128::from(divisor) / 2) / u128::from(divisor);
        if tenths < 10_000 || place + 1 == units.len() {
            return format!("{}.{} {}", tenths / 10, tenths % 10, units[place]);
        }
        divisor = divisor.saturating_mul(1000);
        place += 1;
    }
}

/// `3 s`, `4 min`, `2 h`: about, for what is not known better.
#[must_use]
pub fn about(time: Duration) -> String {
    match time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)) {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_unit_that_makes_them_short() {
        for (number, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (57_012_345, "57.0 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn times_are_rounded_up() {
        let shown = |milliseconds| about(Duration::from_millis(milliseconds));
        assert_eq!((shown(0), shown(1), shown(119_000)), ("0 s".into(), "1 s".into(), "119 s".into()));
        assert_eq!((shown(120_001), shown(7_200_000)), ("3 min".into(), "2 h".into()));
    }
}
