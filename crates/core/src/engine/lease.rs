//! A lease keeps a scope open from any thread or callback.

use std::fmt;

use crate::base::outcome::IntoOutcome;
use crate::engine::end::{self, Last};
use crate::record::cold::Cold;
use crate::record::header::{Header, JobRef, MOST_SHARES};
use crate::record::state;
use crate::surface::scope::Scope;
use crate::surface::task::Task;

/// Keeps a scope open: its end waits until every lease is dropped.
///
/// A lease neither delays a cancel nor is told by one. Dropping the last one
/// never ends the scope inside the drop: the end is scheduled.
#[must_use = "dropping a lease lets the scope end"]
pub struct Lease(JobRef);

impl Lease {
    /// None if the job has ended or takes no more children.
    pub(crate) fn of(h: &Header) -> Option<Lease> {
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
        Some(Lease(JobRef::from_header(h)))
    }

    /// The scope it keeps open.
    pub fn scope(&self) -> Scope {
        Scope::new(self.0.clone())
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
        give_back(&self.0, |cold| match cold {
            Some(cold) if !cold.leases_revoked => {
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
                cold.leases_revoked = true;
                std::mem::take(&mut cold.leases)
            })
        });
    }
}

/// Gives shares of the count back; the end, if it comes to that, is scheduled.
fn give_back(h: &Header, shares: impl FnOnce(Option<&mut Cold>) -> u32) {
    let last = {
        let mut locked = h.lock();
        let shares = shares(locked.cold());
        let mut last = Last::Open;
        for _ in 0..shares {
            last = end::give_up(&mut locked, end::Share::Counted);
        }
        last
    };
    last.settle_later();
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::surface::handle::debug_job(f, "Lease", &self.0)
    }
}
