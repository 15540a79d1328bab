//! [`Point`]: turns a future that is written by hand into a cancellation point.

use std::fmt;
use std::panic::Location;
use std::task::{Context, Poll};

use crate::base::error::Cancelled;
use crate::base::wait_kind::WaitKind;
use crate::engine::outlet;
use crate::more::kit::resource::ResourceLook;
use crate::points::point::{self, InterruptedTask, Yielded};
use crate::points::wait::Wait;
use crate::record::header::Site;

/// Turns a future that is written by hand into a cancellation point; a field of that future.
///
/// The future's `poll` uses it in this order:
///
/// 1. Return a result that is there already first, after [`done`](Point::done). Nothing is
///    lost: the next point reports the cancel.
/// 2. Call [`poll_enter`](Point::poll_enter), which returns `Cancelled`, is out of budget, or
///    lets the wait go on. A wait that can no longer be given up omits this call once it has
///    begun.
/// 3. Before returning `Pending`, call [`pending`](Point::pending). So the job counts as
///    waiting in a point, and a cancel wakes it, under any waker.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use std::pin::Pin;
/// use std::task::{Context, Poll, Waker};
/// use kinfolk::{Cancelled, kit::Point};
/// # use std::sync::{Arc, Mutex};
/// # #[derive(Clone)]
/// # struct Queue(Arc<Mutex<(Vec<u32>, Vec<Waker>)>>);
/// # impl Queue {
/// #     fn take(&self) -> Option<u32> { self.0.lock().unwrap().0.pop() }
/// #     fn wake_later(&self, waker: &Waker) { self.0.lock().unwrap().1.push(waker.clone()) }
/// # }
///
/// /// The next item. *A point*: told, it has taken nothing.
/// struct Next {
///     queue: Queue,
///     point: Point,
/// }
///
/// impl Future for Next {
///     type Output = Result<u32, Cancelled>;
///
///     fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
///         std::task::ready!(self.point.poll_enter(cx))?;
///         if let Some(item) = self.queue.take() {
///             self.point.done();
///             return Poll::Ready(Ok(item));
///         }
///         self.queue.wake_later(cx.waker());
///         self.point.pending(cx);
///         Poll::Pending
///     }
/// }
/// ```
///
/// It may be dropped at any time.
pub struct Point {
    yielded: Yielded,
    wait: Wait,
    site: Site,
    /// The task that an interrupt was taken from, which this has told.
    asked: InterruptedTask,
}

impl Point {
    /// Makes a point for a wait that begins. Snapshots and reports name the caller's place in
    /// the code: mark your own function `#[track_caller]`.
    #[track_caller]
    pub fn new() -> Point {
        Point {
            yielded: Yielded::here(),
            wait: Wait::new(),
            site: Site::of(Location::caller()),
            asked: InterruptedTask::default(),
        }
    }

    /// As [`new`](Point::new), and snapshots and reports name `site`: for the waits of an
    /// `async` block, which `#[track_caller]` does not reach. Take the place of your caller
    /// before the block, and give it to each wait in there.
    ///
    /// ```
    /// # mod kinfolk { pub use kinfolk_core::*; }
    /// use kinfolk::kit::Point;
    /// use std::{future::poll_fn, panic::Location};
    ///
    /// #[track_caller]
    /// fn two_points() -> impl Future<Output = kinfolk::Result<()>> {
    ///     let site = Location::caller();
    ///     async move {
    ///         for _ in 0..2 {
    ///             let mut point = Point::at(site);
    ///             poll_fn(|cx| point.poll_enter(cx)).await?;
    ///         }
    ///         Ok(())
    ///     }
    /// }
    /// # drop(two_points());
    /// ```
    pub fn at(site: &'static Location<'static>) -> Point {
        Point {
            yielded: Yielded::at(Site::of(site)),
            wait: Wait::new(),
            site: Site::of(site),
            asked: InterruptedTask::default(),
        }
    }

    /// Asks whether to stop, at the start of a poll. On `Pending` return `Pending`: the future is
    /// polled again. On `Err` the wait is over: undo what it has begun, and return the error.
    pub fn poll_enter(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        let asked = point::poll_point_at(cx, &mut self.yielded, self.site);
        if let Poll::Ready(Err(told)) = &asked {
            self.done();
            self.asked.note(told);
        }
        asked
    }

    /// Registers the wait; to be called before the future returns `Pending`, and after it has
    /// arranged to be woken.
    pub fn pending(&mut self, cx: &mut Context<'_>) {
        self.pending_as(cx, WaitKind::Custom);
    }

    /// Like [`pending`](Point::pending), and snapshots show the kind of wait.
    pub fn pending_as(&mut self, cx: &mut Context<'_>, kind: WaitKind) {
        self.wait.pending(cx.waker(), kind, self.site);
    }

    /// Like [`pending_as`](Point::pending_as), and a sink that asks for waits and texts learns
    /// for which resource the job waits; `look` is called only for such a sink, and need not list
    /// other waiters.
    #[inline]
    pub fn pending_on(
        &mut self,
        cx: &mut Context<'_>,
        kind: WaitKind,
        look: impl FnOnce() -> ResourceLook,
    ) {
        self.pending_as(cx, kind);
        if outlet::wants_waits_here() {
            outlet::note_resource(look().to_string());
        }
    }

    /// Puts back what [`poll_enter`](Point::poll_enter) has told, because the wait ended with
    /// its result instead. The next point of the task reports it again, wherever this is
    /// called.
    pub fn tell_again(&self, told: &Cancelled) {
        // A mark is never taken back; an interrupt was taken by this.
        self.asked.tell_again(told);
    }

    /// Returns true if what [`poll_enter`](Point::poll_enter) has told in an earlier poll still
    /// holds. It does not if it was an interrupt that was withdrawn since or that was another
    /// task's, or a cancel that a shield holds back here.
    pub fn still_told(&self, told: &Cancelled) -> bool {
        point::still_told(told)
    }

    /// Ends the wait. After that the point can serve another wait.
    pub fn done(&mut self) {
        self.wait.over();
        self.yielded.reset();
    }
}

impl Default for Point {
    #[track_caller]
    fn default() -> Point {
        Point::new()
    }
}

impl fmt::Debug for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Point")
    }
}
