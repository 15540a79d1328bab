//! A receiver as a `Stream`, a sender as a `Sink`.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;
use kinfolk_core::Cancelled;

use super::recv::{Receiver, Receiving};
use super::send::{Sender, Sending};
use crate::error::SendError;

impl<T> Receiver<T> {
    /// The values as a `Stream`, which ends when the channel is closed and empty.
    #[track_caller]
    pub fn into_stream(self) -> ReceiverStream<T> {
        ReceiverStream {
            receiver: self,
            receiving: Box::pin(Receiving::new()),
        }
    }
}

/// A [`Receiver`] as a `Stream`.
///
/// # Cancellation
/// Waiting for a value is a *point*: while the job is cancelled each item is that
/// `Cancelled`, and nothing is taken.
pub struct ReceiverStream<T> {
    receiver: Receiver<T>,
    receiving: Pin<Box<Receiving>>,
}

impl<T> ReceiverStream<T> {
    /// The receiver.
    pub fn get_ref(&self) -> &Receiver<T> {
        &self.receiver
    }
}

impl<T> Unpin for ReceiverStream<T> {}

impl<T> Stream for ReceiverStream<T> {
    type Item = Result<T, Cancelled>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        // SAFETY: it is not moved out of its box.
        let receiving = unsafe { this.receiving.as_mut().get_unchecked_mut() };
        // SAFETY: pinned, always with the same channel, and the drop abandons it.
        let polled = unsafe { receiving.poll(this.receiver.shared(), cx) };
        polled.map(Result::transpose)
    }
}

impl<T> Drop for ReceiverStream<T> {
    fn drop(&mut self) {
        // SAFETY: it is not moved out of its box.
        let receiving = unsafe { self.receiving.as_mut().get_unchecked_mut() };
        receiving.abandon(self.receiver.shared());
    }
}

impl<T> fmt::Debug for ReceiverStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.receiver.fmt(f)
    }
}

impl<T> Sender<T> {
    /// Sends what is put into it, as a `Sink`. It holds one value, the one that waits for
    /// room.
    #[track_caller]
    pub fn into_sink(self) -> SenderSink<T> {
        SenderSink {
            sender: Some(self),
            sending: Box::pin(Sending::new(None)),
            full: false,
        }
    }
}

/// A [`Sender`] as a `Sink`.
///
/// # Cancellation
/// `poll_ready`, `poll_flush` and `poll_close` are *points* while a value waits. Told,
/// they give it back in the error.
///
/// Once it was closed the sender is gone, and the channel is closed if that was the last; a
/// value that is put in after that comes back in the error.
pub struct SenderSink<T> {
    /// None once it was closed.
    sender: Option<Sender<T>>,
    sending: Pin<Box<Sending<T>>>,
    /// A value is in it.
    full: bool,
}

impl<T> SenderSink<T> {
    /// Waits until the value is sent.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let Some(sender) = self.sender.as_ref().filter(|_| self.full) else {
            return Poll::Ready(Ok(()));
        };
        // SAFETY: it is not moved out of its box.
        let sending = unsafe { self.sending.as_mut().get_unchecked_mut() };
        // SAFETY: pinned, always with the same channel, and the drop abandons it.
        let sent = ready!(unsafe { sending.poll(sender.shared(), cx) });
        self.full = false;
        Poll::Ready(sent)
    }
}

impl<T> Unpin for SenderSink<T> {}

impl<T> Sink<T> for SenderSink<T> {
    type Error = SendError<T>;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.get_mut().poll_sent(cx)
    }

    fn start_send(self: Pin<&mut Self>, value: T) -> Result<(), SendError<T>> {
        let this = self.get_mut();
        assert!(!this.full, "start_send without poll_ready");
        if this.sender.is_none() {
            return Err(SendError::closed(value));
        }
        // SAFETY: it is not moved out of its box.
        unsafe { this.sending.as_mut().get_unchecked_mut() }.load(value);
        this.full = true;
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let this = self.get_mut();
        ready!(this.poll_sent(cx))?;
        this.sender = None;
        Poll::Ready(Ok(()))
    }
}

impl<T> Drop for SenderSink<T> {
    fn drop(&mut self) {
        // SAFETY: it is not moved out of its box.
        let sending = unsafe { self.sending.as_mut().get_unchecked_mut() };
        if let Some(sender) = &self.sender {
            sending.abandon(sender.shared());
        }
    }
}

impl<T> fmt::Debug for SenderSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SenderSink")
            .field("full", &self.full)
            .field("closed", &self.sender.is_none())
            .finish_non_exhaustive()
    }
}
