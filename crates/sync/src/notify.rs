//! [`Notify`]: a wake-up without a value.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, WaitKind};

use crate::blocking::block_on;
use crate::line::{Line, Waiter, WaiterStage, let_go, wake_one};
use crate::looking::{Looked, Shown, settle_all};
use crate::seen::SeenAs;
use crate::sync::{AtomicUsize, Ordering, const_fn};

/// Wakes tasks that wait: one, or all.
///
/// A [`notify_one`](Notify::notify_one) that finds no waiter is kept for the next one that
/// waits; several are kept as one.
///
/// ```
/// # async fn demo() -> kinfolk_core::Result<()> {
/// use kinfolk_sync::Notify;
///
/// let changed = Notify::new();
/// changed.notify_one(); // no task waits: it is kept
/// changed.notified().await?;
/// # Ok(())
/// # }
/// ```
pub struct Notify {
    /// Made by the first that waits or notifies. In a place of its own: what is listed for
    /// snapshots must not move, and a `Notify` may.
    shown: OnceLock<Box<Shown<State>>>,
    site: &'static Location<'static>,
    /// How often all were notified.
    calls: AtomicUsize,
}

struct State {
    line: Line,
    /// A notification that found no waiter.
    kept: bool,
}

impl Looked for State {
    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}

/// Notified as one of all: it has nothing to pass on.
const AS_ONE_OF_ALL: WaiterStage = WaiterStage::Refused;

impl Notify {
    const_fn! {
        /// Makes one without a notification.
        #[track_caller]
        pub const fn new() -> Notify {
            Notify {
                shown: OnceLock::new(),
                site: Location::caller(),
                calls: AtomicUsize::new(0),
            }
        }
    }

    /// Gives it a name, by which snapshots and reports call it.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Notify {
        self.shown().seen().set_name(name.into());
        self
    }

    fn shown(&self) -> &Shown<State> {
        self.shown.get_or_init(|| {
            let state = State {
                line: Line::new(),
                kept: false,
            };
            Box::new(Shown::new(state, SeenAs::new("notify", self.site)))
        })
    }

    /// Wakes the task that has waited longest; if no task waits, the next one does not
    /// have to.
    pub fn notify_one(&self) {
        let mut state = self.shown().lock();
        let waker = match state.line.first() {
            Some(first) => first.settle(WaiterStage::Granted),
            None => {
                state.kept = true;
                None
            }
        };
        drop(state);
        wake_one(waker);
    }

    /// Wakes all who wait now: whose [`notified`](Notify::notified) was called before
    /// this, awaited or not. Nothing is kept.
    pub fn notify_waiters(&self) {
        self.calls.fetch_add(1, Ordering::AcqRel);
        settle_all(self.shown(), AS_ONE_OF_ALL);
    }

    /// Waits for a notification.
    ///
    /// # Cancellation
    /// A *point*. Told, it has taken no notification. One that came before it was told is
    /// returned, and the next point tells. Dropped, it passes on what
    /// [`notify_one`](Notify::notify_one) gave it.
    #[track_caller]
    pub fn notified(&self) -> Notified<'_> {
        Notified {
            notify: self,
            waiter: Waiter::new(Location::caller()),
            point: Point::new(),
            calls: self.calls.load(Ordering::Acquire),
        }
    }

    /// A notification that was kept. Never waits, and is no point.
    pub fn try_notified(&self) -> bool {
        std::mem::replace(&mut self.shown().lock().kept, false)
    }

    /// Waits for a notification on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`notified`](Notify::notified) there.
    #[track_caller]
    pub fn blocking_notified(&self) {
        let _never_told = block_on(self.notified());
    }
}

impl Default for Notify {
    #[track_caller]
    fn default() -> Notify {
        Notify::new()
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify")
            .field("waiting", &self.shown().lock().line.len())
            .finish_non_exhaustive()
    }
}

/// The future of [`Notify::notified`].
#[must_use = "futures do nothing unless awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    waiter: Waiter,
    point: Point,
    /// How often all had been notified when it was made.
    calls: usize,
}

impl Notified<'_> {
    fn leave(&mut self) -> WaiterStage {
        let (stage, waker) = self.notify.shown().lock().line.leave(&self.waiter);
        let_go(waker);
        stage
    }

    /// # Safety
    /// `self` is pinned.
    unsafe fn begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        // After a call all are notified; what was kept is for others then.
        let called = || notify.calls.load(Ordering::Acquire) != self.calls;
        if called() || notify.try_notified() {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        notify.shown().list();
        let mut state = notify.shown().lock();
        // A call that is counted after this look settles all who stand in line then.
        if called() || std::mem::replace(&mut state.kept, false) {
            drop(state);
            let_go(Some(waker));
            return Poll::Ready(());
        }
        // SAFETY: pinned, and its drop leaves the line.
        unsafe { state.line.push_back(&self.waiter, waker, 1) };
        Poll::Pending
    }
}

impl Future for Notified<'_> {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the waiter is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let mut stage = this.waiter.stage();
        if matches!(stage, WaiterStage::Idle | WaiterStage::Listed) {
            match this.point.poll_enter(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(told)) => {
                    stage = match stage {
                        WaiterStage::Listed => this.leave(),
                        other => other,
                    };
                    if matches!(stage, WaiterStage::Idle | WaiterStage::Listed) {
                        return Poll::Ready(Err(told));
                    }
                    // It came between the two looks.
                    this.point.tell_again(&told);
                }
                Poll::Ready(Ok(())) if stage == WaiterStage::Listed => {
                    let mut waker = Some(cx.waker().clone());
                    let mut state = this.notify.shown().lock();
                    stage = this.waiter.stage();
                    if stage == WaiterStage::Listed {
                        state.line.update(&this.waiter, &mut waker);
                    }
                    drop(state);
                    let_go(waker);
                }
                // SAFETY: pinned.
                Poll::Ready(Ok(())) => match unsafe { this.begin(cx) } {
                    Poll::Ready(()) => stage = AS_ONE_OF_ALL,
                    Poll::Pending => stage = WaiterStage::Listed,
                },
            }
        }
        if stage == WaiterStage::Listed {
            this.point.pending_as(cx, WaitKind::Notify);
            return Poll::Pending;
        }
        this.point.done();
        this.waiter.reset();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if self.waiter.stage() != WaiterStage::Idle {
            let stage = self.leave();
            self.waiter.reset();
            if stage == WaiterStage::Granted {
                self.notify.notify_one();
            }
        }
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notified")
    }
}
