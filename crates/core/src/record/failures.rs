//! The failures of one job, in the order of time: those of child tasks and of
//! the body.

use crate::base::error::{Error, MOST_SUPPRESSED};

/// A failure, with the numbers of all failures that it consists of: itself, its
/// sources and those that it carries beside it. The numbers are collected
/// before the lock is taken.
pub(crate) struct Failure {
    error: Error,
    holds: Vec<u64>,
    /// The failures that this one has replaced: what was suppressed beside them
    /// is suppressed beside this one.
    replaced: Vec<Error>,
}

impl Failure {
    pub(crate) fn new(error: Error) -> Failure {
        let holds = error.serials();
        Failure {
            error,
            holds,
            replaced: Vec::new(),
        }
    }

    /// Replaces `other`, whose place it has.
    fn stand_for(&mut self, other: &mut Failure) {
        self.replaced.append(&mut other.replaced);
        if other.error.suppressed_count() > 0 {
            self.replaced.push(other.error.clone());
        }
    }

    /// The error to return. Must not be called under a lock.
    fn into_error(self) -> Error {
        let mut error = self.error;
        for other in self.replaced {
            error = error.joined_by_company_of(&other);
        }
        error
    }

    fn is(&self) -> u64 {
        self.error.serial()
    }

    /// True if one of them is the other, or contains it.
    fn overlaps(&self, other: &Failure) -> bool {
        self.holds.contains(&other.is()) || other.holds.contains(&self.is())
    }
}

#[derive(Default)]
pub(crate) struct Failures {
    list: Vec<Failure>,
    /// Failures of children that came after the job's own deadline had fired:
    /// they do not replace TimedOut.
    after_deadline: Vec<Failure>,
    /// How many further failures there were.
    more: usize,
}

/// Failures that were replaced or not kept: to be dropped outside the lock,
/// since their destructors are user code.
#[must_use = "drop it outside the lock"]
pub(crate) struct Gone(#[expect(dead_code, reason = "only dropped")] [Option<Failure>; 2]);

impl Failures {
    /// Records a failure. A failure that is listed already is not listed twice,
    /// and one that has a listed failure among its sources replaces it. The
    /// body's own failure (`after_deadline` is false for it) counts even if the
    /// child it came from failed too late to count.
    ///
    /// Returns the failures that were replaced or not kept.
    pub(crate) fn record(&mut self, mut failure: Failure, after_deadline: bool) -> Gone {
        let known = |list: &[Failure]| list.iter().position(|known| known.overlaps(&failure));
        let at = known(&self.list);
        let late = known(&self.after_deadline);
        let (list, at) = match (at, late) {
            (Some(at), _) => (&mut self.list, at),
            (None, Some(at)) if after_deadline => (&mut self.after_deadline, at),
            (None, late) => {
                let mut gone = late.map(|at| self.after_deadline.remove(at));
                if let Some(gone) = &mut gone {
                    failure.stand_for(gone);
                }
                let list = if after_deadline {
                    &mut self.after_deadline
                } else {
                    &mut self.list
                };
                if list.len() <= MOST_SUPPRESSED {
                    list.push(failure);
                    return Gone([gone, None]);
                }
                self.more += 1;
                return Gone([gone, Some(failure)]);
            }
        };
        let known = &mut list[at];
        if known.holds.contains(&failure.is()) {
            known.stand_for(&mut failure);
            return Gone([Some(failure), None]);
        }
        failure.stand_for(known);
        Gone([Some(std::mem::replace(known, failure)), None])
    }

    /// True if the failure, or one of its sources, is listed, or a listed failure
    /// has it among its sources.
    pub(crate) fn know(&self, failure: &Failure) -> bool {
        let mut all = self.list.iter().chain(&self.after_deadline);
        all.any(|known| known.overlaps(failure))
    }

    /// The failures without those for which `is_known` is true. Must not be
    /// called under a lock.
    pub(crate) fn without(mut self, is_known: impl Fn(&Failure) -> bool) -> Failures {
        self.list.retain(|failure| !is_known(failure));
        self.after_deadline.retain(|failure| !is_known(failure));
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.after_deadline.is_empty()
    }

    /// True if a failure takes precedence over the job's own deadline.
    pub(crate) fn dominates(&self) -> bool {
        !self.list.is_empty()
    }

    /// All failures as one error, the first in time in front; none if nothing
    /// failed. A single failure is returned unchanged. Must not be called under
    /// a lock.
    pub(crate) fn decide(self) -> Option<Error> {
        let all: Vec<Error> = (self.list.into_iter().chain(self.after_deadline))
            .map(Failure::into_error)
            .collect();
        let (first, rest) = all.split_first()?;
        Some(first.joined_by(rest, self.more))
    }

    /// `timed_out`, with the failures that came after the deadline suppressed
    /// in it. Must not be called under a lock.
    pub(crate) fn beside(self, timed_out: Error) -> Error {
        let rest: Vec<Error> = (self.after_deadline.into_iter())
            .map(Failure::into_error)
            .collect();
        timed_out.joined_by(&rest, self.more)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Also where none of them replaces TimedOut.
    #[test]
    fn a_late_failure_that_is_passed_on_keeps_its_place() {
        let [first, second] = ["first", "second"].map(Error::msg);
        let mut failures = Failures::default();
        for error in [&first, &second, &first] {
            drop(failures.record(Failure::new(error.clone()), true));
        }
        let all = failures.beside(Error::msg("too late"));
        let beside: Vec<_> = all.suppressed().iter().map(Error::to_string).collect();
        assert_eq!(beside, ["first", "second"]);
    }
}
