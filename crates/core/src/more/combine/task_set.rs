//! [`TaskSet`]: child tasks whose results are taken as they come, with a limit to
//! how many run at once.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::base::error::{Cancelled, Error, Result};
use crate::base::outcome::{IntoOutcome, Outcome};
use crate::base::unwind::Contained;
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::engine::names;
use crate::more::combine::wake_list::WakeList;
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::header::Site;
use crate::surface::handle::Job;
use crate::surface::scope::Scope;
use crate::surface::spawn::{ChildSort, SpawnPlace};
use crate::surface::task::TaskOutcome;

/// Child tasks whose results are taken as they come.
///
/// The tasks are children of the scope the set was made in, and that scope's
/// policy holds: in a fail-fast scope (the default) a task that fails cancels
/// the scope, in a [supervisor](crate::ScopeBuilder::supervisor) its failure is
/// a result like any other. The failure of an [attempt](TaskSet::attempt) is
/// such a result in either.
///
/// Dropping the set cancels its tasks; the scope waits for them. Results that were not taken
/// are dropped with the set.
///
/// ```
/// # use kinfolk_core::TaskSet;
/// # async fn fetch(url: String) -> kinfolk_core::Result<String> { Ok(url) }
/// # async fn demo(urls: Vec<String>) -> kinfolk_core::Result<()> {
/// let mut pages = TaskSet::new().limit(8)?;
/// for url in urls {
///     pages.spawn(fetch(url)).await?; // waits while eight are running
/// }
/// while let Some(page) = pages.next().await? {
///     println!("{}", page?);
/// }
/// # Ok(())
/// # }
/// ```
///
/// A job that is cancelled half-way can take the results that exist by then in a
/// [`cleanup`](crate::cleanup). The tasks have been cancelled too, so `next` does not wait
/// long there:
///
/// ```
/// # use kinfolk_core::{self as kinfolk, TaskSet, cleanup};
/// # async fn fetch(url: String) -> kinfolk::Result<String> { Ok(url) }
/// async fn fetch_all(urls: Vec<String>, done: &mut Vec<String>) -> kinfolk::Result<()> {
///     let mut pages = TaskSet::new().limit(8)?;
///     let all = start_and_take(&mut pages, urls, done).await; // as above
///     if all.is_err() {
///         cleanup(async {
///             while let Some(page) = pages.next().await? {
///                 done.extend(page.ok());
///             }
///             Ok::<_, kinfolk::Error>(())
///         })
///         .await?;
///     }
///     all
/// }
/// # async fn start_and_take(
/// #     pages: &mut TaskSet<String>, urls: Vec<String>, done: &mut Vec<String>,
/// # ) -> kinfolk::Result<()> {
/// #     for url in urls { pages.spawn(fetch(url)).await?; }
/// #     while let Some(page) = pages.next().await? { done.push(page?); }
/// #     Ok(())
/// # }
/// ```
///
/// With the feature `stream` the set is also a `Stream` of results; polling it is a *point*,
/// and a cancellation of the polling job comes as an item.
#[must_use = "dropping a TaskSet cancels what is in it"]
pub struct TaskSet<T> {
    scope: Scope,
    pub(super) most: usize,
    /// By index; none if the result has been taken out.
    pub(super) tasks: Vec<Option<TaskOutcome<T>>>,
    free: Vec<usize>,
    pub(super) running: usize,
    ready: WakeList,
    /// Those that have ended, in that order. Their outcomes are not taken yet: a
    /// failure that a supervisor's child owes is reported if the set goes.
    pub(super) done: VecDeque<TaskOutcome<T>>,
    /// For the one call that waits: each call borrows the set.
    wait: Wait,
    yielded: Yielded,
}

impl<T> TaskSet<T> {
    /// Makes an empty set, whose tasks will be children of the current job.
    ///
    /// # Panics
    /// Outside any job, where no job could wait for the tasks.
    #[track_caller]
    #[expect(
        clippy::new_without_default,
        reason = "it depends on where it is called, and may panic"
    )]
    pub fn new() -> TaskSet<T> {
        TaskSet::within(&Scope::here("TaskSet::new", std::panic::Location::caller()))
    }

    /// Makes an empty set, whose tasks will be children of `scope`.
    pub fn within(scope: &Scope) -> TaskSet<T> {
        TaskSet {
            scope: scope.clone(),
            most: usize::MAX,
            tasks: Vec::new(),
            free: Vec::new(),
            running: 0,
            ready: WakeList::new(),
            done: VecDeque::new(),
            wait: Wait::new(),
            yielded: Yielded::here(),
        }
    }

    /// Limits how many tasks run at once: [`spawn`](TaskSet::spawn) then waits for one to
    /// end. Tasks that have ended, and whose results wait to be taken, do not count. Zero is
    /// an error.
    pub fn limit(mut self, most: usize) -> Result<TaskSet<T>> {
        check_limit("TaskSet::limit", most)?;
        self.most = most;
        Ok(self)
    }

    /// Returns how many results are still to come, including those that wait to be taken.
    pub fn len(&self) -> usize {
        self.running + self.done.len()
    }

    /// Returns true if no result is to come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Spawns a task as soon as fewer tasks than the [limit](TaskSet::limit) are running.
    /// Returns the task's observer.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, or is dropped before it is over, the future was
    /// dropped without having been polled, and the set is unchanged.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> SpawnInSet<'_, T, F>
    where
        F: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
        T: Send,
    {
        SpawnInSet {
            set: self,
            future: Some(Contained::new(future)),
            attempt: false,
            site: Location::caller(),
        }
    }

    /// Spawns a task whose failure is only the result that the set gives for it, as a
    /// supervisor's would be, whatever the policy of the scope; see [`Scope::attempt`].
    /// A failure that is still in the set when the set is dropped goes to the failure hook.
    ///
    /// ```
    /// # use kinfolk_core::TaskSet;
    /// # async fn check(link: String) -> kinfolk_core::Result<u16> { Ok(200) }
    /// # async fn demo(links: Vec<String>) -> kinfolk_core::Result<()> {
    /// let mut links_checked = TaskSet::new().limit(8)?;
    /// for link in links {
    ///     links_checked.attempt(check(link)).await?;
    /// }
    /// while let Some(result) = links_checked.next().await? {
    ///     match result {
    ///         Ok(status) => println!("{status}"),
    ///         Err(error) => println!("broken: {error}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancellation
    /// A *point*; as [`spawn`](TaskSet::spawn).
    #[track_caller]
    pub fn attempt<F>(&mut self, future: F) -> SpawnInSet<'_, T, F>
    where
        F: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
        T: Send,
    {
        SpawnInSet {
            set: self,
            future: Some(Contained::new(future)),
            attempt: true,
            site: Location::caller(),
        }
    }

    /// Waits for the next task to end and returns its result; `None` if no task is left.
    /// Results come in the order in which the tasks ended, each in constant time.
    ///
    /// The result of a cancelled task is an error of kind `Stopped`, unless the task still
    /// returned a value: then that is the result.
    ///
    /// # Cancellation
    /// A *point*. The outer `Err` is always the waiter's own cancellation. If the
    /// call returns `Cancelled`, or is dropped half-way, no result was taken: it
    /// is still in the set, and so are the tasks, which are left alone. So
    /// `next()` may be an arm of a [`select!`](crate::select).
    #[track_caller]
    #[expect(
        clippy::should_implement_trait,
        reason = "the word every collection of results uses for it"
    )]
    pub fn next(&mut self) -> NextInSet<'_, T> {
        NextInSet {
            set: self,
            site: Location::caller(),
        }
    }

    /// Polls the tasks that were woken: those that have ended move to `done`.
    pub(super) fn look(&mut self) {
        for _ in 0..self.ready.begin() {
            let Some(index) = self.ready.next() else {
                break;
            };
            self.look_at(index);
        }
    }

    fn look_at(&mut self, index: usize) {
        let Some(task) = &mut self.tasks[index] else {
            return;
        };
        let waker = self.ready.waker(index);
        let polled = {
            // This wait belongs to no job: the set owns the task, and a job that
            // waits for the set may be cancelled and leave the task alone.
            let _none = context::leave();
            task.poll_ended(&mut Context::from_waker(waker))
        };
        if polled.is_pending() {
            return;
        }
        self.done.extend(self.tasks[index].take());
        self.free.push(index);
        self.running -= 1;
    }

    fn insert(&mut self, task: TaskOutcome<T>) {
        let index = match self.free.pop() {
            Some(index) => {
                self.tasks[index] = Some(task);
                index
            }
            None => {
                self.tasks.push(Some(task));
                self.tasks.len() - 1
            }
        };
        self.running += 1;
        // Registers the task for its end, so that results come in the order of
        // the ends.
        self.look_at(index);
    }

    /// Waits for a task to end.
    pub(super) fn park(&mut self, cx: &mut Context<'_>, site: &'static Location<'static>) {
        self.ready.park(cx.waker());
        self.wait
            .pending(cx.waker(), WaitKind::Task, Site::of(site));
    }

    /// A point at the start of a poll.
    pub(super) fn poll_told(
        &mut self,
        cx: &mut Context<'_>,
        site: &'static Location<'static>,
    ) -> Poll<Result<(), Cancelled>> {
        self.yielded.move_to(site);
        let asked = point::poll_point_at(cx, &mut self.yielded, Site::of(site));
        if let Poll::Ready(Err(_)) = asked {
            self.leave();
        }
        asked
    }

    /// Waits until fewer than the limit are running. A point.
    pub(super) fn poll_room(
        &mut self,
        cx: &mut Context<'_>,
        site: &'static Location<'static>,
    ) -> Poll<Result<(), Cancelled>> {
        ready!(self.poll_told(cx, site))?;
        if self.running >= self.most {
            self.look();
        }
        if self.running >= self.most {
            self.park(cx, site);
            return Poll::Pending;
        }
        self.leave();
        Poll::Ready(Ok(()))
    }

    /// Spawns a task, whatever the limit says.
    pub(super) fn start<F>(
        &mut self,
        future: F,
        attempt: bool,
        site: &'static Location<'static>,
    ) -> Job
    where
        F: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
        T: Send,
    {
        let mut place = SpawnPlace::below(self.scope.header());
        if attempt {
            place = place.attempted();
        }
        let task = place.spawn_as(future, ChildSort::ORDINARY, site);
        let job = task.job();
        self.insert(task.outcome());
        job
    }

    /// The waiting code waits no longer.
    pub(super) fn leave(&mut self) {
        self.wait.over();
        self.yielded.reset();
    }

    pub(crate) fn poll_next_result(
        &mut self,
        cx: &mut Context<'_>,
        site: &'static Location<'static>,
    ) -> Poll<Result<Option<Result<T>>, Cancelled>> {
        ready!(self.poll_told(cx, site))?;
        if self.done.is_empty() && self.running > 0 {
            self.look();
        }
        let next = self.done.pop_front();
        if next.is_none() && self.running > 0 {
            self.park(cx, site);
            return Poll::Pending;
        }
        self.leave();
        Poll::Ready(Ok(next.map(result_of)))
    }
}

/// How a task of a set ended.
pub(super) fn result_of<T>(ended: TaskOutcome<T>) -> Result<T> {
    let job = ended.job().job_ref();
    match ended.take_ended() {
        Outcome::Completed(value) => Ok(value),
        Outcome::Cancelled {
            late: Some(value), ..
        } => Ok(value),
        Outcome::Failed(error) => Err(error),
        Outcome::Cancelled { reason, late: None } => {
            Err(Error::stopped(reason).at(names::victim_alone(&job), None))
        }
    }
}

// Nothing in it is pinned.
impl<T> Unpin for TaskSet<T> {}

impl<T> fmt::Debug for TaskSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet")
            .field("running", &self.running)
            .field("done", &self.done.len())
            .finish_non_exhaustive()
    }
}

/// The future of [`TaskSet::next`].
#[must_use = "futures do nothing unless awaited"]
pub struct NextInSet<'a, T> {
    set: &'a mut TaskSet<T>,
    site: &'static Location<'static>,
}

impl<T> Future for NextInSet<'_, T> {
    type Output = Result<Option<Result<T>>, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.set.poll_next_result(cx, this.site)
    }
}

impl<T> Drop for NextInSet<'_, T> {
    fn drop(&mut self) {
        self.set.leave();
    }
}

impl<T> fmt::Debug for NextInSet<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextInSet").field(&self.set).finish()
    }
}

/// The future of [`TaskSet::spawn`] and [`TaskSet::attempt`].
#[must_use = "nothing is spawned until it is awaited"]
pub struct SpawnInSet<'a, T, F> {
    set: &'a mut TaskSet<T>,
    future: Option<Contained<F>>,
    attempt: bool,
    site: &'static Location<'static>,
}

// The future is never polled in here.
impl<T, F> Unpin for SpawnInSet<'_, T, F> {}

impl<T, F> Future for SpawnInSet<'_, T, F>
where
    F: Future<Output: IntoOutcome<Value = T>> + Send + 'static,
    T: Send,
{
    type Output = Result<Job, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        ready!(this.set.poll_room(cx, this.site))?;
        let future = this
            .future
            .take()
            .expect("a spawn was polled after completion")
            .into_inner();
        Poll::Ready(Ok(this.set.start(future, this.attempt, this.site)))
    }
}

impl<T, F> Drop for SpawnInSet<'_, T, F> {
    fn drop(&mut self) {
        self.set.leave();
    }
}

impl<T, F> fmt::Debug for SpawnInSet<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SpawnInSet").field(&self.set).finish()
    }
}

/// A limit of zero would wait for ever.
pub(crate) fn check_limit(verb: &str, most: usize) -> Result<()> {
    if most > 0 {
        return Ok(());
    }
    let error = Error::msg(format!(
        "{verb} of zero: no task could ever run. The limit must be at least 1"
    ));
    Err(match names::victim_here() {
        Some(here) => error.at(here, None),
        None => error,
    })
}
