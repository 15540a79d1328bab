//! [`Barrier`]: tasks that wait for each other.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, WaitKind};

use crate::blocking::block_on;
use crate::line::{Line, Waiter, WaiterStage, let_go};
use crate::looking::{Looked, Shown, settle_before};
use crate::seen::SeenAs;
use crate::sync::const_fn;

/// A place where `n` tasks wait for each other. It can be used again and again.
///
/// ```
/// # async fn demo() -> kinfolk_core::Result<()> {
/// use kinfolk_sync::Barrier;
///
/// let alone = Barrier::new(1);
/// assert!(alone.wait().await?.is_leader());
/// # Ok(())
/// # }
/// ```
pub struct Barrier {
    /// Made by the first that comes. In a place of its own: what is listed for snapshots must
    /// not move, and a barrier may.
    shown: OnceLock<Box<Shown<State>>>,
    size: usize,
    site: &'static Location<'static>,
}

struct State {
    line: Line,
    /// How many are there and wait for the others.
    arrived: usize,
    /// Those with a smaller number in the line are free to go.
    freed: u64,
}

impl Looked for State {
    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}

impl State {
    /// `waiter` leaves: true if it was free to go already.
    fn leaves(&mut self, waiter: &Waiter) -> (bool, Option<std::task::Waker>) {
        let freed = self.line.number_of(waiter) < self.freed;
        let (stage, waker) = self.line.leave(waiter);
        if stage == WaiterStage::Listed && !freed {
            self.arrived -= 1;
        }
        (stage != WaiterStage::Listed || freed, waker)
    }
}

impl Barrier {
    const_fn! {
        /// Makes a barrier for `n` tasks. With 0 or 1 no task ever waits.
        #[track_caller]
        pub const fn new(n: usize) -> Barrier {
            Barrier {
                shown: OnceLock::new(),
                size: n,
                site: Location::caller(),
            }
        }
    }

    /// Gives it a name, by which snapshots and reports call it.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Barrier {
        self.shown().seen().set_name(name.into());
        self
    }

    fn shown(&self) -> &Shown<State> {
        self.shown.get_or_init(|| {
            let state = State {
                line: Line::new(),
                arrived: 0,
                freed: 0,
            };
            Box::new(Shown::new(state, SeenAs::new("barrier", self.site)))
        })
    }

    /// Waits until `n` tasks are here. One of them, the last to come, is the leader.
    ///
    /// # Cancellation
    /// A *point*. Told while it waits, it is not here any more: the others wait for one
    /// more. Told when all were there, it returns that, and the next point tells.
    #[track_caller]
    pub fn wait(&self) -> BarrierWait<'_> {
        BarrierWait {
            barrier: self,
            waiter: Waiter::new(Location::caller()),
            point: Point::new(),
        }
    }

    /// Waits on this thread until `n` are here.
    ///
    /// # Panics
    /// Inside a job: await [`wait`](Barrier::wait) there.
    #[track_caller]
    pub fn blocking_wait(&self) -> BarrierWaitResult {
        match block_on(self.wait()) {
            Ok(result) => result,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Here as the last one, if all others wait; else nothing happens. Never waits, and is
    /// no point.
    pub fn try_wait(&self) -> Option<BarrierWaitResult> {
        let mut state = self.shown().lock();
        if state.arrived + 1 < self.size {
            return None;
        }
        state.arrived = 0;
        let end = state.line.next_number();
        state.freed = end;
        drop(state);
        // A task that has come since belongs to the next meeting.
        settle_before(self.shown(), end, WaiterStage::Granted);
        Some(BarrierWaitResult(true))
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("size", &self.size)
            .field("arrived", &self.shown().lock().arrived)
            .finish()
    }
}

/// Says whether its task is the leader of those who met at a [`Barrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for one of them: the last to come.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

/// The future of [`Barrier::wait`].
#[must_use = "futures do nothing unless awaited"]
pub struct BarrierWait<'a> {
    barrier: &'a Barrier,
    waiter: Waiter,
    point: Point,
}

impl BarrierWait<'_> {
    fn leave(&mut self) -> bool {
        let (freed, waker) = self.barrier.shown().lock().leaves(&self.waiter);
        self.waiter.reset();
        let_go(waker);
        freed
    }

    /// True if it has to wait.
    ///
    /// # Safety
    /// `self` is pinned.
    unsafe fn begin(&mut self, cx: &mut Context<'_>) -> bool {
        let waker = cx.waker().clone();
        self.barrier.shown().list();
        let mut state = self.barrier.shown().lock();
        if state.arrived + 1 < self.barrier.size {
            state.arrived += 1;
            // SAFETY: pinned, and its drop leaves the line.
            unsafe { state.line.push_back(&self.waiter, waker, 1) };
            return true;
        }
        drop(state);
        let_go(Some(waker));
        false
    }
}

impl Future for BarrierWait<'_> {
    type Output = Result<BarrierWaitResult, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the waiter is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let mut stage = this.waiter.stage();
        if stage == WaiterStage::Granted {
            this.point.done();
            this.waiter.reset();
            return Poll::Ready(Ok(BarrierWaitResult(false)));
        }
        match this.point.poll_enter(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                if stage == WaiterStage::Listed && this.leave() {
                    this.point.tell_again(&told);
                    return Poll::Ready(Ok(BarrierWaitResult(false)));
                }
                return Poll::Ready(Err(told));
            }
            Poll::Ready(Ok(())) => {}
        }
        if stage == WaiterStage::Listed {
            let mut waker = Some(cx.waker().clone());
            let mut state = this.barrier.shown().lock();
            stage = this.waiter.stage();
            if stage == WaiterStage::Listed {
                state.line.update(&this.waiter, &mut waker);
            }
            drop(state);
            let_go(waker);
            if stage != WaiterStage::Listed {
                this.point.done();
                this.waiter.reset();
                return Poll::Ready(Ok(BarrierWaitResult(false)));
            }
        } else {
            // Tried again: between two looks others may come and go.
            loop {
                if let Some(leader) = this.barrier.try_wait() {
                    this.point.done();
                    return Poll::Ready(Ok(leader));
                }
                // SAFETY: pinned.
                if unsafe { this.begin(cx) } {
                    break;
                }
            }
        }
        let barrier = this.barrier;
        this.point
            .pending_on(cx, WaitKind::Barrier, || barrier.shown().seen().look());
        Poll::Pending
    }
}

impl Drop for BarrierWait<'_> {
    fn drop(&mut self) {
        if self.waiter.stage() != WaiterStage::Idle {
            self.leave();
        }
    }
}

impl fmt::Debug for BarrierWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BarrierWait")
    }
}
