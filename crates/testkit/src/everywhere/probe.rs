//! Watches the points of one run, and notes where the scenario was stopped.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kinfolk_core::{Event, EventKind, Job, JobId, NodeSnapshot, PointHeld, Sink};

/// Points in a row before one yields, like a turn's budget.
const FAIR: u64 = 128;

/// One run, as its points and the tree see it.
#[derive(Default)]
pub(super) struct Probe {
    passed: AtomicU64,
    /// The point at which the scenario is stopped; zero for none.
    pub(super) at: AtomicU64,
    /// The point was reached, and the scenario must be stopped.
    pub(super) due: AtomicBool,
    /// Every point waits until the scenario is stopped.
    pub(super) holds: AtomicBool,
    seen: Mutex<ProbeSeen>,
}

/// The job that polled a point, and in debug builds the place of the point.
type ReachedWait = (JobId, Option<&'static Location<'static>>);

#[derive(Default)]
struct ProbeSeen {
    /// The job whose points do not count.
    spared: Option<JobId>,
    /// The job that is stopped.
    target: Option<Job>,
    /// The point at which the scenario was stopped.
    reached: Option<ReachedWait>,
    /// Clean-up that did not complete, in words.
    cut: Vec<String>,
}

impl Probe {
    fn seen(&self) -> MutexGuard<'_, ProbeSeen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Option<Job> {
        self.seen().target.clone()
    }

    pub(super) fn aim_at(&self, job: Option<Job>) {
        self.seen().target = job;
    }

    pub(super) fn spare(&self, job: JobId) {
        self.seen().spared = Some(job);
    }

    pub(super) fn reached(&self) -> Option<ReachedWait> {
        self.seen().reached
    }

    pub(super) fn points(&self) -> u64 {
        self.passed.load(SeqCst)
    }

    pub(super) fn point(&self, job: JobId, site: Option<&'static Location<'static>>) -> PointHeld {
        if self.seen().spared == Some(job) {
            return PointHeld::No;
        }
        if self.holds.load(SeqCst) {
            return PointHeld::Yes;
        }
        let passed = self.passed.fetch_add(1, SeqCst) + 1;
        if passed == self.at.load(SeqCst) {
            self.seen().reached = Some((job, site));
            self.due.store(true, SeqCst);
            self.holds.store(true, SeqCst);
            return PointHeld::Yes;
        }
        match passed.is_multiple_of(FAIR) {
            true => PointHeld::Yes,
            false => PointHeld::No,
        }
    }

    /// A future was dropped before it completed. A future that was never told
    /// waited in a foreign await, where it can only be dropped; one that was told
    /// was cleaning up.
    pub(super) fn forced(&self, job: &NodeSnapshot) {
        if job.told_since.is_some() {
            self.seen().cut.push(format!(
                "{:?} at {}:{} was dropped while it cleaned up",
                job.name,
                job.site.file(),
                job.site.line()
            ));
        }
    }

    /// Clean-up that did not complete; a line for each.
    pub(super) fn cut(&self) -> Vec<String> {
        self.seen().cut.clone()
    }
}

/// Notes clean-up whose time is up.
pub(super) struct Lifted(pub(super) std::sync::Arc<Probe>);

impl Sink for Lifted {
    fn event(&self, event: &Event) {
        if let EventKind::ShieldLifted { site } = event.kind {
            self.0.seen().cut.push(format!(
                "the clean-up or shield at {}:{} ran out of time",
                site.file(),
                site.line()
            ));
        }
    }
}
