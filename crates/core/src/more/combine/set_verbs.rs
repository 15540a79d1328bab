//! Verbs of [`TaskSet`] for many at once: all results together, and tasks from an
//! iterator of futures.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::task_set::{TaskSet, result_of};
use crate::base::error::{Cancelled, Result};
use crate::base::outcome::IntoOutcome;
use crate::base::unwind::Contained;

/// # Many at once
impl<T> TaskSet<T> {
    /// Returns a result that is already there, and never waits: none if no task has
    /// ended since, or if the set is empty ([`is_empty`](TaskSet::is_empty) tells the
    /// two apart). Results come in the order in which the tasks ended, as those of
    /// [`next`](TaskSet::next).
    ///
    /// # Cancellation
    /// *Not a point*: results can be taken in a cancelled job too.
    pub fn try_next(&mut self) -> Option<Result<T>> {
        if self.done.is_empty() {
            self.look();
        }
        self.done.pop_front().map(result_of)
    }

    /// Waits until every task has ended and returns all results, in the order in which
    /// the tasks ended, as [`next`](TaskSet::next) would give them one by one. The set is
    /// empty then, and can be used again. For results in the order of their inputs see
    /// [`TaskSet::map`].
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, or is dropped half-way, no result was taken:
    /// all of them are still in the set, and so are the tasks, which are left alone.
    #[track_caller]
    pub fn join_all(&mut self) -> JoinAllInSet<'_, T> {
        JoinAllInSet {
            set: self,
            site: Location::caller(),
        }
    }

    /// Spawns a task for each future of an iterator, each once fewer than the
    /// [limit](TaskSet::limit) are running. A future is taken from the iterator when
    /// there is room for its task.
    ///
    /// # Cancellation
    /// A *point* before each future. If it returns `Cancelled`, or is dropped half-way,
    /// the tasks that were spawned are in the set, and no future was taken that was not
    /// spawned: with `&mut futures` a later call goes on where this one stopped.
    #[track_caller]
    pub fn extend<I>(&mut self, futures: I) -> ExtendSet<'_, T, I::IntoIter>
    where
        I: IntoIterator<Item: Future<Output: IntoOutcome<Value = T>> + Send + 'static>,
        T: Send,
    {
        ExtendSet {
            set: self,
            futures: Contained::new(futures.into_iter()),
            site: Location::caller(),
        }
    }

    /// Cancels every task of the set that has not ended. Their results still come: an
    /// error of kind `Stopped` with this reason, or the value of a task that returned one
    /// nevertheless. The scope and the set go on.
    #[track_caller]
    pub fn abort_all(&self, why: impl Into<Cow<'static, str>>) {
        let why = why.into();
        for task in self.tasks.iter().flatten() {
            task.job().cancel(why.clone());
        }
    }
}

/// The future of [`TaskSet::join_all`].
#[must_use = "futures do nothing unless awaited"]
pub struct JoinAllInSet<'a, T> {
    set: &'a mut TaskSet<T>,
    site: &'static Location<'static>,
}

impl<T> Future for JoinAllInSet<'_, T> {
    type Output = Result<Vec<Result<T>>, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.set.poll_told(cx, this.site))?;
        if this.set.running > 0 {
            this.set.look();
        }
        if this.set.running > 0 {
            this.set.park(cx, this.site);
            return Poll::Pending;
        }
        this.set.leave();
        Poll::Ready(Ok(this.set.done.drain(..).map(result_of).collect()))
    }
}

impl<T> Drop for JoinAllInSet<'_, T> {
    fn drop(&mut self) {
        self.set.leave();
    }
}

impl<T> fmt::Debug for JoinAllInSet<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinAllInSet").field(&self.set).finish()
    }
}

/// The future of [`TaskSet::extend`].
#[must_use = "nothing is spawned until it is awaited"]
pub struct ExtendSet<'a, T, I> {
    set: &'a mut TaskSet<T>,
    futures: Contained<I>,
    site: &'static Location<'static>,
}

// Nothing in it is pinned.
impl<T, I> Unpin for ExtendSet<'_, T, I> {}

impl<T, I> Future for ExtendSet<'_, T, I>
where
    I: Iterator<Item: Future<Output: IntoOutcome<Value = T>> + Send + 'static>,
    T: Send,
{
    type Output = Result<(), Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        loop {
            ready!(this.set.poll_room(cx, this.site))?;
            match this.futures.next() {
                Some(future) => this.set.start(future, false, this.site),
                None => return Poll::Ready(Ok(())),
            };
        }
    }
}

impl<T, I> Drop for ExtendSet<'_, T, I> {
    fn drop(&mut self) {
        self.set.leave();
    }
}

impl<T, I> fmt::Debug for ExtendSet<'_, T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtendSet").field(&self.set).finish()
    }
}
