//! Cancellation points: where a body is told.

use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::base::drop_at_end::DropAtEnd;
use crate::base::error::Cancelled;
use crate::base::observe::{EventKind, Interests};
use crate::base::reason::{Reason, ReasonKind};
use crate::base::unwind::contained;
use crate::base::wait_kind::WaitKind;
use crate::engine::brake;
use crate::engine::context;
use crate::engine::deadline;
use crate::engine::interrupts;
use crate::engine::tree::PointHeld;
use crate::engine::waker;
use crate::points::wait::Wait;
use crate::record::brake::FREE;
use crate::record::header::{Header, JobRef, Site};
use crate::record::state::{self, Snapshot};

/// Whether this point has yielded once more before failing. From the second
/// Cancelled of a job on, a point yields once, so that a loop that swallows
/// Cancelled does not keep other tasks from running; in a body that has swallowed
/// a hundred the point waits longer ([`brake`]).
///
/// In debug builds this also keeps the place of the point, for the point hook of
/// a simulation. In a release build `checkpoint` would cost ten instructions more
/// with it.
#[derive(Debug)]
pub(crate) struct Yielded {
    once: bool,
    /// The setting of the brake for which the point waits.
    held: u8,
    #[cfg(debug_assertions)]
    site: Site,
}

impl Yielded {
    /// For a new point at `site`.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "not kept"))]
    pub(crate) fn at(site: Site) -> Yielded {
        Yielded {
            once: false,
            held: FREE,
            #[cfg(debug_assertions)]
            site,
        }
    }

    /// For a new point at the caller's place.
    #[inline]
    #[track_caller]
    pub(crate) fn here() -> Yielded {
        Yielded {
            once: false,
            held: FREE,
            #[cfg(debug_assertions)]
            site: Site::of(Location::caller()),
        }
    }

    /// The point is polled for a call at `site`.
    #[inline]
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "not kept"))]
    pub(crate) fn move_to(&mut self, site: &'static Location<'static>) {
        #[cfg(debug_assertions)]
        {
            self.site = Site::of(site);
        }
    }

    /// The point begins another wait.
    #[inline]
    pub(crate) fn reset(&mut self) {
        self.once = false;
        self.held = FREE;
    }

    fn site(&self) -> Option<&'static Location<'static>> {
        #[cfg(debug_assertions)]
        return Some(self.site.location());
        #[cfg(not(debug_assertions))]
        None
    }
}

/// Called at the start of each poll of a point, which then returns Cancelled,
/// yields because the budget is spent, or goes on.
#[inline]
pub(crate) fn poll_point(
    cx: &mut Context<'_>,
    yielded: &mut Yielded,
) -> Poll<Result<(), Cancelled>> {
    poll_point_at(cx, yielded, NO_SITE)
}

/// The site of a point whose future stores none.
const NO_SITE: Site = Site(0);

/// The same for a point whose future stores its place: its events name that place in
/// release builds too.
#[inline]
pub(crate) fn poll_point_at(
    cx: &mut Context<'_>,
    yielded: &mut Yielded,
    site: Site,
) -> Poll<Result<(), Cancelled>> {
    context::with(|here| {
        let Some(h) = here.current() else {
            return Poll::Ready(Ok(()));
        };
        if h.state.peek().must_look() {
            return look(here, h, cx, yielded, site);
        }
        spend(here, h, cx, yielded)
    })
}

/// Goes on, or yields if the turn's budget is spent.
#[inline]
fn spend(
    here: &context::Context,
    h: &Header,
    cx: &mut Context<'_>,
    yielded: &Yielded,
) -> Poll<Result<(), Cancelled>> {
    match here.budget.get() {
        0 => spent(here, h, cx, yielded),
        left => {
            here.budget.set(left - 1);
            Poll::Ready(Ok(()))
        }
    }
}

/// There may be a Cancelled to return; if not, the point goes on.
#[cold]
fn look(
    here: &context::Context,
    h: &Header,
    cx: &mut Context<'_>,
    yielded: &mut Yielded,
    site: Site,
) -> Poll<Result<(), Cancelled>> {
    let st = look_at_clock(h);
    if st.effective() {
        return told(h, cx, yielded, site);
    }
    // An interrupt spends the budget: so a body that takes one interrupt after
    // the other starves no other task.
    std::task::ready!(spend(here, h, cx, yielded))?;
    if !st.has(state::INTERRUPTED) {
        return Poll::Ready(Ok(()));
    }
    Poll::Ready(interrupts::take(h).map_or(Ok(()), Err))
}

/// The word of `h`, which is being polled, after the clock was read if there is
/// a deadline around it.
fn look_at_clock(h: &Header) -> Snapshot {
    let st = h.state.load();
    if !st.has(state::DEADLINE) {
        return st;
    }
    deadline::look(h);
    h.state.load()
}

/// The budget of the turn is spent, or there is none. A tree with a point hook
/// has no budget: there the hook decides whether to go on. Outside every turn
/// another executor polls, and fairness is that executor's task.
#[cold]
fn spent(
    here: &context::Context,
    h: &Header,
    cx: &mut Context<'_>,
    yielded: &Yielded,
) -> Poll<Result<(), Cancelled>> {
    // SAFETY: being polled, so not ended.
    match unsafe { h.tree() }.watched_point(h.id, yielded.site()) {
        Some(PointHeld::No) => Poll::Ready(Ok(())),
        None if !here.in_turn() => Poll::Ready(Ok(())),
        Some(PointHeld::Yes) | None => {
            waker::go_round(cx.waker());
            Poll::Pending
        }
    }
}

#[cold]
fn told(
    h: &Header,
    cx: &mut Context<'_>,
    yielded: &mut Yielded,
    site: Site,
) -> Poll<Result<(), Cancelled>> {
    if waits_before_failing(h, cx, yielded) {
        return Poll::Pending;
    }
    // SAFETY: being polled, so not ended.
    if unsafe { h.tree() }.wants(Interests::CAUSES) {
        let known = (site.0 != NO_SITE.0).then(|| site.location());
        note_point(h, known.or_else(|| yielded.site()));
    }
    Poll::Ready(Err(tell_alone(h)))
}

/// The body of `h`, which is being polled, is told at `site`.
#[cold]
fn note_point(h: &Header, site: Option<&'static Location<'static>>) {
    // SAFETY: being polled, so not ended.
    let tree = unsafe { h.tree() };
    tree.emit_for(Interests::CAUSES, h.id, EventKind::Told { site });
}

/// True if a point of `h`, which is being polled, waits before it fails, and is woken
/// when the wait is over: its Cancelled was returned here before.
#[inline]
pub(crate) fn waits_before_failing(
    h: &Header,
    cx: &mut Context<'_>,
    yielded: &mut Yielded,
) -> bool {
    let is_first = h.was_told_nothing() && h.was_spawned();
    !is_first && waits_again(h, cx, yielded)
}

#[cold]
fn waits_again(h: &Header, cx: &mut Context<'_>, yielded: &mut Yielded) -> bool {
    if let Some(swallower) = brake::swallower(h) {
        let holds = brake::holds(swallower, cx.waker(), &mut yielded.held);
        if holds {
            // A wait of this library: the job is not idle.
            h.wait_kind.store(WaitKind::Sleep as u8, Relaxed);
            let site = yielded.site().map_or(h.site_mark(), Site::of);
            h.wait_site.store(site.0, Relaxed);
            let waits = h.waits.load(Relaxed).saturating_add(1);
            h.waits.store(waits, Relaxed);
        }
        return holds;
    }
    let yields = h.was_told() && !yielded.once;
    if yields {
        yielded.once = true;
        waker::go_round(cx.waker());
    }
    yields
}

/// Tells the body of `h`, which is being polled, that it is cancelled, at `site`.
pub(crate) fn tell(h: &Header, site: Option<&'static Location<'static>>) -> Cancelled {
    note_point(h, site);
    tell_alone(h)
}

/// The same when the sink has its event already.
fn tell_alone(h: &Header) -> Cancelled {
    brake::count(h, context::is_first_told(h));
    // SAFETY: being polled, so not ended.
    let tree = unsafe { h.tree() };
    let now = tree.millis_now();
    // Up through the inline scopes to the task, local or not, and no further: a
    // parent has not been told because its child has.
    let mut at = Some(h);
    while let Some(job) = at {
        if !job.state.tell(now) {
            break;
        }
        if job.state.peek().has(state::DROP_IF_IDLE) {
            // The body does reach points: it gets the time to clean up.
            job.state.spare();
        }
        if job.was_spawned() {
            break;
        }
        // SAFETY: inside a job that has not ended (H3).
        at = unsafe { job.parent() };
    }
    // SAFETY: as above.
    Cancelled::new(unsafe { reason_inside(h) })
}

/// The reason of a job that is effectively cancelled, from inside.
///
/// # Safety
/// The caller runs inside the poll of `h`.
pub(crate) unsafe fn reason_inside(h: &Header) -> Reason {
    // SAFETY: inside, so linked.
    let origin = unsafe { h.origin() }
        .unwrap_or_else(|| unreachable!("told without a mark: {:?}", h.state.load()));
    let data = origin
        .if_cold(|cold, _| cold.reason.clone())
        .flatten()
        .unwrap_or_else(|| unreachable!("marked without a reason: {:?}", origin.state.load()));
    Reason::new(data, !std::ptr::eq(origin, h))
}

/// Returns true if the next cancellation point would return `Cancelled`: the current job is
/// cancelled, or its task is [interrupted](crate::Job::interrupt), and no shield or guard
/// holds that back. False in a shield, and outside any job.
///
/// Costs one thread-local access and one load; below a deadline, the clock is read too, so
/// that a deadline that has passed is seen at once.
#[inline]
pub fn is_cancelled() -> bool {
    context::with(|cx| {
        cx.current()
            .is_some_and(|h| h.state.peek().must_look() && would_tell(h))
    })
}

#[cold]
fn would_tell(h: &Header) -> bool {
    let st = look_at_clock(h);
    st.effective() || st.has(state::INTERRUPTED) && interrupts::pending(h)
}

/// True if a point here must do more than go on.
#[inline]
pub(crate) fn must_look() -> bool {
    context::with(|cx| cx.current().is_some_and(|h| h.state.peek().must_look()))
}

/// True if the current job is cancelled, and no guard holds the cancel back.
#[inline]
pub(crate) fn is_marked() -> bool {
    context::with(|cx| cx.current().is_some_and(|h| h.state.peek().effective()))
}

/// Called before a wait returns a failure because the mark of its job has cut it short: the
/// wait is a point, and that failure replaces its Cancelled. So a loop that logs this failure
/// and goes on counts as swallowing, as a loop around a point does, and yields and gets a
/// brake.
pub(crate) async fn pass_if_marked(site: Site) {
    if is_marked() {
        drop(Checkpoint::at(site.location()).await);
    }
}

/// The cancellation of the current job, without telling it; none if the job is not
/// cancelled, or a shield or guard holds the cancel back.
pub(crate) fn marked_here() -> Option<Cancelled> {
    if !is_marked() {
        return None;
    }
    let here = context::current()?;
    // SAFETY: being polled, so this code runs inside.
    Some(Cancelled::new(unsafe { reason_inside(&here) }))
}

/// Takes the interrupt that the task of the current job was asked for; none if there is none.
pub(crate) fn take_interrupt() -> Option<Cancelled> {
    let job = context::current()?;
    interrupts::take(&job)
}

/// The task whose interrupt a wait was told; none before.
#[derive(Default)]
pub(crate) struct InterruptedTask(Option<JobRef>);

impl InterruptedTask {
    /// A point was told `told` here.
    pub(crate) fn note(&mut self, told: &Cancelled) {
        if told.reason().kind() == ReasonKind::Interrupted {
            self.0 = context::current().and_then(|job| interrupts::task_of(&job));
        }
    }

    /// The next point of the task reports it again; without a task, that of the current one. A
    /// cancel stands as it did.
    pub(crate) fn tell_again(&self, told: &Cancelled) {
        if let Some(task) = self.0.clone().or_else(context::current) {
            interrupts::put_back(&task, told);
        }
    }
}

/// True if what an earlier point of this job told still holds.
pub(crate) fn still_told(told: &Cancelled) -> bool {
    match told.reason().kind() {
        ReasonKind::Interrupted => {
            context::current().is_some_and(|job| interrupts::still_stands(&job, told))
        }
        _ => marked_here().is_some(),
    }
}

/// Returns at once, with `Cancelled` if the job was cancelled: a cancellation point for long
/// loops.
///
/// ```
/// # use kinfolk_core as kinfolk;
/// # fn work() -> bool { false }
/// async fn crunch() -> kinfolk::Result<()> {
///     while work() {
///         kinfolk::checkpoint().await?;
///     }
///     Ok(())
/// }
/// ```
///
/// # Cancellation
/// A *point*. Returns `Err` if the current job is cancelled. Each checkpoint uses up some of
/// the turn's budget; when that is spent, it yields, so that a loop of checkpoints does not
/// starve other tasks.
#[inline]
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn checkpoint() -> Checkpoint {
    Checkpoint {
        yielded: Yielded::here(),
    }
}

impl Checkpoint {
    /// A call at `site`.
    pub(crate) fn at(site: &'static Location<'static>) -> Checkpoint {
        Checkpoint {
            yielded: Yielded::at(Site::of(site)),
        }
    }
}

/// The future of [`checkpoint`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Checkpoint {
    yielded: Yielded,
}

impl Future for Checkpoint {
    type Output = Result<(), Cancelled>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        poll_point(cx, &mut self.yielded)
    }
}

/// Yields to the other tasks for one turn.
///
/// # Cancellation
/// A *point*: at entry, and again when it resumes.
#[inline]
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn yield_now() -> YieldNow {
    YieldNow {
        yielded: Yielded::here(),
        done: false,
    }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: Yielded,
    done: bool,
}

impl Future for YieldNow {
    type Output = Result<(), Cancelled>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        std::task::ready!(poll_point(cx, &mut self.yielded))?;
        if self.done {
            return Poll::Ready(Ok(()));
        }
        self.done = true;
        waker::go_round(cx.waker());
        Poll::Pending
    }
}

/// Waits until the current job is cancelled.
///
/// # Cancellation
/// A *point* that only a cancel ends. Outside any job it never ends.
#[track_caller]
#[must_use = "futures do nothing unless awaited"]
pub fn park() -> Park {
    Park {
        yielded: Yielded::here(),
        wait: Wait::new(),
        site: Site::of(Location::caller()),
    }
}

/// The future of [`park`].
#[must_use = "futures do nothing unless awaited"]
pub struct Park {
    yielded: Yielded,
    wait: Wait,
    site: Site,
}

impl Future for Park {
    type Output = Result<std::convert::Infallible, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Poll::Ready(Err(told)) = poll_point_at(cx, &mut this.yielded, this.site) {
            this.wait.over();
            return Poll::Ready(Err(told));
        }
        this.wait.pending(cx.waker(), WaitKind::Park, this.site);
        Poll::Pending
    }
}

impl fmt::Debug for Park {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Park")
    }
}

/// Turns any future into a cancellation point.
pub trait OrCancel: Future + Sized {
    /// Awaits this future, or drops it when the current job is cancelled.
    ///
    /// # Cancellation
    /// A *point*. If it returns `Cancelled`, the future was dropped: what the future had done
    /// and not yet returned is lost. Use it for futures that may be dropped at any time.
    #[track_caller]
    fn or_cancel(self) -> OrCancelFuture<Self> {
        OrCancelFuture {
            inner: DropAtEnd::new(self),
            yielded: Yielded::here(),
            wait: Wait::new(),
            site: Site::of(Location::caller()),
        }
    }
}

impl<F: Future> OrCancel for F {}

pin_project! {
    /// The future of [`OrCancel::or_cancel`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct OrCancelFuture<F> {
        #[pin]
        inner: DropAtEnd<F>,
        yielded: Yielded,
        wait: Wait,
        site: Site,
    }
}

impl<F: Future> Future for OrCancelFuture<F> {
    type Output = Result<F::Output, Cancelled>;

    // Always: a result of a call is written in two parts and read back as one,
    // and that store-forwarding stall costs more than the rest of a ready poll.
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match poll_point(cx, this.yielded) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(told)) => {
                this.wait.over();
                contained(|| context::half_way(|| this.inner.give_up()));
                return Poll::Ready(Err(told));
            }
            Poll::Ready(Ok(())) => {}
        }
        match this.inner.poll(cx) {
            Poll::Ready(output) => {
                this.wait.over();
                Poll::Ready(Ok(output))
            }
            Poll::Pending => {
                this.wait
                    .pending(cx.waker(), WaitKind::OrCancel, *this.site);
                Poll::Pending
            }
        }
    }
}

impl<F> fmt::Debug for OrCancelFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrCancelFuture")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::record::cell;
    use crate::record::header::{Birth, JobRef};
    use crate::surface::handle::Job;
    use std::panic::Location;
    use std::sync::mpsc;
    use std::task::Waker;
    use std::time::Duration;

    /// T1: checking for a cancel takes no lock: the job's lock is held
    /// meanwhile.
    #[test]
    fn src_t1_asking_takes_no_lock() {
        for (bits, told) in [(0, false), (state::CANCELLED | state::ORIGIN, true)] {
            let (said, heard) = mpsc::channel();
            std::thread::spawn(move || {
                let birth = Birth::refused(state::BUSY | bits, Location::caller());
                // SAFETY: fresh; its one reference is ours.
                let job = unsafe { JobRef::adopt(cell::create_node(&birth)) };
                let handle = Job::new(job.clone());
                let _entered = context::enter(&job, Waker::noop());
                let _locked = job.lock();
                let _ = said.send((is_cancelled(), handle.cancel_requested()));
            });
            let asked = heard.recv_timeout(Duration::from_secs(60));
            assert_eq!(asked.expect("it waits for the lock"), (told, told));
        }
    }
}
