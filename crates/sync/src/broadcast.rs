//! Every receiver gets every value. A receiver that is too slow misses the oldest ones,
//! and is told how many.
//!
//! ```
//! # async fn demo() -> kinfolk_core::Result<()> {
//! use kinfolk_sync::broadcast::{self, RecvError};
//!
//! let (tx, mut rx) = broadcast::channel(2);
//! for n in 1..=3 {
//!     tx.send(n)?;
//! }
//! drop(tx);
//! assert!(matches!(rx.recv().await, Err(RecvError::Lagged(1))));
//! assert_eq!(rx.recv().await?, Some(2));
//! assert_eq!(rx.recv().await?, Some(3));
//! assert_eq!(rx.recv().await?, None);
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kinfolk_core::host::{Contained, discard};
use kinfolk_core::{Cancelled, Error, WaitKind};

use crate::blocking::block_on;
use crate::error::SendError;
use crate::line::Line;
use crate::looking::{Looked, Looking, Shown, wake_all};
use crate::mpmc::with_room;
use crate::seen::SeenAs;

/// A value, shared until the last receiver has taken it.
type SharedValue<T> = Arc<Contained<T>>;

struct ValueSlot<T> {
    value: SharedValue<T>,
    /// How many receivers have not seen it.
    unseen: usize,
}

struct State<T> {
    slots: VecDeque<ValueSlot<T>>,
    capacity: usize,
    /// The number of the first slot; each value has one.
    first: u64,
    senders: usize,
    receivers: usize,
    line: Line,
}

impl<T> Looked for State<T> {
    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}

/// What a receiver finds.
enum NextValue<T> {
    Value(SharedValue<T>),
    Missed(u64),
    Closed,
}

impl<T> State<T> {
    /// The number of the next value.
    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// What comes next for a receiver that has seen all before `at`. The first slots that
    /// everybody has seen go.
    fn look(&mut self, at: &mut u64) -> Option<NextValue<T>> {
        if *at < self.first {
            let missed = self.first - *at;
            *at = self.first;
            return Some(NextValue::Missed(missed));
        }
        let Some(slot) = self.slots.get_mut((*at - self.first) as usize) else {
            return (self.senders == 0).then_some(NextValue::Closed);
        };
        *at += 1;
        slot.unseen -= 1;
        let value = slot.value.clone();
        if slot.unseen == 0 {
            // Receivers see the values in order: all have seen those before it too, and
            // it is the first. The value is in our hands, so that nothing of it goes here.
            debug_assert_eq!(*at, self.first + 1);
            self.slots.pop_front();
            self.first += 1;
        }
        Some(NextValue::Value(value))
    }

    /// A receiver that has seen all before `at` goes: what no other receiver waits for.
    fn leave(&mut self, at: u64) -> VecDeque<ValueSlot<T>> {
        self.receivers -= 1;
        let from = at.saturating_sub(self.first) as usize;
        for slot in self.slots.iter_mut().skip(from) {
            slot.unseen -= 1;
        }
        let seen = self
            .slots
            .iter()
            .take_while(|slot| slot.unseen == 0)
            .count();
        let rest = self.slots.split_off(seen);
        self.first += seen as u64;
        std::mem::replace(&mut self.slots, rest)
    }
}

type Shared<T> = Arc<Shown<State<T>>>;

/// A channel that keeps the last `capacity` values for receivers that are behind.
///
/// # Panics
/// If the capacity is 0, or if there is no memory for so many.
#[track_caller]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a broadcast channel keeps at least one value");
    let state = State {
        slots: with_room(capacity).into(),
        capacity,
        first: 0,
        senders: 1,
        receivers: 1,
        line: Line::new(),
    };
    let seen = SeenAs::new("broadcast channel", Location::caller());
    let shared = Arc::new(Shown::new(state, seen));
    let sender = Sender {
        shared: shared.clone(),
    };
    (sender, Receiver { shared, next: 0 })
}

/// Sends to all. When the last sender is gone, receivers get what is left and then
/// `None`.
pub struct Sender<T> {
    shared: Shared<T>,
}

impl<T> Sender<T> {
    /// Sends a value to all receivers that there are now. Never waits, and is no point: if
    /// there is no room, the oldest value goes. Answers how many receivers there are; the
    /// value comes back if there is none.
    pub fn send(&self, value: T) -> Result<usize, SendError<T>> {
        // Made and dropped outside the lock.
        let value = Arc::new(Contained::new(value));
        let mut state = self.shared.lock();
        let receivers = state.receivers;
        if receivers == 0 {
            drop(state);
            return match Arc::into_inner(value) {
                Some(value) => Err(SendError::closed(value.into_inner())),
                None => unreachable!("nobody else has it"),
            };
        }
        let mut oldest = None;
        if state.slots.len() == state.capacity {
            oldest = state.slots.pop_front();
            state.first += 1;
        }
        state.slots.push_back(ValueSlot {
            value,
            unseen: receivers,
        });
        drop(state);
        wake_all(&self.shared);
        discard(oldest.map(|slot| slot.value));
        Ok(receivers)
    }

    /// A receiver, which gets what is sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.shared.lock();
        state.receivers += 1;
        let next = state.next();
        drop(state);
        Receiver {
            shared: self.shared.clone(),
            next,
        }
    }

    /// Gives the channel a name, by which snapshots and reports call it. The first counts.
    pub fn named(self, name: impl Into<Cow<'static, str>>) -> Sender<T> {
        self.shared.seen().set_name(name.into());
        self
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.shared.lock().receivers
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.lock().senders += 1;
        Sender {
            shared: self.shared.clone(),
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.senders -= 1;
        let last = state.senders == 0;
        drop(state);
        if last {
            wake_all(&self.shared);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broadcast::Sender(receivers: {})", self.receiver_count())
    }
}

/// Gets every value that is sent while it is there.
pub struct Receiver<T> {
    shared: Shared<T>,
    next: u64,
}

impl<T: Clone> Receiver<T> {
    /// The next value; `None` once there is no sender and nothing left.
    ///
    /// # Cancellation
    /// A *point*. Told, it has taken nothing.
    #[track_caller]
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv {
            receiver: self,
            looking: Looking::new(),
        }
    }

    /// The next value, if it is there. Never waits, and is no point.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        let mut state = self.shared.lock();
        let found = state.look(&mut self.next);
        drop(state);
        match found {
            None => Err(TryRecvError::Empty),
            Some(NextValue::Closed) => Err(TryRecvError::Closed),
            Some(NextValue::Missed(n)) => Err(TryRecvError::Lagged(n)),
            Some(NextValue::Value(value)) => Ok(take(value)),
        }
    }

    /// The next value; waits for it on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`recv`](Receiver::recv) there.
    #[track_caller]
    pub fn blocking_recv(&mut self) -> Result<Option<T>, RecvError> {
        block_on(self.recv())
    }
}

impl<T> Receiver<T> {
    /// How many values are there for this receiver, those included that it has missed.
    pub fn len(&self) -> usize {
        (self.shared.lock().next() - self.next) as usize
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Another receiver, which gets what is sent from now on.
    pub fn resubscribe(&self) -> Receiver<T> {
        let mut state = self.shared.lock();
        state.receivers += 1;
        let next = state.next();
        drop(state);
        Receiver {
            shared: self.shared.clone(),
            next,
        }
    }
}

/// The value itself for the last one that takes it, a clone for the others.
fn take<T: Clone>(value: SharedValue<T>) -> T {
    match Arc::try_unwrap(value) {
        Ok(value) => value.into_inner(),
        Err(shared) => T::clone(&shared),
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let unseen = self.shared.lock().leave(self.next);
        for slot in unseen {
            discard(slot.value);
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broadcast::Receiver(len: {})", self.len())
    }
}

/// The future of [`Receiver::recv`].
#[must_use = "futures do nothing unless awaited"]
pub struct Recv<'a, T> {
    receiver: &'a mut Receiver<T>,
    looking: Looking,
}

impl<T: Clone> Future for Recv<'_, T> {
    type Output = Result<Option<T>, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the wait is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let Receiver { shared, next } = &mut *this.receiver;
        let look = |state: &mut State<T>| state.look(next);
        // SAFETY: pinned, always the same state, and its drop abandons it.
        let polled = unsafe { this.looking.poll(shared, WaitKind::Channel, cx, look) };
        polled.map(|found| match found.map_err(RecvError::Cancelled)? {
            NextValue::Value(value) => Ok(Some(take(value))),
            NextValue::Missed(n) => Err(RecvError::Lagged(n)),
            NextValue::Closed => Ok(None),
        })
    }
}

impl<T> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        self.looking.abandon(&self.receiver.shared);
    }
}

impl<T> fmt::Debug for Recv<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recv")
    }
}

/// No value, for now: the receiver was too slow, or its job was cancelled.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecvError {
    /// It has missed so many values; the next receive gets the oldest that is left.
    Lagged(u64),
    /// The job that waits was told to stop. Nothing was taken.
    Cancelled(Cancelled),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Lagged(n) => write!(f, "the receiver was too slow and missed {n} values"),
            RecvError::Cancelled(told) => told.fmt(f),
        }
    }
}

impl std::error::Error for RecvError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecvError::Lagged(_) => None,
            RecvError::Cancelled(told) => Some(told),
        }
    }
}

impl From<RecvError> for Error {
    fn from(error: RecvError) -> Error {
        match error {
            RecvError::Cancelled(told) => told.into(),
            lagged => Error::from_boxed(Box::new(lagged)),
        }
    }
}

/// There is no value now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is none yet.
    Empty,
    /// There is no sender and nothing left: there will be none.
    Closed,
    /// So many values were missed.
    Lagged(u64),
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => f.write_str("the channel is empty"),
            TryRecvError::Closed => f.write_str("the channel is closed and empty"),
            TryRecvError::Lagged(n) => {
                write!(f, "the receiver was too slow and missed {n} values")
            }
        }
    }
}

impl std::error::Error for TryRecvError {}
