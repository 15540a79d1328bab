//! [`Task`]: the owning handle of a spawned task. Dropping it cancels the
//! task; the parent still waits for it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::error::{Cancelled, Error, Result};
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::observe::{Count, EventKind, JobState};
use crate::base::outcome::Outcome;
use crate::base::reason::ReasonKind;
use crate::base::unwind::discard;
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::engine::end;
use crate::engine::forward::{self, Forwarded};
use crate::engine::interrupts;
use crate::engine::names;
use crate::engine::pin;
use crate::engine::untaken;
use crate::engine::waker;
use crate::engine::walk::{self, Why};
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::cell;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;
use crate::surface::handle::{self, Job, Join};

/// The owning handle of a spawned task: await it for its value. If a task that was made by
/// `spawn` fails, its family is cancelled, even where the failure is handled when the task is
/// awaited: for a failure that only its `await` returns, there is
/// [`attempt`](crate::Scope::attempt).
///
/// Dropping the handle cancels the task; its parent still waits for it. To let the
/// task go on, use [`into_job`](Task::into_job). The value of an ended task of the
/// main lane is dropped on the main thread, also if the handle is dropped on another
/// one; only after the runtime has shut down it is dropped with the handle.
///
/// # Cancellation
/// Awaiting a task is *not a point*: it never fails at entry. When the job that awaits is
/// cancelled, the task is cancelled too. If the task is a descendant of that job, the await
/// goes on until the task has ended, and returns its value, a late one included; otherwise
/// the await returns `Cancelled` at once. To wait without cancelling the task, use
/// [`join`](Task::join). If the handle itself is a branch of a [`race`](crate::race()) or
/// another combinator, and the branch has lost, the combinator still waits for the task,
/// until a job around the call is cancelled or interrupted.
///
/// An [interrupt](Job::interrupt) of the awaiting job is passed on to the task, and the
/// await goes on. If the interrupt ends the task, the await returns it; if the task catches
/// it, the await does not notice.
#[must_use = "dropping a Task cancels it; use `launch` or `into_job` to let it run"]
pub struct Task<T> {
    /// The drop takes it out, and leaves nothing to drop.
    waiting: ManuallyDrop<Option<TaskWait>>,
    value: PhantomData<*const T>,
}

// SAFETY: the handle returns the value, so it may be sent only where the value
// may be sent. A task whose value is not Send was spawned on a lane of one
// thread, on the thread where its handle was made.
unsafe impl<T: Send> Send for Task<T> {}
// SAFETY: a shared handle gives no access to the value.
unsafe impl<T: Send> Sync for Task<T> {}

impl<T> Unpin for Task<T> {}

/// The part of a handle that waits, without the type of the value.
struct TaskWait {
    job: JobRef,
    wait: Wait,
    /// In a box, since few waits need it.
    more: Option<Box<TaskExtras>>,
}

/// Fields that most waits do not need.
#[derive(Default)]
struct TaskExtras {
    /// The interrupt of the waiter that was passed on to the task.
    forwarded: Option<Box<Forwarded>>,
    loser: LoserWait,
    /// What the waiter, which is told again and again, waits for before it
    /// fails.
    yielded: Option<Yielded>,
}

/// The wait of a branch that has lost and whose future is the handle of a task: a
/// leaf of the job around the branch. So this wait notices when that job is told,
/// although the branch, which is cancelled already, is not told again.
#[derive(Default)]
pub(crate) struct LoserWait(Option<Wait>);

impl LoserWait {
    /// True if `waiter`, which has lost, goes on waiting: unless the job around it
    /// is cancelled, or has an interrupt that a point here would take.
    #[cold]
    pub(crate) fn goes_on(&mut self, waiter: &Header, cx: &Context<'_>) -> bool {
        let Some(around) = waiter.parent_from_outside() else {
            return false;
        };
        // Listed before the check: a cancel after the check wakes the leaf.
        let wait = self.0.get_or_insert_with(Wait::new);
        wait.list(around.clone(), cx.waker());
        let stays = !around.state.load().effective() && !interrupts::pending(&around);
        if !stays {
            self.0 = None;
        }
        stays
    }
}

/// What a poll of the untyped part found.
enum PolledTask {
    Ended,
    /// The waiter itself is cancelled and the target is not below it.
    Told(Cancelled),
    Circular(Error),
}

impl<T> Task<T> {
    /// # Safety
    /// `job` is a task whose value is a `T`, with HANDLE set for this handle.
    #[inline]
    pub(crate) unsafe fn new(job: JobRef) -> Task<T> {
        Task {
            waiting: ManuallyDrop::new(Some(TaskWait {
                job,
                wait: Wait::new(),
                more: None,
            })),
            value: PhantomData,
        }
    }

    fn inner(&self) -> &TaskWait {
        self.waiting
            .as_ref()
            .expect("a Task was used after its outcome was taken")
    }

    /// Returns the task's identity.
    pub fn id(&self) -> JobId {
        self.inner().job.id
    }

    /// Returns an observer of the task.
    pub fn job(&self) -> Job {
        Job::new(self.inner().job.clone())
    }

    /// Returns true if the task has ended: awaiting it then returns at once.
    pub fn is_ended(&self) -> bool {
        self.inner().job.state.load().ended()
    }

    /// Cancels the task and everything below it; see [`Job::cancel`].
    #[track_caller]
    pub fn cancel(&self, why: impl Into<Cow<'static, str>>) -> bool {
        handle::cancel_asked(&self.inner().job, why.into(), Location::caller())
    }

    /// Asks the task once to stop; the request can be withdrawn. See [`Job::interrupt`].
    #[track_caller]
    pub fn interrupt(&self, why: impl Into<Cow<'static, str>>) -> bool {
        interrupts::interrupt(&self.inner().job, why.into(), Location::caller())
    }

    /// Withdraws one interrupt; see [`Job::uninterrupt`].
    pub fn uninterrupt(&self) -> usize {
        interrupts::uninterrupt(&self.inner().job)
    }

    /// Returns how many interrupts have not been withdrawn.
    pub fn interrupts(&self) -> usize {
        interrupts::interrupts(&self.inner().job)
    }

    /// Starts a task that was spawned lazily. Returns true for the one call that starts it.
    pub fn start(&self) -> bool {
        crate::surface::spawn::start_lazy(&self.inner().job)
    }

    /// Waits for the task to end, without cancelling it and without taking its value.
    ///
    /// # Cancellation
    /// A *point*; see [`Job::join`].
    #[track_caller]
    pub fn join(&self) -> Join {
        Join::new(self.inner().job.clone(), Location::caller())
    }

    /// Awaits the task and returns how it ended.
    ///
    /// # Cancellation
    /// *Not a point*, like awaiting the task. The outer `Err` is a cancellation of the
    /// awaiting job, never one of the task.
    #[track_caller]
    pub fn outcome(self) -> TaskOutcome<T> {
        OutcomeOf {
            task: self.relabelled(),
            site: Site::of(Location::caller()),
        }
    }

    /// The handle with another type of value, which is never taken.
    fn relabelled<U>(mut self) -> Task<U> {
        Task {
            waiting: ManuallyDrop::new(self.waiting.take()),
            value: PhantomData,
        }
    }

    /// Gives up the owning handle: the task goes on as a child of its parent.
    #[track_caller]
    pub fn into_job(mut self) -> Job {
        let mut waiting = self
            .waiting
            .take()
            .expect("a Task was used after its outcome was taken");
        waiting.give_up();
        let job = waiting.job.clone();
        waiting.let_go();
        Job::new(job)
    }

    /// The value, if the task has completed and its end has nothing else to report.
    /// This is the frequent case, and moves only the value.
    #[inline(always)]
    fn take_completed(&mut self) -> Option<T> {
        let waiting = self.waiting.as_mut()?;
        let h: &Header = &waiting.job;
        let st = h.state.load();
        if !st.has_completed_value() || waiting.more.is_some() {
            return None;
        }
        // Before the value is taken out: this may drop a waker, and that may
        // panic.
        waiting.wait.over();
        // SAFETY: C2; completed with OUTPUT, this handle's HANDLE bit set, and
        // taken once. Noticed by
        // `outcome_8_a_cancel_has_not_reached_the_children_of_a_shield`.
        let value = unsafe { cell::take_output::<T>(h) };
        if !h.is_last_reference() {
            // Observers may still read the job.
            h.state.outcome_taken();
        }
        let job = waiting.job.as_ptr();
        // The wait is over and no interrupt was passed on: the reference is all
        // that must be dropped. It is dropped in place: a copy would be read in
        // larger parts than it was written in (a store-forwarding stall).
        self.waiting = ManuallyDrop::new(None);
        // SAFETY: the reference of the handle, which has just forgotten it (H6).
        unsafe { Header::release(job) };
        Some(value)
    }

    /// The outcome, and the job of the task.
    fn take(&mut self) -> (Outcome<T>, JobRef) {
        let mut waiting = self
            .waiting
            .take()
            .expect("a Task was polled after completion");
        waiting.wait.over();
        let h: &Header = &waiting.job;
        let st = h.state.load();
        // SAFETY: C2; OUTPUT is checked, this handle's HANDLE bit is set, and it
        // is taken once. Noticed by `cancel_vs_completion`.
        let value = st
            .has(state::OUTPUT)
            .then(|| unsafe { cell::take_output::<T>(h) });
        end::outcome_taken(h);
        if !h.is_last_reference() {
            // Observers may still read the job.
            h.state.outcome_taken();
        }
        let outcome = if !st.has(state::ENDED_FAILED | state::ENDED_CANCELLED) {
            Outcome::Completed(
                value.unwrap_or_else(|| unreachable!("completed without a value: {st:?}")),
            )
        } else {
            not_completed(h, value)
        };
        (outcome, waiting.job)
    }
}

/// The outcome of a task that failed or was cancelled.
#[cold]
pub(crate) fn not_completed<T>(h: &Header, value: Option<T>) -> Outcome<T> {
    match end::decided(h) {
        (JobState::Cancelled, _, reason) => Outcome::Cancelled {
            reason: reason.unwrap_or_else(|| {
                unreachable!("cancelled without a reason: {:?}", h.state.load())
            }),
            late: value,
        },
        (_, error, _) => {
            discard(value);
            Outcome::Failed(error.unwrap_or_else(|| Error::msg("the task failed")))
        }
    }
}

impl TaskWait {
    /// Registers for the end, or finds that the task has ended. `site` is the
    /// place of the await.
    fn poll(&mut self, cx: &mut Context<'_>, site: Site) -> Poll<PolledTask> {
        let st = self.job.state.load();
        if st.ended() {
            self.wait.over();
            return Poll::Ready(PolledTask::Ended);
        }
        context::with(|here| {
            let waiter = here.current();
            // Checked once for each job that waits: not if that job has counted
            // this wait.
            if !waiter.is_some_and(|waiter| self.wait.is_counted_by(waiter)) {
                if let Some(error) = handle::ask(&self.job, waiter, site) {
                    self.wait.over();
                    return Poll::Ready(PolledTask::Circular(error));
                }
                if self.more.is_some() {
                    self.give_back_what_is_not_ours();
                }
            }
            if waiter.is_some_and(|waiter| waiter.state.peek().must_look())
                && let Some(told) = self.heed(site, cx)
            {
                self.wait.over();
                return Poll::Ready(PolledTask::Told(told));
            }
            // Only this handle sets WAITER and takes it back.
            if !self.register(waiter, cx, st.has(state::WAITER)) {
                self.wait.over();
                return Poll::Ready(PolledTask::Ended);
            }
            let (waker, kind) = (cx.waker(), WaitKind::Task);
            match waiter {
                Some(waiter) => self.wait.pending_in(here, waiter, waker, kind, site),
                None => self.wait.pending(waker, kind, site),
            }
            Poll::Pending
        })
    }

    /// Passes a cancel or an interrupt of the waiter on to the target.
    #[cold]
    fn heed(&mut self, site: Site, cx: &Context<'_>) -> Option<Cancelled> {
        let waiter = context::current()?;
        let st = waiter.state.load();
        if st.effective() {
            if waits_as_loser(&waiter, st) {
                // First, so that a request that was not heard is pending again. A
                // request that was heard may still come back.
                if self.forwarded().is_some_and(Forwarded::has_come_back) {
                    self.give_up();
                }
                if self.more().loser.goes_on(&waiter, cx) {
                    cancel_awaited(&self.job, site);
                    return None;
                }
            }
            return cancel_with(&self.job, site, &waiter);
        }
        if st.has(state::INTERRUPTED) {
            let more = self.more.get_or_insert_default();
            forward::forward(&waiter, &self.job, &mut more.forwarded);
        }
        None
    }

    /// Fills the join slot, again if it was `registered`; false if the task has
    /// ended meanwhile. Modelled in `waiter_add_vs_end`.
    #[inline]
    fn register(&self, waiter: Option<&Header>, cx: &mut Context<'_>, registered: bool) -> bool {
        let h: &Header = &self.job;
        let slot = cell::slot(h).expect("a spawned task has a join slot");
        // Held over the step, so that the waker that is registered is counted even if
        // the task ends right after it.
        let Some(tree) = pin::tree_from(waiter, h) else {
            return false;
        };
        let bare = waiter
            .filter(|waiter| h.is_child_of(waiter))
            .and_then(|parent| waker::bare(cx.waker(), parent));
        // Before the slot is taken: the clone may panic, and then this wait
        // stays as it is.
        let new = bare.unwrap_or_else(|| cx.waker().clone());
        if registered {
            // The slot belongs to the ender while WAITER is set: take it back.
            if h.state.take_waiter().ended() {
                waker::let_go(Some(new));
                return false;
            }
        }
        // SAFETY: WAITER is clear, so the slot is the handle's. Noticed by
        // `waiter_add_vs_end`.
        let old = unsafe {
            slot.with_mut(|kept| match kept {
                Some(kept) if waker::is_kept(kept, cx.waker()) => Some(new),
                _ => kept.replace(new),
            })
        };
        waker::let_go(old);
        cell::set_waiting_job(h, waiter.map(|waiter| waiter.id));
        if h.state.set_waiter().ended() {
            if registered {
                // The task ended while the slot was the handle's: the ender has
                // not woken this wait.
                tree.counters.add(Count::WaiterRemoved);
            }
            return false;
        }
        if !registered {
            tree.counters.add(Count::WaiterRegistered);
            tree.emit(h.id, EventKind::WaitRegister);
        }
        true
    }

    fn more(&mut self) -> &mut TaskExtras {
        self.more.get_or_insert_default()
    }

    fn forwarded(&self) -> Option<&Forwarded> {
        self.more.as_ref()?.forwarded.as_deref()
    }

    fn take_forwarded(&mut self) -> Option<Box<Forwarded>> {
        self.more.as_mut()?.forwarded.take()
    }

    /// True if the task ended without a value, and its waiter, which is cancelled and
    /// was told before, must wait before it is told again: so a loop that goes on to
    /// spawn, and to await tasks that were refused, starves no other task.
    fn waits_before_failing(&mut self, cx: &mut Context<'_>) -> bool {
        let st = self.job.state.load();
        if !st.has(state::ENDED_CANCELLED) || st.has(state::OUTPUT) {
            return false;
        }
        let Some(waiter) = context::current() else {
            return false;
        };
        if !waiter.was_told() && !waiter.swallows() {
            return false;
        }
        let site = self.job.site_mark();
        let yielded = self.more().yielded.get_or_insert_with(|| Yielded::at(site));
        point::waits_before_failing(&waiter, cx, yielded)
    }

    /// The wait is over: an interrupt that was passed on and not delivered, or that the
    /// task returned, is for the next point of the task that passed it on.
    fn give_up(&mut self) {
        if let Some(forwarded) = self.take_forwarded() {
            forwarded.give_up();
        }
    }

    /// The handle may have been moved: the job that awaited the task before does not
    /// wait any more.
    fn give_back_what_is_not_ours(&mut self) {
        if self.forwarded().is_some_and(|f| !f.is_by_current())
            && let Some(forwarded) = self.take_forwarded()
        {
            forwarded.give_back();
        }
    }

    /// The interrupt that has come back to this await: the task, which has
    /// ended, did not hear it, or was ended by it.
    fn take_back(&mut self) -> Option<Forwarded> {
        self.give_back_what_is_not_ours();
        (self.take_forwarded())
            .map(|forwarded| *forwarded)
            .filter(Forwarded::has_come_back)
    }

    /// Gives up HANDLE without cancelling. A value that is not taken is dropped, and a
    /// failure that is not returned is reported.
    fn let_go(self) {
        let h: &Header = &self.job;
        if h.state.load().has(state::WAITER)
            && let Some(tree) = pin::tree_of(h)
            && !h.state.take_waiter().ended()
        {
            // SAFETY: WAITER is clear: the slot is the handle's. Noticed by
            // `waiter_add_vs_end`.
            let waker = cell::slot(h).and_then(|slot| unsafe { slot.take() });
            waker::let_go(waker);
            tree.counters.add(Count::WaiterRemoved);
        }
        let st = h.state.drop_handle();
        if st.ended() {
            if st.has(state::OUTPUT) {
                h.state.output_dropped();
                // SAFETY: C2; ended while HANDLE was set, so the output is the
                // handle's. Noticed by `handle_drop_vs_end`.
                unsafe { untaken::drop_output(h) };
            }
            end::report_owed(h);
        }
    }
}

/// True if `waiter` is a branch that has lost, and whose future is the handle
/// of the task it waits for.
pub(crate) fn waits_as_loser(waiter: &Header, st: state::Snapshot) -> bool {
    st.has(state::ORIGIN)
        && waiter.kind() == JobKind::Branch
        && waiter.if_cold(|cold, _| cold.waits_for_task) == Some(true)
}

/// The waiter is cancelled: cancels the target.
pub(crate) fn cancel_awaited(target: &Header, site: Site) {
    if target.state.load().has(state::CANCELLED) {
        return;
    }
    let mut why = Why::new(ReasonKind::HandleDropped, site.location());
    why.text = Some("the task that awaited it was cancelled".into());
    walk::cancel(target, why);
}

/// The waiter is cancelled: cancels the target. If the target is not below the
/// waiter, the await ends at once.
pub(crate) fn cancel_with(target: &Header, site: Site, waiter: &Header) -> Option<Cancelled> {
    cancel_awaited(target, site);
    // The target may have ended meanwhile, and an ended job does not show its
    // parent: then its value is the result.
    if is_below(target, waiter) || target.state.load().ended() {
        None
    } else {
        Some(point::tell(waiter, Some(site.location())))
    }
}

/// True if `h` is `above`, or below it.
fn is_below(h: &Header, above: &Header) -> bool {
    let mut at = JobRef::from_header(h);
    while at.depth() > above.depth() {
        match at.parent_from_outside() {
            Some(parent) => at = parent,
            None => return false,
        }
    }
    std::ptr::eq(at.as_ptr(), above)
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    // Always, as in `or_cancel`: a result of a call is written in two parts and
    // read back as one (a store-forwarding stall).
    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        match self.take_completed() {
            Some(value) => Poll::Ready(Ok(value)),
            None => self.poll_slowly(cx),
        }
    }
}

impl<T> Task<T> {
    #[inline(never)]
    fn poll_slowly(&mut self, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let waiting = self
            .waiting
            .as_mut()
            .expect("a Task was polled after completion");
        let site = waiting.job.site_mark();
        let found = std::task::ready!(waiting.poll(cx, site));
        let cancelled = point::is_marked();
        match found {
            PolledTask::Told(told) => {
                waiting.give_up();
                Poll::Ready(Err(told.into()))
            }
            PolledTask::Circular(error) => Poll::Ready(Err(error)),
            PolledTask::Ended if cancelled && waiting.waits_before_failing(cx) => Poll::Pending,
            PolledTask::Ended => {
                let back = waiting.take_back();
                let (outcome, job) = self.take();
                Poll::Ready(match back {
                    Some(back) => interrupted_with(&job, back, cancelled, outcome),
                    None => ended_with(&job, cancelled, outcome),
                })
            }
        }
    }
}

fn ended_with<T>(job: &Header, cancelled: bool, outcome: Outcome<T>) -> Result<T> {
    match outcome {
        Outcome::Completed(value) => Ok(value),
        Outcome::Failed(error) => Err(error),
        Outcome::Cancelled {
            late: Some(value), ..
        } if cancelled => Ok(value),
        Outcome::Cancelled { reason, late } => {
            discard(late);
            match context::current() {
                // The waiter is cancelled too, and is told.
                Some(waiter) if cancelled => Err(point::tell(&waiter, Some(job.site())).into()),
                _ => Err(Error::stopped(reason).at(names::victim_alone(job), None)),
            }
        }
    }
}

/// An interrupt that was passed on has come back with the outcome. It is
/// delivered here, or, if there is another error to return, at the next point.
#[cold]
fn interrupted_with<T>(
    job: &Header,
    back: Forwarded,
    cancelled: bool,
    outcome: Outcome<T>,
) -> Result<T> {
    let answer = match outcome {
        Outcome::Completed(value)
        | Outcome::Cancelled {
            late: Some(value), ..
        } => Ok(value),
        Outcome::Failed(error) => Err(error),
        Outcome::Cancelled { reason, late: None } => {
            let waiter = context::current();
            match &waiter {
                // The waiter is told of the cancel; the interrupt stays for its
                // task.
                Some(waiter) if cancelled => Err(point::tell(waiter, Some(job.site())).into()),
                _ => {
                    let told = waiter.as_ref().and_then(|waiter| back.deliver(waiter));
                    return Err(told.map_or_else(|| Error::stopped(reason), Error::from));
                }
            }
        }
    };
    back.put_back();
    answer
}

impl<T> Drop for Task<T> {
    #[inline]
    fn drop(&mut self) {
        if self.waiting.is_some() {
            abandon(&mut self.waiting);
        }
    }
}

/// The handle is dropped without having returned its outcome.
#[inline(never)]
fn abandon(waiting: &mut Option<TaskWait>) {
    if let Some(mut waiting) = waiting.take() {
        waiting.give_up();
        handle::handle_dropped(&waiting.job);
        waiting.let_go();
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.waiting {
            Some(waiting) => handle::debug_job(f, "Task", &waiting.job),
            None => f.write_str("Task(taken)"),
        }
    }
}

/// The future of [`Task::outcome`].
pub type TaskOutcome<T> = OutcomeOf<Outcome<T>>;

/// The future of [`Task::outcome`], by its output: `O` is an [`Outcome`]. The combinators
/// recognise a branch that is a task by this type.
#[must_use = "dropping it cancels the task"]
pub struct OutcomeOf<O> {
    /// The handle of a `Task<T>`, where `O` is an `Outcome<T>`. It may be sent only
    /// where such an outcome may be sent, and becomes a `Task<T>` again before its
    /// value is taken.
    task: Task<O>,
    /// The place of the await.
    site: Site,
}

impl<T> OutcomeOf<Outcome<T>> {
    /// Returns an observer of the task.
    pub fn job(&self) -> Job {
        self.task.job()
    }

    /// Ready when the task has ended. Takes nothing: the outcome, and the duty
    /// to report it, stay with this handle. For a wait that belongs to no job.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let site = self.site;
        let waiting = self
            .task
            .waiting
            .as_mut()
            .expect("an outcome was polled after completion");
        waiting.poll(cx, site).map(drop)
    }

    /// The outcome of a task that has ended.
    pub(crate) fn take_ended(mut self) -> Outcome<T> {
        self.take()
    }

    fn take(&mut self) -> Outcome<T> {
        let mut task: Task<T> = Task {
            waiting: ManuallyDrop::new(self.task.waiting.take()),
            value: PhantomData,
        };
        task.take().0
    }
}

impl<O> fmt::Debug for OutcomeOf<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskOutcome").field(&self.task).finish()
    }
}

impl<T> Future for OutcomeOf<Outcome<T>> {
    type Output = Result<Outcome<T>, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let site = self.site;
        let waiting = self
            .task
            .waiting
            .as_mut()
            .expect("an outcome was polled after completion");
        match std::task::ready!(waiting.poll(cx, site)) {
            PolledTask::Told(told) => {
                waiting.give_up();
                Poll::Ready(Err(told))
            }
            PolledTask::Circular(error) => Poll::Ready(Ok(Outcome::Failed(error))),
            PolledTask::Ended => {
                let back = waiting.take_back();
                let outcome = self.take();
                if let Some(back) = back {
                    // For the next point: here there is an outcome to return.
                    back.put_back();
                }
                Poll::Ready(Ok(outcome))
            }
        }
    }
}
