//! The thread-local: which job is being polled here, under which waker, and
//! what is left of the turn. One struct, set around each poll of a job.

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

/// The serial of no tree: theirs count from one.
const NO_TREE: u64 = u64::MAX;

pub(crate) struct Context {
    pub(crate) job: Cell<*const Header>,
    /// The waker the job is polled with, compared and never used.
    data: Cell<*const ()>,
    vtable: Cell<*const RawWakerVTable>,
    /// The task whose turn is taken here, and since when; others may look.
    desk: Desk,
    /// True once they know of it.
    listed: Cell<bool>,
    /// Whether that task wants another turn.
    again: Cell<bool>,
    pub(crate) budget: Cell<u32>,
    /// How many futures are dropped here before they are done, each in the drop of the
    /// one before.
    pub(crate) half_way_drops: Cell<u8>,
    /// How deep `spawn_now` is nested.
    nested: Cell<u32>,
    /// The lane whose turn is taken here.
    lane: Cell<LaneMark>,
    /// The tree whose clock was read last since the host has looked at it, and
    /// its milliseconds then.
    clock_of: Cell<u64>,
    clock: Cell<u32>,
    /// The job whose points said Cancelled last here, and in which of its polls.
    told_job: Cell<u64>,
    told_poll: Cell<u32>,
    /// With a sink: the job that is ended here, which wakes what waited for it.
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
        // SAFETY: whoever set it is polling that job, further down our stack,
        // and puts the old one back before it lets go.
        unsafe { self.job.get().as_ref() }
    }

    /// True if a turn is taken here; false for a scope that another executor
    /// polls. That one has no budget of ours.
    pub(crate) fn in_turn(&self) -> bool {
        !self.desk.task().is_null()
    }

    /// True if `waker` is the one the current job is polled with, so that
    /// whoever wakes the job wakes this leaf too.
    #[inline]
    pub(crate) fn polled_with(&self, waker: &Waker) -> bool {
        self.data.get() == waker.data() && ptr::eq(self.vtable.get(), waker.vtable())
    }
}

/// The job being polled on this thread, as something to keep; none outside.
pub(crate) fn current() -> Option<crate::record::header::JobRef> {
    with(|cx| cx.current().map(crate::record::header::JobRef::from_header))
}

/// The lane whose turn is taken here; the pool's outside every turn.
#[inline]
pub(crate) fn lane() -> LaneMark {
    with(|cx| cx.lane.get())
}

/// Puts the lane back.
pub(crate) struct OnLane(LaneMark);

/// From here to the drop of the answer, turns of `lane` are taken here.
#[inline]
pub(crate) fn on_lane(lane: LaneMark) -> OnLane {
    OnLane(with(|cx| cx.lane.replace(lane)))
}

impl Drop for OnLane {
    fn drop(&mut self) {
        with(|cx| cx.lane.set(self.0));
    }
}

/// One turn more that is taken by `spawn_now` inside another, until it is
/// dropped.
pub(crate) struct NestedDepth(u32);

/// From here to the drop of the answer, `spawn_now` is nested one deeper; none
/// if it is `most` deep already.
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

/// What `f` finds first, asked of the job being polled here and then of each
/// ancestor; none outside every job.
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

/// The turn's clock, if we are inside a turn of the living tree at that place.
pub(crate) fn millis_in_turn(index: u16) -> Option<u32> {
    with(|cx| {
        // SAFETY: the task whose turn is taken further down our stack.
        let task = unsafe { cx.desk.task().as_ref() }?;
        task.is_at(index).then(|| cx.desk.since())
    })
}

/// The milliseconds of a tree, read once for all turns that this thread takes
/// of it until it [looks again](look_again), or somebody looks at it. For a poll
/// of a `scope`, or for a turn. One that is polled outside every turn, and a
/// turn inside such a poll, is with another executor, which says nothing of
/// time: there they are read.
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

/// A point of `h` says Cancelled. True if it is the first to do so in this poll of `h`,
/// as far as this thread remembers: it remembers one job.
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

/// Puts back the job that was being ended around this one.
pub(crate) struct EndInProgress(u64);

/// From here to the drop of the answer, what is woken here is woken by the end of `job`.
pub(crate) fn ends(job: JobId) -> EndInProgress {
    with(|cx| EndInProgress(cx.ending.replace(job.bits())))
}

impl Drop for EndInProgress {
    fn drop(&mut self) {
        with(|cx| cx.ending.set(self.0));
    }
}

/// The job that wakes what is woken here, with a sink: the one that is ended, or the one
/// that is polled; none outside every job.
pub(crate) fn waking_job() -> Option<JobId> {
    with(|cx| JobId::from_bits(cx.ending.get()).or_else(|| cx.current().map(|job| job.id)))
}

/// What was read of the clock here is not to be used any more.
pub(crate) fn look_again() {
    with(|cx| cx.clock_of.set(NO_TREE));
}

/// Gives the task at `task` another turn, if it is the one whose turn is taken here: its
/// word is not touched. False if it is another.
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

/// Runs `f`, which drops a future that is not done: a lock's guard that goes with it
/// is let go by force.
pub(crate) fn half_way<R>(f: impl FnOnce() -> R) -> R {
    struct Deeper(u8);
    impl Drop for Deeper {
        fn drop(&mut self) {
            with(|cx| cx.half_way_drops.set(self.0));
        }
    }
    let depth = with(|cx| cx.half_way_drops.get());
    // Below the bit that stands beside it in a `Holder`.
    with(|cx| cx.half_way_drops.set((depth + 1).min(127)));
    let _deeper = Deeper(depth);
    f()
}

/// True if the turn that is taken here has asked for another one.
#[inline]
pub(crate) fn goes_round() -> bool {
    with(|cx| cx.again.get())
}

/// True if no point passes any more in this turn: to poll on would only make
/// each branch ask for another.
pub(crate) fn turn_is_spent() -> bool {
    with(|cx| cx.budget.get() == 0 && cx.in_turn())
}

/// Puts back what was there before.
pub(crate) struct Entered {
    job: *const Header,
    data: *const (),
    vtable: *const RawWakerVTable,
}

/// From here to the drop of the answer, `job` is the current one.
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

/// A turn that is taken here, until it is dropped.
pub(crate) struct InTurn {
    /// What this turn interrupts, if it is taken inside another one.
    outer: Option<Outer>,
}

struct Outer {
    job: Entered,
    task: *const Header,
    budget: u32,
    millis: u32,
    again: bool,
}

/// From here to the drop of the answer, `job` is the current one, and a task
/// that takes a turn under its own waker, which has that `vtable`.
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
        // SAFETY: it is part of the context, which has no destructor.
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
            // Most turns interrupt nothing: then there is nothing to keep.
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
