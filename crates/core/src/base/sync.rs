//! The one switch between the real machine and the model checker: atomics,
//! plain cells, the byte lock and thread-locals, from std or from loom.
//!
//! No other file of this crate knows that loom exists.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
    };
    pub(crate) use std::sync::{Mutex, MutexGuard};

    use std::cell::UnsafeCell;

    /// A value without synchronisation of its own. Who may touch it, and
    /// when, is said where it is declared.
    pub(crate) struct Plain<T>(UnsafeCell<T>);

    impl<T> Plain<T> {
        pub(crate) const fn new(value: T) -> Self {
            Plain(UnsafeCell::new(value))
        }

        /// # Safety
        /// No other code accesses the value during the call, and `f` does not reach it in
        /// another way.
        pub(crate) unsafe fn with_mut<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
            // SAFETY: exclusive by the caller's promise.
            f(unsafe { &mut *self.0.get() })
        }

        /// # Safety
        /// No other code writes the value during the call.
        pub(crate) unsafe fn get(&self) -> T
        where
            T: Copy,
        {
            // SAFETY: no writer, by the caller's promise.
            unsafe { *self.0.get() }
        }
    }

    /// A pointer that is used as a [`Plain`] one, and that others may look at
    /// without the right to: to fetch ahead, and for nothing else.
    pub(crate) struct Link<T>(AtomicPtr<T>);

    impl<T> Link<T> {
        pub(crate) const fn new(to: *const T) -> Self {
            Link(AtomicPtr::new(to.cast_mut()))
        }

        /// # Safety
        /// As [`Plain::get`].
        #[inline]
        pub(crate) unsafe fn get(&self) -> *const T {
            self.0.load(Ordering::Relaxed)
        }

        /// # Safety
        /// As [`Plain::with_mut`].
        #[inline]
        pub(crate) unsafe fn set(&self, to: *const T) {
            self.0.store(to.cast_mut(), Ordering::Relaxed);
        }

        /// Fetches ahead what it points to, or pointed to a moment ago.
        #[inline]
        pub(crate) fn fetch_ahead(&self) {
            fetch_ahead(self.0.load(Ordering::Relaxed));
        }
    }

    /// Asks the processor for the first lines of what lies at `at`. Nothing is
    /// read, so that any address will do.
    #[inline]
    pub(crate) fn fetch_ahead<T>(at: *const T) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..3 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a hint; whatever the address, nothing happens.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>().wrapping_add(64 * line)) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Freed cells are kept for the next.
    pub(crate) const POOLED: bool = true;

    /// Cells that are freed stay where they are, so that a use after it shows.
    pub(crate) const QUARANTINE: bool = false;

    /// Observers may look at what other threads do.
    pub(crate) const WATCHED: bool = true;

    /// The library may say something, by a thread of its own.
    pub(crate) const SPEAKS: bool = true;

    /// One round of waiting for another thread that is a few instructions away.
    pub(crate) fn relax(round: u32) {
        if round < 64 {
            std::hint::spin_loop();
        } else {
            // The holder was preempted: give it the processor.
            std::thread::yield_now();
        }
    }
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::atomic::{
        AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering,
    };
    pub(crate) use loom::sync::{Mutex, MutexGuard};

    use loom::cell::UnsafeCell;

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

        /// # Safety
        /// See the twin in `real`; here loom checks the promise.
        pub(crate) unsafe fn get(&self) -> T
        where
            T: Copy,
        {
            // SAFETY: no writer, by the caller's promise, which loom checks.
            self.0.with(|p| unsafe { *p })
        }
    }

    pub(crate) struct Link<T>(Plain<*const T>);

    impl<T> Link<T> {
        pub(crate) fn new(to: *const T) -> Self {
            Link(Plain::new(to))
        }

        /// # Safety
        /// See the twin in `real`; here loom checks the promise.
        pub(crate) unsafe fn get(&self) -> *const T {
            // SAFETY: passed on to the caller.
            unsafe { self.0.get() }
        }

        /// # Safety
        /// See the twin in `real`; here loom checks the promise.
        pub(crate) unsafe fn set(&self, to: *const T) {
            // SAFETY: passed on to the caller.
            unsafe { self.0.set(to) }
        }

        /// No look, so that loom sees only accesses that are allowed.
        pub(crate) fn fetch_ahead(&self) {}
    }

    pub(crate) fn fetch_ahead<T>(_at: *const T) {}

    pub(crate) const POOLED: bool = false;
    pub(crate) const QUARANTINE: bool = true;

    /// Loom's threads end before their locals do.
    pub(crate) const WATCHED: bool = false;
    /// A model has the threads that it names, and no others.
    pub(crate) const SPEAKS: bool = false;

    pub(crate) fn relax(_round: u32) {
        loom::thread::yield_now();
    }
}

#[cfg(loom)]
pub(crate) use model::*;
#[cfg(not(loom))]
pub(crate) use real::*;

impl<T> Plain<T> {
    /// # Safety
    /// As [`Plain::with_mut`].
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: passed on to the caller.
        unsafe { self.with_mut(|v| *v = value) }
    }

    /// # Safety
    /// As [`Plain::with_mut`].
    pub(crate) unsafe fn take(&self) -> T
    where
        T: Default,
    {
        // SAFETY: passed on to the caller.
        unsafe { self.with_mut(std::mem::take) }
    }
}

/// A thread-local that needs no destructor, and a function that runs another on
/// it: `local!(static NAME: Type = value; fn with)`.
///
/// The place is looked up apart, in one instruction. With `try_with`: the
/// standard library's `with` is not marked for inlining, and then whether the
/// look-up is a call depends on how the compiler has divided the crate.
#[cfg(not(loom))]
macro_rules! local {
    (static $name:ident: $type:ty = $value:expr; $vis:vis fn $with:ident) => {
        std::thread_local! { static $name: $type = const { $value } }

        #[inline]
        $vis fn $with<R>(f: impl FnOnce(&$type) -> R) -> R {
            #[inline]
            fn place() -> *const $type {
                match $name.try_with(std::ptr::from_ref) {
                    Ok(place) => place,
                    Err(_) => unreachable!("there is no destructor"),
                }
            }
            const { assert!(!std::mem::needs_drop::<$type>()) };
            // SAFETY: without a destructor it lives as long as the thread, and
            // `f` cannot take the reference further.
            f(unsafe { &*place() })
        }
    };
}
#[cfg(loom)]
macro_rules! local {
    (static $name:ident: $type:ty = $value:expr; $vis:vis fn $with:ident) => {
        loom::thread_local! { static $name: $type = $value }

        $vis fn $with<R>(f: impl FnOnce(&$type) -> R) -> R {
            $name.with(f)
        }
    };
}
pub(crate) use local;

/// A lock of one byte for a few instructions at a time: links, counts, moving
/// a waker out. Nothing of the user's runs while it is held.
pub(crate) struct ByteLock(AtomicU8);

/// Evidence that a [`ByteLock`] is held; leaving its scope unlocks.
pub(crate) struct Locked<'a>(&'a ByteLock);

impl ByteLock {
    pub(crate) fn new() -> Self {
        ByteLock(AtomicU8::new(0))
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_> {
        if !self.try_lock() {
            self.wait_and_lock();
        }
        Locked(self)
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    #[cold]
    fn wait_and_lock(&self) {
        let mut round = 0;
        while !self.try_lock() {
            relax(round);
            round += 1;
        }
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        // Pairs with the Acquire of `lock`.
        self.0.0.store(0, Ordering::Release);
    }
}
