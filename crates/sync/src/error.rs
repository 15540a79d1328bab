//! What can go wrong: closed, cancelled, full, empty. Errors of a send contain the
//! value that was not sent.

use std::error::Error as StdError;
use std::fmt;

use kinfolk_core::{Cancelled, Error};

use crate::permits::NotAcquired;

/// The other side is gone, or has closed the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed")
    }
}

impl StdError for Closed {}

impl From<Closed> for Error {
    fn from(closed: Closed) -> Error {
        Error::from_boxed(Box::new(closed))
    }
}

/// A value was not sent: the channel is closed, or the job was cancelled. The value is
/// in here.
///
/// With `?` it becomes a [`kinfolk::Error`](Error): a cancellation is recognised as one,
/// and the value is dropped. Take it out with [`into_inner`](SendError::into_inner) if it
/// must not be lost.
pub struct SendError<T> {
    pub(crate) value: T,
    pub(crate) why: NotAcquired,
}

impl<T> SendError<T> {
    pub(crate) fn closed(value: T) -> SendError<T> {
        SendError {
            value,
            why: NotAcquired::Closed,
        }
    }

    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The value that was not sent, to look at.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// True if the channel is closed: no later send will succeed.
    pub fn is_closed(&self) -> bool {
        matches!(self.why, NotAcquired::Closed)
    }

    /// True if the job that sends was told to stop.
    pub fn is_cancelled(&self) -> bool {
        !self.is_closed()
    }

    /// The cancellation, if it was one.
    pub fn cancelled(&self) -> Option<&Cancelled> {
        cancelled(&self.why)
    }
}

fn cancelled(why: &NotAcquired) -> Option<&Cancelled> {
    match why {
        NotAcquired::Closed => None,
        NotAcquired::Cancelled(told) => Some(told),
    }
}

fn into_error(why: NotAcquired) -> Error {
    match why {
        NotAcquired::Closed => Closed.into(),
        NotAcquired::Cancelled(told) => told.into(),
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError")
            .field("why", &self.why)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            NotAcquired::Closed => f.write_str("not sent: the channel is closed"),
            NotAcquired::Cancelled(told) => write!(f, "not sent: {told}"),
        }
    }
}

impl<T> StdError for SendError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cancelled().map(|told| told as _)
    }
}

impl<T> From<SendError<T>> for Error {
    fn from(error: SendError<T>) -> Error {
        kinfolk_core::host::discard(error.value);
        into_error(error.why)
    }
}

/// A value was not sent at once. It is in here.
pub enum TrySendError<T> {
    /// There is no room, or others wait for it.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

impl<T> TrySendError<T> {
    /// The value that was not sent.
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(value) | TrySendError::Closed(value) => value,
        }
    }

    /// True if there is no room.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// True if the channel is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, TrySendError::Closed(_))
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "not sent: the channel is full",
            TrySendError::Closed(_) => "not sent: the channel is closed",
        })
    }
}

impl<T> StdError for TrySendError<T> {}

/// There is no value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is none yet, or others wait for it.
    Empty,
    /// The channel is closed and empty: there will be none.
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "the channel is empty",
            TryRecvError::Closed => "the channel is closed and empty",
        })
    }
}

impl StdError for TryRecvError {}

/// The lock is held, or others wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryLockError(pub(crate) ());

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock is held")
    }
}

impl StdError for TryLockError {}

/// No permits: the semaphore is closed, or the job was cancelled.
pub struct AcquireError(pub(crate) NotAcquired);

impl AcquireError {
    /// True if the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.0, NotAcquired::Closed)
    }

    /// True if the job that waits was told to stop.
    pub fn is_cancelled(&self) -> bool {
        !self.is_closed()
    }

    /// The cancellation, if it was one.
    pub fn cancelled(&self) -> Option<&Cancelled> {
        cancelled(&self.0)
    }
}

impl fmt::Debug for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AcquireError").field(&self.0).finish()
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            NotAcquired::Closed => f.write_str("the semaphore is closed"),
            NotAcquired::Cancelled(told) => told.fmt(f),
        }
    }
}

impl StdError for AcquireError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cancelled().map(|told| told as _)
    }
}

impl From<AcquireError> for Error {
    fn from(error: AcquireError) -> Error {
        into_error(error.0)
    }
}

/// No permits now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryAcquireError {
    /// There are too few, or others wait for them.
    NoPermits,
    /// The semaphore is closed.
    Closed,
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryAcquireError::NoPermits => "too few permits are free",
            TryAcquireError::Closed => "the semaphore is closed",
        })
    }
}

impl StdError for TryAcquireError {}
