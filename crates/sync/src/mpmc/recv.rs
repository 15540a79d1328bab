//! The receiving side.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kinfolk_core::kit::Point;
use kinfolk_core::{Cancelled, WaitKind};

use super::shared::{Found, Shared};
use crate::blocking::block_on;
use crate::error::TryRecvError;
use crate::line::{Waiter, WaiterStage};
use crate::sync::Ordering;

/// The receiving side of a channel. Clones receive from the same one, each value once;
/// when the last is dropped the channel is closed, and what was not received is dropped.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Receiver<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Receiver<T> {
        Receiver { shared }
    }

    #[cfg(feature = "stream")]
    pub(super) fn shared(&self) -> &Shared<T> {
        &self.shared
    }

    /// The next value; `None` once the channel is closed and empty.
    ///
    /// # Cancellation
    /// A *point*. Told or dropped, it has taken nothing: the value stays in its place, and
    /// the next receiver gets it.
    #[track_caller]
    #[inline]
    pub fn recv(&self) -> Recv<'_, T> {
        Recv {
            shared: &self.shared,
            receiving: Receiving::new(),
        }
    }

    /// Takes a value that is there, if no other receiver waits for it. Never waits; not a point.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match self.shared.try_take() {
            Found::Value(value) => Ok(value.into_inner()),
            Found::Nothing => Err(TryRecvError::Empty),
            Found::Closed => Err(TryRecvError::Closed),
        }
    }

    /// The next value; waits for it on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`recv`](Receiver::recv) there.
    #[track_caller]
    pub fn blocking_recv(&self) -> Option<T> {
        match block_on(self.recv()) {
            Ok(value) => value,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Closes the channel: a task that sends, or waits to, gets its value back. What was sent
    /// is still received. True for the call that does.
    pub fn close(&self) -> bool {
        self.shared.close()
    }

    /// True if nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// How many values are there to be received.
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` whenever there is a value to receive and no receiver waits for it, and
    /// when the channel is closed. For a loop that does not await: `f` wakes it, and it
    /// takes what there is with [`try_recv`](Receiver::try_recv). Called at once if there
    /// is something already.
    ///
    /// `f` runs on the thread of the sender, outside every lock, and may only schedule. A
    /// panic in it ends there. More than sixteen hooks and wakers inside each other, a further
    /// one is called after the one around it has returned. A second hook takes the place of
    /// the first.
    ///
    /// ```
    /// use kinfolk_sync::mpmc;
    /// # struct Window; impl Window { fn wake(&self) {} }
    /// # let window = Window;
    /// let (tx, rx) = mpmc::unbounded_channel();
    /// rx.on_ready(move || window.wake()); // the event loop's own "wake me"
    /// std::thread::spawn(move || tx.send("from a task"));
    ///
    /// // In the event loop, once it was woken:
    /// while let Ok(word) = rx.try_recv() {
    ///     println!("{word}");
    /// }
    /// ```
    pub fn on_ready(&self, f: impl Fn() + Send + Sync + 'static) {
        self.shared.set_hook(f);
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver::new(self.shared.clone())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.receiver_gone();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// The future of [`Receiver::recv`].
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a, T> {
    shared: &'a Shared<T>,
    receiving: Receiving,
}

impl<T> Future for Recv<'_, T> {
    type Output = Result<Option<T>, Cancelled>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the waiter is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: pinned, always with the same channel, and its drop abandons it.
        unsafe { this.receiving.poll(this.shared, cx) }
    }
}

impl<T> Drop for Recv<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.receiving.abandon(self.shared);
    }
}

impl<T> fmt::Debug for Recv<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recv")
    }
}

/// One wait for a value.
pub(super) struct Receiving {
    waiter: Waiter,
    point: Point,
}

impl Receiving {
    #[track_caller]
    #[inline]
    pub(super) fn new() -> Receiving {
        Receiving {
            waiter: Waiter::new(Location::caller()),
            point: Point::new(),
        }
    }

    /// # Safety
    /// `self` is pinned, always polled with the same channel, and
    /// [`abandon`](Receiving::abandon) is called before it is dropped.
    #[inline]
    pub(super) unsafe fn poll<T>(
        &mut self,
        shared: &Shared<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<T>, Cancelled>> {
        match self.point.poll_enter(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                // A promise is no value: it passes on.
                self.abandon(shared);
                return Poll::Ready(Err(told));
            }
            Poll::Ready(Ok(())) => {}
        }
        let found = match self.waiter.stage() {
            WaiterStage::Idle => match shared.try_take() {
                // SAFETY: passed on.
                Found::Nothing => unsafe { shared.wait(&self.waiter, cx.waker().clone()) },
                found => found,
            },
            // SAFETY: passed on.
            _ => unsafe { self.look_again(shared, cx) },
        };
        match found {
            Found::Nothing => {
                self.point
                    .pending_on(cx, WaitKind::Channel, || shared.label());
                Poll::Pending
            }
            Found::Value(value) => {
                self.point.done();
                Poll::Ready(Ok(Some(value.into_inner())))
            }
            Found::Closed => {
                self.point.done();
                Poll::Ready(Ok(None))
            }
        }
    }

    /// # Safety
    /// As [`poll`](Receiving::poll).
    unsafe fn look_again<T>(&mut self, shared: &Shared<T>, cx: &mut Context<'_>) -> Found<T> {
        let mut stage = self.waiter.stage();
        if stage == WaiterStage::Listed {
            stage = shared.still_waits(&self.waiter, cx.waker().clone());
        }
        match stage {
            // SAFETY: passed on.
            WaiterStage::Granted => unsafe {
                shared.take_promised(&self.waiter, || cx.waker().clone())
            },
            WaiterStage::Refused => {
                self.waiter.reset();
                Found::Closed
            }
            WaiterStage::Listed | WaiterStage::Idle => Found::Nothing,
        }
    }

    /// It is not polled any more. What it was promised passes on.
    #[inline]
    pub(super) fn abandon<T>(&mut self, shared: &Shared<T>) {
        if self.waiter.stage() != WaiterStage::Idle {
            shared.give_up(&self.waiter);
        }
    }
}
