//! The one switch between the real machine and the model checker, for what the
//! scheduler's protocols are made of. No other file here knows that loom
//! exists, but for the models themselves.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
};

/// How many turns a ring holds: few under the model checker.
#[cfg(not(loom))]
pub(crate) const RING: usize = 256;
/// As above.
#[cfg(loom)]
pub(crate) const RING: usize = 4;

/// A lock that does not mind a panic: nothing of the user's runs under it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
