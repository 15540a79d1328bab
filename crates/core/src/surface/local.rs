//! Locals: values that belong to a part of the tree. A local is set by opening a scope with
//! it, and is visible to everything below that scope.
//!
//! A value is stored in the cold part of its scope's job and never changes there. A
//! lookup climbs from the current job, through [waymarks](waymark): a job's parent is the
//! one below which it was spawned, and outlives it (H3). So a lookup finds the value that
//! was inherited at spawn, and a spawn does no work for locals.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::base::kind::JobKind;
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;
use crate::engine::context;
use crate::engine::waymark;
use crate::record::cold::{LocalAny, LocalValue};
use crate::surface::inline::{Inline, Just, Setup};

/// A task-local value that all jobs below a scope share, such as a request id, a user or a
/// tenant. Declared as a static, set by [`scope`](Local::scope).
///
/// ```
/// # use kinfolk_core as kinfolk;
/// use kinfolk::{Local, Result, spawn};
///
/// static USER: Local<String> = Local::new();
///
/// async fn greet() -> String {
///     USER.with(|user| format!("hello {}", user.map_or("you", String::as_str)))
/// }
///
/// # async fn demo() -> Result<()> {
/// let words = USER.scope("ada".into(), async { spawn(greet()).await }).await?;
/// assert_eq!(words, "hello ada");
/// # Ok(())
/// # }
/// ```
///
/// Everything below that scope sees the value: child tasks of every kind, timers, branches,
/// local children. The job that a child is spawned into counts, not the job that calls
/// `spawn`: a [detached](crate::detach) job is below the root and sees no value. The thread
/// of a [blocking](crate::blocking()) call and a hook see none either.
pub struct Local<T> {
    number: OnceLock<u64>,
    value: PhantomData<fn() -> T>,
}

impl<T: Send + Sync + 'static> Local<T> {
    /// Makes a local that has no value yet.
    pub const fn new() -> Local<T> {
        Local {
            number: OnceLock::new(),
            value: PhantomData,
        }
    }

    fn number(&self) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        *self
            .number
            .get_or_init(|| NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a scope with this value and runs `future` in it. An inner scope may set another
    /// value for everything below itself.
    ///
    /// # Cancellation
    /// As [`crate::scope`].
    #[track_caller]
    pub fn scope<B>(&self, value: T, future: B) -> Inline<Just<B>>
    where
        B: Future<Output: IntoOutcome>,
    {
        let mut setup = Setup::new(JobKind::Scope, Location::caller());
        setup.more().local = Some(LocalValue {
            number: self.number(),
            value: Contained::new(Arc::new(value)),
        });
        Inline::new(Just(future), setup)
    }

    /// Calls `f` with the value that the current job sees; with `None` if no enclosing scope
    /// has set it, and outside any job.
    pub fn with<R>(&self, f: impl FnOnce(Option<&T>) -> R) -> R {
        let found = self.find();
        f(found.as_ref().and_then(|value| value.downcast_ref()))
    }

    /// Returns a clone of the value that the current job sees.
    pub fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        self.with(|value| value.cloned())
    }

    fn find(&self) -> Option<LocalAny> {
        let number = *self.number.get()?;
        context::with(|cx| {
            let mut at = cx.current();
            while let Some(h) = at {
                // SAFETY: inside a job that has not ended, so it is linked.
                let scope = unsafe { waymark::local(h) }?;
                let found = scope.if_cold(|cold, _| match &cold.local {
                    Some(set) if set.number == number => Some(set.value.clone()),
                    _ => None,
                });
                if let Some(Some(found)) = found {
                    return Some(found);
                }
                // SAFETY: as above (H3).
                at = unsafe { scope.parent() };
            }
            None
        })
    }
}

impl<T: Send + Sync + 'static> Default for Local<T> {
    fn default() -> Self {
        Local::new()
    }
}

impl<T> fmt::Debug for Local<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}
