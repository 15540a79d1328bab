//! Sleeping, and the time as a job sees it.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::base::error::Cancelled;
use crate::base::wait_kind::WaitKind;
use crate::engine::alarm;
use crate::engine::context;
use crate::engine::tree::{Shared, Tree};
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::alarm::Alarm;
use crate::record::header::Site;

/// A moment, given as a distance from the first poll or as an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    Never,
    After(Duration),
    At(Instant),
}

impl Moment {
    /// The instant, counted from `now` if it is a distance; none for never.
    pub(crate) fn fix(self, now: Instant) -> Option<Instant> {
        match self {
            Moment::Never => None,
            // An instant that cannot be represented is never reached.
            Moment::After(wait) => now.checked_add(wait),
            Moment::At(at) => Some(at),
        }
    }
}

/// Waits for `duration`, counted from the first poll. `Duration::MAX` waits for ever. If
/// the future is later polled by a job of another runtime, it waits for the same instant by
/// that runtime's clock.
///
/// # Cancellation
/// A *point*. If it returns `Cancelled`, the time has not passed, and the timer was
/// removed.
///
/// # Panics
/// When polled outside any job: there is no clock to ask.
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::new(Moment::After(duration), Location::caller())
}

/// As [`sleep`]; snapshots and reports name `site`.
pub fn sleep_at(site: &'static Location<'static>, duration: Duration) -> Sleep {
    Sleep::new(Moment::After(duration), site)
}

/// Waits until `at`.
///
/// # Cancellation
/// As [`sleep`].
///
/// # Panics
/// As [`sleep`].
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn sleep_until(at: Instant) -> Sleep {
    Sleep::new(Moment::At(at), Location::caller())
}

/// The future of [`sleep`] and [`sleep_until`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    due: SleepUntil,
    wait: Wait,
    site: Site,
    yielded: Yielded,
}

enum SleepUntil {
    /// No timer is set.
    Unset(Moment),
    /// A timer is set. It is stored in place, so that sleeping allocates
    /// nothing.
    Set(SleepTimer),
}

impl SleepUntil {
    fn moment(&self) -> Moment {
        match self {
            SleepUntil::Unset(until) => *until,
            SleepUntil::Set(timer) => timer.at().map_or(Moment::Never, Moment::At),
        }
    }

    /// Clears the timer, if one is set.
    fn unset(&mut self) {
        *self = SleepUntil::Unset(self.moment());
    }
}

struct SleepTimer {
    tree: Tree,
    /// Some until the drop.
    alarm: Option<Alarm>,
}

impl SleepTimer {
    fn set(tree: Tree, at: Instant, waker: &Waker) -> SleepTimer {
        let alarm = Some(alarm::set(tree.shared(), at, waker));
        SleepTimer { tree, alarm }
    }

    fn at(&self) -> Option<Instant> {
        self.alarm.as_ref().map(Alarm::at)
    }

    /// Sets the timer so that it will wake this waker.
    fn serve(&mut self, at: Instant, waker: &Waker) {
        if self.alarm.as_ref().is_some_and(|a| a.serves(at, waker)) {
            return;
        }
        self.clear();
        self.alarm = Some(alarm::set(self.tree.shared(), at, waker));
    }

    fn clear(&mut self) {
        if let Some(alarm) = &self.alarm {
            let key = alarm.key();
            self.alarm = None;
            alarm::clear(self.tree.shared(), key);
        }
    }
}

impl Drop for SleepTimer {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Sleep {
    pub(crate) fn new(until: Moment, site: &'static Location<'static>) -> Sleep {
        Sleep {
            due: SleepUntil::Unset(until),
            wait: Wait::new(),
            site: Site::of(site),
            yielded: Yielded::at(Site::of(site)),
        }
    }
}

impl Future for Sleep {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        match point::poll_point_at(cx, &mut this.yielded, this.site) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                this.wait.over();
                this.due.unset();
                return Poll::Ready(Err(told));
            }
            Poll::Ready(Ok(())) => {}
        }
        if matches!(&this.due, SleepUntil::Set(timer) if timer.tree.shared().is_elsewhere()) {
            this.due.unset();
        }
        let now = match &this.due {
            SleepUntil::Set(timer) => timer.tree.host().now(),
            SleepUntil::Unset(_) => now_here(this.site),
        };
        let at = this.due.moment().fix(now);
        if at.is_some_and(|at| at <= now) {
            this.wait.over();
            this.due.unset();
            return Poll::Ready(Ok(()));
        }
        match (at, &mut this.due) {
            (None, due) => *due = SleepUntil::Unset(Moment::Never),
            (Some(at), SleepUntil::Set(timer)) => timer.serve(at, cx.waker()),
            (Some(at), due) => {
                *due = SleepUntil::Set(SleepTimer::set(tree_here(this.site), at, cx.waker()))
            }
        }
        this.wait.pending(cx.waker(), WaitKind::Sleep, this.site);
        Poll::Pending
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("until", &self.due.moment())
            .finish()
    }
}

fn tree_here(site: Site) -> Tree {
    with_tree_here(site, Shared::handle)
}

fn now_here(site: Site) -> Instant {
    with_tree_here(site, |tree| tree.host.now())
}

#[inline]
fn with_tree_here<R>(site: Site, f: impl FnOnce(&Shared) -> R) -> R {
    context::with(|cx| match cx.current() {
        // SAFETY: the current job has not ended.
        Some(h) => f(unsafe { h.tree() }),
        None => outside(site),
    })
}

#[cold]
fn outside(site: Site) -> ! {
    let at = site.location();
    panic!(
        "sleep at {}:{} was polled outside any Kinfolk job, where there is no clock: \
         run it inside a runtime, or use your executor's own timer",
        at.file(),
        at.line()
    )
}

/// Returns the time by the clock of the current job's host, or by the system's clock outside
/// any job.
pub fn now() -> Instant {
    context::with(|cx| {
        // SAFETY: the current job has not ended.
        cx.current().map(|h| unsafe { h.tree() }.host.now())
    })
    .unwrap_or_else(Instant::now)
}

/// Returns the earliest deadline of the enclosing scopes, up to the nearest shield. In a
/// cancelled job, returns the instant of the cancel.
pub fn deadline() -> Option<Instant> {
    context::with(|cx| {
        let mut at = cx.current();
        let mut tightest: Option<Instant> = None;
        if let Some(h) = at
            && h.state.load().effective()
        {
            // SAFETY: inside a job that has not ended.
            let reason = unsafe { point::reason_inside(h) };
            return Some(reason.data().at);
        }
        while let Some(h) = at {
            if let Some(own) = h.if_cold(|cold, _| cold.deadline).flatten() {
                tightest = Some(tightest.map_or(own, |t| t.min(own)));
            }
            if h.is_shield() {
                break;
            }
            // SAFETY: inside a job that has not ended (H3).
            at = unsafe { h.parent() };
        }
        tightest
    })
}
