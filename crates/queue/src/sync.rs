//! The one switch between the real machine, the model checker and
//! ThreadSanitizer, for the protocols of Kinfolk's schedulers: this crate's, and
//! those of the schedulers that are made of it.

#[cfg(not(loom))]
mod real {
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub use std::sync::{Mutex, MutexGuard};

    #[cfg(not(kinfolk_tsan))]
    pub use std::sync::atomic::fence;

    /// ThreadSanitizer does not see fences. Two steps on one word order what is
    /// around them as well, and it sees those.
    #[cfg(kinfolk_tsan)]
    pub fn fence(order: Ordering) {
        static WORD: AtomicU32 = AtomicU32::new(0);
        WORD.fetch_add(1, order);
    }

    /// How many turns a ring holds.
    pub(crate) const RING: usize = 1024;
}

#[cfg(loom)]
mod model {
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
    };
    pub use loom::sync::{Mutex, MutexGuard};

    // Few, so that a model is small.
    pub(crate) const RING: usize = 4;
}

#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;

/// A lock that does not mind a panic: nothing of the user's runs under it.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
