//! Outputs of lanes with one thread, the main one and the pinned ones, that no handle
//! takes. They are dropped on that thread, wherever the handle is dropped (lane-1, lane-5).
//!
//! A handle that is dropped on another thread leaves the output to a turn of that
//! lane. The job has ended by then and is in no tree: so the turn holds the root
//! open, and with it the tree, as a child does, until the output is dropped. The
//! turn is no job, and is not counted as one.
//!
//! Once the root has ended or its host is gone, no thread turns the lane any more, and
//! the output is dropped with its handle. A handle leaves that thread only if the output
//! is `Send`.
//!
//! What else of a body may be dropped after its turns, and why that needs no lane:
//!
//! | what | where it is dropped |
//! |---|---|
//! | the future | by a turn, on its lane; if the spawn is refused, by the call that spawns it (tree-5) |
//! | an output without a handle | by the ender, on its lane (`end_chain`) |
//! | a late value, or one beside a failure, that an await does not give out | by the awaiter, which has taken it: it belongs to the handle |
//! | values of a set of tasks, of branches, of local children | with the body that holds the set, by its turn |
//! | hooks, what stops work beside the body, a task-local | at the end of the job, on its lane; each is `Send` |
//! | errors, and what a panic carried | with the last clone, anywhere: they are `Send` and `Sync`, and shared |

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ptr;
use std::sync::Weak;

use crate::base::sync::local;
use crate::engine::context;
use crate::engine::lease::Share;
use crate::engine::tree::{Shared, Tree};
use crate::engine::turn;
use crate::record::cell;
use crate::record::cold::Home;
use crate::record::header::{Header, JobRef};

/// A task of a lane with one thread has an output that must be dropped there.
///
/// # Safety
/// The job has not ended.
#[cold]
pub(crate) unsafe fn keep_home(h: &Header) {
    if cell::slot(h).is_none() {
        // It has no handle: its ender drops the output.
        return;
    }
    // SAFETY: not ended.
    let tree: Weak<Shared> = unsafe { h.tree() }.weak();
    h.with_cold(|cold, _| cold.home = Some(Home { tree, root: None }));
}

/// The handle of an ended job is dropped without taking the output: the output is
/// dropped here, or by a turn of its lane.
///
/// # Safety
/// C2: the output is there and is the caller's.
pub(crate) unsafe fn drop_output(h: &Header) {
    if h.lane_mark().has_home() && cell::output_needs_drop(h) {
        // SAFETY: passed on.
        if unsafe { send_home(h) } {
            return;
        }
    }
    if cell::output_needs_drop(h) {
        // SAFETY: passed on.
        unsafe { drop_nested(h) };
    }
}

/// How deep drops of outputs nest on one thread. A value may hold the handle of
/// another task, whose value holds the next: at this depth the next output waits
/// until the one around it is dropped, so that a chain of any length is a loop.
const DEEPEST: u32 = 16;

/// Outputs that are dropped later.
type UntakenJobs = RefCell<VecDeque<JobRef>>;

/// The drops of outputs that are in progress on this thread.
struct Drops {
    depth: Cell<u32>,
    /// The list of the deepest drop; null while there is none.
    waiting: Cell<*const UntakenJobs>,
}

local!(static DROPS: Drops = Drops {
    depth: Cell::new(0),
    waiting: Cell::new(ptr::null()),
}; fn drops);

/// Drops the output, or leaves it to the deepest drop around this one.
///
/// # Safety
/// As for [`drop_output`].
unsafe fn drop_nested(h: &Header) {
    let depth = drops(|here| here.depth.get());
    if depth == DEEPEST {
        return drops(|here| {
            // SAFETY: at this depth `drop_deepest` is running, further down this stack,
            // and resets the pointer before its list is dropped.
            let waiting = unsafe { here.waiting.get().as_ref() };
            let waiting = waiting.unwrap_or_else(|| unreachable!("set with the depth"));
            waiting.borrow_mut().push_back(JobRef::from_header(h));
        });
    }
    drops(|here| here.depth.set(depth + 1));
    if depth + 1 < DEEPEST {
        // SAFETY: passed on.
        unsafe { cell::drop_output(h) };
    } else {
        // SAFETY: passed on.
        unsafe { drop_deepest(h) };
    }
    drops(|here| here.depth.set(depth));
}

/// Drops the output, and then those that were put off meanwhile.
///
/// # Safety
/// As for [`drop_output`].
#[inline(never)]
unsafe fn drop_deepest(h: &Header) {
    let waiting = UntakenJobs::default();
    drops(|here| here.waiting.set(&raw const waiting));
    // SAFETY: passed on.
    unsafe { cell::drop_output(h) };
    loop {
        // The drop of one may add others to the list.
        let next = waiting.borrow_mut().pop_front();
        let Some(job) = next else { break };
        // SAFETY: C2; it was the handle's, which has left it to this list. Noticed by
        // `handle_1_values_that_hold_the_handle_before_are_dropped_by_a_loop`.
        unsafe { cell::drop_output(&job) };
    }
    drops(|here| here.waiting.set(ptr::null()));
}

/// False if the caller must drop the output: this is the thread of its lane, or that
/// thread is gone.
///
/// # Safety
/// As for [`drop_output`].
#[cold]
unsafe fn send_home(h: &Header) -> bool {
    let home = h.if_cold(|cold, _| cold.home.as_ref().map(|home| home.tree.clone()));
    let Some(tree) = home.flatten().and_then(|tree| Tree::upgrade_any(&tree)) else {
        return false;
    };
    let tree = tree.shared();
    if tree.host_is_gone() || tree.turns_here(h.lane()) {
        return false;
    }
    let Some(share) = Share::of(tree.root()) else {
        return false;
    };
    // `drop_at_home` gives this share up.
    let root = share.into_job();
    let before = h.if_cold(|cold, _| cold.home.as_mut().and_then(|home| home.root.replace(root)));
    drop(before);
    // The turn's reference.
    std::mem::forget(JobRef::from_header(h));
    // SAFETY: the job has ended, so it has no other turn, and its `run` link
    // belongs to this thread (H5). The share keeps its tree. Noticed by
    // `main_output_vs_handle_drop`.
    unsafe { turn::start_turn(tree, h) };
    true
}

/// The turn that the drop of a handle has made for the output.
///
/// # Safety
/// The job has ended, the caller has that turn, and does not touch the job again.
#[cold]
pub(crate) unsafe fn drop_at_home(h: &Header) {
    let root = h.if_cold(|cold, _| cold.home.as_mut().and_then(|home| home.root.take()));
    let share = root.flatten().map(Share::from_job);
    {
        let _none = context::leave();
        // SAFETY: C2; it was the handle's, which has left it to this turn.
        unsafe { cell::drop_output(h) };
    }
    // SAFETY: the turn's reference, given back once (H6).
    unsafe { Header::release(h) };
    // The root, and the tree with it, may end now.
    drop(share);
}
