//! Outputs of the main lane that no handle takes. They are dropped on the main
//! thread, wherever the handle is dropped (lane-1).
//!
//! A handle that goes on another thread leaves the output to a turn of the main
//! lane. The job has ended by then and is in no tree: so the turn holds the root
//! open as a child does, and with it the tree, until the output is gone. It is no
//! job, and is not counted as one.
//!
//! Once the root has ended no thread turns the lane any more, and the output goes
//! where its handle goes. A handle leaves the main thread only if the output is
//! `Send`.
//!
//! What else of a body's may be dropped after its turns, and why that needs no lane:
//!
//! | what | where it is dropped |
//! |---|---|
//! | the future | by a turn, on its lane; refused, by the call that spawns it (tree-5) |
//! | an output without a handle | by the ender, on its lane (`end_chain`) |
//! | a late value, or one beside a failure, that an await does not give out | by the awaiter, which has taken it: it belongs to the handle |
//! | values of a set of tasks, of branches, of local children | with the body that has the set, by its turn |
//! | hooks, what stops work beside the body, a task-local | at the end of the job, on its lane; each is `Send` |
//! | errors, and what a panic carried | with the last clone, anywhere: they are `Send` and `Sync`, and shared |

use std::sync::Weak;

use super::header::{Header, JobRef};
use super::lane::Lane;
use super::lease::Share;
use crate::context;
use crate::task::cell;
use crate::task::run;
use crate::tree::{Shared, Tree};

/// The way back to the main lane, for a job that may have left its tree.
pub(crate) struct Home {
    tree: Weak<Shared>,
    /// Of the root, while a turn is on its way.
    share: Option<Share>,
}

/// A task of the main lane has an output that has to be dropped there.
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
    let tree = unsafe { h.tree() }.weak();
    h.with_cold(|cold, _| cold.home = Some(Home { tree, share: None }));
}

/// The handle of an ended job goes, and leaves the output: it is dropped here, or
/// by a turn of its lane.
///
/// # Safety
/// C2: the output is there and is the caller's.
pub(crate) unsafe fn drop_output(h: &Header) {
    if h.lane() == Lane::Main && cell::output_needs_drop(h) {
        // SAFETY: passed on.
        if unsafe { send_home(h) } {
            return;
        }
    }
    // SAFETY: passed on.
    unsafe { cell::drop_output(h) };
}

/// False if it is the caller's to drop: this is the main thread, or there is no
/// such thread any more.
///
/// # Safety
/// As for [`drop_output`].
#[cold]
unsafe fn send_home(h: &Header) -> bool {
    let home = h.if_cold(|cold, _| cold.home.as_ref().map(|home| home.tree.clone()));
    let Some(tree) = home.flatten().and_then(|tree| Tree::upgrade(&tree)) else {
        return false;
    };
    let tree = tree.shared();
    if tree.is_main_thread() {
        return false;
    }
    let Some(share) = Share::of(tree.root()) else {
        return false;
    };
    let before = h.if_cold(|cold, _| {
        cold.home
            .as_mut()
            .and_then(|home| home.share.replace(share))
    });
    drop(before);
    // The turn's reference.
    std::mem::forget(JobRef::from_header(h));
    // SAFETY: the job has ended, so that no other turn of it is left, and `run` is
    // ours (H5). The share keeps its tree. Noticed by `main_output_vs_handle_drop`.
    unsafe { run::start_turn(tree, h) };
    true
}

/// The turn that a dropped handle has made for the output.
///
/// # Safety
/// The job has ended, the caller has that turn, and does not touch the job again.
#[cold]
pub(crate) unsafe fn drop_at_home(h: &Header) {
    let share = h.if_cold(|cold, _| cold.home.as_mut().and_then(|home| home.share.take()));
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
