//! Sets of the numbers by which a task tells its requests apart.

/// A set of numbers. They are given out in order, and what belongs together
/// comes in runs: a list of runs, in order, with gaps between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers(Vec<NumberRun>);

/// From the first to the last, both of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NumberRun {
    first: u64,
    last: u64,
}

impl Numbers {
    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|run| run.last < number);
        self.0.get(at).is_some_and(|run| run.first <= number)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are greater.
    pub(crate) fn beyond(&self, number: u64) -> Numbers {
        let runs = self.0.iter().filter(|run| run.last > number);
        Numbers(
            runs.map(|run| NumberRun {
                first: run.first.max(number + 1),
                ..*run
            })
            .collect(),
        )
    }

    pub(crate) fn insert(&mut self, number: u64) {
        self.add(NumberRun {
            first: number,
            last: number,
        });
    }

    pub(crate) fn append(&mut self, other: Numbers) {
        if self.0.is_empty() {
            *self = other;
        } else {
            for run in other.0 {
                self.add(run);
            }
        }
    }

    /// Takes those out that are in `other` too.
    pub(crate) fn remove(&mut self, other: &Numbers) {
        for gone in &other.0 {
            let runs = std::mem::take(&mut self.0);
            for run in runs {
                // What is left of it on either side.
                if run.first < gone.first {
                    self.0.push(NumberRun {
                        last: run.last.min(gone.first - 1),
                        ..run
                    });
                }
                if run.last > gone.last {
                    self.0.push(NumberRun {
                        first: run.first.max(gone.last + 1),
                        ..run
                    });
                }
            }
        }
    }

    fn add(&mut self, run: NumberRun) {
        // Those it overlaps or touches become one with it.
        let start = self.0.partition_point(|old| old.last + 1 < run.first);
        let end = self.0.partition_point(|old| old.first <= run.last + 1);
        let mut whole = run;
        for old in &self.0[start..end] {
            whole.first = whole.first.min(old.first);
            whole.last = whole.last.max(old.last);
        }
        self.0.splice(start..end, [whole]);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together() {
        let mut numbers = Numbers::default();
        for n in [5, 1, 3, 9] {
            numbers.insert(n);
        }
        assert_eq!(numbers.0.len(), 4);
        numbers.insert(2);
        numbers.insert(4);
        numbers.insert(4);
        assert_eq!(numbers.0.len(), 2, "1 to 5, and 9: {numbers:?}");
        for n in 0..12 {
            assert_eq!(numbers.contains(n), (1..=5).contains(&n) || n == 9, "{n}");
            let beyond = numbers.beyond(n);
            assert_eq!(beyond.is_empty(), n >= 9, "{n}");
            for other in 0..12 {
                let greater = numbers.contains(other) && other > n;
                assert_eq!(beyond.contains(other), greater, "{other} beyond {n}");
            }
        }
    }

    #[test]
    fn like_a_plain_set() {
        // A small generator: every pair of sets with numbers below ten.
        let of = |bits: u32| {
            let mut numbers = Numbers::default();
            for n in (0..10).filter(|n| bits >> n & 1 == 1).rev() {
                numbers.insert(n);
            }
            numbers
        };
        for left in 0..1 << 10 {
            for right in (0..1_u32 << 10).step_by(7) {
                let mut both = of(left);
                both.append(of(right));
                assert_eq!(both, of(left | right), "{left:b} and {right:b}");
                both = of(left);
                both.remove(&of(right));
                assert_eq!(both, of(left & !right), "{left:b} without {right:b}");
            }
        }
    }
}
