//! `local_scope`: children that borrow. They are owned and polled by the future
//! of the scope, inside the task that opened it, never in parallel.
//!
//! Each child is an inline job below the scope's own job, polled under a waker of
//! its own ([`WakeList`]). The scope itself, its body and its verdict are those of
//! [`inline`](crate::surface::inline). Spawned children arrive through a list that
//! the handles share with the future; the future takes them out of it and alone
//! owns them. So nothing dangles even if a handle or the future is forgotten, and
//! no line here is unsafe.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::base::error::{Cancelled, Error, Result};
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::outcome::{IntoOutcome, Outcome};
use crate::base::patience::Patience;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::unwind::{Contained, discard};
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::engine::end;
use crate::engine::names;
use crate::more::combine::branch::ValueOf;
use crate::more::combine::wake_list::WakeList;
use crate::points::point;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;
use crate::surface::handle::{self, Job, Join};
use crate::surface::inline::{Inline, Just, Open, Setup};
use crate::surface::options::Options;
use crate::surface::scope::Scope;
use crate::surface::span::{self, Spanned};
use crate::surface::spawn::refused_job;
use crate::surface::task::{LoserWait, cancel_awaited, cancel_with, not_completed, waits_as_loser};

/// Opens a scope whose children may borrow from outside it; returns when the
/// body and every child have ended.
///
/// The children are polled by this future, inside the calling task: side by side,
/// not in parallel. Otherwise they are like other children: named, cancelled and
/// waited for; one that fails cancels the others and the body, and the call
/// returns its failure.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn count(text: &str) -> kinfolk::Result<usize> { Ok(text.len()) }
/// # async fn demo() -> kinfolk::Result<()> {
/// let title = String::from("kinfolk");
/// let text = String::from("no child is left behind");
/// let sum = kinfolk::local_scope(async |s| {
///     let a = s.spawn(count(&title));
///     let b = s.spawn(async { count(&text).await });
///     Ok(a.await? + b.await?)
/// })
/// .await?;
/// assert_eq!(sum, title.len() + text.len());
/// # Ok(())
/// # }
/// ```
///
/// The children are `Send`, so this future can be `Send` too, as a task of the
/// pool must be. For children that are not, use [`local_scope_unsend`]. To run
/// children that borrow in parallel, a scope would have to block its thread.
///
/// # Cancellation
/// Opening and leaving is *not a point*. If the enclosing job is cancelled, so is
/// every job in this scope; the call returns what the body returns. Dropping the
/// future half-way drops the children at their present awaits; each child that
/// has begun counts as a forced drop, and is reported as one.
#[track_caller]
pub fn local_scope<'env, F, B, T>(
    body: F,
) -> LocalInline<WithLocal<F, SendChild<'env>, B>, SendChild<'env>>
where
    F: FnOnce(LocalScope<'env>) -> B,
    B: Future<Output = Result<T>>,
{
    open(body, Location::caller())
}

/// Like [`local_scope`], for children that are not `Send`: then the scope is
/// not `Send` either.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # async fn demo() -> kinfolk::Result<()> {
/// let seen = std::cell::Cell::new(0);
/// kinfolk::local_scope_unsend(async |s| {
///     for _ in 0..3 {
///         s.launch(async { seen.set(seen.get() + 1) });
///     }
///     Ok(())
/// })
/// .await?;
/// assert_eq!(seen.get(), 3);
/// # Ok(())
/// # }
/// ```
///
/// # Cancellation
/// As [`local_scope`].
#[track_caller]
pub fn local_scope_unsend<'env, F, B, T>(
    body: F,
) -> LocalInline<WithLocal<F, AnyChild<'env>, B>, AnyChild<'env>>
where
    F: FnOnce(UnsendScope<'env>) -> B,
    B: Future<Output = Result<T>>,
{
    open(body, Location::caller())
}

fn open<F, C, B>(body: F, site: &'static Location<'static>) -> LocalInline<WithLocal<F, C, B>, C>
where
    F: FnOnce(LocalScopeOf<C>) -> B,
    B: Future<Output: IntoOutcome>,
    C: ?Sized,
{
    let children = LocalChildren::new();
    let with = WithLocal {
        body,
        shared: children.shared.clone(),
        call: |body, scope| body(scope),
    };
    LocalInline {
        children,
        inner: Inline::new(with, Setup::new(JobKind::Scope, site)),
    }
}

/// The type of the children of [`local_scope`]: futures that are `Send`.
pub type SendChild<'env> = dyn Future<Output = ()> + Send + 'env;

/// The type of the children of [`local_scope_unsend`]: futures that need not be `Send`.
pub type AnyChild<'env> = dyn Future<Output = ()> + 'env;

/// The handle that the body of a [`local_scope`] receives, to spawn children that borrow.
pub type LocalScope<'env> = LocalScopeOf<SendChild<'env>>;

/// The handle that the body of a [`local_scope_unsend`] receives, to spawn children that borrow
/// and are not `Send`.
pub type UnsendScope<'env> = LocalScopeOf<AnyChild<'env>>;

/// A [`LocalScope`] or an [`UnsendScope`], with which to spawn into the scope
/// and to cancel it. It is cheap to clone; children may hold one and spawn into
/// the scope too. It does not keep the scope open.
pub struct LocalScopeOf<C: ?Sized> {
    scope: Scope,
    shared: Arc<Shared<C>>,
}

impl<C: ?Sized> LocalScopeOf<C> {
    /// Returns the scope, to cancel it, to close it, or to spawn tasks into it that
    /// borrow nothing and run in parallel.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Begins a spawn with options, the first of which is a name.
    pub fn task(&self, name: impl Into<Cow<'static, str>>) -> LocalSpawner<'_, C> {
        LocalSpawner {
            scope: self,
            options: Options {
                name: Some(name.into()),
                ..Options::default()
            },
        }
    }

    /// Spawns a child that may borrow. Dropping the [`LocalTask`] cancels it.
    ///
    /// The child is first polled when the spawning code next awaits. If the scope is
    /// cancelled, closed or ended, the future is dropped by this call without having been
    /// polled, and the returned handle is cancelled.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> LocalTask<ValueOf<F>>
    where
        F: Future<Output: IntoOutcome>,
        C: Takes<F>,
    {
        self.put(Options::default(), future, Location::caller())
    }

    /// Spawns a child without an owning handle: it runs on whatever happens to the returned
    /// [`Job`], and the scope waits for it.
    #[track_caller]
    pub fn launch<F>(&self, future: F) -> Job
    where
        F: Future<Output: IntoOutcome>,
        C: Takes<F>,
    {
        let site = Location::caller();
        self.put(Options::default(), future, site).into_job()
    }

    fn put<F>(
        &self,
        options: Options,
        future: F,
        site: &'static Location<'static>,
    ) -> LocalTask<ValueOf<F>>
    where
        F: Future<Output: IntoOutcome>,
        C: Takes<F>,
    {
        let slot = Arc::new(OutputSlot(Mutex::new(LocalOutput {
            value: None,
            handle_gone: false,
        })));
        let parent = self.scope.header();
        let deliver = Deliver {
            future: span::inherit(parent, future),
            slot: slot.clone(),
            begun: false,
        };
        let mut setup = Setup::new(JobKind::LocalTask, site);
        let attempt = options.attempt;
        if !options.is_empty() {
            setup.more().options = options;
        }
        let job = match Inline::spawned(Just(deliver), setup, parent) {
            Ok(inline) => {
                let job = inline
                    .job()
                    .map(JobRef::from_header)
                    .unwrap_or_else(|| unreachable!("it was just opened"));
                let owes = attempt.then(|| (job.clone(), slot.clone()));
                let child = LocalChild { inline, owes };
                self.shared.arrive(C::boxed(child), &self.scope);
                job
            }
            Err((refused, refusal)) => {
                let job = refused_job(parent, refusal, site);
                discard(refused);
                job
            }
        };
        LocalTask {
            held: Some(LocalTaskInner {
                join: Join::new(job, site),
                slot,
                loser: None,
            }),
        }
    }
}

impl<C: ?Sized> Clone for LocalScopeOf<C> {
    fn clone(&self) -> Self {
        LocalScopeOf {
            scope: self.scope.clone(),
            shared: self.shared.clone(),
        }
    }
}

impl<C: ?Sized> fmt::Debug for LocalScopeOf<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        handle::debug_job(f, "LocalScope", self.scope.header())
    }
}

/// Options of a child of a local scope that is about to be spawned: a name, patience. Made
/// by [`LocalScopeOf::task`]; ends with one of the spawning verbs.
#[must_use = "nothing is spawned until a spawning verb is called"]
#[derive(Debug)]
pub struct LocalSpawner<'a, C: ?Sized> {
    scope: &'a LocalScopeOf<C>,
    options: Options,
}

impl<C: ?Sized> LocalSpawner<'_, C> {
    /// Sets how long the child may stay idle once it is cancelled; inherited by the
    /// jobs it spawns. See [`Patience`].
    pub fn patience(mut self, patience: Patience) -> Self {
        self.options.patience = Some(patience);
        self
    }

    /// Makes the child an attempt: its failure is returned by its handle and cancels no other
    /// job; see [`Scope::attempt`]. A failure that no handle takes goes to the failure hook.
    pub fn attempted(mut self) -> Self {
        self.options.attempt = true;
        self
    }

    /// Spawns a child whose failure is only what its `await` returns; see [`Scope::attempt`].
    #[track_caller]
    pub fn attempt<F>(self, future: F) -> LocalTask<ValueOf<F>>
    where
        F: Future<Output: IntoOutcome>,
        C: Takes<F>,
    {
        self.attempted().spawn(future)
    }

    /// Spawns it; see [`LocalScopeOf::spawn`].
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> LocalTask<ValueOf<F>>
    where
        F: Future<Output: IntoOutcome>,
        C: Takes<F>,
    {
        self.scope.put(self.options, future, Location::caller())
    }

    /// Launches it; see [`LocalScopeOf::launch`].
    #[track_caller]
    pub fn launch<F>(self, future: F) -> Job
    where
        F: Future<Output: IntoOutcome>,
        C: Takes<F>,
    {
        let site = Location::caller();
        self.scope.put(self.options, future, site).into_job()
    }
}

/// The futures that a local scope takes. There is nothing to implement.
#[diagnostic::on_unimplemented(
    message = "a local scope cannot hold `{F}`",
    note = "children of `local_scope` are `Send`; for others use `local_scope_unsend`"
)]
pub trait Takes<F: Future<Output: IntoOutcome>> {
    #[doc(hidden)]
    fn boxed(child: LocalChild<F>) -> Pin<Box<Self>>;
}

impl<'env, F> Takes<F> for SendChild<'env>
where
    F: Future<Output: IntoOutcome<Value: Send + 'env>> + Send + 'env,
{
    fn boxed(child: LocalChild<F>) -> Pin<Box<Self>> {
        Box::pin(child)
    }
}

impl<'env, F> Takes<F> for AnyChild<'env>
where
    F: Future<Output: IntoOutcome<Value: 'env>> + 'env,
{
    fn boxed(child: LocalChild<F>) -> Pin<Box<Self>> {
        Box::pin(child)
    }
}

/// Where a child leaves its value, and where its handle notes its own drop.
struct OutputSlot<T>(Mutex<LocalOutput<T>>);

struct LocalOutput<T> {
    value: Option<Contained<T>>,
    /// No handle takes a failure any more.
    handle_gone: bool,
}

impl<T> OutputSlot<T> {
    fn lock(&self) -> MutexGuard<'_, LocalOutput<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, value: T) {
        self.lock().value = Some(Contained::new(value));
    }

    fn take(&self) -> Option<T> {
        let value = self.lock().value.take();
        value.map(Contained::into_inner)
    }

    fn has_no_handle(&self) -> bool {
        self.lock().handle_gone
    }

    /// The handle of `job` is dropped. A failure of an attempt that it has not returned is
    /// reported: here if the job has ended, else by the future that polls it.
    fn handle_goes(&self, job: &Header) {
        self.lock().handle_gone = true;
        if job.state.load().ended() {
            end::report_untaken(job);
        }
    }
}

pin_project! {
    /// The body of a child: its value goes to the slot before the job ends.
    pub struct Deliver<F: Future>
    where
        F::Output: IntoOutcome,
    {
        #[pin]
        future: Spanned<F>,
        slot: Arc<OutputSlot<ValueOf<F>>>,
        begun: bool,
    }
}

impl<F: Future<Output: IntoOutcome>> Future for Deliver<F> {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.project();
        if !std::mem::replace(this.begun, true)
            && let Some(told) = point::marked_here()
        {
            return Poll::Ready(Err(told.into()));
        }
        let output = ready!(this.future.poll(cx));
        Poll::Ready(output.into_result().map(|value| this.slot.put(value)))
    }
}

pin_project! {
    /// A child whose type shows nothing but the future's.
    pub struct LocalChild<F: Future>
    where
        F::Output: IntoOutcome,
    {
        #[pin]
        inline: Inline<Just<Deliver<F>>>,
        // For an attempt: its failure is for its handle, or, if that is dropped, for the
        // failure hook.
        owes: Option<(JobRef, Arc<OutputSlot<ValueOf<F>>>)>,
    }
}

impl<F: Future<Output: IntoOutcome>> Future for LocalChild<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        // An error is kept at the job, for its observers.
        let how = ready!(this.inline.poll(cx));
        discard(how);
        if let Some((job, slot)) = this.owes.take()
            && slot.has_no_handle()
        {
            end::report_untaken(&job);
        }
        Poll::Ready(())
    }
}

/// What the handles and the future of a scope share.
pub(crate) struct Shared<C: ?Sized>(Mutex<Arrived<C>>);

struct Arrived<C: ?Sized> {
    list: Vec<Pin<Box<C>>>,
    /// The future of the scope is being polled, and reads the list after that.
    polling: bool,
    /// The future of the scope has been dropped or has ended.
    over: bool,
}

impl<C: ?Sized> Shared<C> {
    fn lock(&self) -> MutexGuard<'_, Arrived<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrive(&self, child: Pin<Box<C>>, scope: &Scope) {
        let mut late = None;
        let sleeps = {
            let mut arrived = self.lock();
            if arrived.over {
                late = Some(child);
            } else {
                arrived.list.push(child);
            }
            !arrived.polling
        };
        discard(late);
        if sleeps {
            scope.wake_poller();
        }
    }
}

/// The children, as the scope owns them.
struct LocalChildren<C: ?Sized> {
    shared: Arc<Shared<C>>,
    /// By index; none for a child that is over.
    children: Vec<Option<Pin<Box<C>>>>,
    free: Vec<usize>,
    ready: WakeList,
}

impl<C: ?Sized> LocalChildren<C> {
    fn new() -> LocalChildren<C> {
        LocalChildren {
            shared: Arc::new(Shared(Mutex::new(Arrived {
                list: Vec::new(),
                polling: false,
                over: false,
            }))),
            children: Vec::new(),
            free: Vec::new(),
            ready: WakeList::new(),
        }
    }

    /// Lists the children that have arrived. Until `polling`, each new child
    /// wakes this future.
    fn take_in(&mut self, polling: bool) {
        let list = {
            let mut arrived = self.shared.lock();
            arrived.polling = polling;
            std::mem::take(&mut arrived.list)
        };
        for child in list {
            let index = self.free.pop().unwrap_or_else(|| {
                self.children.push(None);
                self.children.len() - 1
            });
            self.children[index] = Some(child);
            self.ready.add(index);
        }
    }

    /// No child arrives any more, and none is left.
    fn over(&mut self) {
        let list = {
            let mut arrived = self.shared.lock();
            arrived.over = true;
            std::mem::take(&mut arrived.list)
        };
        // Each drop is contained by itself.
        list.into_iter().for_each(discard);
        self.children.drain(..).for_each(discard);
    }
}

impl<C: ?Sized + Future<Output = ()>> LocalChildren<C> {
    /// Polls the children that were woken, as children of `scope`.
    fn poll(&mut self, scope: &Header, cx: &mut Context<'_>) {
        self.take_in(true);
        for polled in 0..self.ready.begin() {
            if polled > 0 && context::turn_is_spent() {
                break;
            }
            let Some(index) = self.ready.next() else {
                break;
            };
            self.poll_one(index, scope);
        }
        self.take_in(false);
        self.ready.park(cx.waker());
    }

    fn poll_one(&mut self, index: usize, scope: &Header) {
        let Some(child) = &mut self.children[index] else {
            return;
        };
        let waker = self.ready.waker(index);
        let polled = {
            // To the scope the child's waker is not foreign: a cancel reaches
            // the child through its own job.
            let _entered = context::enter(scope, waker);
            child.as_mut().poll(&mut Context::from_waker(waker))
        };
        if polled.is_ready() {
            discard(self.children[index].take());
            self.free.push(index);
        }
    }
}

impl<C: ?Sized> Drop for LocalChildren<C> {
    fn drop(&mut self) {
        self.over();
    }
}

/// A closure that takes a local scope.
pub struct WithLocal<F, C: ?Sized, B> {
    body: F,
    shared: Arc<Shared<C>>,
    /// Calls the closure. With `F: FnOnce(LocalScopeOf<C>)` as a bound instead,
    /// the compiler could not see that a task which awaits the scope is `Send`:
    /// there it forgets that the two have a lifetime in common.
    call: fn(F, LocalScopeOf<C>) -> B,
}

impl<F, C, B> Open for WithLocal<F, C, B>
where
    B: Future<Output: IntoOutcome>,
    C: ?Sized,
{
    type Body = B;
    type Value = <B::Output as IntoOutcome>::Value;
    type Error = Error;

    fn open(self, scope: Scope) -> B {
        let shared = self.shared;
        (self.call)(self.body, LocalScopeOf { scope, shared })
    }

    fn result(output: B::Output) -> Result<Self::Value> {
        output.into_result()
    }
}

pin_project! {
    /// The future of [`local_scope`] and [`local_scope_unsend`].
    ///
    /// # Cancellation
    /// As [`local_scope`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct LocalInline<O: Open, C: ?Sized> {
        // Dropped before the scope, whose job waits for the children's jobs.
        children: LocalChildren<C>,
        #[pin]
        inner: Inline<O>,
    }
}

impl<O: Open, C: ?Sized + Future<Output = ()>> Future for LocalInline<O, C> {
    type Output = Result<O::Value, O::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let children = this.children;
        children.take_in(true);
        let polled = this.inner.poll_and(cx, |scope, cx| {
            // The children's waits are not waits of the body: children are jobs
            // of their own, each with its own patience.
            let waits = scope.waits.load(Relaxed);
            let kind = scope.wait_kind.load(Relaxed);
            let site = scope.wait_site.load(Relaxed);
            children.poll(scope, cx);
            scope.waits.store(waits, Relaxed);
            scope.wait_kind.store(kind, Relaxed);
            scope.wait_site.store(site, Relaxed);
        });
        if polled.is_ready() {
            // No child is left, unless the scope was left open by the body
            // around it: then the children were given up with it.
            children.over();
        }
        polled
    }
}

impl<O: Open, C: ?Sized> fmt::Debug for LocalInline<O, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// The owning handle of a child of a [`LocalScope`]: await it for its value.
///
/// Dropping the handle cancels the child; its scope still waits for it. To let
/// the child go on, use [`into_job`](LocalTask::into_job).
///
/// # Cancellation
/// Awaiting is *not a point* for a cancel, as with [`Task`](crate::Task): when the
/// waiter is cancelled, so is the child, and the await goes on until it has ended.
/// An [interrupt](Job::interrupt) of the task that waiter and child share is
/// delivered here, to the waiter, and not to the children.
#[must_use = "dropping a LocalTask cancels it; use `launch` or `into_job` to let it run"]
pub struct LocalTask<T> {
    held: Option<LocalTaskInner<T>>,
}

struct LocalTaskInner<T> {
    join: Join,
    slot: Arc<OutputSlot<T>>,
    /// In a box, since few handles need it.
    loser: Option<Box<LoserWait>>,
}

impl<T> Unpin for LocalTask<T> {}

impl<T> LocalTask<T> {
    fn held(&self) -> &LocalTaskInner<T> {
        self.held
            .as_ref()
            .expect("a LocalTask was used after its outcome was taken")
    }

    /// Returns the identity of the child.
    pub fn id(&self) -> JobId {
        self.held().join.job().id
    }

    /// Returns an observer of the child.
    pub fn job(&self) -> Job {
        Job::new(self.held().join.job().clone())
    }

    /// Returns true if the child has ended: awaiting it will not wait.
    pub fn is_ended(&self) -> bool {
        self.held().join.job().state.load().ended()
    }

    /// Cancels the child and everything below it; see [`Job::cancel`].
    #[track_caller]
    pub fn cancel(&self, why: impl Into<Cow<'static, str>>) -> bool {
        handle::cancel_asked(self.held().join.job(), why.into(), Location::caller())
    }

    /// Gives up the owning handle: the child goes on.
    pub fn into_job(mut self) -> Job {
        let job = self.job();
        if let Some(held) = self.held.take() {
            held.slot.handle_goes(held.join.job());
        }
        job
    }

    /// What the end of the child means for the awaiting job.
    fn finish(&mut self, marked: bool) -> Result<T> {
        let held = self
            .held
            .take()
            .unwrap_or_else(|| unreachable!("it was just polled"));
        let job: &Header = held.join.job();
        let value = held.slot.take();
        let st = job.state.load();
        if st.has(state::ENDED_FAILED) {
            end::forget_report(job);
        }
        if !st.has(state::ENDED_FAILED | state::ENDED_CANCELLED) {
            return Ok(value.unwrap_or_else(|| unreachable!("completed without a value: {st:?}")));
        }
        match not_completed(job, value) {
            Outcome::Completed(value) => Ok(value),
            Outcome::Failed(error) => Err(error),
            Outcome::Cancelled {
                late: Some(value), ..
            } if marked => Ok(value),
            Outcome::Cancelled { reason, late } => {
                discard(late);
                match context::current() {
                    // The waiter is cancelled too, and is told.
                    Some(waiter) if marked => Err(point::tell(&waiter, Some(job.site())).into()),
                    _ => Err(Error::stopped(reason).at(names::victim_alone(job), None)),
                }
            }
        }
    }
}

impl<T> Future for LocalTask<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let held = self
            .held
            .as_mut()
            .expect("a LocalTask was polled after completion");
        let marked = point::is_marked();
        if !held.join.job().state.load().ended() {
            if let Some(error) = held.join.ask() {
                return Poll::Ready(Err(error));
            }
            if let Some(told) = heed(held, cx) {
                held.join.unlist();
                return Poll::Ready(Err(told.into()));
            }
        }
        ready!(held.join.poll_end(cx, WaitKind::Task));
        Poll::Ready(self.finish(marked))
    }
}

/// Passes a cancel of the waiter on to the child; an interrupt is for the
/// waiter itself.
fn heed<T>(held: &mut LocalTaskInner<T>, cx: &Context<'_>) -> Option<Cancelled> {
    if !point::must_look() {
        return None;
    }
    let waiter = context::current()?;
    let st = waiter.state.load();
    let child: &Header = held.join.job();
    if st.effective() {
        if waits_as_loser(&waiter, st) && (held.loser.get_or_insert_default()).goes_on(&waiter, cx)
        {
            cancel_awaited(child, Site::of(child.site()));
            return None;
        }
        cancel_with(child, Site::of(child.site()), &waiter)
    } else if st.has(state::INTERRUPTED) {
        point::take_interrupt()
    } else {
        None
    }
}

impl<T> Drop for LocalTask<T> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let job = held.join.job();
            handle::handle_dropped(job);
            held.slot.handle_goes(job);
        }
    }
}

impl<T> fmt::Debug for LocalTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.held {
            Some(held) => handle::debug_job(f, "LocalTask", held.join.job()),
            None => f.write_str("LocalTask(taken)"),
        }
    }
}
