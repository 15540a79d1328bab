//! The sending side.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kinfolk_core::WaitKind;
use kinfolk_core::host::Contained;
use kinfolk_core::kit::Point;

use super::shared::{NoRoom, Offer, Shared};
use crate::blocking::block_on;
use crate::error::{SendError, TrySendError};
use crate::line::{Waiter, WaiterStage};
use crate::permits::NotAcquired;
use crate::sync::{Ordering, Plain};

/// The sending side of a [`channel`](super::channel). Clones send into the same one;
/// when the last is dropped the channel is closed.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Sender<T> {
        Sender { shared }
    }

    #[cfg(feature = "stream")]
    pub(super) fn shared(&self) -> &Shared<T> {
        &self.shared
    }

    /// Sends a value; waits for room, first come, first served.
    ///
    /// # Cancellation
    /// A *point*. Told, it gives the value back in the error. A value that was sent
    /// before it was told is sent: it returns `Ok`, and the next point tells. Dropped
    /// while it waits, it takes the value along.
    #[track_caller]
    #[inline]
    pub fn send(&self, value: T) -> Send<'_, T> {
        Send {
            shared: &self.shared,
            sending: Sending::new(Some(value)),
        }
    }

    /// Sends a value if there is room and no other sender waits for it. Never waits, and is no
    /// point. In a [`rendezvous`](super::rendezvous) there is room for a receiver that
    /// waits.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.shared
            .push(Contained::new(value), true)
            .map_err(|no_room| match no_room {
                NoRoom::Full(value) => TrySendError::Full(value.into_inner()),
                NoRoom::Closed(value) => TrySendError::Closed(value.into_inner()),
            })
    }

    /// Sends a value, and waits for room on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`send`](Sender::send) there.
    #[track_caller]
    pub fn blocking_send(&self, value: T) -> Result<(), SendError<T>> {
        block_on(self.send(value))
    }

    /// Closes the channel: see [`Receiver::close`](super::Receiver::close). True for the
    /// call that does.
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

    /// How many values there is room for.
    pub fn capacity(&self) -> usize {
        self.shared.capacity().unwrap_or(usize::MAX)
    }

    /// Gives the channel a name, by which snapshots and reports call it. The first
    /// counts.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Sender<T> {
        self.shared.set_name(name.into());
        self
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender::new(self.shared.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.shared.sender_gone();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// The future of [`Sender::send`].
#[must_use = "futures do nothing unless awaited"]
pub struct Send<'a, T> {
    shared: &'a Shared<T>,
    sending: Sending<T>,
}

impl<T> Future for Send<'_, T> {
    type Output = Result<(), SendError<T>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the waiter is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: pinned, always with the same channel, and its drop abandons it.
        unsafe { this.sending.poll(this.shared, cx) }
    }
}

impl<T> Drop for Send<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.sending.abandon(self.shared);
    }
}

impl<T> fmt::Debug for Send<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Send")
    }
}

/// One value on its way into a channel.
pub(super) struct Sending<T> {
    offer: Offer<T>,
    point: Point,
}

impl<T> Sending<T> {
    #[track_caller]
    #[inline]
    pub(super) fn new(value: Option<T>) -> Sending<T> {
        Sending {
            offer: Offer {
                waiter: Waiter::new(Location::caller()),
                value: Plain::new(value.map(Contained::new)),
            },
            point: Point::new(),
        }
    }

    /// The next value to send; not while another is on its way.
    #[cfg(feature = "stream")]
    pub(super) fn load(&mut self, value: T) {
        // SAFETY: L2, it stands in no line.
        let before = unsafe {
            self.offer
                .value
                .with_mut(|place| place.replace(Contained::new(value)))
        };
        debug_assert!(before.is_none());
    }

    /// The value; not while it stands in line.
    #[inline]
    fn value(&mut self) -> Contained<T> {
        // SAFETY: L2, it stands in no line.
        let value = unsafe { self.offer.value.with_mut(Option::take) };
        value.expect("a send was polled after completion")
    }

    fn error(&mut self, why: NotAcquired) -> SendError<T> {
        SendError {
            value: self.value().into_inner(),
            why,
        }
    }

    /// What has become of it, if it stands in line no longer.
    fn settled(&mut self, stage: WaiterStage) -> Result<(), SendError<T>> {
        self.point.done();
        self.offer.waiter.reset();
        match stage {
            WaiterStage::Granted => Ok(()),
            _ => Err(self.error(NotAcquired::Closed)),
        }
    }

    /// # Safety
    /// `self` is pinned, always polled with the same channel, and
    /// [`abandon`](Sending::abandon) is called before it is dropped.
    #[inline]
    pub(super) unsafe fn poll(
        &mut self,
        shared: &Shared<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        if self.offer.waiter.stage() != WaiterStage::Idle {
            return self.poll_in_line(shared, cx);
        }
        match self.point.poll_enter(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                return Poll::Ready(Err(self.error(NotAcquired::Cancelled(told))));
            }
            Poll::Ready(Ok(())) => {}
        }
        match shared.push(self.value(), false) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(NoRoom::Closed(value)) => Poll::Ready(Err(SendError::closed(value.into_inner()))),
            // SAFETY: passed on.
            Err(NoRoom::Full(value)) => unsafe { self.begin(shared, value, cx) },
        }
    }

    /// # Safety
    /// As [`poll`](Sending::poll).
    #[cold]
    unsafe fn begin(
        &mut self,
        shared: &Shared<T>,
        value: Contained<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        // SAFETY: L2, it stands in no line.
        unsafe { self.offer.value.with_mut(|place| *place = Some(value)) };
        // SAFETY: passed on.
        match unsafe { shared.offer(&self.offer, cx.waker().clone()) } {
            WaiterStage::Listed | WaiterStage::Idle => {
                self.point
                    .pending_on(cx, WaitKind::Channel, || shared.label());
                Poll::Pending
            }
            stage => Poll::Ready(self.settled(stage)),
        }
    }

    fn poll_in_line(
        &mut self,
        shared: &Shared<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        // What was sent is sent, and the next point tells.
        let mut stage = self.offer.waiter.stage();
        if stage == WaiterStage::Listed {
            match self.point.poll_enter(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(told)) => {
                    stage = shared.take_back(&self.offer);
                    if stage == WaiterStage::Listed {
                        return Poll::Ready(Err(self.error(NotAcquired::Cancelled(told))));
                    }
                    // It was sent, or refused, between the two looks.
                    self.point.tell_again(&told);
                }
                Poll::Ready(Ok(())) => {
                    stage = shared.still_offers(&self.offer, cx.waker().clone());
                }
            }
        }
        if stage == WaiterStage::Listed {
            self.point
                .pending_on(cx, WaitKind::Channel, || shared.label());
            return Poll::Pending;
        }
        Poll::Ready(self.settled(stage))
    }

    /// It is not polled any more: a value that was not sent stays in it.
    #[inline]
    pub(super) fn abandon(&mut self, shared: &Shared<T>) {
        if self.offer.waiter.stage() != WaiterStage::Idle {
            let _what_became_of_it = shared.take_back(&self.offer);
            self.offer.waiter.reset();
        }
    }
}

/// The sending side of an [`unbounded_channel`](super::unbounded_channel). Clones send
/// into the same one; when the last is dropped the channel is closed.
pub struct UnboundedSender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> UnboundedSender<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> UnboundedSender<T> {
        UnboundedSender { shared }
    }

    /// Sends a value. Never waits, and is no point: a job that was told to stop can
    /// still send. An error is one of a closed channel, with the value.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        match self.shared.push(Contained::new(value), false) {
            Ok(()) => Ok(()),
            Err(NoRoom::Closed(value) | NoRoom::Full(value)) => {
                Err(SendError::closed(value.into_inner()))
            }
        }
    }

    /// Closes the channel: see [`Receiver::close`](super::Receiver::close). True for the
    /// call that does.
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

    /// Gives the channel a name, by which snapshots and reports call it. The first
    /// counts.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> UnboundedSender<T> {
        self.shared.set_name(name.into());
        self
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> UnboundedSender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        UnboundedSender::new(self.shared.clone())
    }
}

impl<T> Drop for UnboundedSender<T> {
    fn drop(&mut self) {
        self.shared.sender_gone();
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnboundedSender")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
