//! [`OnceCell`]: a value that is set once, by the first that needs it.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;

use kinfolk_core::host::DropAtEnd;
use kinfolk_core::{Cancelled, kit::Point};

use crate::acquire::Acquire;
use crate::blocking::block_on;
use crate::error::TryLockError;
use crate::mutex::{Mutex, MutexGuard};
use crate::sync::{AtomicU8, Ordering, const_fn};

/// A value that is made by the first task that asks for it; others wait meanwhile.
///
/// A task that is told to stop, fails or panics while it makes the value leaves the cell
/// empty, and the next in line makes it.
///
/// ```
/// # async fn connect() -> kinfolk_core::Result<u32> { Ok(7) }
/// # async fn demo() -> kinfolk_core::Result<()> {
/// use kinfolk_sync::OnceCell;
///
/// let connection = OnceCell::new();
/// assert_eq!(*connection.get_or_try_init(connect).await?, 7);
/// assert_eq!(connection.get(), Some(&7));
/// # Ok(())
/// # }
/// ```
pub struct OnceCell<T> {
    /// 1 once there is a value, which then never changes.
    set: AtomicU8,
    value: UnsafeCell<Option<T>>,
    /// Held by the one that makes the value.
    making: Mutex<()>,
}

// SAFETY: it may be sent as the value may.
unsafe impl<T: Send> Send for OnceCell<T> {}
// SAFETY: one thread sets the value, any may read it, and another may drop it.
unsafe impl<T: Send + Sync> Sync for OnceCell<T> {}

impl<T> OnceCell<T> {
    const_fn! {
        /// An empty one.
        #[track_caller]
        pub const fn new() -> OnceCell<T> {
            OnceCell {
                set: AtomicU8::new(0),
                value: UnsafeCell::new(None),
                making: Mutex::of_once_cell((), Location::caller()),
            }
        }
    }

    /// Gives it a name, by which snapshots and reports call it.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> OnceCell<T> {
        self.making = self.making.named(name);
        self
    }

    /// The value, if it is set.
    pub fn get(&self) -> Option<&T> {
        // Pairs with the Release of `fill`.
        if self.set.load(Ordering::Acquire) == 0 {
            return None;
        }
        // SAFETY: it was set before, and is never changed again.
        unsafe { &*self.value.get() }.as_ref()
    }

    /// The value; made by `make` if there is none.
    ///
    /// # Cancellation
    /// A *point*, also if the value is there. Told while it waits for another task that
    /// makes the value, it leaves the line. `make` is told by its own points.
    #[track_caller]
    pub fn get_or_init<F: Future<Output = T>>(
        &self,
        make: impl FnOnce() -> F,
    ) -> impl Future<Output = Result<&T, Cancelled>> {
        let (lock, point) = (self.making.lock(), Point::new());
        async move {
            if let Some(value) = self.enter(point).await? {
                return Ok(value);
            }
            let making = lock.await?;
            match self.get() {
                Some(value) => Ok(value),
                None => Ok(self.fill(making, DropAtEnd::new(make()).await)),
            }
        }
    }

    /// The value; made by `make` if there is none. An error of `make` leaves the cell
    /// empty.
    ///
    /// # Cancellation
    /// As [`get_or_init`](OnceCell::get_or_init); a cancellation becomes an `E`.
    #[track_caller]
    pub fn get_or_try_init<E: From<Cancelled>, F: Future<Output = Result<T, E>>>(
        &self,
        make: impl FnOnce() -> F,
    ) -> impl Future<Output = Result<&T, E>> {
        let (lock, point): (Acquire<&Mutex<()>>, _) = (self.making.lock(), Point::new());
        async move {
            if let Some(value) = self.enter(point).await? {
                return Ok(value);
            }
            let making = lock.await?;
            match self.get() {
                Some(value) => Ok(value),
                None => Ok(self.fill(making, DropAtEnd::new(make()).await?)),
            }
        }
    }

    /// The value; made by `make`, on this thread, if there is none. Waits on this thread if
    /// another one, or a task, makes it.
    ///
    /// # Panics
    /// Inside a job: await [`get_or_init`](OnceCell::get_or_init) there.
    #[track_caller]
    pub fn blocking_get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let made = self.get_or_init(|| {
            // Called once, and before anything is awaited.
            std::future::ready(make())
        });
        match block_on(made) {
            Ok(value) => value,
            Err(_) => unreachable!("outside any job nobody is told"),
        }
    }

    /// Told at entry, or the value if there is one.
    async fn enter(&self, mut point: Point) -> Result<Option<&T>, Cancelled> {
        if self.get().is_none() {
            // The wait for the lock is a point itself.
            return Ok(None);
        }
        std::future::poll_fn(move |cx| point.poll_enter(cx)).await?;
        Ok(self.get())
    }

    /// The holder of `_making` has found the cell empty.
    fn fill(&self, _making: MutexGuard<'_, ()>, value: T) -> &T {
        // SAFETY: empty, so that nobody reads it, and whoever could set it needs the
        // lock that is held here.
        let there = unsafe { (*self.value.get()).insert(value) };
        self.set.store(1, Ordering::Release);
        there
    }

    /// Sets the value. Given back if there is one, or a task is about to make one.
    /// Never waits, and is no point.
    pub fn set(&self, value: T) -> Result<(), T> {
        match self.making.try_lock() {
            Ok(making) if self.get().is_none() => {
                self.fill(making, value);
                Ok(())
            }
            Ok(_) | Err(TryLockError(())) => Err(value),
        }
    }

    /// The value, if it is set.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceCell<T> {
    #[track_caller]
    fn default() -> OnceCell<T> {
        OnceCell::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceCell").field(&self.get()).finish()
    }
}
