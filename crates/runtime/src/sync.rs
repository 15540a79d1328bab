//! The switch between the real machine, the model checker and ThreadSanitizer:
//! that of [`kinfolk_queue::sync`], and what only this crate's protocols are made
//! of. No other file here knows that they exist, but for the models themselves.

pub(crate) use kinfolk_queue::sync::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, fence, lock,
};

#[cfg(not(loom))]
mod real {
    pub(crate) use std::cell::UnsafeCell;
    pub(crate) use std::sync::Condvar;
    pub(crate) use std::thread::{Builder, Thread, current, park, park_timeout, sleep as let_pass};

    /// How often a worker looks round before it sleeps.
    pub(crate) const SPINS: u32 = 200;

    /// How long the main thread leaves a timer that is due to the workers.
    pub(crate) const LATE: std::time::Duration = std::time::Duration::from_millis(1);

    /// How long a hook or a waker of the user's may hold up the timers behind it.
    pub(crate) const HELD_UP: std::time::Duration = std::time::Duration::from_millis(10);
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::Condvar;
    pub(crate) use loom::thread::{Builder, Thread, current, park};

    /// However long it is, in a model the other threads go on for a while.
    pub(crate) fn let_pass(_time: std::time::Duration) {
        loom::thread::yield_now();
    }

    /// Time stands still in a model: a sleeping thread is woken by another, or loom
    /// reports a deadlock.
    pub(crate) fn park_timeout(_wait: std::time::Duration) {
        park();
    }

    /// A cell whose accesses a model checks: no two threads are at it at once.
    pub(crate) struct UnsafeCell<T> {
        value: std::cell::UnsafeCell<T>,
        seen: loom::cell::UnsafeCell<()>,
    }

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell {
                value: std::cell::UnsafeCell::new(value),
                seen: loom::cell::UnsafeCell::new(()),
            }
        }

        pub(crate) fn get(&self) -> *mut T {
            self.seen.with_mut(|_| ());
            self.value.get()
        }
    }

    // Few, so that a model is small.
    pub(crate) const SPINS: u32 = 1;
    // Time stands still, so that a moment never passes.
    pub(crate) const LATE: std::time::Duration = std::time::Duration::ZERO;
    pub(crate) const HELD_UP: std::time::Duration = std::time::Duration::MAX;
}

#[cfg(loom)]
pub(crate) use model::*;
#[cfg(not(loom))]
pub(crate) use real::*;

/// A thread-local that needs no destructor: `local!(static NAME: Type = value)`.
#[cfg(not(loom))]
macro_rules! local {
    (static $name:ident: $type:ty = $value:expr) => {
        std::thread_local! { static $name: $type = const { $value } }
    };
}
#[cfg(loom)]
macro_rules! local {
    (static $name:ident: $type:ty = $value:expr) => {
        loom::thread_local! { static $name: $type = $value }
    };
}
pub(crate) use local;
