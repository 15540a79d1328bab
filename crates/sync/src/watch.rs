//! The latest value: receivers see the newest one, and may miss those before it.
//!
//! ```
//! # async fn demo() -> kinfolk_core::Result<()> {
//! use kinfolk_sync::watch;
//!
//! let (tx, mut rx) = watch::channel("starting");
//! tx.send("ready")?;
//! drop(tx);
//! while rx.changed().await? {
//!     assert_eq!(*rx.borrow_and_update(), "ready");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A borrowed value holds no lock: [`Ref`] is the value as it was, for as long as it is
//! kept, across awaits too.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use kinfolk_core::host::{Contained, discard};
use kinfolk_core::{Cancelled, WaitKind};

use crate::blocking::block_on;
use crate::error::SendError;
use crate::line::Line;
use crate::looking::{Looked, Looking, Shown, wake_all};
use crate::seen::SeenAs;

struct State<T> {
    value: Arc<Contained<T>>,
    /// Grows with each value.
    version: u64,
    senders: usize,
    receivers: usize,
    /// Receivers that wait for a change, and senders that wait for the last receiver.
    line: Line,
}

impl<T> Looked for State<T> {
    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}

type Shared<T> = Arc<Shown<State<T>>>;

/// A channel that has one value at a time, `value` at first.
#[track_caller]
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let state = State {
        value: Arc::new(Contained::new(value)),
        version: 0,
        senders: 1,
        receivers: 1,
        line: Line::new(),
    };
    let seen = SeenAs::new("watch channel", Location::caller());
    let shared = Arc::new(Shown::new(state, seen));
    let sender = Sender {
        shared: shared.clone(),
    };
    (sender, Receiver { shared, seen: 0 })
}

/// The value as it was when it was borrowed. It holds no lock.
pub struct Ref<T>(Arc<Contained<T>>);

impl<T> Deref for Ref<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

/// Sets the value. When the last sender is gone, receivers are told after they have seen
/// the last value.
pub struct Sender<T> {
    shared: Shared<T>,
}

impl<T> Sender<T> {
    /// Sets the value. Never waits, and is no point. It comes back if there is no
    /// receiver.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        // Made and dropped outside the lock.
        let mut new = Some(Arc::new(Contained::new(value)));
        let mut state = self.shared.lock();
        let mut old = None;
        if state.receivers > 0 {
            old = new
                .take()
                .map(|new| std::mem::replace(&mut state.value, new));
            state.version += 1;
        }
        drop(state);
        discard(old);
        match new.and_then(Arc::into_inner) {
            Some(value) => Err(SendError::closed(value.into_inner())),
            None => {
                wake_all(&self.shared);
                Ok(())
            }
        }
    }

    /// Sets the value, also if there is no receiver. The one before.
    pub fn send_replace(&self, value: T) -> Ref<T> {
        let new = Arc::new(Contained::new(value));
        let mut state = self.shared.lock();
        let old = std::mem::replace(&mut state.value, new);
        state.version += 1;
        drop(state);
        wake_all(&self.shared);
        Ref(old)
    }

    /// Changes the value, also if there is no receiver. `f` gets a copy of it, outside
    /// every lock; if another sender was faster, `f` is called again with the new value.
    pub fn send_modify(&self, mut f: impl FnMut(&mut T))
    where
        T: Clone,
    {
        loop {
            let before = self.shared.lock().value.clone();
            // It may go while `f` unwinds.
            let mut copy = Contained::new(T::clone(&before));
            f(&mut copy);
            let mut new = Arc::new(copy);
            let mut state = self.shared.lock();
            let done = Arc::ptr_eq(&state.value, &before);
            if done {
                std::mem::swap(&mut state.value, &mut new);
                state.version += 1;
            }
            drop(state);
            if done {
                return wake_all(&self.shared);
            }
        }
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<T> {
        Ref(self.shared.lock().value.clone())
    }

    /// A receiver, which has seen the value that there is now.
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.shared.lock();
        state.receivers += 1;
        let seen = state.version;
        drop(state);
        Receiver {
            shared: self.shared.clone(),
            seen,
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

    /// True if there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Waits until there is no receiver.
    ///
    /// # Cancellation
    /// A *point*, which changes nothing.
    #[track_caller]
    pub fn closed(&self) -> SenderClosed<'_, T> {
        SenderClosed {
            sender: self,
            looking: Looking::new(),
        }
    }
}

impl<T> Sender<T> {
    /// Waits on this thread until there is no receiver.
    ///
    /// # Panics
    /// Inside a job: await [`closed`](Sender::closed) there.
    #[track_caller]
    pub fn blocking_closed(&self) {
        let _never_told = block_on(self.closed());
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
        write!(f, "watch::Sender(receivers: {})", self.receiver_count())
    }
}

/// The future of [`Sender::closed`].
#[must_use = "futures do nothing unless awaited"]
pub struct SenderClosed<'a, T> {
    sender: &'a Sender<T>,
    looking: Looking,
}

impl<T> Future for SenderClosed<'_, T> {
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the wait is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let gone = |state: &mut State<T>| (state.receivers == 0).then_some(());
        let state = &*this.sender.shared;
        // SAFETY: pinned, always the same state, and its drop abandons it.
        unsafe { this.looking.poll(state, WaitKind::Channel, cx, gone) }
    }
}

impl<T> Drop for SenderClosed<'_, T> {
    fn drop(&mut self) {
        self.looking.abandon(&self.sender.shared);
    }
}

impl<T> fmt::Debug for SenderClosed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SenderClosed")
    }
}

/// Sees the newest value.
pub struct Receiver<T> {
    shared: Shared<T>,
    seen: u64,
}

impl<T> Receiver<T> {
    /// Waits for a value that this receiver has not seen, and marks it as seen. True if
    /// there is one; false once there is no sender any more.
    ///
    /// # Cancellation
    /// A *point*. Told, it has marked nothing as seen.
    #[track_caller]
    pub fn changed(&mut self) -> Changed<'_, T> {
        Changed {
            receiver: self,
            looking: Looking::new(),
        }
    }

    /// Waits on this thread for a value that this receiver has not seen.
    ///
    /// # Panics
    /// Inside a job: await [`changed`](Receiver::changed) there.
    #[track_caller]
    pub fn blocking_changed(&mut self) -> bool {
        match block_on(self.changed()) {
            Ok(changed) => changed,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Waits on this thread for a value that `f` accepts; see
    /// [`wait_for`](Receiver::wait_for).
    ///
    /// # Panics
    /// Inside a job: await [`wait_for`](Receiver::wait_for) there.
    #[track_caller]
    pub fn blocking_wait_for(&mut self, f: impl FnMut(&T) -> bool) -> Option<Ref<T>> {
        match block_on(self.wait_for(f)) {
            Ok(found) => found,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// True if there is a value that this receiver has not seen. Never waits, and is no
    /// point.
    pub fn has_changed(&self) -> bool {
        self.shared.lock().version != self.seen
    }

    /// The value now.
    pub fn borrow(&self) -> Ref<T> {
        Ref(self.shared.lock().value.clone())
    }

    /// The value now, and marks it as seen.
    pub fn borrow_and_update(&mut self) -> Ref<T> {
        let state = self.shared.lock();
        self.seen = state.version;
        Ref(state.value.clone())
    }

    /// Waits for a value that `f` accepts, the one that there is now included, and marks it
    /// as seen. `None` once there is no sender any more.
    ///
    /// # Cancellation
    /// A *point*, also if the value is there.
    #[track_caller]
    pub fn wait_for(
        &mut self,
        mut f: impl FnMut(&T) -> bool,
    ) -> impl Future<Output = Result<Option<Ref<T>>, Cancelled>> {
        let enter = kinfolk_core::checkpoint();
        async move {
            enter.await?;
            loop {
                let value = self.borrow_and_update();
                if f(&value) {
                    return Ok(Some(value));
                }
                if !self.changed().await? {
                    return Ok(None);
                }
            }
        }
    }

    /// True if `other` receives from the same channel.
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.lock().receivers += 1;
        Receiver {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.receivers -= 1;
        let last = state.receivers == 0;
        drop(state);
        if last {
            wake_all(&self.shared);
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "watch::Receiver(changed: {})", self.has_changed())
    }
}

/// The future of [`Receiver::changed`].
#[must_use = "futures do nothing unless awaited"]
pub struct Changed<'a, T> {
    receiver: &'a mut Receiver<T>,
    looking: Looking,
}

impl<T> Future for Changed<'_, T> {
    type Output = Result<bool, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the wait is not moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let Receiver { shared, seen } = &mut *this.receiver;
        let look = |state: &mut State<T>| {
            if state.version != *seen {
                *seen = state.version;
                return Some(true);
            }
            (state.senders == 0).then_some(false)
        };
        // SAFETY: pinned, always the same state, and its drop abandons it.
        unsafe { this.looking.poll(shared, WaitKind::Channel, cx, look) }
    }
}

impl<T> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        self.looking.abandon(&self.receiver.shared);
    }
}

impl<T> fmt::Debug for Changed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changed")
    }
}
