//! `cancel`: the mark enters the tree at one job and is carried to every job
//! below it, without recursion and without allocating.
//!
//! Each job on the way is marked under its parent's lock, the first under its
//! own, and no two locks are held at once. When all are marked, wakers and hooks
//! are called, outside locks; one that cancels another job begins a walk inside
//! this one. A walker that meets a marked job leaves it to the other walker. See
//! `engine/CANCELLING.md`.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::base::id::JobId;
use crate::base::observe::{Count, EventKind, Interests, JobState};
use crate::base::reason::{AskedBy, ReasonData, ReasonKind};
use crate::base::sync::local;
use crate::engine::deadline;
use crate::engine::hook;
use crate::engine::pin;
use crate::engine::rows::MarkedRows;
use crate::engine::tree::Shared;
use crate::engine::turn;
use crate::engine::waker::{self, TakenWaker};
use crate::engine::waymark;
use crate::record::header::{Header, JobRef};
use crate::record::hook_cell::HookCell;
use crate::record::state::{self, MarkFrom, Marked};

/// Why and where a cancel is requested.
pub(crate) struct Why {
    pub(crate) kind: ReasonKind,
    pub(crate) text: Option<Cow<'static, str>>,
    pub(crate) culprit: Option<(JobId, String)>,
    /// The job whose code requests the cancel, if it was requested in a job.
    pub(crate) by: Option<AskedBy>,
    pub(crate) site: &'static Location<'static>,
    /// Cancel only if the job has a deadline that has passed at this time.
    /// Checked under the lock under which the job is marked: a deadline that was
    /// moved in time does not fire.
    pub(crate) due: Option<Instant>,
}

impl Why {
    pub(crate) fn new(kind: ReasonKind, site: &'static Location<'static>) -> Why {
        Why {
            kind,
            text: None,
            culprit: None,
            by: None,
            site,
            due: None,
        }
    }
}

/// Cancels `h` and everything below it. True exactly if this call moved it.
pub(crate) fn cancel(h: &Header, why: Why) -> bool {
    let Some(tree) = pin::tree_of(h) else {
        return false;
    };
    let kind = why.kind;
    let culprit = why.culprit.as_ref().map(|(id, _)| *id);
    let request = EventKind::CancelRequest {
        reason: kind,
        site: why.site,
        by: culprit.or_else(|| why.by.as_ref().map(|by| by.id)),
    };
    let reason = Arc::new(ReasonData {
        kind,
        text: why.text,
        origin: h.id,
        culprit: why.culprit,
        site: why.site,
        at: tree.host.now(),
        by: why.by,
        delivery: None,
    });
    let task = h.is_task();
    // Before the mark: another thread may tell of the end right after it.
    let asked = if tree.has_sink() { tree.nanos() } else { 0 };
    let (marked, unused) = h.with_cold(|cold, st| {
        if st.ended() {
            return (Marked::No, Some(reason));
        }
        if st.has(state::CANCELLED) {
            // The first reason wins, but an explicit one replaces a deadline's.
            let replace =
                st.has(state::ORIGIN) && kind == ReasonKind::Asked && cold.entered_by_deadline();
            let unused = if replace {
                cold.reason.replace(reason)
            } else {
                Some(reason)
            };
            return (Marked::No, unused);
        }
        if let Some(now) = why.due
            && cold.deadline.is_none_or(|at| at > now)
        {
            return (Marked::No, Some(reason));
        }
        // Stored before the mark, so that every thread that sees ORIGIN finds
        // it.
        let before = cold.reason.replace(reason);
        let marked = h.state.mark(MarkFrom::Here, task);
        if marked == Marked::No {
            // A walk from above, or the end, came first.
            return (marked, std::mem::replace(&mut cold.reason, before));
        }
        (marked, before)
    });
    drop(unused);
    if marked == Marked::No {
        return false;
    }
    tree.counters.add(Count::CancelRequested);
    if tree.has_sink() {
        tree.tell_of_cancel(h, request, asked);
    }
    if marked == Marked::Deferred {
        tree.emit(
            h.id,
            EventKind::State {
                to: JobState::Cancelling,
            },
        );
    } else {
        go(&tree, h, marked);
    }
    true
}

/// Why a job is on the walker's list: the low bits of the link.
const NOTED: usize = 0;
const CLAIMED: usize = 1;
/// A shield that holds the cancel back: its budget counts from now.
const DEFERRED: usize = 2;
const TAGS: usize = 3;

/// Jobs to visit, linked through `walk`.
struct Todo(*const Header);

impl Todo {
    fn push(&mut self, h: &Header, tag: usize) {
        // SAFETY: H5; `walk` belongs to the thread that set the mark (or deferred the
        // cancel): this one.
        unsafe { h.walk.set(self.0) };
        self.0 = ptr::from_ref(h).map_addr(|addr| addr | tag);
    }

    fn pop(&mut self) -> Option<(*const Header, usize)> {
        let tag = self.0.addr() & TAGS;
        let h = self.0.map_addr(|addr| addr & !TAGS);
        // SAFETY: listed jobs are claimed or referenced by this walk (H5, H6).
        self.0 = unsafe { h.as_ref()?.walk.get() };
        Some((h, tag))
    }
}

/// How deep walks nest on one thread when hooks and wakers of one walk begin the
/// next, or register hooks that are called at once. The calls of a deeper walk
/// wait until the hook around it has returned, so that a chain of any length is a
/// loop.
const DEEPEST: u32 = 16;

/// The jobs that a walk has marked and has not yet woken or called, in the order
/// of their marks.
struct Calls {
    /// The job at which the walk began, if it is one of them. It is kept apart
    /// because it may be a shield, whose link another walk uses.
    start: Option<(*const Header, usize)>,
    /// Linked through `walk`, tagged.
    first: *const Header,
    last: *const Header,
}

/// Calls that are made later.
enum Late {
    /// The calls of a walk.
    Walk(Calls),
    /// A hook that was registered at a job that is cancelled or has ended.
    Hook(JobRef, Arc<HookCell>),
}

impl Late {
    fn make(self) {
        match self {
            // The tree may differ from that of the walk around, so each task is
            // pushed by itself.
            // SAFETY: claimed by the walk that listed it, whose calls these are.
            Late::Walk(calls) => call_each(calls, |h| unsafe { turn::push_claimed(h) }),
            Late::Hook(job, cell) => cell.fire_late(&job),
        }
    }
}

/// The list of calls that are made later.
type Waiting = RefCell<VecDeque<Late>>;

/// How deep walks that call hooks and wakers are nested on this thread, and where the
/// calls of a deeper one wait.
struct Walks {
    depth: Cell<u32>,
    waiting: Cell<*const Waiting>,
}

local!(static WALKS: Walks = Walks {
    depth: Cell::new(0),
    waiting: Cell::new(ptr::null()),
}; fn walks);

impl Calls {
    const NONE: Calls = Calls {
        start: None,
        first: ptr::null(),
        last: ptr::null(),
    };

    fn is_empty(&self) -> bool {
        self.start.is_none() && self.first.is_null()
    }

    fn push(&mut self, h: &Header, tag: usize) {
        let tagged = ptr::from_ref(h).map_addr(|addr| addr | tag);
        // SAFETY: H5; `walk` belongs to the thread that set the mark (or deferred the cancel):
        // this one. Listed jobs are claimed or referenced by this walk.
        unsafe {
            h.walk.set(ptr::null());
            match self.last.as_ref() {
                Some(last) => last.walk.set(tagged),
                None => self.first = tagged,
            }
        }
        self.last = h;
    }

    fn pop(&mut self) -> Option<(*const Header, usize)> {
        if let Some(start) = self.start.take() {
            return Some(start);
        }
        let tag = self.first.addr() & TAGS;
        let h = self.first.map_addr(|addr| addr & !TAGS);
        // SAFETY: as above.
        self.first = unsafe { h.as_ref()?.walk.get() };
        Some((h, tag))
    }
}

/// Carries a mark that has just taken effect at `start` to every job below, and
/// then wakes pollers and calls hooks and leaves. The caller keeps `start` alive
/// if it was not claimed.
///
/// When this returns, every job below is marked. All wakers and hooks have been
/// called too, unless this was called [so deep](DEEPEST) inside the hooks of
/// other walks: then they are called before the outermost of these walks
/// returns.
/// that is done before the outermost of them returns.
pub(crate) fn go(tree: &Shared, start: &Header, marked: Marked) {
    // Read once for all jobs on the way.
    if tree.has_sink() {
        go_told::<true>(tree, start, marked);
    } else {
        go_told::<false>(tree, start, marked);
    }
}

/// `TOLD` says that the tree has a sink.
#[inline(never)]
fn go_told<const TOLD: bool>(tree: &Shared, start: &Header, marked: Marked) {
    let mut todo = Todo(ptr::null());
    let mut ready = MarkedRows::new();
    let tag = match marked {
        Marked::Claimed => CLAIMED,
        Marked::Noted => {
            start.add_ref();
            NOTED
        }
        Marked::No | Marked::Deferred => return,
    };
    let mut calls = Calls::NONE;
    let mut at = Some((ptr::from_ref(start), tag));
    while let Some((h, tag)) = at {
        // SAFETY: claimed, or a reference is ours: alive (H5, H6).
        let h = unsafe { &*h };
        if visit::<TOLD>(tree, h, tag, &mut todo, &mut ready) {
            if ptr::eq(h, start) {
                calls.start = Some((h, tag));
            } else {
                calls.push(h, tag);
            }
        }
        at = todo.pop();
    }
    // The tasks handed over before the calls may be the last that keep the
    // tree.
    let _held = (!calls.is_empty()).then(|| tree.held());
    if !calls.is_empty() {
        // Hooks and wakers may be slow. Tasks without any of them do not wait for
        // these.
        let quiet = std::mem::replace(&mut ready, MarkedRows::new());
        // SAFETY: as below.
        unsafe { turn::dispatch(tree, quiet) };
        call_all(calls, &mut ready);
    }
    // SAFETY: every job in the chain was claimed by this walk (H5).
    unsafe { turn::dispatch(tree, ready) };
}

/// Marks the children of `h`. True if `h` must be woken or called; else the
/// walk is done with it.
fn visit<const TOLD: bool>(
    tree: &Shared,
    h: &Header,
    tag: usize,
    todo: &mut Todo,
    ready: &mut MarkedRows,
) -> bool {
    let mut to_call = !h.is_task();
    if tag != DEFERRED {
        if TOLD {
            let to = JobState::Cancelling;
            tree.emit(h.id, EventKind::State { to });
        }
        let st = h.state.load();
        to_call |= st.has(state::HAS_NODES);
        if st.has(state::HAS_SHARES) {
            let before = todo.0;
            // The time before the marks, as for the request.
            let causes_at = match TOLD && tree.wants(Interests::CAUSES) {
                true => Some(tree.nanos()),
                false => None,
            };
            mark_children::<TOLD>(h, todo, ready);
            if let Some(at) = causes_at {
                tell_of_hops(tree, h.id, todo, before, at);
            }
        }
    }
    if to_call {
        return true;
    }
    if tag == CLAIMED {
        // SAFETY: claimed by this walk (H5), which does not touch it after
        // this.
        unsafe { ready.push(h) };
    } else {
        // SAFETY: the reference was taken when it was listed.
        unsafe { Header::release(h) };
    }
    false
}

/// Makes the calls of a walk: here, or in the deepest walk around this one. Tasks
/// that were claimed go to `ready` after their calls.
#[inline(never)]
fn call_all(calls: Calls, ready: &mut MarkedRows) {
    call_nested(Late::Walk(calls), |late| match late {
        // SAFETY: claimed by this walk, which touches none of them after this.
        Late::Walk(calls) => call_each(calls, |h| unsafe { ready.push(h) }),
        hook @ Late::Hook(..) => hook.make(),
    });
}

/// Calls a hook that was registered after its job was cancelled or had ended: here,
/// or, [deep](DEEPEST) inside other hooks, when the hook around has returned.
pub(crate) fn call_late_hook(job: JobRef, cell: Arc<HookCell>) {
    call_nested(Late::Hook(job, cell), Late::make);
}

/// Makes these calls with `make`, and then the calls that were put off meanwhile.
/// At the greatest depth the calls themselves are put off.
fn call_nested(late: Late, make: impl FnOnce(Late)) {
    let depth = walks(|here| here.depth.get());
    if depth == DEEPEST {
        return walks(|here| {
            // SAFETY: the walk around this one, further down this stack, has
            // set the pointer, and resets it before the list is dropped.
            let waiting = unsafe { here.waiting.get().as_ref() };
            let waiting = waiting.unwrap_or_else(|| unreachable!("set with the depth"));
            waiting.borrow_mut().push_back(late);
        });
    }
    let waiting = Waiting::default();
    let _nested = CallDepth::enter(depth + 1, &waiting);
    make(late);
    loop {
        // A call may add others to the list.
        let next = waiting.borrow_mut().pop_front();
        let Some(late) = next else { return };
        late.make();
    }
}

/// Wakes and calls each job; `push` receives each claimed one after its calls.
fn call_each(mut calls: Calls, mut push: impl FnMut(&Header)) {
    while let Some((h, tag)) = calls.pop() {
        // SAFETY: claimed, or a reference is ours: alive.
        let h = unsafe { &*h };
        if tag != DEFERRED && h.state.load().has(state::HAS_NODES) {
            hook::fire_all(h);
        }
        if tag == CLAIMED {
            push(h);
            continue;
        }
        if tag == DEFERRED
            && let Some(tree) = pin::tree_of(h)
        {
            deadline::begin_hold(&tree, h);
        }
        if !h.is_task() {
            wake_poller(h);
        }
        // SAFETY: the reference was taken when it was listed.
        unsafe { Header::release(h) };
    }
}

/// The depth of the walk that makes calls on this thread.
struct CallDepth {
    depth: u32,
    waiting: *const Waiting,
}

impl CallDepth {
    fn enter(depth: u32, waiting: &Waiting) -> CallDepth {
        walks(|here| CallDepth {
            depth: here.depth.replace(depth),
            waiting: here.waiting.replace(waiting),
        })
    }
}

impl Drop for CallDepth {
    fn drop(&mut self) {
        walks(|here| {
            here.depth.set(self.depth);
            here.waiting.set(self.waiting);
        });
    }
}

/// Wakes the poller of a scope. Taking the waker out is fine: the poll that
/// follows stores it again.
pub(crate) fn wake_poller(h: &Header) {
    let waker = {
        let locked = h.lock();
        // SAFETY: a scope. The slot of a scope that is not linked is empty: its poller
        // or dropper has emptied it.
        unsafe { TakenWaker::new(waker::take_poller(&locked)) }
    };
    match waker {
        TakenWaker::Owned(waker) => hook::wake_for(h, waker),
        ours => ours.wake(),
    }
}

/// Tells the sink that `from` has marked the jobs on the list up to `before`, or that they
/// hold the cancel back.
#[cold]
fn tell_of_hops(tree: &Shared, from: JobId, todo: &Todo, before: *const Header, at: u64) {
    let mut next = todo.0;
    while next != before {
        let tag = next.addr() & TAGS;
        // SAFETY: listed jobs are claimed or referenced by us (H5, H6), and so is what
        // is listed before them.
        let h = unsafe { &*next.map_addr(|addr| addr & !TAGS) };
        let hop = match tag {
            DEFERRED => EventKind::CancelHeld { from },
            _ => EventKind::CancelHop { from },
        };
        tree.tell_of_hop(h.id, hop, at);
        // SAFETY: as above.
        next = unsafe { h.walk.get() };
    }
}

/// With a sink each job is visited, so that the sink learns of its mark outside
/// the lock.
fn mark_children<const TOLD: bool>(h: &Header, todo: &mut Todo, ready: &mut MarkedRows) {
    let _locked = h.lock();
    // SAFETY: H1 and H2, this thread holds the lock of the list.
    let mut next = unsafe { h.first.get().as_ref() };
    if next.is_none() {
        // The children have ended since the caller looked. `h` may be ending,
        // and storing its reason.
        return;
    }
    // Read under the lock, under which the ender of `h` swaps `origin` too,
    // when no children are left.
    let origin = h.origin_to_hand_on();
    while let Some(child) = next {
        // SAFETY: as above.
        next = unsafe { child.next.get().as_ref() };
        let st = child.state.load();
        if st.has(state::CANCELLED | state::ENDED) {
            continue;
        }
        if child.is_barrier() {
            // Only the walk that marked its parent reaches this child: once.
            if child.is_shield() {
                child.state.defer_cancel();
                child.add_ref();
                todo.push(child, DEFERRED);
            }
            continue;
        }
        // Published by the mark.
        child.origin.store(origin, Relaxed);
        match child.state.mark(MarkFrom::Above, child.is_task()) {
            Marked::No | Marked::Deferred => {}
            Marked::Claimed => {
                let st = child.state.load();
                if TOLD || st.has(state::HAS_SHARES | state::HAS_NODES) {
                    child.first.fetch_ahead();
                    todo.push(child, CLAIMED);
                } else {
                    // SAFETY: claimed by us (H5).
                    unsafe { ready.push(child) };
                }
            }
            Marked::Noted => {
                child.add_ref();
                child.first.fetch_ahead();
                todo.push(child, NOTED);
            }
        }
    }
}

/// Delivers inside a shield the cancel that the shield has held back. Does
/// nothing while an enclosing shield holds the cancel back too: an outer shield
/// protects an inner one.
pub(crate) fn lift(tree: &Shared, shield: &Header) {
    // Before the mark, as for a request.
    let at = if tree.has_sink() { tree.nanos() } else { 0 };
    let (marked, from) = {
        let locked = shield.lock();
        let read = locked.read_parent();
        if read.seen.ended() {
            return;
        }
        // SAFETY: not ended, and its ender cannot pass the lock held here:
        // linked. Noticed by `parent_lookup_vs_end`, which holds in the same
        // way.
        let above = unsafe { shield.parent() }.filter(|parent| parent.state.load().effective());
        let origin = above.map(Header::origin_to_hand_on);
        let from = above.map(|above| above.id);
        let marked = match origin {
            Some(origin) if !shield.state.load().has(state::CANCELLED) => {
                shield.origin.store(origin, Relaxed);
                shield.state.mark(MarkFrom::Above, false)
            }
            _ => Marked::No,
        };
        (marked, from)
    };
    if matches!(marked, Marked::Claimed | Marked::Noted) {
        let site = shield.site();
        if tree.has_sink() {
            tree.tell_of_hop(shield.id, EventKind::ShieldLifted { site }, at);
        }
        if let Some(from) = from
            && tree.wants(Interests::CAUSES)
        {
            tree.tell_of_hop(shield.id, EventKind::CancelHop { from }, at);
        }
    }
    go(tree, shield, marked);
}

/// True if a cancel is held back from `shield`, which has just been opened: the
/// job around it is cancelled, or the next outer shield holds a cancel back. A
/// cancel that has taken effect further up and has not reached this job yet will
/// find the shield itself.
/// itself.
///
/// # Safety
/// `shield` is linked.
pub(crate) unsafe fn is_held_back(shield: &Header) -> bool {
    // SAFETY: linked.
    let Some(parent) = (unsafe { shield.parent() }) else {
        return false;
    };
    let held = |outer: &Header| {
        let st = outer.state.load();
        st.has(state::CANCEL_DEFERRED) && !st.effective()
    };
    // SAFETY: an ancestor of a linked job is linked (H3).
    parent.state.load().effective() || unsafe { waymark::barrier(parent) }.is_some_and(held)
}

/// The nearest ancestor that is effectively cancelled and whose cancel reaches
/// `h`: through any number of shields, but through no service.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn first_cancelled_above(h: &Header) -> Option<&Header> {
    let mut at = h;
    while !at.is_service() {
        // SAFETY: ancestors of a linked job are linked (H3).
        at = unsafe { at.parent() }?;
        if at.state.load().effective() {
            return Some(at);
        }
    }
    None
}
