//! [`Job`]: an observer of any job. Dropping it does nothing.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::base::error::{Cancelled, Error};
use crate::base::escape::escaped;
use crate::base::id::JobId;
use crate::base::kind::JobKind;
use crate::base::list::Key;
use crate::base::observe::{Count, EventKind, JobState};
use crate::base::outcome::Outcome;
use crate::base::priority::Priority;
use crate::base::reason::{Reason, ReasonKind};
use crate::base::unwind::KeptWaker;
use crate::base::wait_kind::WaitKind;
use crate::engine::context;
use crate::engine::end;
use crate::engine::interrupts;
use crate::engine::look;
use crate::engine::names;
use crate::engine::pin;
use crate::engine::tree::Tree;
use crate::engine::walk::{self, Why};
use crate::points::point::{self, Yielded};
use crate::points::wait::Wait;
use crate::record::cold::Joiner;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state;

/// An observer of a job, with which to look at it, wait for it and cancel it. Cloning and
/// dropping an observer does not affect the job.
///
/// | state | body | children | cancelled |
/// |---|---|---|---|
/// | `New` | not polled yet | none | no |
/// | `Active` | runs or waits | any | no |
/// | `Completing` | over | some live | no |
/// | `Cancelling` | any | any | yes |
/// | `Completed`, `Failed`, `Cancelled` | over | none | decided |
#[derive(Clone)]
pub struct Job(JobRef);

impl Job {
    pub(crate) fn new(job: JobRef) -> Job {
        Job(job)
    }

    pub(crate) fn job_ref(&self) -> JobRef {
        self.0.clone()
    }

    /// Returns the job's identity.
    pub fn id(&self) -> JobId {
        self.0.id
    }

    /// Returns the name that the job was given, or one made of its kind and spawn site.
    pub fn name(&self) -> String {
        names::name_of(&self.0)
    }

    /// Returns what kind of job it is.
    pub fn kind(&self) -> JobKind {
        self.0.kind()
    }

    /// Returns where the job was spawned or opened.
    pub fn site(&self) -> &'static Location<'static> {
        self.0.site()
    }

    /// Returns the job's present state.
    pub fn state(&self) -> JobState {
        look::state_of(&self.0)
    }

    /// Returns true if the job has ended.
    pub fn is_ended(&self) -> bool {
        self.0.state.load().ended()
    }

    /// Returns true once the job has been cancelled, shielded or not. One atomic load.
    pub fn cancel_requested(&self) -> bool {
        self.0.state.peek().has(state::CANCELLED)
    }

    /// Returns why the job was cancelled, if it was.
    pub fn reason(&self) -> Option<Reason> {
        self.0.reason()
    }

    /// Cancels the job and everything below it: each of these jobs is told at its next
    /// cancellation point. Returns true if this call cancelled the job, false if the job had
    /// been cancelled or had ended before.
    ///
    /// May be called on any thread, any number of times. No future is polled or dropped
    /// inside this call.
    #[track_caller]
    pub fn cancel(&self, why: impl Into<Cow<'static, str>>) -> bool {
        cancel_asked(&self.0, why.into(), Location::caller())
    }

    /// Asks the task once to stop: its next cancellation point that is not protected by a
    /// shield or a guard returns **one** `Cancelled`, of kind
    /// [`Interrupted`](ReasonKind::Interrupted). Later points go on. Returns false if the
    /// task's body is over.
    ///
    /// An interrupt is a request, whereas [`cancel`](Job::cancel) is final. The job is not
    /// marked as cancelled, its children are not told, and no hook is called. The body may
    /// catch the `Cancelled` and go on; if it returns it, the job is cancelled at that
    /// instant, with its children. [`uninterrupt`](Job::uninterrupt) withdraws a request
    /// that no point has returned yet.
    ///
    /// Each call counts. Several requests before a point has returned the first are
    /// delivered as one, with the text of the latest. A task that is interrupted before its
    /// first turn never begins; one that returns before a point has delivered the interrupt
    /// ends cancelled, with a late value. A task that awaits another task passes the request
    /// on to it. In a cancelled task the points report the cancel instead.
    ///
    /// On a scope, this interrupts the task that the scope is part of. The root cannot be
    /// interrupted.
    ///
    /// ```
    /// # use kinfolk_core as kinfolk;
    /// # async fn example() -> kinfolk::Result<()> {
    /// use kinfolk::{ReasonKind, Scope, checkpoint, current_job};
    ///
    /// let me = current_job().expect("inside a job");
    /// me.interrupt("look up");
    /// let told = checkpoint().await.unwrap_err();
    /// assert_eq!(told.reason().kind(), ReasonKind::Interrupted);
    /// assert_eq!(told.reason().text(), Some("look up"));
    /// checkpoint().await?; // it was one, and it is over
    /// assert_eq!(me.uninterrupt(), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn interrupt(&self, why: impl Into<Cow<'static, str>>) -> bool {
        interrupts::interrupt(&self.0, why.into(), Location::caller())
    }

    /// Withdraws one [interrupt](Job::interrupt), and returns how many are left. At 0, an
    /// interrupt that no point has delivered yet is dropped. The count does not fall below
    /// 0, and that of an ended task does not change.
    pub fn uninterrupt(&self) -> usize {
        interrupts::uninterrupt(&self.0)
    }

    /// Returns how many [interrupts](Job::interrupt) have not been withdrawn, delivered or
    /// not. For code that builds its own timeouts: if the count is higher than before, after
    /// that code has withdrawn its own interrupt, another caller has interrupted the task.
    pub fn interrupts(&self) -> usize {
        interrupts::interrupts(&self.0)
    }

    /// Returns the job's parent; `None` for the root and for a job that has ended.
    pub fn parent(&self) -> Option<Job> {
        self.0.parent_from_outside().map(Job)
    }

    /// Waits for the job to end, without cancelling it.
    ///
    /// # Cancellation
    /// A *point*. The outer `Err` is a cancellation of the awaiting job, never one of the
    /// observed job, which goes on and can be joined again.
    #[track_caller]
    pub fn join(&self) -> Join {
        Join::new(self.0.clone(), Location::caller())
    }
}

impl Tree {
    /// Returns the root job: cancel it to cancel everything, join it to wait for it.
    pub fn root_job(&self) -> Job {
        Job::new(JobRef::from_header(self.shared().root()))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_job(f, "Job", &self.0)
    }
}

impl PartialEq for Job {
    fn eq(&self, other: &Job) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Job {}

pub(crate) fn debug_job(f: &mut fmt::Formatter<'_>, what: &str, h: &Header) -> fmt::Result {
    let mut out = f.debug_struct(what);
    out.field("id", &h.id)
        .field("name", &names::name_of(h))
        .field("state", &look::state_of(h));
    if h.priority() != Priority::Normal {
        out.field("priority", &h.priority());
    }
    if let Some(tree) = pin::tree_of(h)
        && let Some(at) = h.if_cold(|cold, _| cold.deadline).flatten()
    {
        let now = tree.host.now();
        match at.checked_duration_since(now) {
            Some(left) => out.field("deadline_in", &left),
            None => out.field("deadline_passed", &now.duration_since(at)),
        };
    }
    out.finish()
}

pub(crate) fn cancel_asked(
    h: &Header,
    text: Cow<'static, str>,
    site: &'static Location<'static>,
) -> bool {
    let mut why = Why::new(ReasonKind::Asked, site);
    why.by = names::asking_here();
    if !text.is_empty() {
        why.text = Some(text);
    }
    walk::cancel(h, why)
}

/// The current job is cancelled by the library: what its points return from then on.
pub(crate) fn cancel_here(
    kind: ReasonKind,
    text: &'static str,
    site: &'static Location<'static>,
) -> Option<Cancelled> {
    let job = context::current()?;
    let mut why = Why::new(kind, site);
    why.text = Some(text.into());
    walk::cancel(&job, why);
    job.reason().map(Cancelled::new)
}

/// The owning handle of `job` was dropped: the job is cancelled, if it has not ended.
pub(crate) fn handle_dropped(job: &Header) {
    if !job.state.load().ended() {
        walk::cancel(job, Why::new(ReasonKind::HandleDropped, job.site()));
    }
}

/// The outcome of an ended job, without its value.
pub(crate) fn untyped(h: &Header) -> Outcome<()> {
    match end::decided(h) {
        (JobState::Failed, Some(error), _) => Outcome::Failed(error),
        (JobState::Failed, None, _) => {
            Outcome::Failed(Error::msg("the task failed, and its error was taken"))
        }
        (JobState::Cancelled, _, Some(reason)) => Outcome::Cancelled { reason, late: None },
        (JobState::Cancelled, _, None) => {
            unreachable!("cancelled without a reason: {:?}", h.state.load())
        }
        _ => Outcome::Completed(()),
    }
}

/// Waits for the end of a job: [`Job::join`] and [`Task::join`](crate::surface::task::Task::join).
#[must_use = "futures do nothing unless awaited"]
pub struct Join {
    job: JobRef,
    listed: Option<Key>,
    wait: Wait,
    yielded: Yielded,
    site: Site,
    asked: Asker,
}

impl Join {
    pub(crate) fn new(job: JobRef, site: &'static Location<'static>) -> Join {
        Join {
            job,
            listed: None,
            wait: Wait::new(),
            yielded: Yielded::at(Site::of(site)),
            site: Site::of(site),
            asked: Asker::default(),
        }
    }

    pub(crate) fn job(&self) -> &JobRef {
        &self.job
    }

    pub(crate) fn unlist(&mut self) {
        self.wait.over();
        let Some(key) = self.listed.take() else {
            return;
        };
        // Ended: the entry is the ender's, which counts it as woken.
        let Some(tree) = pin::tree_of(&self.job) else {
            return;
        };
        let removed = self.job.if_cold(|cold, st| {
            if st.ended() {
                None
            } else {
                cold.joiners.remove(key)
            }
        });
        if let Some(Some(joiner)) = removed {
            tree.counters.add(Count::WaiterRemoved);
            drop(joiner);
        }
    }
}

impl Future for Join {
    type Output = Result<Outcome<()>, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Err(told) = std::task::ready!(point::poll_point_at(cx, &mut this.yielded, this.site))
        {
            this.unlist();
            return Poll::Ready(Err(told));
        }
        if let Some(error) = this.ask() {
            return Poll::Ready(Ok(Outcome::Failed(error)));
        }
        std::task::ready!(this.poll_end(cx, WaitKind::Join));
        // A child that fails cancels its family before its end is visible. The
        // check above may have come before both: then the family's own body is
        // told, and gets no outcome to go on with.
        if point::is_marked()
            && let Err(told) =
                std::task::ready!(point::poll_point_at(cx, &mut this.yielded, this.site))
        {
            return Poll::Ready(Err(told));
        }
        Poll::Ready(Ok(untyped(&this.job)))
    }
}

impl Join {
    /// An error if the waiter could wait for ever.
    pub(crate) fn ask(&mut self) -> Option<Error> {
        let error = self.asked.ask(&self.job, self.site)?;
        self.unlist();
        Some(error)
    }

    /// Ready when the job has ended. Not a point.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>, kind: WaitKind) -> Poll<()> {
        let this = self;
        let Some(tree) = pin::tree_of(&this.job) else {
            this.wait.over();
            this.listed = None;
            return Poll::Ready(());
        };
        let joiner = Joiner {
            waker: KeptWaker::new(cx.waker().clone()),
            job: context::current_id(),
        };
        let (added, key, old) = this.job.with_cold(|cold, _| {
            if let Some(key) = this.listed
                && let Some(kept) = cold.joiners.get_mut(key)
            {
                return (false, Some(key), Some(std::mem::replace(kept, joiner)));
            }
            // The ender takes the list after ENDED, under this lock; so this
            // thread reads the word again under it. Modelled in
            // `waiter_add_vs_end`.
            if this.job.state.publish_joiner().ended() {
                return (false, None, Some(joiner));
            }
            (true, Some(cold.joiners.push(joiner)), None)
        });
        drop(old);
        this.listed = key;
        if key.is_none() {
            this.wait.over();
            return Poll::Ready(());
        }
        if added {
            tree.counters.add(Count::WaiterRegistered);
            tree.emit(this.job.id, EventKind::WaitRegister);
        }
        this.wait.pending(cx.waker(), kind, this.site);
        Poll::Pending
    }
}

impl Drop for Join {
    fn drop(&mut self) {
        self.unlist();
    }
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_job(f, "Join", &self.job)
    }
}

/// The job that waits: read again whenever another job polls the wait.
#[derive(Default)]
struct Asker {
    /// The job that polled last; its address is compared, never used.
    last: Option<usize>,
}

impl Asker {
    fn ask(&mut self, target: &Header, site: Site) -> Option<Error> {
        let now = context::with(|cx| cx.job.get().addr());
        if self.last.replace(now) == Some(now) {
            return None;
        }
        context::with(|cx| ask(target, cx.current(), site))
    }
}

/// Starts a lazy target. An error if the waiter could wait for ever, because
/// the target is the waiter itself or an ancestor.
#[inline]
pub(crate) fn ask(target: &Header, waiter: Option<&Header>, site: Site) -> Option<Error> {
    if target.state.peek().has(state::LAZY) {
        crate::surface::spawn::start_lazy(target);
    }
    // A job that waits for itself or for an ancestor waits for ever: this is an
    // error.
    let mut at = waiter?;
    if at.depth() > target.depth() && !target.state.peek().has(state::HAS_SHARES) {
        // The target never had a child, so it is no job's ancestor: no climb is
        // needed.
        return None;
    }
    while at.depth() > target.depth() {
        // SAFETY: inside a job that has not ended (H3).
        at = unsafe { at.parent() }?;
    }
    std::ptr::eq(at, target).then(|| circular(waiter, target, site))
}

#[cold]
fn circular(waiter: Option<&Header>, target: &Header, site: Site) -> Error {
    let place = site.location();
    Error::msg(format!(
        "{} waits for {} at {}:{}, which cannot end before it: \
         wait for it from outside, or cancel it instead",
        escaped(&waiter.map(names::name_of).unwrap_or_default()),
        escaped(&names::name_of(target)),
        place.file(),
        place.line(),
    ))
}
