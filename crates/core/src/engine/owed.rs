//! Failures that the parts of a call have come to, until the call returns: the caller gets
//! them, or, if the call is dropped or returns something else, the failure hook (outcome-3).

use crate::base::error::Error;
use crate::engine::context;
use crate::engine::pin;
use crate::engine::tree::Tree;
use crate::record::failures::{Failure, Failures};
use crate::record::header::{Header, JobRef};

/// Failures that a call has taken in and owes to its caller. Dropped, they are
/// given to the failure hook.
#[derive(Default)]
pub(crate) struct Owed {
    failures: Failures,
    /// Known from the first failure on.
    hook: Option<UntakenFailures>,
}

/// Where failures go that no caller gets.
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

    /// All of it as one error, for the caller.
    pub(crate) fn decide(mut self) -> Option<Error> {
        std::mem::take(&mut self.failures).decide()
    }

    /// The caller has them in another way.
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

/// Failures that are the answer only if nothing better comes. Dropped, no caller gets them.
#[derive(Default)]
pub(crate) struct PassedOver(Failures);

impl PassedOver {
    pub(crate) fn take_in(&mut self, error: Error) {
        drop(self.0.record(Failure::new(error), false));
    }

    /// All of it as one error.
    pub(crate) fn decide(self) -> Option<Error> {
        self.0.decide()
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
        let tree = pin::tree_of(&around)?.handle();
        Some(UntakenFailures { tree, around })
    }

    /// Once: not what a family around the call has recorded, and will hear of.
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
