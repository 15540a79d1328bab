//! The ignore guard: while a guard is held, a cancel of its job has no effect. Making one
//! is a point. What a guard does is in [`engine::guard`](crate::engine::guard).

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::error::Cancelled;
use crate::engine::context;
use crate::engine::guard::{enter, leave};
use crate::points::point::{self, Yielded};
use crate::record::header::{JobRef, Site};

/// Holds cancellation of one job back until it is dropped.
///
/// A guard belongs to the job in which it was made, wherever the value is
/// moved: it lapses when that job's body has ended.
#[must_use = "dropping the guard ends the protection"]
pub struct IgnoreGuard(Option<HeldGuard>);

struct HeldGuard {
    job: JobRef,
    site: &'static Location<'static>,
}

impl Drop for IgnoreGuard {
    fn drop(&mut self) {
        if let Some(held) = self.0.take() {
            leave(&held.job, Some(held.site));
        }
    }
}

impl fmt::Debug for IgnoreGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IgnoreGuard")
    }
}

/// Returns a guard that holds cancellation of the current job back.
///
/// # Cancellation
/// A *point*: fails if the job is cancelled already, and nothing is held.
/// Never waits.
#[must_use = "futures do nothing unless awaited"]
#[track_caller]
pub fn ignore_cancellation() -> IgnoreCancellation {
    IgnoreCancellation {
        yielded: Yielded::here(),
        site: Location::caller(),
    }
}

/// The future of [`ignore_cancellation`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct IgnoreCancellation {
    yielded: Yielded,
    site: &'static Location<'static>,
}

impl Future for IgnoreCancellation {
    type Output = Result<IgnoreGuard, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let site = Site::of(self.site);
        std::task::ready!(point::poll_point_at(cx, &mut self.yielded, site))?;
        let Some(job) = context::current() else {
            return Poll::Ready(Ok(IgnoreGuard(None)));
        };
        let site = self.site;
        if enter(&job, site) {
            Poll::Ready(Ok(IgnoreGuard(Some(HeldGuard { job, site }))))
        } else {
            // A cancel came between the two reads: the point returns it now.
            point::poll_point_at(cx, &mut self.yielded, Site::of(site))
                .map(|told| told.map(|()| IgnoreGuard(None)))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_guard_says_what_it_is() {
        assert_eq!(format!("{:?}", IgnoreGuard(None)), "IgnoreGuard");
    }
}
