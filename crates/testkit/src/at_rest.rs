//! What must hold of the counters of a simulation that is over.

use kinfolk_core::CountersSnapshot;

/// What is left although every job was told to end and every operation was ended, in words,
/// and all counters; none if nothing is. `at_host` timers are set at the host.
pub(crate) fn left(counters: &CountersSnapshot, at_host: usize) -> Option<String> {
    let pending = [
        (counters.living(), "jobs have not ended"),
        (counters.timers_pending(), "timers of jobs are set"),
        (counters.waiters_pending(), "waits for jobs are registered"),
        (counters.io_pending(), "operations are under way"),
        (at_host as u64, "timers are set at the host"),
    ];
    let some: Vec<String> = pending
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!some.is_empty()).then(|| format!("{}\n{counters}", some.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters of a simulation that is over, but for one change.
    fn with(change: impl FnOnce(&mut CountersSnapshot)) -> CountersSnapshot {
        let mut counters = CountersSnapshot::default();
        counters.jobs_created = 6;
        (counters.jobs_completed, counters.jobs_failed) = (3, 2);
        counters.jobs_cancelled = 1;
        (counters.timers_set, counters.timers_fired) = (3, 2);
        counters.timers_cancelled = 1;
        (counters.waiters_registered, counters.waiters_woken) = (3, 2);
        counters.waiters_removed = 1;
        (counters.io_submitted, counters.io_completed) = (2, 2);
        change(&mut counters);
        counters
    }

    /// Each count that does not balance is named, by itself.
    #[test]
    fn test_1_each_thing_that_is_left_is_named() {
        assert_eq!(left(&with(|_| {}), 0), None);
        let named = |counters: CountersSnapshot, at_host| {
            let words = left(&counters, at_host).expect("something is left");
            words.lines().next().map(String::from).expect("a line")
        };
        for (counters, words) in [
            (with(|c| c.jobs_created += 2), "2 jobs have not ended"),
            (with(|c| c.timers_fired -= 1), "1 timers of jobs are set"),
            (
                with(|c| c.waiters_woken -= 2),
                "2 waits for jobs are registered",
            ),
            (with(|c| c.io_completed -= 1), "1 operations are under way"),
        ] {
            assert_eq!(named(counters, 0), words);
        }
        assert_eq!(named(with(|_| {}), 3), "3 timers are set at the host");
        let both = with(|c| (c.jobs_created, c.io_submitted) = (7, 3));
        let words = left(&both, 0).expect("something is left");
        assert!(
            words.starts_with("1 jobs have not ended, 1 operations are"),
            "{words}"
        );
        assert!(words.contains("io_submitted             3"), "{words}");
    }
}
