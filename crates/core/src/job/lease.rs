//! A lease keeps a scope open from any thread or callback.

use std::fmt;

use super::end::{self, Left};
use super::header::{CLOSED, Header, JobRef};
use super::kind::JobKind;
use super::outcome::IntoOutcome;
use super::scope::Scope;
use super::state;
use super::task::Task;
use crate::task::cell;
use crate::task::run::Turn;
use crate::unwind::contained;

/// Keeps a scope open: its end waits until every lease is dropped.
///
/// A lease neither delays a cancel nor is told by one. Dropping the last one
/// never ends the scope inside the drop: the end is scheduled.
#[must_use = "dropping a lease lets the scope end"]
pub struct Lease(JobRef);

impl Lease {
    /// None if the job has ended or takes no more children.
    pub(crate) fn of(h: &Header) -> Option<Lease> {
        let _locked = h.lock();
        let st = h.state.add(state::HAS_KIDS);
        // SAFETY: H1, under the lock.
        unsafe {
            let kids = h.kids.get();
            if st.has(state::ENDED | state::SHUT) || kids == CLOSED {
                return None;
            }
            h.kids.set(kids + 1);
        }
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
        let h: &Header = &self.0;
        let (left, poller) = {
            let _locked = h.lock();
            let left = end::release_count_locked(h, true);
            // Decided under the lock in which it was closed: afterwards its
            // poller may have left.
            let inline = !matches!(h.kind(), JobKind::Task | JobKind::Root)
                && !h.state.load().has(state::BODY_DONE);
            let poller = if left == Left::Nothing && inline {
                // SAFETY: H1, under the lock.
                cell::slot(h).and_then(|slot| unsafe { slot.take() })
            } else {
                None
            };
            (
                if inline && left == Left::Nothing {
                    Left::Open
                } else {
                    left
                },
                poller,
            )
        };
        match left {
            Left::Open => {}
            Left::Loose => end::stop_loose(h),
            Left::Nothing => {
                h.state.add(state::BUSY | state::PUSHED);
                // SAFETY: we closed it, so its end is ours; the turn does it.
                unsafe { h.tree().host.start(Turn::new(h)) };
            }
        }
        if let Some(waker) = poller {
            contained(move || waker.wake());
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        super::handle::debug_job(f, "Lease", &self.0)
    }
}
