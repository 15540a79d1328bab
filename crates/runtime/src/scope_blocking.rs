//! Children that borrow, because the thread that opened the scope blocks until they have
//! ended.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use kinfolk_core::{IntoOutcome, OrCancel, Outcome, Pool, Result, Scope, Task, host};

use crate::runtime::{AbortOnUnwind, Runtime};

impl Runtime {
    /// Runs `body` on this thread and lets it spawn children onto the pool that borrow from
    /// the caller's stack. Returns when all of them have ended, which is why they may borrow.
    /// Turns of the main lane run while it waits.
    ///
    /// ```
    /// # mod kinfolk { pub use {kinfolk_core::*, kinfolk_runtime::Runtime, kinfolk_runtime as runtime}; }
    /// use kinfolk::Runtime;
    ///
    /// let rt = Runtime::new()?;
    /// let words = vec![String::from("no"), String::from("task")];
    /// let lengths = rt.scope_blocking(|s| {
    ///     let tasks: Vec<_> = words.iter().map(|w| s.spawn(async { w.len() })).collect();
    ///     tasks.into_iter().map(|task| s.wait(task)).sum::<kinfolk::Result<usize>>()
    /// })??;
    /// assert_eq!(lengths, 6);
    /// # Ok::<_, kinfolk::Error>(())
    /// ```
    ///
    /// # Errors
    /// If called inside a job; and the failure of a child, which cancels the others:
    /// the first in time, also if [`wait`](BlockingScope::wait) has returned it to the
    /// body. A child that may fail alone returns its error as a value
    /// (`Ok::<_, Error>(result)`).
    #[track_caller]
    pub fn scope_blocking<'env, T>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope BlockingScope<'scope, 'env>) -> T,
    ) -> Result<T> {
        // Checked before anything borrows.
        drop(self.begin("scope_blocking")?);
        let open = Arc::new(OpenFlag::default());
        let task = self
            .scope()
            .task("scope_blocking")
            .spawn(Opened(open.clone()).or_cancel());
        let scope = BlockingScope {
            rt: self,
            scope: Scope::of_job(&task.job()),
            borrows: PhantomData,
        };
        // From here on the children must be gone before we are, come what may.
        let abort = AbortOnUnwind("the main loop panicked while borrowed children were running");
        let (answer, outcome) = host::and_after(
            || body(&scope),
            |panicked| {
                if panicked {
                    task.cancel("the body of scope_blocking panicked");
                }
                open.close();
                let outcome = self.wait_for(task.outcome());
                std::mem::forget(abort);
                outcome
            },
        );
        match outcome?? {
            Outcome::Failed(error) => Err(error),
            Outcome::Completed(_) | Outcome::Cancelled { .. } => Ok(answer),
        }
    }
}

/// What children of [`Runtime::scope_blocking`] are spawned with.
pub struct BlockingScope<'scope, 'env: 'scope> {
    rt: &'env Runtime,
    scope: Scope,
    /// Neither may shrink nor grow, as with std's scoped threads.
    borrows: PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
}

impl<'scope> BlockingScope<'scope, '_> {
    /// Spawns a child onto the pool; it may borrow what outlives the scope.
    #[track_caller]
    pub fn spawn<F>(&'scope self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'scope,
    {
        let spawner = self.scope.on(Pool);
        // SAFETY: it is Send. It outlives 'scope, and `scope_blocking` does not
        // return before the job has ended; nor does its value outlive 'scope. Noticed by
        // `handle_8_a_blocking_scope_waits_for_all_whatever_happens`.
        unsafe { spawner.spawn_unchecked(future) }
    }

    /// Waits for a child, turning the main lane meanwhile.
    ///
    /// # Errors
    /// As awaiting the task.
    pub fn wait<T>(&self, task: Task<T>) -> Result<T> {
        self.rt.wait_for(task)?
    }
}

impl fmt::Debug for BlockingScope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockingScope")
    }
}

/// Whether a blocking scope's body still runs.
#[derive(Default)]
struct OpenFlag(Mutex<(bool, Option<Waker>)>);

impl OpenFlag {
    fn close(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            host::wake(waker);
        }
    }
}

/// Done when the scope is closed.
struct Opened(Arc<OpenFlag>);

impl Future for Opened {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let new = cx.waker().clone();
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 {
            return Poll::Ready(());
        }
        let old = state.1.replace(new);
        drop(state);
        host::discard(old);
        Poll::Pending
    }
}
