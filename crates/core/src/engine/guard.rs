//! The ignore guard: while one is held, a cancel of its job has no effect and
//! the walk to its children waits. See the guard's race in `CANCELLING.md`.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::error::Cancelled;
use crate::engine::context;
use crate::engine::interrupts;
use crate::engine::walk;
use crate::points::point::{self, Yielded};
use crate::record::header::{Header, JobRef};
use crate::record::state::{self, Marked};

/// Holds cancellation of one job back until it is dropped.
///
/// It belongs to the job it was made in, whoever holds the value: it lapses
/// when that job's body has ended.
#[must_use = "dropping the guard ends the protection"]
pub struct IgnoreGuard(Option<Held>);

struct Held {
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

/// Asks for a guard that holds cancellation of the current job back.
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
        std::task::ready!(point::poll_point(cx, &mut self.yielded))?;
        let Some(job) = context::current() else {
            return Poll::Ready(Ok(IgnoreGuard(None)));
        };
        let site = self.site;
        if enter(&job, site) {
            Poll::Ready(Ok(IgnoreGuard(Some(Held { job, site }))))
        } else {
            // A cancel came between the two looks: the point says so now.
            point::poll_point(cx, &mut self.yielded).map(|told| told.map(|()| IgnoreGuard(None)))
        }
    }
}

fn enter(h: &Header, site: &'static Location<'static>) -> bool {
    h.with_cold(|cold, _| {
        if cold.guards == 0 {
            if !h.state.enter_guard() {
                return false;
            }
            cold.guarded_at = Some(site);
        }
        cold.guards += 1;
        true
    })
}

/// The guard that was made at `site` goes; all of them, if none is named.
fn leave(h: &Header, site: Option<&'static Location<'static>>) {
    // None: it has ended, and its guards lapsed before that.
    let Some(tree) = walk::pin(h) else { return };
    let marked = h
        .if_cold(|cold, _| {
            if cold.guards == 0 {
                return Marked::No;
            }
            cold.guards = if site.is_none() { 0 } else { cold.guards - 1 };
            if cold.guarded_at == site {
                cold.guarded_at = None;
            }
            if cold.guards == 0 {
                h.state.leave_guard(h.is_task())
            } else {
                Marked::No
            }
        })
        .unwrap_or(Marked::No);
    walk::go(&tree, h, marked);
    if marked == Marked::No {
        interrupts::guard_left(h);
    }
}

/// The body of `h` has ended: what it held is held no more.
pub(crate) fn lapse(h: &Header) {
    if h.state.load().has(state::GUARD) {
        leave(h, None);
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
