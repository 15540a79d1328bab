//! Stopping the children of a job without the job, stopping a task and waiting for its
//! outcome, and callbacks for the end of a job.

use std::borrow::Cow;
use std::panic::Location;

use crate::base::outcome::Outcome;
use crate::base::unwind::Nested;
use crate::engine::children;
use crate::engine::hook::{self, HookGuard};
use crate::record::header::{Header, JobRef};
use crate::surface::handle::{self, Job};
use crate::surface::scope::Scope;
use crate::surface::task::{Task, TaskOutcome};

impl Scope {
    /// Cancels every child task of the scope, and every future that it [hosts](Scope::host), and
    /// leaves the scope and its body alone: the scope takes new children at once. Services are
    /// passed by, since they serve the children that come next. Returns how many children this call
    /// cancelled.
    ///
    /// Only children that exist when this is called are cancelled, each with the jobs below
    /// it; a task that calls it and is itself such a child is cancelled too. Scopes that the
    /// body has opened are part of the body, and are left alone with the tasks spawned in
    /// them.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # async fn next_query() -> kinfolk::Result<Option<String>> { Ok(None) }
    /// # async fn search(query: String) -> kinfolk::Result<()> { Ok(()) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// kinfolk::scope(async |s| {
    ///     while let Some(query) = next_query().await? {
    ///         s.cancel_children("a newer query");
    ///         s.launch(search(query));
    ///     }
    ///     Ok(())
    /// })
    /// .await
    /// # }
    /// ```
    #[track_caller]
    pub fn cancel_children(&self, why: impl Into<Cow<'static, str>>) -> usize {
        cancel_children(self.header(), why.into(), Location::caller())
    }
}

impl Job {
    /// Cancels every child task of the job, and leaves the job itself alone; see
    /// [`Scope::cancel_children`].
    #[track_caller]
    pub fn cancel_children(&self, why: impl Into<Cow<'static, str>>) -> usize {
        cancel_children(&self.job_ref(), why.into(), Location::caller())
    }

    /// Calls `f` once, with how the job ended, when it and everything below it has ended; at
    /// once, on the calling thread, if it has ended already.
    ///
    /// Any job may register a callback at any other. Callbacks run in the order in which they were
    /// registered, on the thread that ends the job, which is one of the job's lane, outside every
    /// job and every lock; the end of the parent waits for them, so they may only schedule: set a
    /// flag, send a message, wake a task. A failure that `f` sees still counts as not taken. A
    /// panic in `f` fails no job: the failure hook gets it.
    ///
    /// Dropping the guard removes the callback; [`keep`](HookGuard::keep) leaves it
    /// registered. For the cancel, which comes before the end, there is
    /// [`on_cancel`](crate::on_cancel).
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
    /// # async fn serve(client: u32) -> kinfolk::Result<()> { Ok(()) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// # let client = 1;
    /// let open = Arc::new(AtomicUsize::new(1));
    /// let count = open.clone();
    /// let connection = kinfolk::launch(serve(client));
    /// connection
    ///     .on_end(move |how| {
    ///         count.fetch_sub(1, Relaxed);
    ///         if let Some(error) = how.error() {
    ///             println!("client {client}: {error}");
    ///         }
    ///     })
    ///     .keep();
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_end(&self, f: impl FnOnce(&Outcome<()>) + Send + 'static) -> HookGuard {
        let job = self.job_ref();
        hook::register_for_the_end(
            &self.job_ref(),
            Nested::new(Box::new(move |_| f(&handle::untyped(&job)))),
        )
    }
}

fn cancel_children(h: &Header, why: Cow<'static, str>, site: &'static Location<'static>) -> usize {
    let mut children: Vec<JobRef> = Vec::new();
    children::children(h, &mut |child| children.push(child));
    // In the order in which they were spawned.
    children.reverse();
    children.retain(|child| child.was_spawned() && !child.is_service());
    let moved = children
        .iter()
        .filter(|child| handle::cancel_asked(child, why.clone(), site));
    moved.count()
}

impl<T> Task<T> {
    /// Cancels the task, at once, and returns a future that waits for its end and returns
    /// its outcome: a late value and a failure of its clean-up are not lost.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # async fn watch() -> kinfolk::Result<u32> { Ok(1) }
    /// # async fn demo() -> kinfolk::Result<()> {
    /// let watcher = kinfolk::spawn(watch());
    /// let outcome = watcher.stop("no longer needed").await?;
    /// if let Some(error) = outcome.error() {
    ///     println!("it failed while it stopped: {error}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// *Not a point*; as [`outcome`](Task::outcome). The outer `Err` is always the waiter's
    /// own cancellation.
    #[track_caller]
    pub fn stop(self, why: impl Into<Cow<'static, str>>) -> TaskOutcome<T> {
        self.cancel(why);
        self.outcome()
    }
}
