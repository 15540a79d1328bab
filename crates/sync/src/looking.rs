//! A wait in which all are woken together, and each looks for itself: for what changes
//! for everybody at once, as the value of a `watch`.

use std::panic::Location;
use std::task::{Context, Poll};

use kinfolk_core::kit::{Point, Resource, ResourceLook};
use kinfolk_core::{Cancelled, WaitKind};

use crate::line::{Line, Waiter, WaiterStage, Wakes, let_go};
use crate::seen::SeenAs;
use crate::sync::{Lock, LockGuard};

/// What is looked at: a state with a line of those who wait for its change.
pub(crate) trait Looked {
    fn line(&mut self) -> &mut Line;
}

/// Such a state under its lock, as snapshots see it. In an `Arc` or a box: it is listed where
/// it is.
pub(crate) struct Shown<S: Looked> {
    state: Lock<S>,
    seen: SeenAs,
}

impl<S: Looked> Shown<S> {
    pub(crate) fn new(state: S, seen: SeenAs) -> Shown<S> {
        Shown {
            state: Lock::new(state),
            seen,
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, S> {
        self.state.lock()
    }

    pub(crate) fn seen(&self) -> &SeenAs {
        &self.seen
    }

    /// A wait begins.
    #[inline]
    pub(crate) fn list(&self) {
        // SAFETY: it is in an `Arc` or a box, and see its destructor.
        unsafe { self.seen.list(self) }
    }
}

// SAFETY: it takes the lock, and touches the line alone.
unsafe impl<S: Looked> Resource for Shown<S> {
    fn look(&self) -> ResourceLook {
        let mut look = self.seen.look();
        self.state.lock().line().jobs(&mut look.waiters);
        look
    }
}

impl<S: Looked> Drop for Shown<S> {
    fn drop(&mut self) {
        // Before anything of it goes: a snapshot may look at it until then.
        self.seen.unlist();
    }
}

/// One wait for a change, inside the future that waits.
pub(crate) struct Looking {
    waiter: Waiter,
    point: Point,
}

impl Looking {
    #[track_caller]
    pub(crate) fn new() -> Looking {
        Looking {
            waiter: Waiter::new(Location::caller()),
            point: Point::new(),
        }
    }

    /// Waits until `look` finds something. Told, it has looked at nothing.
    ///
    /// # Safety
    /// `self` is pinned, always polled with the same `state`, and
    /// [`abandon`](Looking::abandon) is called before it is dropped. `look` runs under the
    /// lock and calls no user code.
    pub(crate) unsafe fn poll<S: Looked, R>(
        &mut self,
        state: &Shown<S>,
        kind: WaitKind,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut S) -> Option<R>,
    ) -> Poll<Result<R, Cancelled>> {
        match self.point.poll_enter(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                self.abandon(state);
                return Poll::Ready(Err(told));
            }
            Poll::Ready(Ok(())) => {}
        }
        let mut found = look(&mut state.lock());
        if found.is_none() {
            let mut waker = Some(cx.waker().clone());
            state.list();
            let mut locked = state.lock();
            found = look(&mut locked);
            if found.is_none() {
                match (self.waiter.stage(), waker.take()) {
                    (WaiterStage::Listed, new) => {
                        waker = new;
                        locked.line().update(&self.waiter, &mut waker);
                    }
                    // SAFETY: passed on.
                    (_, Some(new)) => unsafe { locked.line().push_back(&self.waiter, new, 1) },
                    (_, None) => unreachable!("it was cloned"),
                }
            }
            drop(locked);
            let_go(waker);
        }
        match found {
            Some(found) => {
                self.abandon(state);
                self.point.done();
                Poll::Ready(Ok(found))
            }
            None => {
                self.point.pending_on(cx, kind, || state.seen.look());
                Poll::Pending
            }
        }
    }

    /// It is not polled any more.
    pub(crate) fn abandon<S: Looked>(&mut self, state: &Shown<S>) {
        if self.waiter.stage() == WaiterStage::Idle {
            return;
        }
        let (_, waker) = state.lock().line().leave(&self.waiter);
        let_go(waker);
        self.waiter.reset();
    }
}

/// Wakes all who wait for a change now. Not under the lock.
pub(crate) fn wake_all<S: Looked>(state: &Shown<S>) {
    settle_all(state, WaiterStage::Granted);
}

/// Settles all who stand in line now. Who comes meanwhile has seen the change.
pub(crate) fn settle_all<S: Looked>(state: &Shown<S>, stage: WaiterStage) {
    let end = state.lock().line().next_number();
    settle_before(state, end, stage);
}

/// Settles those in line whose number is smaller than `end`. For a change that is not meant
/// for a waiter that comes after it: `end` is taken under the lock in which the change is
/// made.
pub(crate) fn settle_before<S: Looked>(state: &Shown<S>, end: u64, stage: WaiterStage) {
    let mut wakes = Wakes::new();
    let mut locked = state.lock();
    loop {
        let line = locked.line();
        while !wakes.is_full()
            && let Some(first) = line.first()
            && first.number() < end
        {
            wakes.push(first.settle(stage));
        }
        let more = line.first().is_some_and(|first| first.number() < end);
        drop(locked);
        wakes.wake_all();
        if !more {
            return;
        }
        locked = state.lock();
    }
}
