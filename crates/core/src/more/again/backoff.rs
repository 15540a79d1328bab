//! [`Backoff`]: how long to pause after a failure, and how many there may be.

use std::time::Duration;

/// A run that fails sooner has not gone well, however short the pauses are.
const SHORTEST_GOOD_RUN: Duration = Duration::from_secs(10);

/// Sets how soon and how often an operation is tried again after a failure: the pauses begin
/// with 100 ms and double up to 10 s, without a limit unless one is set.
///
/// ```
/// # use kinfolk_core::Backoff;
/// # use std::time::Duration;
/// let patient = Backoff::new().tries(5);
/// let hurried = Backoff::new()
///     .tries(3)
///     .first(Duration::from_millis(10))
///     .longest(Duration::from_millis(50));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a Backoff does nothing by itself"]
pub struct Backoff {
    tries: u32,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses of 100 ms, 200 ms and so on, up to 10 s; tries without a limit.
    pub const fn new() -> Backoff {
        Backoff {
            tries: u32::MAX,
            first: Duration::from_millis(100),
            longest: Duration::from_secs(10),
        }
    }

    /// Sets the largest number of tries, the first included. There is always one.
    pub const fn tries(mut self, most: u32) -> Backoff {
        self.tries = most;
        self
    }

    /// Sets the pause after the first failure. Each further one is twice as long.
    pub const fn first(mut self, pause: Duration) -> Backoff {
        self.first = pause;
        self
    }

    /// Sets the longest pause.
    pub const fn longest(mut self, pause: Duration) -> Backoff {
        self.longest = pause;
        self
    }

    /// The pause after so many failures in a row; none if that was the last try.
    pub(crate) fn pause_after(&self, failures: u32) -> Option<Duration> {
        if self.tries != u32::MAX && failures >= self.tries {
            return None;
        }
        let first = self.first.as_nanos();
        let doublings = failures.saturating_sub(1);
        // Twice nothing is nothing, however often.
        if first != 0 && doublings >= first.leading_zeros() {
            return Some(self.longest);
        }
        let nanos = first.checked_shl(doublings).unwrap_or(0);
        if nanos >= self.longest.as_nanos() {
            return Some(self.longest);
        }
        // Below `longest`: the seconds fit.
        let seconds = (nanos / 1_000_000_000) as u64;
        Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
    }

    /// True if a run of this length counts as a success: failures before it do not count any
    /// more.
    pub(crate) fn is_good_run(&self, lasted: Duration) -> bool {
        lasted >= self.longest.max(SHORTEST_GOOD_RUN)
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let millis = |policy: Backoff, failures| {
            let pause = policy.pause_after(failures);
            pause.map(|pause| pause.as_millis())
        };
        let policy = Backoff::new();
        let pauses = [1, 2, 3, 7, 8, 9, 64, u32::MAX].map(|n| millis(policy, n));
        let expected = [100, 200, 400, 6_400, 10_000, 10_000, 10_000, 10_000].map(Some);
        assert_eq!(pauses, expected);
        let three = policy.tries(3).first(Duration::ZERO);
        assert_eq!(
            [1, 2, 3].map(|n| millis(three, n)),
            [Some(0), Some(0), None]
        );
        assert_eq!([0, 1].map(|n| policy.tries(n).pause_after(1)), [None, None]);
        let short = policy.first(Duration::from_secs(60));
        assert_eq!(millis(short, 1), Some(10_000));
        // Pauses of nothing stay so, and small ones double for as long as they are small.
        let none = policy.first(Duration::ZERO);
        for failures in [1, 33, 34, 128, 129, u32::MAX] {
            assert_eq!(none.pause_after(failures), Some(Duration::ZERO));
        }
        let tiny = policy.first(Duration::from_nanos(1)).longest(Duration::MAX);
        for failures in [1, 33, 34, 64, 65, 90] {
            let pause = tiny.pause_after(failures).unwrap();
            assert_eq!(pause.as_nanos(), 1 << (failures - 1));
        }
        for failures in [128, 129, u32::MAX] {
            assert_eq!(tiny.pause_after(failures), Some(Duration::MAX));
        }
    }
}
