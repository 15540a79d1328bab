//! The results of branches that are no values: failures, and the cancellation
//! that ended one of them. The call keeps both until all branches have ended. A
//! call that is dropped before that loses neither: the failure hook gets the
//! failures (outcome-3), and an interrupt is put back (request-3).

use crate::base::error::Error;
use crate::engine::context;
use crate::engine::on_its_way::OnItsWay;
use crate::engine::tree::Tree;
use crate::engine::walk;
use crate::more::combine::branch::was_interrupted;
use crate::record::failures::{Failure, Failures};
use crate::record::header::{Header, JobRef};

/// Failures that a call has collected and must return to its caller. Dropped,
/// they are given to the failure hook.
#[derive(Default)]
pub(crate) struct Owed {
    failures: Failures,
    /// Set from the first failure on.
    hook: Option<UntakenFailures>,
}

/// The failure hook for failures that no caller gets.
struct UntakenFailures {
    tree: Tree,
    /// The job in which the call is polled.
    around: JobRef,
}

impl Owed {
    pub(crate) fn take_in(&mut self, error: Error) {
        if self.hook.is_none() {
            self.hook = UntakenFailures::here();
        }
        drop(self.failures.record(Failure::new(error), false));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    /// All failures as one error, for the caller.
    pub(crate) fn decide(mut self) -> Option<Error> {
        std::mem::take(&mut self.failures).decide()
    }

    /// The caller gets the failures in another way.
    pub(crate) fn forget(mut self) {
        drop(std::mem::take(&mut self.failures));
    }
}

impl Drop for Owed {
    #[inline]
    fn drop(&mut self) {
        if !self.failures.is_empty()
            && let Some(hook) = self.hook.take()
        {
            hook.report(std::mem::take(&mut self.failures));
        }
    }
}

/// A loser failed, and the call returns a value: the failure hook gets it.
#[cold]
pub(crate) fn report(error: Error) {
    if let Some(hook) = UntakenFailures::here() {
        let mut failures = Failures::default();
        drop(failures.record(Failure::new(error), false));
        hook.report(failures);
    }
}

impl UntakenFailures {
    fn here() -> Option<UntakenFailures> {
        let around = context::current()?;
        let tree = walk::pin(&around)?.handle();
        Some(UntakenFailures { tree, around })
    }

    /// Reports each failure once: not those that a family around the call has
    /// recorded and will return.
    #[cold]
    fn report(&self, failures: Failures) {
        let unknown = failures.without(|failure| is_known_above(&self.around, failure));
        if let Some(error) = unknown.decide() {
            self.tree.shared().report_failure(&error);
        }
    }
}

fn is_known_above(around: &Header, failure: &Failure) -> bool {
    let mut at = Some(JobRef::from_header(around));
    while let Some(job) = at {
        if job.if_cold(|cold, _| cold.failures.know(failure)) == Some(true) {
            return true;
        }
        at = job.parent_from_outside();
    }
    false
}

/// The cancellation that has ended a branch: that of a job around the call, or
/// an interrupt, which is on its way.
#[derive(Default)]
pub(crate) struct Cut {
    error: Option<Error>,
    on_its_way: Option<Box<OnItsWay>>,
}

impl Cut {
    /// Keeps the first; an interrupt that comes after it is put back.
    pub(crate) fn take_in(&mut self, error: Error) {
        let on_its_way = on_its_way(&error);
        if self.error.is_none() {
            self.error = Some(error);
            self.on_its_way = on_its_way.map(Box::new);
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.error.is_none()
    }

    pub(crate) fn is_interrupt(&self) -> bool {
        self.error.as_ref().is_some_and(was_interrupted)
    }

    /// The call returns it.
    pub(crate) fn into_error(self) -> Option<Error> {
        if let Some(on_its_way) = self.on_its_way {
            on_its_way.arrive();
        }
        self.error
    }
}

/// The interrupt that has ended a branch with `error`; none for another
/// cancellation, or a failure.
pub(crate) fn on_its_way(error: &Error) -> Option<OnItsWay> {
    let told = error.cancelled().filter(|_| was_interrupted(error))?;
    let around = context::current()?;
    Some(OnItsWay::new(&around, told))
}

/// The call returns something else than `error`: an interrupt is put back.
pub(crate) fn give_up(error: &Error) {
    drop(on_its_way(error));
}
