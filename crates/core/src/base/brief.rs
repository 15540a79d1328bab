//! Numbers and times in what people read: `1,204`, `2.6 s`, `3 h`.

use std::fmt;
use std::time::Duration;

/// A duration in one unit, rounded down.
#[derive(Clone, Copy, Debug)]
pub struct BriefTime(Duration);

/// Prints a duration in the unit that suits it, rounded down: `12 ms`, `2.6 s`, `4 min`,
/// `3 h`, `12 d`.
pub fn brief(time: Duration) -> BriefTime {
    BriefTime(time)
}

impl fmt::Display for BriefTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (millis, seconds) = (self.0.as_millis(), self.0.as_secs());
        match seconds {
            0 => write!(f, "{millis} ms"),
            1..10 if millis / 100 % 10 > 0 => write!(f, "{seconds}.{} s", millis / 100 % 10),
            1..120 => write!(f, "{seconds} s"),
            120..7200 => write!(f, "{} min", seconds / 60),
            7200..172_800 => write!(f, "{} h", seconds / 3600),
            _ => write!(f, "{} d", seconds / 86_400),
        }
    }
}

/// A count with its thousands set apart.
#[derive(Clone, Copy, Debug)]
pub struct GroupedCount(usize);

/// Prints a count with a comma after each thousand: `1,204`.
pub fn grouped(count: usize) -> GroupedCount {
    GroupedCount(count)
}

impl fmt::Display for GroupedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (n, digit) in digits.chars().enumerate() {
            if n > 0 && (digits.len() - n).is_multiple_of(3) {
                f.write_str(",")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn see_2_times_and_counts_are_brief() {
        let words = |millis| brief(Duration::from_millis(millis)).to_string();
        let known = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1 s"),
            (2_680, "2.6 s"),
            (10_900, "10 s"),
            (119_999, "119 s"),
            (120_000, "2 min"),
            (7_199_999, "119 min"),
            (3 * 3_600_000, "3 h"),
            (48 * 3_600_000, "2 d"),
        ];
        for (millis, text) in known {
            assert_eq!(words(millis), text);
        }
        let counts = [0, 999, 1_204, 1_000_000].map(|count| grouped(count).to_string());
        assert_eq!(counts, ["0", "999", "1,204", "1,000,000"]);
        assert_eq!(brief(Duration::MAX).to_string(), "213503982334601 d");
    }
}
