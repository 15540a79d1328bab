//! The thread-local [`Context`]: which job this thread polls, under which
//! waker, and the state of its turn. It is set around each poll of a job.

use std::cell::Cell;
use std::ptr;
use std::task::{RawWakerVTable, Waker};

use crate::base::id::JobId;
use crate::base::lane::LaneMark;
use crate::base::sync::local;
use crate::engine::poll_record::{self, Desk};
use crate::record::header::Header;

/// How many points a turn may pass before it yields.
pub(crate) const BUDGET: u32 = 128;

/// No tree has this serial: serials count from one.
const NO_TREE: u64 = u64::MAX;

pub(crate) struct Context {
    pub(crate) job: Cell<*const Header>,
    /// The waker the job is polled with, compared and never used.
    data: Cell<*const ()>,
    vtable: Cell<*const RawWakerVTable>,
    /// The task whose turn this thread takes, and since when; other threads may
    /// read it.
    desk: Desk,
    /// True once the desk is in the list that other threads read.
    listed: Cell<bool>,
    /// Whether that task wants another turn.
    again: Cell<bool>,
    pub(crate) budget: Cell<u32>,
    /// How many drops of unfinished futures are nested on this thread.
    pub(crate) half_way_drops: Cell<u8>,
    /// How deep `spawn_now` is nested.
    nested: Cell<u32>,
    /// The lane of the turn that this thread takes.
    lane: Cell<LaneMark>,
    /// The tree whose clock this thread read last, and its milliseconds then.
    /// Reset when the host looks at the clock.
    clock_of: Cell<u64>,
    clock: Cell<u32>,
    /// The job whose points returned Cancelled last on this thread, and in which
    /// of its polls.
    told_job: Cell<u64>,
    told_poll: Cell<u32>,
    /// With a sink: the job that this thread ends, which wakes what waited for
    /// it.
    ending: Cell<u64>,
}

local!(static CONTEXT: Context = Context {
    job: Cell::new(ptr::null()),
    data: Cell::new(ptr::null()),
    vtable: Cell::new(ptr::null()),
    budget: Cell::new(0),
    nested: Cell::new(0),
    lane: Cell::new(LaneMark::POOL),
    clock_of: Cell::new(NO_TREE),
    clock: Cell::new(0),
    told_job: Cell::new(0),
    told_poll: Cell::new(0),
    ending: Cell::new(0),
    desk: Desk::new(),
    listed: Cell::new(false),
    again: Cell::new(false),
    half_way_drops: Cell::new(0),
}; pub(crate) fn with);

impl Context {
    /// The job being polled here.
    #[inline]
    pub(crate) fn current(&self) -> Option<&Header> {
        // SAFETY: the frame that set it is polling that job, further down this
        // stack, and restores the old value before it lets go of the job.
        unsafe { self.job.get().as_ref() }
    }

    /// True if this thread takes a turn; false for a scope that another
    /// executor polls, which has no budget here.
    pub(crate) fn in_turn(&self) -> bool {
        !self.desk.task().is_null()
    }

    /// True if `waker` is the one that the current job is polled with: then a
    /// wake-up of the job wakes this leaf too.
    #[inline]
    pub(crate) fn polled_with(&self, waker: &Waker) -> bool {
        self.data.get() == waker.data() && ptr::eq(self.vtable.get(), waker.vtable())
    }
}

/// The job being polled on this thread, as a reference to keep; none outside
/// every job.
pub(crate) fn current() -> Option<crate::record::header::JobRef> {
    with(|cx| cx.current().map(crate::record::header::JobRef::from_header))
}

/// The lane of the turn that this thread takes; the pool's outside every turn.
#[inline]
pub(crate) fn lane() -> LaneMark {
    with(|cx| cx.lane.get())
}

/// Restores the lane.
pub(crate) struct OnLane(LaneMark);

/// Until the answer is dropped, this thread takes turns of `lane`.
#[inline]
pub(crate) fn on_lane(lane: LaneMark) -> OnLane {
    OnLane(with(|cx| cx.lane.replace(lane)))
}

impl Drop for OnLane {
    fn drop(&mut self) {
        with(|cx| cx.lane.set(self.0));
    }
}

/// One more turn that `spawn_now` takes inside another, until this is dropped.
pub(crate) struct NestedDepth(u32);

/// Until the answer is dropped, `spawn_now` is nested one deeper; none if it is
/// nested `most` deep already.
pub(crate) fn nest(most: u32) -> Option<NestedDepth> {
    with(|cx| {
        let depth = cx.nested.get();
        (depth < most).then(|| {
            cx.nested.set(depth + 1);
            NestedDepth(depth)
        })
    })
}

impl Drop for NestedDepth {
    fn drop(&mut self) {
        with(|cx| cx.nested.set(self.0));
    }
}

/// The first answer of `f`, called with the job being polled here and then with
/// each ancestor; none outside every job.
pub(crate) fn find_up<R>(mut f: impl FnMut(&Header) -> Option<R>) -> Option<R> {
    with(|cx| {
        let mut at = cx.current();
        while let Some(h) = at {
            if let Some(found) = f(h) {
                return Some(found);
            }
            // SAFETY: inside a job that has not ended (H3).
            at = unsafe { h.parent() };
        }
        None
    })
}

/// The identity of the job being polled on this thread; none outside.
pub(crate) fn current_id() -> Option<JobId> {
    with(|cx| cx.current().map(|job| job.id))
}

/// The turn's clock, if this thread is inside a turn of the living tree with
/// that index.
pub(crate) fn millis_in_turn(index: u16) -> Option<u32> {
    with(|cx| {
        // SAFETY: its turn is taken further down this stack.
        let task = unsafe { cx.desk.task().as_ref() }?;
        task.is_at(index).then(|| cx.desk.since())
    })
}

/// The milliseconds of a tree, for a turn or for a poll of a `scope`. The clock
/// is read once for all turns that this thread takes of the tree until
/// [`look_again`], or until some code reads the clock. A scope that is polled
/// outside every turn, and a turn inside such a poll, belong to another
/// executor, which does not say when time passes: for these the clock is always
/// read.
#[inline]
pub(crate) fn millis_of(serial: u64, scope: bool, read: impl FnOnce() -> u32) -> u32 {
    with(|cx| {
        let elsewhere = (scope || !cx.job.get().is_null()) && cx.desk.task().is_null();
        if cx.clock_of.get() != serial || elsewhere || cx.desk.was_looked_at() {
            cx.clock.set(read());
            cx.clock_of.set(serial);
        }
        cx.clock.get()
    })
}

/// A point of `h` returns Cancelled. True if it is the first to do so in this poll of
/// `h`, as far as this thread remembers: it remembers one job.
pub(crate) fn is_first_told(h: &Header) -> bool {
    let (job, poll) = (
        h.id.bits(),
        h.polls.load(std::sync::atomic::Ordering::Relaxed),
    );
    with(|cx| {
        let same = cx.told_job.get() == job && cx.told_poll.get() == poll;
        cx.told_job.set(job);
        cx.told_poll.set(poll);
        !same
    })
}

/// Restores the job that was being ended around this one.
pub(crate) struct EndInProgress(u64);

/// Until the answer is dropped, wake-ups on this thread come from the end of `job`.
pub(crate) fn ends(job: JobId) -> EndInProgress {
    with(|cx| EndInProgress(cx.ending.replace(job.bits())))
}

impl Drop for EndInProgress {
    fn drop(&mut self) {
        with(|cx| cx.ending.set(self.0));
    }
}

/// The job that causes the wake-ups of this thread, for a sink: the job being ended, or
/// the job being polled; none outside every job.
pub(crate) fn waking_job() -> Option<JobId> {
    with(|cx| JobId::from_bits(cx.ending.get()).or_else(|| cx.current().map(|job| job.id)))
}

/// Forgets the clock value that this thread has read.
pub(crate) fn look_again() {
    with(|cx| cx.clock_of.set(NO_TREE));
}

/// Gives the task at `task` another turn without a step on its word, if this thread
/// takes its turn. False if this is another task's turn.
#[inline]
pub(crate) fn ask_again(task: *const ()) -> bool {
    with(|cx| {
        let turn = cx.desk.task();
        let own = !turn.is_null() && task == turn.cast();
        if own {
            cx.again.set(true);
        }
        own
    })
}

/// Runs `f`, which drops an unfinished future: a lock's guard that is dropped with
/// it counts as released by force.
pub(crate) fn half_way<R>(f: impl FnOnce() -> R) -> R {
    struct Deeper(u8);
    impl Drop for Deeper {
        fn drop(&mut self) {
            with(|cx| cx.half_way_drops.set(self.0));
        }
    }
    let depth = with(|cx| cx.half_way_drops.get());
    // It must stay below the bit beside it in a `Holder`.
    with(|cx| cx.half_way_drops.set((depth + 1).min(127)));
    let _deeper = Deeper(depth);
    f()
}

/// True if the turn taken on this thread has requested another one.
#[inline]
pub(crate) fn goes_round() -> bool {
    with(|cx| cx.again.get())
}

/// True if no point succeeds any more in this turn: further polls would only
/// make each branch request another turn.
pub(crate) fn turn_is_spent() -> bool {
    with(|cx| cx.budget.get() == 0 && cx.in_turn())
}

/// Restores the previous job and waker.
pub(crate) struct Entered {
    job: *const Header,
    data: *const (),
    vtable: *const RawWakerVTable,
}

/// Until the answer is dropped, `job` is the current one.
#[inline]
pub(crate) fn enter(job: &Header, waker: &Waker) -> Entered {
    with(|cx| Entered {
        job: cx.job.replace(job),
        data: cx.data.replace(waker.data()),
        vtable: cx.vtable.replace(waker.vtable()),
    })
}

/// The current job, which polls a part of itself under another waker.
pub(crate) struct PolledHere(Option<crate::record::header::JobRef>);

impl PolledHere {
    #[inline]
    pub(crate) fn now() -> PolledHere {
        PolledHere(current())
    }

    /// From here to the drop of the answer, `waker` is the one of the job; nothing outside any
    /// job.
    #[inline]
    pub(crate) fn enter(&self, waker: &Waker) -> Option<Entered> {
        self.0.as_deref().map(|job| enter(job, waker))
    }
}

/// From here to the drop of the answer, no job is the current one: for
/// callbacks that belong to nobody.
pub(crate) fn leave() -> Entered {
    with(|cx| Entered {
        job: cx.job.replace(ptr::null()),
        data: cx.data.replace(ptr::null()),
        vtable: cx.vtable.replace(ptr::null()),
    })
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        with(|cx| {
            cx.job.set(self.job);
            cx.data.set(self.data);
            cx.vtable.set(self.vtable);
        });
    }
}

/// A turn that this thread takes, until this is dropped.
pub(crate) struct InTurn {
    /// The turn that this one interrupts, if it is taken inside another.
    outer: Option<Outer>,
}

struct Outer {
    job: Entered,
    task: *const Header,
    budget: u32,
    millis: u32,
    again: bool,
}

/// Until the answer is dropped, `job` is the current one: a task that takes a
/// turn under its own waker, which has that `vtable`.
#[inline]
pub(crate) fn begin_turn(
    job: &Header,
    vtable: &'static RawWakerVTable,
    millis: u32,
    budget: u32,
) -> InTurn {
    with(|cx| {
        if !cx.listed.get() {
            cx.list();
        }
        let outer = if cx.desk.task().is_null() && cx.job.get().is_null() {
            None
        } else {
            Some(cx.interrupt())
        };
        cx.job.set(job);
        cx.data.set(ptr::from_ref(job).cast());
        cx.vtable.set(vtable);
        cx.desk.set(job, millis);
        cx.budget.set(budget);
        cx.again.set(false);
        InTurn { outer }
    })
}

impl Context {
    #[cold]
    fn list(&self) {
        self.listed.set(true);
        // SAFETY: the desk is part of the context, which has no destructor.
        unsafe { poll_record::list(&self.desk) };
    }

    #[cold]
    fn interrupt(&self) -> Outer {
        let outer = Outer {
            job: leave(),
            task: self.desk.task(),
            budget: self.budget.get(),
            millis: self.desk.since(),
            again: self.again.get(),
        };
        self.desk.put_by();
        outer
    }

    #[cold]
    fn resume(&self, outer: Outer) {
        self.desk.take_up(outer.task, outer.millis);
        self.budget.set(outer.budget);
        self.again.set(outer.again);
        drop(outer.job);
    }
}

impl Drop for InTurn {
    #[inline]
    fn drop(&mut self) {
        with(|cx| match self.outer.take() {
            Some(outer) => cx.resume(outer),
            // Most turns interrupt no other turn: then nothing is kept.
            None => {
                cx.job.set(ptr::null());
                cx.data.set(ptr::null());
                cx.vtable.set(ptr::null());
                cx.desk.clear();
                cx.budget.set(0);
            }
        });
    }
}
