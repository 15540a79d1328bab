//! [`Mutex`]: one holder at a time, first come, first served.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;

use kinfolk_core::kit::LastGuard;
use kinfolk_core::{Cancelled, WaitKind};

use crate::acquire::{Acquirable, Acquire};
use crate::blocking::block_on;
use crate::error::TryLockError;
use crate::permits::{NotAcquired, Permits, PermitsTaken};
use crate::sync::const_fn;

/// A value that one task at a time may use, also across awaits.
///
/// Waiters get the lock in the order in which they came: it is handed over to the first
/// in line, and never free in between. There is no poisoning: a guard that goes while its
/// holder panics, or with a future that is dropped, gives the lock to the next one, which
/// may ask how the last guard went ([`MutexGuard::last_guard`]).
///
/// ```
/// # async fn demo() -> kinfolk_core::Result<()> {
/// use kinfolk_sync::Mutex;
///
/// let total = Mutex::new(0);
/// *total.lock().await? += 1; // told to stop: `?` returns, and nothing is held
/// assert_eq!(*total.lock().await?, 1);
/// # Ok(())
/// # }
/// ```
pub struct Mutex<T: ?Sized> {
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: whoever has the one permit has the value to itself; so it is sent from one
// holder to the next, and never shared. Noticed by `io_6_overtaking_is_none`.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    const_fn! {
        /// A lock that is free.
        #[track_caller]
        pub const fn new(value: T) -> Mutex<T> {
            Mutex {
                permits: Permits::new(1, "mutex", Location::caller()),
                value: UnsafeCell::new(value),
            }
        }
    }

    const_fn! {
        /// The lock inside a cell that is set once.
        pub(crate) const fn of_once_cell(value: T, site: &'static Location<'static>) -> Mutex<T> {
            Mutex {
                permits: Permits::new(1, "once cell", site),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// Gives it a name, by which snapshots and reports call it.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Mutex<T> {
        self.permits.set_name(name.into());
        self
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> Acquire<&Mutex<T>> {
        Acquire::new(self, 1)
    }

    /// Waits for the lock; the guard keeps the `Arc`.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> Acquire<Arc<Mutex<T>>> {
        Acquire::new(self, 1)
    }

    /// Takes the lock, if it is free and no task waits for it. Never waits; not a point.
    #[track_caller]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        let taken = self.permits.try_acquire(1);
        taken.map_err(|_| TryLockError(()))?;
        Ok(MutexGuard::new(self, Location::caller()))
    }

    /// As [`try_lock`](Mutex::try_lock); the guard keeps the `Arc`.
    #[track_caller]
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        let taken = self.permits.try_acquire(1);
        taken.map_err(|_| TryLockError(()))?;
        Ok(OwnedMutexGuard::new(self, Location::caller()))
    }

    /// Waits for the lock on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`lock`](Mutex::lock) there.
    #[track_caller]
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        match block_on(self.lock()) {
            Ok(guard) => guard,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// As [`blocking_lock`](Mutex::blocking_lock); the guard keeps the `Arc`.
    ///
    /// # Panics
    /// Inside a job: await [`lock_owned`](Mutex::lock_owned) there.
    #[track_caller]
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        match block_on(self.lock_owned()) {
            Ok(guard) => guard,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Returns the value; `&mut self` proves that no other code holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("locked", &(self.permits.available() == 0))
            .finish_non_exhaustive()
    }
}

impl<'a, T: ?Sized> Acquirable for &'a Mutex<T> {
    type Output = Result<MutexGuard<'a, T>, Cancelled>;
    const KIND: WaitKind = WaitKind::Lock;

    fn permits(&self) -> &Permits {
        &self.permits
    }

    #[inline]
    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output {
        match got {
            Ok(taken) => Ok(MutexGuard::new(self, taken.site())),
            Err(NotAcquired::Cancelled(told)) => Err(told),
            Err(NotAcquired::Closed) => unreachable!("a lock is not closed"),
        }
    }
}

impl<T: ?Sized> Acquirable for Arc<Mutex<T>> {
    type Output = Result<OwnedMutexGuard<T>, Cancelled>;
    const KIND: WaitKind = WaitKind::Lock;

    fn permits(&self) -> &Permits {
        &self.permits
    }

    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output {
        match got {
            Ok(taken) => Ok(OwnedMutexGuard::new(self, taken.site())),
            Err(NotAcquired::Cancelled(told)) => Err(told),
            Err(NotAcquired::Closed) => unreachable!("a lock is not closed"),
        }
    }
}

/// Evidence that a [`Mutex`] is held. Dropping it hands the lock over.
#[must_use = "dropped at once, it unlocks at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// `Send` and `Sync` as a `&mut T` is.
    value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The caller has the permit.
    #[inline]
    fn new(mutex: &'a Mutex<T>, site: &'static Location<'static>) -> MutexGuard<'a, T> {
        mutex.permits.held(site);
        MutexGuard {
            mutex,
            value: PhantomData,
        }
    }

    /// How the guard before this one went: released by its holder's code, in a panic, or
    /// with a future that was dropped. The value may then be half-way between two states.
    pub fn last_guard(&self) -> LastGuard {
        self.mutex.permits.holder.last()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the one permit is ours. Noticed by `io_6_overtaking_is_none`.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as for `deref`, and the guard is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.permits.unheld();
        self.mutex.permits.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

/// As [`MutexGuard`], with the `Arc` of its lock.
#[must_use = "dropped at once, it unlocks at once"]
pub struct OwnedMutexGuard<T: ?Sized> {
    mutex: Arc<Mutex<T>>,
    /// `Send` and `Sync` as a `T` is.
    value: PhantomData<T>,
}

impl<T: ?Sized> OwnedMutexGuard<T> {
    /// The caller has the permit.
    fn new(mutex: Arc<Mutex<T>>, site: &'static Location<'static>) -> OwnedMutexGuard<T> {
        mutex.permits.held(site);
        OwnedMutexGuard {
            mutex,
            value: PhantomData,
        }
    }

    /// See [`MutexGuard::last_guard`].
    pub fn last_guard(&self) -> LastGuard {
        self.mutex.permits.holder.last()
    }
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the one permit is ours. Noticed by `io_6_overtaking_is_none`.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the one permit is ours, and the guard is borrowed mutably.
        // Noticed by `io_6_overtaking_is_none`.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    fn drop(&mut self) {
        self.mutex.permits.unheld();
        self.mutex.permits.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
