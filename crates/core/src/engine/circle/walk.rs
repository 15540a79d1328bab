//! `cancel`: the mark enters the tree at one job and is carried to every job
//! below it, without recursion and without allocating.
//!
//! Each job on the way is marked under its parent's lock, the first under its
//! own, and no two locks are held at once. When all are marked, wakers and hooks
//! are called, outside locks; one that cancels in turn begins a walk inside this
//! one. Whoever meets a job that is marked already leaves it to the other walker.
//! See `engine/CANCELLING.md`.

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

/// Why somebody cancels.
pub(crate) struct Why {
    pub(crate) kind: ReasonKind,
    pub(crate) text: Option<Cow<'static, str>>,
    pub(crate) culprit: Option<(JobId, String)>,
    /// The job that asked, where one did.
    pub(crate) by: Option<AskedBy>,
    pub(crate) site: &'static Location<'static>,
    /// Only if the job has a deadline that has passed by then. Asked in the lock
    /// in which it is marked: one that was moved in time does not fire.
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
    let (marked, unused) = h.with_cold(|cold, st| {
        if st.ended() {
            return (Marked::No, Some(reason));
        }
        if st.has(state::CANCELLED) {
            // First wins, but an explicit reason replaces a deadline's.
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
        // Stored before the mark, so that whoever sees ORIGIN finds it.
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
        tree.tell_of_cancel(h, request);
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

/// How a job came onto the walker's list: the low bits of the link.
const NOTED: usize = 0;
const CLAIMED: usize = 1;
/// A shield that holds the cancel back: its budget counts from now.
const DEFERRED: usize = 2;
const TAGS: usize = 3;

/// Jobs to visit, linked through `walk`.
struct Todo(*const Header);

impl Todo {
    fn push(&mut self, h: &Header, tag: usize) {
        // SAFETY: H5; `walk` belongs to whoever set the mark (or deferred the cancel): us.
        unsafe { h.walk.set(self.0) };
        self.0 = ptr::from_ref(h).map_addr(|addr| addr | tag);
    }

    fn pop(&mut self) -> Option<(*const Header, usize)> {
        let tag = self.0.addr() & TAGS;
        let h = self.0.map_addr(|addr| addr & !TAGS);
        // SAFETY: listed jobs are claimed or referenced by us (H5, H6).
        self.0 = unsafe { h.as_ref()?.walk.get() };
        Some((h, tag))
    }
}

/// How deep walks nest on one thread that begin in each other's hooks and
/// wakers, and hooks that others register where they are called at once. From
/// there on the calls of a further one wait until the hook around it has returned,
/// so that a row of any length is a loop.
const DEEPEST: u32 = 16;

/// Whom a walk has marked and is still to wake or to call, in the order in which
/// it came by.
struct Calls {
    /// The job it began at, if that is one of them. Apart: it may be a shield,
    /// whose link another walk uses.
    start: Option<(*const Header, usize)>,
    /// Linked through `walk`, tagged.
    first: *const Header,
    last: *const Header,
}

/// Calls that have to wait.
enum Late {
    /// Those of a walk.
    Walk(Calls),
    /// A hook that was registered at a job that is cancelled or over.
    Hook(JobRef, Arc<HookCell>),
}

impl Late {
    fn make(self) {
        match self {
            // Perhaps of another tree than the one around it: each goes by itself.
            // SAFETY: claimed by the walk that listed it, whose calls are ours now.
            Late::Walk(calls) => call_each(calls, |h| unsafe { turn::push_claimed(h) }),
            Late::Hook(job, cell) => cell.fire_late(&job),
        }
    }
}

/// Where they wait.
type Waiting = RefCell<VecDeque<Late>>;

/// How deep walks are nested that call hooks and wakers on this thread, and where the
/// calls of a further one wait.
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
        // SAFETY: H5; `walk` belongs to whoever set the mark (or deferred the cancel): us. What
        // is listed is claimed or referenced by us.
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

/// Carries a mark that has just taken effect at `start` to everything below, and
/// then wakes and calls whoever is to hear of it. The caller keeps `start` alive
/// if it was not claimed.
///
/// When it returns everything below is marked. All are woken and called too,
/// unless it was called [so deep](DEEPEST) inside the hooks of other walks: then
/// that is done before the outermost of them returns.
pub(crate) fn go(tree: &Shared, start: &Header, marked: Marked) {
    // Asked once for all jobs on the way.
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
    // What is handed over before the calls may be the last that keeps the tree.
    let _held = (!calls.is_empty()).then(|| tree.held());
    if !calls.is_empty() {
        // Hooks and wakers may be slow. Tasks that need none of them do not wait.
        let quiet = std::mem::replace(&mut ready, MarkedRows::new());
        // SAFETY: as below.
        unsafe { turn::dispatch(tree, quiet) };
        call_all(calls, &mut ready);
    }
    // SAFETY: every job in the chain was claimed by us (H5).
    unsafe { turn::dispatch(tree, ready) };
}

/// Marks what is below `h`. True if `h` is to be woken or called; else the walk
/// is done with it.
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
            mark_children::<TOLD>(h, todo, ready);
            if TOLD && tree.wants(Interests::CAUSES) {
                tell_of_hops(tree, h.id, todo, before);
            }
        }
    }
    if to_call {
        return true;
    }
    if tag == CLAIMED {
        // SAFETY: claimed by us (H5); the last thing we do with it.
        unsafe { ready.push(h) };
    } else {
        // SAFETY: the reference was taken when it was listed.
        unsafe { Header::release(h) };
    }
    false
}

/// Wakes and calls: here, or by whoever made the walk around this one. Tasks that
/// were claimed go to `ready` after it.
#[inline(never)]
fn call_all(calls: Calls, ready: &mut MarkedRows) {
    call_nested(Late::Walk(calls), |late| match late {
        // SAFETY: claimed by us; the last thing we do with each.
        Late::Walk(calls) => call_each(calls, |h| unsafe { ready.push(h) }),
        hook @ Late::Hook(..) => hook.make(),
    });
}

/// Calls a hook that was registered too late to wait for a cancel or an end: here, or,
/// [deep](DEEPEST) inside other hooks, when the one around it has returned.
pub(crate) fn call_late_hook(job: JobRef, cell: Arc<HookCell>) {
    call_nested(Late::Hook(job, cell), Late::make);
}

/// Makes these calls with `make`, and then those that had to wait for them. At the
/// deepest they wait themselves.
fn call_nested(late: Late, make: impl FnOnce(Late)) {
    let depth = walks(|here| here.depth.get());
    if depth == DEEPEST {
        return walks(|here| {
            // SAFETY: the walk around this one, further down our stack, has set
            // it, and takes it back before its list goes.
            let waiting = unsafe { here.waiting.get().as_ref() };
            let waiting = waiting.unwrap_or_else(|| unreachable!("set with the depth"));
            waiting.borrow_mut().push_back(late);
        });
    }
    let waiting = Waiting::default();
    let _nested = CallDepth::enter(depth + 1, &waiting);
    make(late);
    loop {
        // Others may be added while these are called.
        let next = waiting.borrow_mut().pop_front();
        let Some(late) = next else { return };
        late.make();
    }
}

/// Wakes and calls each; `push` gets those that were claimed, after it.
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

/// Calls are being made here, so many walks deep.
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

/// Wakes whoever polls a scope. Taking the waker is fine: the poll that
/// follows stores it again.
pub(crate) fn wake_poller(h: &Header) {
    let waker = {
        let locked = h.lock();
        // SAFETY: a scope. One that is not linked any more has nobody in its slot: its
        // poller or dropper has taken it out.
        unsafe { TakenWaker::new(waker::take_poller(&locked)) }
    };
    match waker {
        TakenWaker::Owned(waker) => hook::wake_for(h, waker),
        ours => ours.wake(),
    }
}

/// The jobs on the list, as far as `before`, were marked by `from`, or hold the cancel back.
#[cold]
fn tell_of_hops(tree: &Shared, from: JobId, todo: &Todo, before: *const Header) {
    let mut at = todo.0;
    while at != before {
        let tag = at.addr() & TAGS;
        // SAFETY: listed jobs are claimed or referenced by us (H5, H6), and so is what
        // is listed before them.
        let h = unsafe { &*at.map_addr(|addr| addr & !TAGS) };
        if tag == DEFERRED {
            tree.emit(h.id, EventKind::CancelHeld { from });
        } else {
            tree.emit_hop(h.id, from);
        }
        // SAFETY: as above.
        at = unsafe { h.walk.get() };
    }
}

/// With a sink each job is visited, so that its mark is told outside the lock.
fn mark_children<const TOLD: bool>(h: &Header, todo: &mut Todo, ready: &mut MarkedRows) {
    let _locked = h.lock();
    // SAFETY: H1 and H2, we hold the lock of the list.
    let mut next = unsafe { h.first.get().as_ref() };
    if next.is_none() {
        // Gone since the caller looked. `h` may be ending, and keep its reason.
        return;
    }
    // Under the lock: the ender of `h` swaps `origin` under it too, when there
    // are no children left.
    let origin = h.origin_to_hand_on();
    while let Some(child) = next {
        // SAFETY: as above.
        next = unsafe { child.next.get().as_ref() };
        let st = child.state.load();
        if st.has(state::CANCELLED | state::ENDED) {
            continue;
        }
        if child.is_barrier() {
            // Only the walk that marked its parent comes by here: once.
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

/// Delivers inside a shield the cancel it has held back. Does nothing while an
/// enclosing shield holds it back too: what it protects includes this one.
pub(crate) fn lift(tree: &Shared, shield: &Header) {
    let (marked, from) = {
        let locked = shield.lock();
        let read = locked.read_parent();
        if read.seen.ended() {
            return;
        }
        // SAFETY: not ended, and its ender cannot pass our lock: linked. Noticed
        // by `parent_lookup_vs_end`, which holds in the same way.
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
        tree.emit(shield.id, EventKind::ShieldLifted { site });
        if let Some(from) = from {
            tree.emit_hop(shield.id, from);
        }
    }
    go(tree, shield, marked);
}

/// True if a cancel is held back from `shield`, which has just been opened: the
/// job around it is cancelled, or the next shield further out holds one back. One
/// that has taken effect further up and has not come here yet finds the shield
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

/// The nearest ancestor that is effectively cancelled and whose cancel comes as
/// far as `h`: however many shields stand in between, but no service.
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
