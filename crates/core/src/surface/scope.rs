//! Scopes: opening one, spawning into it, and leaving it when all of its jobs have ended.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

use crate::base::drop_at_end::DropAtEnd;
use crate::base::error::{Cancelled, Error, ErrorKind, Result};
use crate::base::kind::JobKind;
use crate::base::outcome::{IntoOutcome, Outcome};
use crate::base::own::OwnError;
use crate::base::patience::Patience;
use crate::base::priority::Priority;
use crate::base::reason::Reason;
use crate::base::unwind::Nested;
use crate::engine::children;
use crate::engine::context;
use crate::engine::deadline;
use crate::engine::hook::{self, HookGuard};
use crate::engine::tree::Tree;
use crate::engine::walk;
use crate::points::sleep::Moment;
use crate::record::header::{Header, JobRef};
use crate::record::state;
use crate::surface::handle::{self, Job, Join};
use crate::surface::inline::{Inline, Just, Open, SectionBudget, Setup, WithScope, WithScopeAs};
use crate::surface::lease::Lease;
use crate::surface::spawn::{ChildSort, SpawnError, SpawnPlace, Spawner};
use crate::surface::task::Task;

/// A handle to a scope, with which to spawn into the scope and to cancel it. It is cheap
/// to clone and may be sent to other threads. The handle does not keep the scope open; a
/// [`lease`](Scope::lease) does.
#[derive(Clone)]
pub struct Scope(JobRef);

/// Opens a scope and runs `body` in it; returns when the body and everything
/// spawned into the scope have ended.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn demo() -> kinfolk::Result<()> {
/// let sum = kinfolk::scope(async |s| {
///     let a = s.spawn(async { 20 });
///     let b = s.spawn(async { 22 });
///     Ok(a.await? + b.await?)
/// })
/// .await?;
/// assert_eq!(sum, 42);
/// # Ok(())
/// # }
/// ```
///
/// The body returns a [`Result`]: one without a value ends with `Ok(())`. If that is
/// missing, the compiler says only "expected `Result<_, kinfolk::Error>`, found `()`": the
/// type is fixed here so that `Ok` and `?` in a body need no type written out.
///
/// # Cancellation
/// Opening and leaving a scope is *not a point*. If the enclosing job is cancelled, the
/// scope and everything in it are cancelled too; the call returns what the body returns.
#[track_caller]
pub fn scope<F, B, T>(body: F) -> Inline<WithScope<F>>
where
    F: FnOnce(Scope) -> B,
    B: Future<Output = Result<T>>,
{
    Inline::new(
        WithScope(body),
        Setup::new(JobKind::Scope, Location::caller()),
    )
}

/// Opens a scope like [`scope`], for a body that fails with an error type of your own; the call
/// returns that type too.
///
/// If the body's error is all that went wrong, the caller gets it exactly as it
/// was returned. Anything else (a child's failure, a deadline, a cancellation,
/// a panic, or several failures together) comes as `E::from(error)`, and what
/// the body returned can be [downcast](Error::downcast_ref) from that error.
///
/// Return the inner [`Error`] from your error's `source()`: then an error around a
/// [`Cancelled`] counts as a cancellation, and one around a child's failure takes the place
/// of that failure. A wrapper that forwards `source()` to the inner error's source
/// (`transparent` in thiserror) hides the inner error itself: a `Cancelled` below it is
/// still recognised, but a child's failure is then listed a second time beside it.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// #[derive(Debug)]
/// enum PageError {
///     Missing,
///     Lost(kinfolk::Error),
/// }
///
/// impl From<kinfolk::Error> for PageError {
///     fn from(error: kinfolk::Error) -> Self {
///         PageError::Lost(error)
///     }
/// }
/// # impl std::fmt::Display for PageError {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
/// #         f.write_str("no page")
/// #     }
/// # }
/// # impl std::error::Error for PageError {
/// #     fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
/// #         match self {
/// #             PageError::Lost(error) => Some(error),
/// #             PageError::Missing => None,
/// #         }
/// #     }
/// # }
///
/// # async fn demo() -> Result<(), PageError> {
/// let page = kinfolk::scope_as::<PageError, _>(async |s| {
///     let page = s.spawn(async { None::<String> });
///     page.await?.ok_or(PageError::Missing)
/// })
/// .await;
/// assert!(matches!(page, Err(PageError::Missing)));
/// # Ok(())
/// # }
/// ```
///
/// The type is named in the call, as here, or in the closure
/// (`async |s| -> Result<String, PageError> {…}`), or not at all where the
/// result of the call decides it.
///
/// # Cancellation
/// As [`scope`].
#[track_caller]
pub fn scope_as<E: OwnError, F>(body: F) -> Inline<WithScopeAs<F>>
where
    F: FnOnce(Scope) -> <WithScopeAs<F> as Open>::Body,
    WithScopeAs<F>: Open<Error = E>,
{
    Inline::new(
        WithScopeAs(body),
        Setup::new(JobKind::Scope, Location::caller()),
    )
}

/// Runs `future` for at most `limit`, counted from the first poll.
///
/// When the time is up, the future and everything that it has started are cancelled. A
/// future that is told by a cancellation point may clean up and return; one that awaits
/// no cancellation point is dropped. `Duration::MAX` means no limit.
///
/// What the future itself returns wins over the deadline: with `timeout(d, scope(…))`
/// a child of that scope which fails while it cleans up after the deadline makes the
/// call fail, with [`during`](crate::Error::during) that says Deadline. A scope with a deadline of
/// its own, `Scope::named("…").timeout(d).run(…)`, is `TimedOut` then, and keeps the
/// child's failure in [`suppressed`](crate::Error::suppressed).
///
/// Code that tries again after an error must first ask whose cancellation it was:
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # use std::time::Duration;
/// # async fn fetch(url: &str) -> kinfolk::Result<String> { Ok(url.into()) }
/// async fn fetch_in_three_tries(url: &str) -> kinfolk::Result<String> {
///     for _ in 0..2 {
///         match kinfolk::timeout(Duration::from_secs(5), fetch(url)).await {
///             Err(error) if !error.is_cancelled() => continue, // failed, or timed out
///             done => return done,                             // a page, or we are to stop
///         }
///     }
///     kinfolk::timeout(Duration::from_secs(5), fetch(url)).await
/// }
/// ```
///
/// # Cancellation
/// Opening and leaving is *not a point*; the future runs as a scope of its
/// own. `Err` of kind `TimedOut` if its own deadline cut it short, `Cancelled`
/// if the enclosing job is cancelled.
#[track_caller]
pub fn timeout<B>(limit: Duration, future: B) -> Inline<Just<B>>
where
    B: Future<Output: IntoOutcome>,
{
    timeout_for(Moment::After(limit), future, Location::caller())
}

/// Runs a future with a time limit like [`timeout`], with an instant instead of a duration.
///
/// # Cancellation
/// As [`timeout`].
#[track_caller]
pub fn timeout_at<B>(at: Instant, future: B) -> Inline<Just<B>>
where
    B: Future<Output: IntoOutcome>,
{
    timeout_for(Moment::At(at), future, Location::caller())
}

fn timeout_for<B>(limit: Moment, future: B, site: &'static Location<'static>) -> Inline<Just<B>>
where
    B: Future<Output: IntoOutcome>,
{
    let mut setup = Setup::new(JobKind::Timeout, site);
    setup.limit = limit;
    Inline::new(Just(future), setup)
}

/// Runs `future` protected from cancellation: no cancel from outside reaches it or what it
/// spawns. The future runs even if the current job has been cancelled already; the job is
/// then told at its first point after the shield.
///
/// # Cancellation
/// *Not a point.*
#[track_caller]
pub fn shield<B>(future: B) -> Inline<Just<B>>
where
    B: Future<Output: IntoOutcome>,
{
    Inline::new(
        Just(future),
        Setup::new(JobKind::Shield, Location::caller()),
    )
}

/// Protects a future from cancellation like [`shield`], for a limited time: `budget` is counted
/// from the moment at which the shield first holds a cancel back, and once for nested shields.
/// When it is spent, the cancel reaches the future inside.
///
/// # Cancellation
/// *Not a point.*
#[track_caller]
pub fn shield_for<B>(budget: Duration, future: B) -> Inline<Just<B>>
where
    B: Future<Output: IntoOutcome>,
{
    let mut setup = Setup::new(JobKind::Shield, Location::caller());
    setup.more().budget = Some(SectionBudget::For(budget));
    Inline::new(Just(future), setup)
}

/// Runs `future` as the clean-up of a cancelled job: i/o, sleeps, locks and spawns work
/// again inside. Its time is limited by [`Patience::cleanup`].
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn flush() -> kinfolk::Result<()> { Ok(()) }
/// async fn writer() -> kinfolk::Result<()> {
///     let told = kinfolk::park().await;
///     kinfolk::cleanup(flush()).await?;
///     told?;
///     Ok(())
/// }
/// ```
///
/// # Cancellation
/// *Not a point*; a [`shield_for`] with the time that clean-up may take as its budget.
#[track_caller]
pub fn cleanup<B>(future: B) -> Inline<Just<B>>
where
    B: Future<Output: IntoOutcome>,
{
    let mut setup = Setup::new(JobKind::Shield, Location::caller());
    setup.more().budget = Some(SectionBudget::Cleanup);
    Inline::new(Just(future), setup)
}

/// Runs `future` while cancellation of the current job is held back: during that time
/// neither the job nor its children are told. Fails if the job has been cancelled
/// already; the future is then dropped without having been polled.
///
/// # Cancellation
/// A *point* at entry; a cancel that was held back is reported by the next point after it.
#[track_caller]
pub fn try_shield<B: Future>(future: B) -> impl Future<Output = Result<B::Output, Cancelled>> {
    let guard = crate::points::ignore::ignore_cancellation();
    let future = DropAtEnd::new(future);
    async move {
        let _guard = guard.await?;
        Ok(future.await)
    }
}

/// Options of a scope that is about to be opened. Made by [`Scope::named`] and
/// [`Scope::build`].
#[must_use = "nothing is opened until `run` is awaited"]
pub struct ScopeBuilder(Setup);

impl ScopeBuilder {
    /// Names the scope.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.0.more().options.name = Some(name.into());
        self
    }

    /// Cancels the scope this long after its first poll.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.0.limit = Moment::After(limit);
        self
    }

    /// Cancels the scope at this instant.
    pub fn deadline(mut self, at: Instant) -> Self {
        self.0.limit = Moment::At(at);
        self
    }

    /// Sets the text of the cancel reason that is used when the deadline passes.
    pub fn reason(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.0.more().text = Some(text.into());
        self
    }

    /// Makes the scope a supervisor: a child's failure does not cancel the scope. It is
    /// returned by the child's `Task`, or given to the failure hook if the task is not
    /// awaited.
    pub fn supervisor(mut self) -> Self {
        self.0.supervisor = true;
        self
    }

    /// Sets how long a cancelled job in this scope may stay idle before it is dropped.
    pub fn patience(mut self, patience: Patience) -> Self {
        self.0.more().options.patience = Some(patience);
        self
    }

    /// Sets the priority of the jobs spawned in this scope. Its body is part of the task
    /// that opens it, and keeps the priority of that task.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.0.more().options.priority = Some(priority);
        self
    }

    /// Opens the scope cancelled: its body runs to its first point and is told there.
    pub fn cancelled(mut self, why: impl Into<Cow<'static, str>>) -> Self {
        self.0.more().cancelled = Some(why.into());
        self
    }

    /// Opens the scope and runs `body` in it; see [`scope`].
    ///
    /// # Cancellation
    /// As [`scope`].
    pub fn run<F, B, T>(self, body: F) -> Inline<WithScope<F>>
    where
        F: FnOnce(Scope) -> B,
        B: Future<Output = Result<T>>,
    {
        Inline::new(WithScope(body), self.0)
    }

    /// Opens the scope like [`run`](ScopeBuilder::run), with an error type of your own; see
    /// [`scope_as`].
    ///
    /// # Cancellation
    /// As [`scope`].
    pub fn run_as<E: OwnError, F>(self, body: F) -> Inline<WithScopeAs<F>>
    where
        F: FnOnce(Scope) -> <WithScopeAs<F> as Open>::Body,
        WithScopeAs<F>: Open<Error = E>,
    {
        Inline::new(WithScopeAs(body), self.0)
    }

    /// Runs `future` as the body.
    ///
    /// # Cancellation
    /// As [`scope`].
    pub fn run_future<B>(self, future: B) -> Inline<Just<B>>
    where
        B: Future<Output: IntoOutcome>,
    {
        Inline::new(Just(future), self.0)
    }
}

impl fmt::Debug for ScopeBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScopeBuilder({})", self.0.kind)
    }
}

/// The error of [`Scope::reschedule`]: why the deadline was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RescheduleError {
    /// The scope's deadline has fired, or the scope was cancelled for another reason.
    Cancelled,
    /// The scope is over.
    Finished,
    /// The job is a task or the root, which have no deadline of their own.
    NoDeadline,
}

impl fmt::Display for RescheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RescheduleError::Cancelled => "the scope is cancelled: its deadline cannot be moved",
            RescheduleError::Finished => "the scope is over: there is no deadline to move",
            RescheduleError::NoDeadline => {
                "a task has no deadline of its own: open a scope or a timeout in it"
            }
        })
    }
}

impl std::error::Error for RescheduleError {}

impl Scope {
    pub(crate) fn new(job: JobRef) -> Scope {
        Scope(job)
    }

    pub(crate) fn header(&self) -> &Header {
        &self.0
    }

    /// Wakes what polls the scope.
    pub(crate) fn wake_poller(&self) {
        walk::wake_poller(&self.0);
    }

    /// Begins a scope with options.
    #[track_caller]
    pub fn build() -> ScopeBuilder {
        ScopeBuilder(Setup::new(JobKind::Scope, Location::caller()))
    }

    /// Begins a scope with a name.
    #[track_caller]
    pub fn named(name: impl Into<Cow<'static, str>>) -> ScopeBuilder {
        Scope::build().named(name)
    }

    /// Returns the current job as a scope; `None` outside any job.
    pub fn current() -> Option<Scope> {
        context::current().map(Scope)
    }

    /// The current job, for a verb that is called at `site`.
    pub(crate) fn here(verb: &str, site: &'static Location<'static>) -> Scope {
        Scope::current().unwrap_or_else(|| {
            panic!(
                "{verb} at {}:{} was called outside any Kinfolk job, where no job could wait \
                 for the child: call it inside a runtime, or spawn into a scope you hold",
                site.file(),
                site.line()
            )
        })
    }

    /// Returns `job` as a scope: every job is a scope for the tasks spawned into it.
    pub fn of_job(job: &Job) -> Scope {
        Scope(job.job_ref())
    }

    /// Returns an observer of the scope.
    pub fn job(&self) -> Job {
        Job::new(self.0.clone())
    }

    /// Begins a spawn with a name.
    pub fn task(&self, name: impl Into<Cow<'static, str>>) -> Spawner {
        Spawner::new(self.clone()).named(name)
    }

    /// Begins a spawn onto a lane.
    pub fn on<L>(&self, lane: L) -> Spawner<L> {
        Spawner::new(self.clone()).on(lane)
    }

    /// Spawns a child task. If it fails, its family is cancelled, even where the failure is
    /// handled when the task is awaited: for a failure that only its `await` returns, there
    /// is [`attempt`](Scope::attempt). See [`Spawner::spawn`].
    #[inline]
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        let place = SpawnPlace::below(&self.0);
        place.spawn_as(future, ChildSort::ORDINARY, Location::caller())
    }

    /// Spawns a child task that needs no handle; see [`Spawner::launch`].
    #[track_caller]
    pub fn launch<F>(&self, future: F) -> Job
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        SpawnPlace::below(&self.0).launch(future, Location::caller())
    }

    /// Spawns, or gives the future back; see [`Spawner::try_spawn`].
    #[track_caller]
    pub fn try_spawn<F>(
        &self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).try_spawn(future)
    }

    /// Launches, or gives the future back; see [`Spawner::try_launch`].
    #[track_caller]
    pub fn try_launch<F>(&self, future: F) -> Result<Job, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).try_launch(future)
    }

    /// Spawns and polls once, here, or gives the future back; see [`Spawner::try_spawn_now`].
    #[track_caller]
    pub fn try_spawn_now<F>(
        &self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).try_spawn_now(future)
    }

    /// Spawns a task that reaches its first point, or gives the future back; see [`Spawner::try_spawn_atomic`].
    #[track_caller]
    pub fn try_spawn_atomic<F>(
        &self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).try_spawn_atomic(future)
    }

    /// Spawns a task that starts when awaited, or gives the future back; see [`Spawner::try_spawn_lazy`].
    #[track_caller]
    pub fn try_spawn_lazy<F>(
        &self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).try_spawn_lazy(future)
    }

    /// Spawns a service, or gives the future back; see [`Spawner::try_spawn_service`].
    #[track_caller]
    pub fn try_spawn_service<F>(
        &self,
        future: F,
    ) -> Result<Task<<F::Output as IntoOutcome>::Value>, SpawnError<F>>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).try_spawn_service(future)
    }

    /// Spawns and polls once, here; see [`Spawner::spawn_now`].
    #[inline]
    #[track_caller]
    pub fn spawn_now<F>(&self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        let place = SpawnPlace::below(&self.0);
        place.spawn_as(future, ChildSort::NOW, Location::caller())
    }

    /// Spawns a task that reaches its first point; see
    /// [`Spawner::spawn_atomic`].
    #[track_caller]
    pub fn spawn_atomic<F>(&self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).spawn_atomic(future)
    }

    /// Spawns a task that starts when awaited; see [`Spawner::spawn_lazy`].
    #[track_caller]
    pub fn spawn_lazy<F>(&self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).spawn_lazy(future)
    }

    /// Spawns a service; see [`Spawner::spawn_service`].
    #[track_caller]
    pub fn spawn_service<F>(&self, future: F) -> Task<<F::Output as IntoOutcome>::Value>
    where
        F: Future<Output: IntoOutcome<Value: Send>> + Send + 'static, // to borrow: `local_scope`
    {
        Spawner::new(self.clone()).spawn_service(future)
    }

    /// Makes a job of a future that code of others polls: the handler of a web framework, the
    /// body of a stream, a task of another executor. From its first poll on the future is a
    /// child of this scope, although it may borrow and is polled where its caller awaits it.
    ///
    /// The scope waits for the future, and a cancel of the scope tells it at its next point.
    /// Jobs that it spawns are below it. Its error and its panic go to the caller, like
    /// those of a [`scope`], and cancel no sibling.
    ///
    /// The caller may drop the future before it completes, as a server does when its client
    /// hangs up: its children are cancelled then, and this scope waits for them. In a scope
    /// that takes no more children the future is dropped unpolled, and the call returns an
    /// error of kind [`Stopped`](ErrorKind::Stopped). A shutdown that drops by force gives
    /// the job up, since the future belongs to its caller: polled later, the future is
    /// dropped and returns `Stopped`. Until then a caller that neither polls nor drops it
    /// (`std::mem::forget`) holds the scope open, and every timeout around it, as a forgotten
    /// [`Lease`] does.
    ///
    /// ```
    /// use kinfolk_core::{Result, Scope, spawn};
    ///
    /// /// Called, polled and dropped by a server that knows nothing of jobs.
    /// async fn handle(server: &Scope, path: &str) -> Result<usize> {
    ///     let request = server.task("request").host(async {
    ///         let length = path.len();
    ///         let part = spawn(async move { length }); // cancelled if the client hangs up
    ///         part.await
    ///     });
    ///     request.await
    /// }
    /// ```
    ///
    /// [`task`](Scope::task) names the job.
    ///
    /// # Cancellation
    /// Opening and leaving it is *not a point*. Dropping it half-way cancels its children.
    #[track_caller]
    pub fn host<F>(&self, future: F) -> Inline<Just<F>>
    where
        F: Future<Output: IntoOutcome>,
    {
        Spawner::new(self.clone()).host(future)
    }

    /// Takes a lease, which keeps the scope open from any thread or callback; `None` if the
    /// scope has ended or is closed.
    pub fn lease(&self) -> Option<Lease> {
        Lease::of(&self.0)
    }

    /// Cancels the scope and everything in it; see [`Job::cancel`]. The job that opened the
    /// scope is not cancelled.
    #[track_caller]
    pub fn cancel(&self, why: impl Into<Cow<'static, str>>) -> bool {
        handle::cancel_asked(&self.0, why.into(), Location::caller())
    }

    /// Returns true once the scope has been cancelled. One atomic load.
    pub fn cancel_requested(&self) -> bool {
        self.0.state.peek().has(state::CANCELLED)
    }

    /// Returns why the scope was cancelled, if it was.
    pub fn cancel_reason(&self) -> Option<Reason> {
        self.0.reason()
    }

    /// Closes the scope: it accepts no new children, and those it has finish.
    pub fn close(&self) {
        let _before = self.0.state.close();
    }

    /// Returns true if [`close`](Scope::close) was called.
    pub fn is_closed(&self) -> bool {
        self.0.state.peek().has(state::NO_NEW_CHILDREN)
    }

    /// Closes the scope, waits for it to end, and cancels it if that takes
    /// longer than `grace`. Returns how it ended.
    ///
    /// Called in the scope's own body, or in a job below it, `drain` cannot wait for the
    /// scope to end. There it waits for the child tasks of the scope, except those that the
    /// caller is part of, and cancels them at `grace`. Services, and lazy tasks that are not
    /// started, are left alone. Returns `Completed` if no child had to be cancelled; the
    /// body goes on.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the scope is closed; it, or inside it
    /// its children, have been cancelled only if `grace` was over before.
    #[track_caller]
    pub fn drain(
        &self,
        grace: Duration,
    ) -> impl Future<Output = Result<Outcome<()>, Cancelled>> + Send {
        self.drain_from(grace, Location::caller())
    }

    async fn drain_from(
        &self,
        grace: Duration,
        site: &'static Location<'static>,
    ) -> Result<Outcome<()>, Cancelled> {
        self.close();
        let inside = context::find_up(|job| std::ptr::eq(job, self.header()).then_some(()));
        if inside.is_some() {
            return self.drain_children(grace, site).await;
        }
        let join = || Join::new(self.0.clone(), site);
        let waiting = async { Ok::<_, Error>(join().await?) };
        let waited = timeout_for(Moment::After(grace), waiting, site).await;
        if let Some(outcome) = within_grace(waited)? {
            return Ok(outcome);
        }
        handle::cancel_asked(&self.0, "drained".into(), site);
        join().await
    }

    /// The child tasks of a closed scope end within `grace`, or are cancelled
    /// then. The closed scope gets no new ones.
    async fn drain_children(
        &self,
        grace: Duration,
        site: &'static Location<'static>,
    ) -> Result<Outcome<()>, Cancelled> {
        let children = self.children_beside_us();
        let join = |child: &JobRef| Join::new(child.clone(), site);
        let waiting = async {
            for child in &children {
                let _how = join(child).await?;
            }
            Ok::<_, Error>(())
        };
        let waited = timeout_for(Moment::After(grace), waiting, site).await;
        if within_grace(waited)?.is_some() {
            return Ok(Outcome::Completed(()));
        }
        for child in &children {
            handle::cancel_asked(child, "drained".into(), site);
        }
        let mut drained = Outcome::Completed(());
        for child in &children {
            if let cut @ Outcome::Cancelled { .. } = join(child).await? {
                drained = cut;
            }
        }
        Ok(drained)
    }

    /// The child tasks that hold the scope open, except those that the current
    /// job is part of.
    fn children_beside_us(&self) -> Vec<JobRef> {
        let mut children = Vec::new();
        children::children(self.header(), &mut |child| children.push(child));
        children.retain(|child| {
            child.was_spawned()
                && child.state.load().has(state::COUNTED)
                && context::find_up(|job| std::ptr::eq(job, &**child).then_some(())).is_none()
        });
        children
    }

    /// Moves the deadline; `None` removes it. A deadline in the past is reported by the
    /// next point.
    pub fn reschedule(&self, at: Option<Instant>) -> Result<(), RescheduleError> {
        if matches!(self.0.kind(), JobKind::Task | JobKind::Root) {
            return Err(RescheduleError::NoDeadline);
        }
        let moved = self.0.with_cold(|cold, st| {
            if st.ended() {
                Err(RescheduleError::Finished)
            } else if st.has(state::CANCELLED) {
                Err(RescheduleError::Cancelled)
            } else {
                cold.deadline = at;
                Ok(())
            }
        });
        if moved.is_ok() {
            deadline::rescheduled(&self.0, at);
        }
        moved
    }

    /// Returns the scope's own deadline, if it has one.
    pub fn own_deadline(&self) -> Option<Instant> {
        self.0.if_cold(|cold, _| cold.deadline).flatten()
    }

    /// Registers a hook on this scope; see [`on_cancel`](crate::on_cancel).
    pub fn on_cancel(&self, f: impl FnOnce(&Reason) + Send + 'static) -> HookGuard {
        hook::register(
            &self.0,
            Nested::new(Box::new(|reason| {
                if let Some(reason) = reason {
                    f(reason);
                }
            })),
            false,
        )
    }
}

impl Tree {
    /// Returns a scope that spawns below the root.
    pub fn root_scope(&self) -> Scope {
        Scope::new(JobRef::from_header(self.shared().root()))
    }
}

/// The result within the grace of `drain`; none if the grace is over. A cancel
/// or an interrupt of the caller does not count as the end of the grace.
fn within_grace<T>(waited: Result<T>) -> Result<Option<T>, Cancelled> {
    match waited {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::TimedOut => Ok(None),
        Err(error) => match error.cancelled() {
            Some(told) => Err(told.clone()),
            // Outside every job there is no clock: the error says so, with the site.
            None => panic!("{error}"),
        },
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        handle::debug_job(f, "Scope", &self.0)
    }
}

/// Returns the job that is being polled on this thread; `None` outside any job.
pub fn current_job() -> Option<Job> {
    context::current().map(Job::new)
}

/// Cancels the current job. Returns true if this call cancelled it; false if it had been
/// cancelled or ended before, and outside any job.
#[track_caller]
pub fn cancel_current(why: impl Into<Cow<'static, str>>) -> bool {
    match context::current() {
        Some(job) => handle::cancel_asked(&job, why.into(), Location::caller()),
        None => false,
    }
}

/// Returns true if a shield or an ignore guard holds cancellation of the current job back.
pub fn is_shielded() -> bool {
    context::with(|cx| {
        let mut at = cx.current();
        while let Some(h) = at {
            let st = h.state.load();
            if (h.is_shield() || st.has(state::GUARD)) && !st.effective() {
                return true;
            }
            if h.is_task() {
                return false;
            }
            // SAFETY: inside a job that has not ended (H3).
            at = unsafe { h.parent() };
        }
        false
    })
}
