//! The children of a job, listed under its lock.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::base::observe::Numbered;
use crate::engine::tree::Shared;
use crate::record::header::{Header, JobRef};
use crate::record::state::millis_between;

/// The children of a job, as references.
pub(crate) fn children(job: &Header, each: &mut dyn FnMut(JobRef)) {
    let _locked = job.lock();
    // SAFETY: H1 and H2, under the lock.
    let mut child = unsafe { job.first.get().as_ref() };
    while let Some(c) = child {
        each(JobRef::from_header(c));
        // SAFETY: as above.
        child = unsafe { c.next.get().as_ref() };
    }
}

/// The children without those that were made after `before` was read. A walk through
/// the tree that visits only these ends, however fast the tree grows.
pub(crate) fn older_children(
    tree: &Shared,
    job: &Header,
    before: Numbered,
    each: &mut dyn FnMut(JobRef),
) {
    children(job, &mut |child| {
        if !tree.counters.is_newer(child.id.number(), before) {
            each(child);
        }
    });
}

/// For how long a job has been in its present wait, for observers.
pub(crate) fn since_turn(tree: &Shared, h: &Header) -> Duration {
    let idle = millis_between(h.turned.load(Relaxed), tree.millis_now());
    Duration::from_millis(u64::from(idle))
}
