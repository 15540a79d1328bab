//! [`RwLock`]: many readers or one writer, first come, first served.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;

use kinfolk_core::kit::LastGuard;
use kinfolk_core::{Cancelled, WaitKind};

use crate::acquire::{Acquirable, Acquire};
use crate::blocking::block_on;
use crate::error::TryLockError;
use crate::permits::{NotAcquired, Permits, PermitsTaken, ReaderPlace};
use crate::sync::const_fn;

/// How many may read at once. A writer takes all of it.
const READERS: usize = 1 << 29;

/// A value that many tasks may read at a time, or one may change.
///
/// Waiters get it in the order in which they came: readers that come after a waiting
/// writer wait for it, so neither side starves. A reader that reads once more while a
/// writer waits is such a reader too: it waits for ever.
///
/// ```
/// # async fn demo() -> kinfolk_core::Result<()> {
/// use kinfolk_sync::RwLock;
///
/// let table = RwLock::new(vec![1]);
/// {
///     let (a, b) = (table.read().await?, table.read().await?);
///     assert_eq!(*a, *b);
/// }
/// table.write().await?.push(2);
/// # Ok(())
/// # }
/// ```
pub struct RwLock<T: ?Sized> {
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: it may be sent as the value may.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: readers share the value, writers take it from one thread to the next.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// A lock that is free.
        #[track_caller]
        pub const fn new(value: T) -> RwLock<T> {
            RwLock {
                permits: Permits::new(READERS, "rwlock", Location::caller()),
                value: UnsafeCell::new(value),
            }
        }
    }

    /// Gives it a name, by which snapshots and reports call it.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> RwLock<T> {
        self.permits.set_name(name.into());
        self
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until it can be read.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn read(&self) -> Acquire<Reading<&RwLock<T>>> {
        Acquire::new(Reading(self), 1)
    }

    /// Waits until it can be changed.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn write(&self) -> Acquire<Writing<&RwLock<T>>> {
        Acquire::new(Writing(self), READERS)
    }

    /// As [`read`](RwLock::read); the guard keeps the `Arc`.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn read_owned(self: Arc<Self>) -> Acquire<Reading<Arc<RwLock<T>>>> {
        Acquire::new(Reading(self), 1)
    }

    /// As [`write`](RwLock::write); the guard keeps the `Arc`.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn write_owned(self: Arc<Self>) -> Acquire<Writing<Arc<RwLock<T>>>> {
        Acquire::new(Writing(self), READERS)
    }

    /// Takes the lock for reading, if no writer holds it and no task waits for it. Never waits;
    /// not a point.
    #[track_caller]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        let taken = self.permits.try_acquire(1);
        taken.map_err(|_| TryLockError(()))?;
        Ok(ReadGuard::new(self, Location::caller()))
    }

    /// Takes the lock for writing, if it is free and no task waits for it.
    #[track_caller]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        let taken = self.permits.try_acquire(READERS);
        taken.map_err(|_| TryLockError(()))?;
        Ok(WriteGuard::new(self, Location::caller()))
    }

    /// As [`try_read`](RwLock::try_read); the guard keeps the `Arc`.
    #[track_caller]
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, TryLockError> {
        let taken = self.permits.try_acquire(1);
        taken.map_err(|_| TryLockError(()))?;
        Ok(ReadGuard::new(self, Location::caller()))
    }

    /// As [`try_write`](RwLock::try_write); the guard keeps the `Arc`.
    #[track_caller]
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        let taken = self.permits.try_acquire(READERS);
        taken.map_err(|_| TryLockError(()))?;
        Ok(WriteGuard::new(self, Location::caller()))
    }

    /// Waits on this thread until it can be read.
    ///
    /// # Panics
    /// Inside a job: await [`read`](RwLock::read) there.
    #[track_caller]
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        match block_on(self.read()) {
            Ok(guard) => guard,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Waits on this thread until it can be changed.
    ///
    /// # Panics
    /// Inside a job: await [`write`](RwLock::write) there.
    #[track_caller]
    pub fn blocking_write(&self) -> RwLockWriteGuard<'_, T> {
        match block_on(self.write()) {
            Ok(guard) => guard,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// As [`blocking_read`](RwLock::blocking_read); the guard keeps the `Arc`.
    ///
    /// # Panics
    /// Inside a job: await [`read_owned`](RwLock::read_owned) there.
    #[track_caller]
    pub fn blocking_read_owned(self: Arc<Self>) -> OwnedRwLockReadGuard<T> {
        match block_on(self.read_owned()) {
            Ok(guard) => guard,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// As [`blocking_write`](RwLock::blocking_write); the guard keeps the `Arc`.
    ///
    /// # Panics
    /// Inside a job: await [`write_owned`](RwLock::write_owned) there.
    #[track_caller]
    pub fn blocking_write_owned(self: Arc<Self>) -> OwnedRwLockWriteGuard<T> {
        match block_on(self.write_owned()) {
            Ok(guard) => guard,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Returns the value; `&mut self` proves that no other code holds the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    #[track_caller]
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let free = self.permits.available();
        f.debug_struct("RwLock")
            .field("written", &(free == 0))
            .field("readers", &if free == 0 { 0 } else { READERS - free })
            .finish_non_exhaustive()
    }
}

/// A reference to a lock, or its `Arc`.
pub trait Known {
    #[doc(hidden)]
    fn known(&self) -> &Permits;
}

impl<T: ?Sized> Known for &RwLock<T> {
    fn known(&self) -> &Permits {
        &self.permits
    }
}

impl<T: ?Sized> Known for Arc<RwLock<T>> {
    fn known(&self) -> &Permits {
        &self.permits
    }
}

/// A lock that is acquired for reading.
#[derive(Debug)]
pub struct Reading<P>(P);

/// A lock that is acquired for changing its value.
#[derive(Debug)]
pub struct Writing<P>(P);

impl<P: Deref<Target = RwLock<T>> + Known, T: ?Sized> Acquirable for Reading<P> {
    type Output = Result<ReadGuard<P, T>, Cancelled>;
    const KIND: WaitKind = WaitKind::Lock;

    fn permits(&self) -> &Permits {
        self.0.known()
    }

    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output {
        match got {
            Ok(taken) => Ok(ReadGuard::new(self.0, taken.site())),
            Err(NotAcquired::Cancelled(told)) => Err(told),
            Err(NotAcquired::Closed) => unreachable!("a lock is not closed"),
        }
    }
}

impl<P: Deref<Target = RwLock<T>> + Known, T: ?Sized> Acquirable for Writing<P> {
    type Output = Result<WriteGuard<P, T>, Cancelled>;
    const KIND: WaitKind = WaitKind::Lock;

    fn permits(&self) -> &Permits {
        self.0.known()
    }

    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output {
        match got {
            Ok(taken) => Ok(WriteGuard::new(self.0, taken.site())),
            Err(NotAcquired::Cancelled(told)) => Err(told),
            Err(NotAcquired::Closed) => unreachable!("a lock is not closed"),
        }
    }
}

/// Evidence that an [`RwLock`] is held for reading: by reference.
pub type RwLockReadGuard<'a, T> = ReadGuard<&'a RwLock<T>, T>;
/// Evidence that an [`RwLock`] is held for writing: by reference.
pub type RwLockWriteGuard<'a, T> = WriteGuard<&'a RwLock<T>, T>;
/// Evidence that an [`RwLock`] is held for reading, with its `Arc`.
pub type OwnedRwLockReadGuard<T> = ReadGuard<Arc<RwLock<T>>, T>;
/// Evidence that an [`RwLock`] is held for writing, with its `Arc`.
pub type OwnedRwLockWriteGuard<T> = WriteGuard<Arc<RwLock<T>>, T>;

/// Evidence that an [`RwLock`] is held for reading. Dropping it lets go.
#[must_use = "dropped at once, it unlocks at once"]
pub struct ReadGuard<P: Deref<Target = RwLock<T>>, T: ?Sized> {
    lock: P,
    /// For snapshots: which of the readers it is.
    place: ReaderPlace,
    /// Sent and shared, it shares the value.
    value: PhantomData<fn() -> T>,
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> ReadGuard<P, T> {
    fn new(lock: P, site: &'static Location<'static>) -> ReadGuard<P, T> {
        let place = lock.permits.shared(site);
        ReadGuard {
            lock,
            place,
            value: PhantomData,
        }
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> Deref for ReadGuard<P, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: one permit is ours, so that no writer has all. Noticed by
        // `io_6_readers_and_writers`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> Drop for ReadGuard<P, T> {
    fn drop(&mut self) {
        self.lock.permits.unshared(&self.place);
        self.lock.permits.release(1);
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized + fmt::Debug> fmt::Debug for ReadGuard<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

/// Evidence that an [`RwLock`] is held for changing its value. Dropping it hands the
/// lock over.
#[must_use = "dropped at once, it unlocks at once"]
pub struct WriteGuard<P: Deref<Target = RwLock<T>>, T: ?Sized> {
    lock: P,
    /// `Send` and `Sync` as a `T` is.
    value: PhantomData<T>,
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> WriteGuard<P, T> {
    fn new(lock: P, site: &'static Location<'static>) -> WriteGuard<P, T> {
        lock.permits.held(site);
        WriteGuard {
            lock,
            value: PhantomData,
        }
    }

    /// How the last guard for writing went; see
    /// [`MutexGuard::last_guard`](crate::MutexGuard::last_guard).
    pub fn last_guard(&self) -> LastGuard {
        self.lock.permits.holder.last()
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> WriteGuard<P, T> {
    /// Goes on as a reader, without letting another writer in between.
    #[track_caller]
    pub fn downgrade(self) -> ReadGuard<P, T> {
        let this = ManuallyDrop::new(self);
        // SAFETY: it is never dropped, and not used again.
        let lock = unsafe { std::ptr::read(&this.lock) };
        lock.permits.unheld();
        let guard = ReadGuard::new(lock, Location::caller());
        guard.lock.permits.release(READERS - 1);
        guard
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> Deref for WriteGuard<P, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: all permits are ours. Noticed by `io_6_readers_and_writers`.
        unsafe { &*self.lock.value.get() }
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> DerefMut for WriteGuard<P, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: all permits are ours, and the guard is borrowed mutably. Noticed by
        // `io_6_readers_and_writers`.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized> Drop for WriteGuard<P, T> {
    fn drop(&mut self) {
        self.lock.permits.unheld();
        self.lock.permits.release(READERS);
    }
}

impl<P: Deref<Target = RwLock<T>>, T: ?Sized + fmt::Debug> fmt::Debug for WriteGuard<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}
