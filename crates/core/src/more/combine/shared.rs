//! [`SharedTask`]: one task, several waiters of its value.

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use crate::base::error::{Error, Result};
use crate::base::outcome::Outcome;
use crate::base::sync::Mutex;
use crate::base::unwind::DropsNested;
use crate::engine::names;
use crate::surface::handle::{Job, Join};
use crate::surface::task::Task;

impl<T: 'static> Task<T> {
    /// Makes a handle that can be cloned, for several waiters of one value. The task is
    /// cancelled when the last of the handles is dropped.
    ///
    /// ```
    /// use kinfolk::{Result, job::SharedTask, spawn};
    /// # mod kinfolk { pub use kinfolk_core::*; pub mod job { pub use kinfolk_core::SharedTask; } }
    /// # async fn load() -> Result<String> { Ok(String::new()) }
    ///
    /// async fn render(config: SharedTask<String>) -> Result<usize> {
    ///     Ok(config.await?.len())
    /// }
    ///
    /// async fn pages() -> Result<usize> {
    ///     let config = spawn(load()).shared();
    ///     let left = spawn(render(config.clone()));
    ///     let right = spawn(render(config));
    ///     Ok(left.await? + right.await?)
    /// }
    /// ```
    #[track_caller]
    pub fn shared(self) -> SharedTask<T> {
        SharedTask {
            job: self.job(),
            place: Arc::new(Mutex::new(SharedOutcome::Running(self))),
            drops: DropsNested::new(),
            join: None,
            site: Location::caller(),
        }
    }
}

/// A handle of a task that others have too: await it for a clone of the value. Made by
/// [`Task::shared`].
///
/// Each waiter gets a clone: of the value, or of the failure; an error of kind `Stopped` if
/// the task was cancelled. Dropping the last handle cancels the task, as dropping a
/// [`Task`] does; a failure that no waiter has taken goes to the failure hook then, if the
/// task owed it to its handle.
///
/// # Cancellation
/// Awaiting is a *point*: others wait for the task too, so a waiter that is cancelled returns
/// `Cancelled` and leaves the task alone.
#[must_use = "dropping the last SharedTask cancels the task"]
pub struct SharedTask<T> {
    job: Job,
    place: Arc<Mutex<SharedOutcome<T>>>,
    drops: DropsNested<Outcome<T>>,
    join: Option<Join>,
    site: &'static Location<'static>,
}

enum SharedOutcome<T> {
    Running(Task<T>),
    /// The first waiter is taking the outcome.
    Taken,
    Over(Arc<TakenOutcome<T>>),
}

/// Dropped with the last handle, on any thread. A value may own the handle of
/// another task, whose value owns the next.
struct TakenOutcome<T> {
    outcome: ManuallyDrop<Outcome<T>>,
    drops: DropsNested<Outcome<T>>,
}

impl<T> Drop for TakenOutcome<T> {
    fn drop(&mut self) {
        // SAFETY: taken once: this is the only destructor.
        let outcome = unsafe { ManuallyDrop::take(&mut self.outcome) };
        self.drops.discard(outcome);
    }
}

impl<T> SharedTask<T> {
    /// Returns an observer of the task.
    pub fn job(&self) -> Job {
        self.job.clone()
    }

    /// The outcome of the task, which has ended. The first caller takes it out of the
    /// handle; no user code runs under the lock.
    fn outcome(&self) -> Arc<TakenOutcome<T>> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *place, SharedOutcome::Taken) {
            SharedOutcome::Over(outcome) => {
                *place = SharedOutcome::Over(outcome.clone());
                outcome
            }
            SharedOutcome::Running(task) => {
                let outcome = Arc::new(TakenOutcome {
                    outcome: ManuallyDrop::new(task.outcome().take_ended()),
                    drops: self.drops,
                });
                *place = SharedOutcome::Over(outcome.clone());
                outcome
            }
            SharedOutcome::Taken => unreachable!("only while the lock is held"),
        }
    }
}

impl<T: Clone> Future for SharedTask<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let this = self.get_mut();
        let (job, site) = (&this.job, this.site);
        let join = this
            .join
            .get_or_insert_with(|| Join::new(job.job_ref(), site));
        let seen = ready!(Pin::new(join).poll(cx));
        this.join = None;
        let seen = seen?;
        if !this.job.is_ended() {
            // The task could not be waited for.
            let error = seen.error().cloned();
            return Poll::Ready(Err(error.unwrap_or_else(|| Error::msg("it has not ended"))));
        }
        let outcome = this.outcome();
        Poll::Ready(match &*outcome.outcome {
            Outcome::Completed(value) => Ok(value.clone()),
            Outcome::Failed(error) => Err(error.clone()),
            Outcome::Cancelled { reason, .. } => {
                let victim = names::victim_alone(&this.job.job_ref());
                Err(Error::stopped(reason.clone()).at(victim, None))
            }
        })
    }
}

impl<T> Clone for SharedTask<T> {
    fn clone(&self) -> SharedTask<T> {
        SharedTask {
            job: self.job.clone(),
            place: self.place.clone(),
            drops: self.drops,
            join: None,
            site: self.site,
        }
    }
}

impl<T> fmt::Debug for SharedTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedTask").field(&self.job).finish()
    }
}
