//! Shares that a job gives away: those of [leases](crate::Lease), which shutdown revokes,
//! and those that nothing revokes, such as a blocking call's.

use crate::engine::end::{self, Last};
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef, MOST_SHARES};
use crate::record::state;

/// The share of a lease.
pub(crate) struct Leased(JobRef);

impl Leased {
    /// None if the job has ended or takes no more children.
    pub(crate) fn of(h: &Header) -> Option<Leased> {
        let mut locked = h.lock_with_cold();
        let st = h.state.will_share(locked.evidence());
        let over = state::ENDED | state::NO_NEW_CHILDREN | state::DROP_NOW;
        let shares = locked.shares();
        let cold = locked.cold()?;
        if st.has(over) || shares > MOST_SHARES || cold.leases_revoked {
            return None;
        }
        cold.leases += 1;
        locked.set_shares(shares + 1);
        Some(Leased(JobRef::from_header(h)))
    }

    /// The job it keeps open.
    pub(crate) fn job(&self) -> &JobRef {
        &self.0
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        give_back(&self.0, |cold| match cold {
            Some(cold) if !cold.leases_revoked => {
                cold.leases -= 1;
                1
            }
            _ => 0,
        });
    }
}

/// Keeps a job open as a child does, and is never revoked.
pub(crate) struct Share(JobRef);

impl Share {
    /// None if the job has ended or waits for nothing any more.
    pub(crate) fn of(h: &Header) -> Option<Share> {
        let mut locked = h.lock();
        let st = h.state.will_share(locked.evidence());
        let shares = locked.shares();
        if st.ended() || shares > MOST_SHARES {
            return None;
        }
        locked.set_shares(shares + 1);
        Some(Share(JobRef::from_header(h)))
    }
}

impl Share {
    /// Returns the job, which stays open until [`from_job`](Share::from_job) makes
    /// a share of it again.
    pub(crate) fn into_job(self) -> JobRef {
        let job = self.0.clone();
        std::mem::forget(self);
        // The reference of the share is released, the clone is returned.
        // SAFETY: forgotten with it, and given back once (H6).
        unsafe { Header::release(job.as_ptr()) };
        job
    }

    /// The share of a job that [`into_job`](Share::into_job) returned.
    pub(crate) fn from_job(job: JobRef) -> Share {
        Share(job)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        give_back(&self.0, |_| 1);
    }
}

/// Takes every lease from a job: shutdown does not wait for leases.
pub(crate) fn revoke(h: &Header) {
    if h.if_cold(|cold, _| cold.leases > 0).unwrap_or(false) {
        give_back(h, |cold| {
            cold.map_or(0, |cold| {
                cold.leases_revoked = true;
                std::mem::take(&mut cold.leases)
            })
        });
    }
}

/// Gives shares up; if the job then ends, a turn for its end is scheduled.
fn give_back(h: &Header, shares: impl FnOnce(Option<&mut Cold>) -> u32) {
    let last = {
        let mut locked = h.lock();
        let shares = shares(locked.cold());
        let mut last: Option<Last> = None;
        for _ in 0..shares {
            last = end::give_up(&mut locked, end::GivenUp::Counted);
        }
        last
    };
    if let Some(last) = last {
        last.settle_later();
    }
}
