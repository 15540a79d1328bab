//! [`Semaphore`]: so many at a time, first come, first served.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use kinfolk_core::WaitKind;

use crate::acquire::{Acquirable, Acquire};
use crate::blocking::block_on;
use crate::error::{AcquireError, TryAcquireError};
use crate::permits::{MOST, NotAcquired, NotNow, Permits, PermitsTaken};
use crate::sync::const_fn;

/// A number of permits, of which a task takes one or several at a time.
///
/// Waiters are served in the order in which they came: a small request does not
/// overtake a large one that waits.
///
/// ```
/// # async fn demo() -> kinfolk_core::Result<()> {
/// use kinfolk_sync::Semaphore;
///
/// let connections = Semaphore::new(3);
/// let one = connections.acquire().await?;
/// let rest = connections.acquire_many(2).await?;
/// assert!(connections.try_acquire().is_err());
/// drop(one); // given back
/// assert_eq!(connections.available_permits(), 1);
/// # drop(rest);
/// # Ok(())
/// # }
/// ```
pub struct Semaphore {
    permits: Permits,
}

impl Semaphore {
    /// The most permits that a semaphore can have.
    pub const MAX_PERMITS: usize = MOST;

    const_fn! {
        /// One with `permits` permits, [`MAX_PERMITS`](Semaphore::MAX_PERMITS) at the most.
        #[track_caller]
        pub const fn new(permits: usize) -> Semaphore {
            Semaphore {
                permits: Permits::new(permits, "semaphore", Location::caller()),
            }
        }
    }

    /// Gives it a name, by which snapshots and reports call it.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Semaphore {
        self.permits.set_name(name.into());
        self
    }

    /// Waits for one permit.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    #[inline]
    pub fn acquire(&self) -> Acquire<&Semaphore> {
        Acquire::new(self, 1)
    }

    /// Waits for `n` permits, all at once.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn acquire_many(&self, n: usize) -> Acquire<&Semaphore> {
        Acquire::new(self, n)
    }

    /// Waits for one permit, which keeps the `Arc`.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn acquire_owned(self: Arc<Self>) -> Acquire<Arc<Semaphore>> {
        Acquire::new(self, 1)
    }

    /// Waits for `n` permits, which keep the `Arc`.
    ///
    /// # Cancellation
    /// A *point*: see [`Acquire`].
    #[track_caller]
    pub fn acquire_many_owned(self: Arc<Self>, n: usize) -> Acquire<Arc<Semaphore>> {
        Acquire::new(self, n)
    }

    /// Takes one permit, if it is free and no task waits. Never waits; not a point.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Takes `n` permits, if they are free and no task waits.
    pub fn try_acquire_many(&self, n: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_take(n)?;
        Ok(SemaphorePermit {
            semaphore: self,
            permits: n,
        })
    }

    /// As [`try_acquire`](Semaphore::try_acquire); the permit keeps the `Arc`.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// As [`try_acquire_many`](Semaphore::try_acquire_many); the permit keeps the `Arc`.
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_take(n)?;
        Ok(OwnedSemaphorePermit {
            semaphore: self,
            permits: n,
        })
    }

    fn try_take(&self, n: usize) -> Result<(), TryAcquireError> {
        self.permits.try_acquire(n).map_err(|why| match why {
            NotNow::TooFew => TryAcquireError::NoPermits,
            NotNow::Closed => TryAcquireError::Closed,
        })
    }

    /// Waits for `n` permits on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`acquire_many`](Semaphore::acquire_many) there.
    #[track_caller]
    pub fn blocking_acquire_many(&self, n: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        block_on(self.acquire_many(n))
    }

    /// Waits for one permit on this thread.
    ///
    /// # Panics
    /// Inside a job: await [`acquire`](Semaphore::acquire) there.
    #[track_caller]
    pub fn blocking_acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        block_on(self.acquire())
    }

    /// As [`blocking_acquire`](Semaphore::blocking_acquire); the permit keeps the `Arc`.
    ///
    /// # Panics
    /// Inside a job: await [`acquire_owned`](Semaphore::acquire_owned) there.
    #[track_caller]
    pub fn blocking_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        block_on(self.acquire_owned())
    }

    /// As [`blocking_acquire_many`](Semaphore::blocking_acquire_many); the permits keep the
    /// `Arc`.
    ///
    /// # Panics
    /// Inside a job: await [`acquire_many_owned`](Semaphore::acquire_many_owned) there.
    #[track_caller]
    pub fn blocking_acquire_many_owned(
        self: Arc<Self>,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        block_on(self.acquire_many_owned(n))
    }

    /// Adds permits: those who wait get them first.
    ///
    /// # Panics
    /// If there would be more than [`MAX_PERMITS`](Semaphore::MAX_PERMITS) free ones:
    /// none is added then.
    pub fn add_permits(&self, n: usize) {
        self.permits.add(n);
    }

    /// Returns how many are free. While a task waits some may be, which are too few for the
    /// first in line.
    pub fn available_permits(&self) -> usize {
        self.permits.available()
    }

    /// Closes the semaphore: each task that waits, and each later caller, gets an error that says
    /// so. Permits that are held stay valid.
    pub fn close(&self) {
        self.permits.close();
    }

    /// True once it was [closed](Semaphore::close).
    pub fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available", &self.available_permits())
            .finish_non_exhaustive()
    }
}

impl<'a> Acquirable for &'a Semaphore {
    type Output = Result<SemaphorePermit<'a>, AcquireError>;
    const KIND: WaitKind = WaitKind::Permit;

    fn permits(&self) -> &Permits {
        &self.permits
    }

    #[inline]
    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output {
        let taken = got.map_err(AcquireError)?;
        Ok(SemaphorePermit {
            semaphore: self,
            permits: taken.need(),
        })
    }
}

impl Acquirable for Arc<Semaphore> {
    type Output = Result<OwnedSemaphorePermit, AcquireError>;
    const KIND: WaitKind = WaitKind::Permit;

    fn permits(&self) -> &Permits {
        &self.permits
    }

    fn finish(self, got: Result<PermitsTaken, NotAcquired>) -> Self::Output {
        let taken = got.map_err(AcquireError)?;
        Ok(OwnedSemaphorePermit {
            semaphore: self,
            permits: taken.need(),
        })
    }
}

/// Permits of a [`Semaphore`], given back when this is dropped.
#[must_use = "dropped at once, the permits go back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl SemaphorePermit<'_> {
    /// How many permits it stands for.
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// They are never given back: the semaphore has so many less.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for SemaphorePermit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.permits.release(self.permits);
        }
    }
}

/// As [`SemaphorePermit`], with the `Arc` of its semaphore.
#[must_use = "dropped at once, the permits go back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl OwnedSemaphorePermit {
    /// How many permits it stands for.
    pub fn num_permits(&self) -> usize {
        self.permits
    }

    /// They are never given back: the semaphore has so many less.
    pub fn forget(mut self) {
        self.permits = 0;
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        if self.permits > 0 {
            self.semaphore.permits.release(self.permits);
        }
    }
}
