//! A channel for one value.
//!
//! ```
//! # async fn demo() -> kinfolk_core::Result<()> {
//! use kinfolk_sync::oneshot;
//!
//! let (tx, rx) = oneshot::channel();
//! tx.send(7).unwrap(); // an error contains the value: the receiver is gone
//! assert_eq!(rx.await?, 7);
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use kinfolk_core::host::{Contained, discard};
use kinfolk_core::kit::{self, Point, Resource, ResourceLook};
use kinfolk_core::{Cancelled, Error, JobId, WaitKind};

use crate::blocking::block_on;
use crate::error::{Closed, TryRecvError};
use crate::line::{let_go, wake_one};
use crate::permits::NotAcquired;
use crate::seen::SeenAs;
use crate::sync::{Lock, LockGuard};

struct State<T> {
    value: Option<Contained<T>>,
    /// Nothing will be sent, or is wanted, any more.
    closed: bool,
    receiver: Option<WaitingSide>,
    sender: Option<WaitingSide>,
    /// How many may still take the value: the receiver, and the errors of waits that were
    /// told. The last of them takes it along.
    takers: usize,
}

/// A side that waits.
struct WaitingSide {
    waker: Waker,
    /// For snapshots.
    job: Option<JobId>,
    site: &'static Location<'static>,
}

impl WaitingSide {
    fn new(waker: Waker, site: &'static Location<'static>) -> WaitingSide {
        WaitingSide {
            waker,
            job: kit::current_id(),
            site,
        }
    }
}

/// The waker of a side that waits no longer.
fn waker_of(waiting: Option<WaitingSide>) -> Option<Waker> {
    waiting.map(|waiting| waiting.waker)
}

/// What both sides share.
struct Sides<T> {
    state: Lock<State<T>>,
    seen: SeenAs,
}

impl<T> Sides<T> {
    fn lock(&self) -> LockGuard<'_, State<T>> {
        self.state.lock()
    }

    /// A wait begins.
    fn list(&self) {
        // SAFETY: it is in an `Arc`, and see its destructor.
        unsafe { self.seen.list(self) }
    }
}

// SAFETY: it takes the lock, and touches neither the value nor the wakers.
unsafe impl<T> Resource for Sides<T> {
    fn look(&self) -> ResourceLook {
        let mut look = self.seen.look();
        let state = self.state.lock();
        let sides = [&state.receiver, &state.sender].into_iter().flatten();
        let jobs = sides.filter_map(|side| Some((side.job?, side.site)));
        look.waiters.extend(jobs);
        look
    }
}

impl<T> Drop for Sides<T> {
    fn drop(&mut self) {
        // Before anything of it goes: a snapshot may look at it until then.
        self.seen.unlist();
    }
}

type Shared<T> = Arc<Sides<T>>;

/// The right to take the value. What is still there goes with the last of them.
struct Taker<T>(Shared<T>);

impl<T> Taker<T> {
    /// One more, with the same right.
    fn another(&self) -> Taker<T> {
        self.0.lock().takers += 1;
        Taker(self.0.clone())
    }

    fn try_take(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.lock();
        let (value, closed) = (state.value.take(), state.closed);
        drop(state);
        match value {
            Some(value) => Ok(value.into_inner()),
            None if closed => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }
}

impl<T> Drop for Taker<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.takers -= 1;
        let value = match state.takers {
            0 => state.value.take(),
            _ => None,
        };
        drop(state);
        discard(value);
    }
}

/// A channel for one value.
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let site = Location::caller();
    let shared = Arc::new(Sides {
        state: Lock::new(State {
            value: None,
            closed: false,
            receiver: None,
            sender: None,
            takers: 1,
        }),
        seen: SeenAs::new("oneshot channel", site),
    });
    let sender = Sender {
        shared: Some(shared.clone()),
    };
    let receiver = Receiver {
        shared: Taker(shared),
        point: Point::new(),
        site,
        begun: false,
    };
    (sender, receiver)
}

/// Closes it: both sides are woken.
fn close<T>(shared: &Shared<T>) {
    let mut state = shared.lock();
    state.closed = true;
    let (receiver, sender) = (state.receiver.take(), state.sender.take());
    drop(state);
    wake_one(waker_of(receiver));
    wake_one(waker_of(sender));
}

/// Sends the one value. Dropped without it, it closes the channel.
pub struct Sender<T> {
    /// None once it has sent.
    shared: Option<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends the value. Never waits, and is no point. The value comes back if the
    /// receiver is gone, or has closed the channel.
    pub fn send(mut self, value: T) -> Result<(), T> {
        let Some(shared) = self.shared.take() else {
            unreachable!("it sends once");
        };
        let mut state = shared.lock();
        if state.closed {
            return Err(value);
        }
        state.value = Some(Contained::new(value));
        state.closed = true;
        let (waker, own) = (state.receiver.take(), state.sender.take());
        drop(state);
        wake_one(waker_of(waker));
        let_go(waker_of(own));
        Ok(())
    }

    /// Waits until the receiver is gone, or has closed the channel: the value is not
    /// wanted any more.
    ///
    /// # Cancellation
    /// A *point*, which changes nothing.
    #[track_caller]
    pub fn closed(&mut self) -> SenderClosed<'_, T> {
        SenderClosed {
            sender: self,
            point: Point::new(),
            site: Location::caller(),
        }
    }

    /// Waits on this thread until the receiver is gone, or has closed the channel.
    ///
    /// # Panics
    /// Inside a job: await [`closed`](Sender::closed) there.
    #[track_caller]
    pub fn blocking_closed(&mut self) {
        let _never_told = block_on(self.closed());
    }

    /// Gives the channel a name, by which snapshots and reports call it. The first counts.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Sender<T> {
        if let Some(shared) = &self.shared {
            shared.seen.set_name(name.into());
        }
        self
    }

    /// True if the value is not wanted any more.
    pub fn is_closed(&self) -> bool {
        self.shared
            .as_ref()
            .is_none_or(|shared| shared.lock().closed)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            close(&shared);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oneshot::Sender(closed: {})", self.is_closed())
    }
}

/// The future of [`Sender::closed`].
#[must_use = "futures do nothing unless awaited"]
pub struct SenderClosed<'a, T> {
    sender: &'a mut Sender<T>,
    point: Point,
    site: &'static Location<'static>,
}

impl<T> Future for SenderClosed<'_, T> {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        std::task::ready!(this.point.poll_enter(cx))?;
        let waiting = WaitingSide::new(cx.waker().clone(), this.site);
        let Some(shared) = &this.sender.shared else {
            return Poll::Ready(Ok(()));
        };
        shared.list();
        let mut state = shared.lock();
        let (closed, unused) = match state.closed {
            true => (true, Some(waiting)),
            false => (false, state.sender.replace(waiting)),
        };
        drop(state);
        let_go(waker_of(unused));
        if closed {
            this.point.done();
            return Poll::Ready(Ok(()));
        }
        this.point
            .pending_on(cx, WaitKind::Channel, || shared.seen.look());
        Poll::Pending
    }
}

impl<T> Drop for SenderClosed<'_, T> {
    fn drop(&mut self) {
        // It is the one that waits: the sender is borrowed mutably.
        if let Some(shared) = &self.sender.shared {
            let waiting = shared.lock().sender.take();
            let_go(waker_of(waiting));
        }
    }
}

impl<T> fmt::Debug for SenderClosed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SenderClosed")
    }
}

/// Waits for the one value, as a future. Dropped, it closes the channel: a value that
/// was not sent yet goes back to the sender.
///
/// # Cancellation
/// A *point*. Told, it has taken nothing. Awaited by value, a value that was sent comes with
/// the error: [`RecvError::into_value`]. Awaited as `&mut receiver`, it is still in the
/// channel as well, for [`try_recv`](Receiver::try_recv) or a second wait inside a `cleanup`.
/// A value that came while it waited is returned, and the next point tells.
#[must_use = "futures do nothing unless awaited"]
pub struct Receiver<T> {
    shared: Taker<T>,
    point: Point,
    /// Where the channel was made: it is the future that waits.
    site: &'static Location<'static>,
    /// It has been waited for.
    begun: bool,
}

impl<T> Receiver<T> {
    /// The value, if it is there. Never waits, and is no point.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.shared.try_take()
    }

    /// Waits for the value on this thread.
    ///
    /// # Panics
    /// Inside a job: await the receiver there.
    #[track_caller]
    pub fn blocking_recv(self) -> Result<T, Closed> {
        block_on(self).map_err(|_| Closed)
    }

    /// Nothing is wanted any more: a sender that has not sent gets its value back. One
    /// that was sent is still here.
    pub fn close(&mut self) {
        close(&self.shared.0);
    }

    /// The value, or that there will be none.
    fn look(&mut self) -> Option<Result<T, RecvError<T>>> {
        match self.try_recv() {
            Ok(value) => Some(Ok(value)),
            Err(TryRecvError::Closed) => Some(Err(RecvError::closed())),
            Err(TryRecvError::Empty) => None,
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        // What came while it waited is returned, and the next point tells.
        if this.begun
            && let Some(found) = this.look()
        {
            this.point.done();
            return Poll::Ready(found);
        }
        match this.point.poll_enter(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                let waiting = this.shared.0.lock().receiver.take();
                let_go(waker_of(waiting));
                // It may have come just now.
                return Poll::Ready(match this.begun.then(|| this.try_recv()) {
                    Some(Ok(value)) => {
                        this.point.tell_again(&told);
                        Ok(value)
                    }
                    _ => Err(RecvError {
                        why: NotAcquired::Cancelled(told),
                        taker: Some(this.shared.another()),
                    }),
                });
            }
            Poll::Ready(Ok(())) => {}
        }
        this.begun = true;
        if let Some(found) = this.look() {
            this.point.done();
            return Poll::Ready(found);
        }
        let waiting = WaitingSide::new(cx.waker().clone(), this.site);
        this.shared.0.list();
        let mut state = this.shared.0.lock();
        let (over, unused) = match state.closed {
            true => (true, Some(waiting)),
            false => (false, state.receiver.replace(waiting)),
        };
        drop(state);
        let_go(waker_of(unused));
        if over && let Some(found) = this.look() {
            this.point.done();
            return Poll::Ready(found);
        }
        this.point
            .pending_on(cx, WaitKind::Channel, || this.shared.0.seen.look());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.0.lock();
        state.closed = true;
        let (sender, own) = (state.sender.take(), state.receiver.take());
        drop(state);
        wake_one(waker_of(sender));
        let_go(waker_of(own));
        // What was sent goes with the last that may take it.
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("oneshot::Receiver")
    }
}

/// No value: the sender is gone, or the job was cancelled.
///
/// With `?` it becomes a [`kinfolk::Error`](Error): a cancellation is recognised as one, and a
/// value that was sent is dropped. Take it out with [`into_value`](RecvError::into_value) if
/// it must not be lost.
pub struct RecvError<T = ()> {
    why: NotAcquired,
    /// Of a wait that was told.
    taker: Option<Taker<T>>,
}

impl<T> RecvError<T> {
    fn closed() -> RecvError<T> {
        RecvError {
            why: NotAcquired::Closed,
            taker: None,
        }
    }

    /// The value, if it was sent although the job that waits was told to stop.
    ///
    /// ```
    /// # async fn demo(rx: kinfolk_sync::oneshot::Receiver<Vec<u8>>) -> kinfolk_core::Result<()> {
    /// # fn put_back(_: Vec<u8>) {}
    /// if let Err(error) = rx.await {
    ///     let told = error.cancelled().cloned();
    ///     if let Some(buffer) = error.into_value() {
    ///         put_back(buffer);
    ///     }
    ///     told.map_or(Ok(()), |told| Err(told.into()))
    /// } else {
    ///     Ok(())
    /// }
    /// # }
    /// ```
    pub fn into_value(self) -> Option<T> {
        self.taker?.try_take().ok()
    }

    /// True if the sender is gone without having sent.
    pub fn is_closed(&self) -> bool {
        matches!(self.why, NotAcquired::Closed)
    }

    /// The cancellation, if the job that waits was told to stop.
    pub fn cancelled(&self) -> Option<&Cancelled> {
        match &self.why {
            NotAcquired::Closed => None,
            NotAcquired::Cancelled(told) => Some(told),
        }
    }
}

impl<T> fmt::Debug for RecvError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecvError").field(&self.why).finish()
    }
}

impl<T> fmt::Display for RecvError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            NotAcquired::Closed => f.write_str("the sender is gone"),
            NotAcquired::Cancelled(told) => told.fmt(f),
        }
    }
}

impl<T> std::error::Error for RecvError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cancelled().map(|told| told as _)
    }
}

impl<T> From<RecvError<T>> for Error {
    fn from(error: RecvError<T>) -> Error {
        match error.why {
            NotAcquired::Closed => Error::from_boxed(Box::new(RecvError::<()>::closed())),
            NotAcquired::Cancelled(told) => told.into(),
        }
    }
}
