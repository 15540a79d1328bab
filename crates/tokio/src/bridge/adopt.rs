//! [`AdoptExt`]: a tokio task that was spawned elsewhere becomes a child of a scope.

use std::panic::resume_unwind;

use kinfolk_core::{
    HookGuard, IntoOutcome, OrCancel, Result, Scope, Task, cancel_current, checkpoint,
};
use tokio::task::{AbortHandle, JoinError, JoinHandle};

use crate::bare_spawns;

/// Tokio tasks that a [`Scope`] aborts and waits for.
pub trait AdoptExt {
    /// Makes the tokio task behind `handle` a child of this scope: the scope waits for it,
    /// and a cancel of the scope aborts it.
    ///
    /// What the tokio task returns is the outcome of the child, as if it had been spawned
    /// here: an error or a panic fails the scope. A tokio task that other code aborts, or
    /// that goes with its runtime, ends the child as cancelled.
    ///
    /// An abort takes effect when the tokio task is next at an `await`. The scope waits
    /// until then, [`Patience::cleanup`](kinfolk_core::Patience::cleanup) at the most. A
    /// scope that takes no more children refuses the child: the tokio task is then aborted
    /// and not waited for.
    ///
    /// ```
    /// use kinfolk_core::scope;
    /// use kinfolk_tokio::{AdoptExt, run};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let library = tokio::spawn(async { 42 }); // started by code that knows tokio alone
    /// let answer = run(scope(async move |s| s.adopt(library).await)).await;
    /// assert_eq!(answer.unwrap(), 42);
    /// # kinfolk_tokio::Root::current().shutdown().await.unwrap();
    /// # });
    /// ```
    ///
    /// # Cancellation
    /// Awaiting the [`Task`] is *not a point*, as ever. A tokio task that returned a value
    /// although it was aborted has that value in its outcome.
    #[track_caller]
    fn adopt<T>(&self, handle: JoinHandle<T>) -> Task<T::Value>
    where
        T: IntoOutcome<Value: Send> + Send + 'static;

    /// Aborts the tokio task behind `handle` when this scope is cancelled; at once, if it is
    /// cancelled already. Dropping the guard gives that up, and so does the end of the scope.
    ///
    /// An [`AbortHandle`] says nothing at the end of its task, so the scope cannot wait for
    /// it: where there is a `JoinHandle`, use [`adopt`](AdoptExt::adopt).
    fn abort_on_cancel(&self, handle: AbortHandle) -> HookGuard;
}

impl AdoptExt for Scope {
    #[track_caller]
    fn adopt<T>(&self, handle: JoinHandle<T>) -> Task<T::Value>
    where
        T: IntoOutcome<Value: Send> + Send + 'static,
    {
        bare_spawns::adopted();
        // Atomic: in a scope that is cancelled it still waits until the abort has taken
        // effect.
        self.spawn_atomic(wait_for(Adopted(handle)))
    }

    fn abort_on_cancel(&self, handle: AbortHandle) -> HookGuard {
        self.on_cancel(move |_| handle.abort())
    }
}

/// A tokio task that is aborted if this is dropped before it has ended.
struct Adopted<T>(JoinHandle<T>);

impl<T> Drop for Adopted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of the child.
async fn wait_for<T: IntoOutcome>(mut task: Adopted<T>) -> Result<T::Value> {
    let told = match (&mut task.0).or_cancel().await {
        Ok(joined) => return outcome(joined).await,
        Err(told) => told,
    };
    task.0.abort();
    match (&mut task.0).await {
        Err(error) if error.is_cancelled() => Err(told.into()),
        joined => outcome(joined).await,
    }
}

async fn outcome<T: IntoOutcome>(joined: Result<T, JoinError>) -> Result<T::Value> {
    match joined {
        Ok(value) => value.into_result(),
        Err(error) => match error.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => {
                cancel_current("its tokio task was aborted");
                checkpoint().await?;
                unreachable!("the point of a cancelled job tells")
            }
        },
    }
}
