//! A lease keeps a scope open from any thread or callback.

use std::fmt;

use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::engine::end::{self, Left};
use crate::engine::waker::Taken;
use crate::record::cell;
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef, MOST_KIDS};
use crate::record::state;
use crate::surface::scope::Scope;
use crate::surface::task::Task;

/// Keeps a scope open: its end waits until every lease is dropped.
///
/// A lease neither delays a cancel nor is told by one. Dropping the last one
/// never ends the scope inside the drop: the end is scheduled.
#[must_use = "dropping a lease lets the scope end"]
pub struct Lease {
    job: JobRef,
    /// How often leases of the job had been revoked when this one was made.
    revocations: u32,
}

impl Lease {
    /// None if the job has ended or takes no more children.
    pub(crate) fn of(h: &Header) -> Option<Lease> {
        let revocations = h.with_cold(|cold, _| {
            let st = h.state.add(state::HAS_KIDS);
            // SAFETY: H1, under the lock.
            unsafe {
                let kids = h.kids.get();
                let over = state::ENDED | state::SHUT | state::MUST;
                if st.has(over) || kids > MOST_KIDS || cold.revocations > 0 {
                    return None;
                }
                h.kids.set(kids + 1);
            }
            cold.leases += 1;
            Some(cold.revocations)
        })?;
        Some(Lease {
            job: JobRef::from_header(h),
            revocations,
        })
    }

    /// The scope it keeps open.
    pub fn scope(&self) -> Scope {
        Scope::new(self.job.clone())
    }

    /// Spawns into the scope; the lease goes over into the child.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static,
    {
        self.scope().spawn(future)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        give_back(&self.job, |cold| match cold {
            Some(cold) if cold.revocations == self.revocations => {
                cold.leases -= 1;
                1
            }
            _ => 0,
        });
    }
}

/// Keeps a job open as a child does: nothing revokes it.
pub(crate) struct Share(JobRef);

impl Share {
    /// None if the job has ended or waits for nothing more.
    pub(crate) fn of(h: &Header) -> Option<Share> {
        let _locked = h.lock();
        let st = h.state.add(state::HAS_KIDS);
        // SAFETY: H1, under the lock.
        unsafe {
            let kids = h.kids.get();
            if st.ended() || kids > MOST_KIDS {
                return None;
            }
            h.kids.set(kids + 1);
        }
        Some(Share(JobRef::from_header(h)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        give_back(&self.0, |_| 1);
    }
}

/// Takes every lease of a job away: shutdown does not wait for them.
pub(crate) fn revoke(h: &Header) {
    if h.if_cold(|cold, _| cold.leases > 0).unwrap_or(false) {
        give_back(h, |cold| {
            cold.map_or(0, |cold| {
                cold.revocations += 1;
                std::mem::take(&mut cold.leases)
            })
        });
    }
}

/// Gives shares of the count back; the end, if it comes to that, is scheduled.
fn give_back(h: &Header, shares: impl FnOnce(Option<&mut Cold>) -> u32) {
    let (left, poller) = {
        let _locked = h.lock();
        let shares = shares(h.cold_under_lock());
        let mut left = Left::Open;
        for _ in 0..shares {
            left = end::release_count_locked(h, true);
        }
        // Decided under the lock in which it was closed: afterwards its poller
        // may have left.
        let inline = !matches!(h.kind(), JobKind::Task | JobKind::Root)
            && !h.state.load().has(state::BODY_DONE);
        if inline && left == Left::Nothing {
            // SAFETY: H1, under the lock, in which its poller cannot end it.
            let poller = unsafe { Taken::new(cell::take_poller(h)) };
            (Left::Open, poller)
        } else {
            (left, Taken::Nobody)
        }
    };
    match left {
        Left::Open => {}
        Left::Loose => end::stop_loose(h),
        Left::Nothing => {
            // SAFETY: we closed it, so its end is ours. Noticed by
            // `lease_drop_vs_body_end`.
            unsafe { end::end_later(h) };
        }
    }
    poller.wake();
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::surface::handle::debug_job(f, "Lease", &self.job)
    }
}
