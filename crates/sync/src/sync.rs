//! The one switch between the real machine and the model checker: atomics, plain
//! cells and the short lock, from std or from loom.
//!
//! No other file of this crate knows that loom exists.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::ops::{Deref, DerefMut};
    use std::sync::atomic::AtomicBool;

    /// A value without synchronisation of its own. What may touch it, and when, is said
    /// where it is declared.
    pub(crate) struct Plain<T>(UnsafeCell<T>);

    impl<T> Plain<T> {
        pub(crate) const fn new(value: T) -> Self {
            Plain(UnsafeCell::new(value))
        }

        /// # Safety
        /// No other code accesses the value during the call, and `f` does not reach it in
        /// another way.
        #[inline]
        pub(crate) unsafe fn with_mut<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: exclusive by the caller's promise.
            f(unsafe { &mut *self.0.get() })
        }
    }

    /// `n` places without values, in `room`, which has memory for them.
    pub(crate) fn empty_places<T>(
        mut room: Vec<Plain<MaybeUninit<T>>>,
        n: usize,
    ) -> Box<[Plain<MaybeUninit<T>>]> {
        assert!(room.capacity() >= n, "there is room for them");
        // SAFETY: asserted; and what needs no value is there without being written.
        unsafe { room.set_len(n) };
        room.into_boxed_slice()
    }

    /// A lock for a few instructions at a time: links, counts, moving a value or a
    /// waker. Nothing of the user's runs while it is held. One byte; a thread that
    /// finds it taken spins, and after a while gives its processor away.
    pub(crate) struct Lock<T> {
        taken: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached by one thread at a time.
    unsafe impl<T: Send> Sync for Lock<T> {}

    /// Evidence that a [`Lock`] is held; leaving its scope unlocks.
    pub(crate) struct LockGuard<'a, T>(&'a Lock<T>);

    impl<T> Lock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Lock {
                taken: AtomicBool::new(false),
                value: UnsafeCell::new(value),
            }
        }

        #[inline]
        pub(crate) fn lock(&self) -> LockGuard<'_, T> {
            if !self.try_lock() {
                self.wait_and_lock();
            }
            LockGuard(self)
        }

        #[inline]
        fn try_lock(&self) -> bool {
            self.taken
                .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        }

        #[cold]
        fn wait_and_lock(&self) {
            let mut round = 0;
            loop {
                // Looks before it tries, so that the line stays shared meanwhile.
                while self.taken.load(Ordering::Relaxed) {
                    if round < 64 {
                        std::hint::spin_loop();
                    } else {
                        // The holder was preempted: give it the processor.
                        std::thread::yield_now();
                    }
                    round += 1;
                }
                if self.try_lock() {
                    return;
                }
            }
        }
    }

    impl<T> Deref for LockGuard<'_, T> {
        type Target = T;
        #[inline]
        fn deref(&self) -> &T {
            // SAFETY: the lock is held.
            unsafe { &*self.0.value.get() }
        }
    }

    impl<T> DerefMut for LockGuard<'_, T> {
        #[inline]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the lock is held, and this is the one evidence of it.
            unsafe { &mut *self.0.value.get() }
        }
    }

    impl<T> Drop for LockGuard<'_, T> {
        #[inline]
        fn drop(&mut self) {
            // Pairs with the Acquire of `try_lock`.
            self.0.taken.store(false, Ordering::Release);
        }
    }

    /// Snapshots may look at what is listed.
    pub(crate) const SEEN: bool = true;
    /// How many wakers are carried out of a lock at once.
    pub(crate) const BATCH: usize = 32;
    /// How many values stand in one block of an unbounded channel.
    pub(crate) const BLOCK: usize = 32;
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

    use std::mem::MaybeUninit;

    use loom::cell::UnsafeCell;
    use loom::sync::{Mutex, MutexGuard};

    pub(crate) struct Plain<T>(UnsafeCell<T>);

    impl<T> Plain<T> {
        pub(crate) fn new(value: T) -> Self {
            Plain(UnsafeCell::new(value))
        }

        /// # Safety
        /// See the twin in `real`; here loom checks the promise.
        pub(crate) unsafe fn with_mut<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: exclusive by the caller's promise, which loom checks.
            self.0.with_mut(|p| f(unsafe { &mut *p }))
        }
    }

    pub(crate) fn empty_places<T>(
        mut room: Vec<Plain<MaybeUninit<T>>>,
        n: usize,
    ) -> Box<[Plain<MaybeUninit<T>>]> {
        room.extend((0..n).map(|_| Plain::new(MaybeUninit::uninit())));
        room.into_boxed_slice()
    }

    pub(crate) struct Lock<T>(Mutex<T>);

    impl<T> Lock<T> {
        pub(crate) fn new(value: T) -> Self {
            Lock(Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }

    pub(crate) type LockGuard<'a, T> = MutexGuard<'a, T>;

    /// The list of snapshots outlives a run of a model, and what is listed does not.
    pub(crate) const SEEN: bool = false;
    pub(crate) const BATCH: usize = 1;
    pub(crate) const BLOCK: usize = 2;
}

#[cfg(loom)]
pub(crate) use model::*;
#[cfg(not(loom))]
pub(crate) use real::*;

/// A function that is `const` on the real machine; loom's atomics cannot be made at
/// compile time.
macro_rules! const_fn {
    ($(#[$meta:meta])* $vis:vis const fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block) => {
        #[cfg(not(loom))]
        $(#[$meta])*
        $vis const fn $name($($arg: $type),*) -> $out $body
        #[cfg(loom)]
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) -> $out $body
    };
}
pub(crate) use const_fn;
