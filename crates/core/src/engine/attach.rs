//! Linking a child below its parent, and refusing it.

use std::sync::atomic::Ordering::Relaxed;

use crate::engine::deadline;
use crate::record::header::{Header, NO_SHARES};
use crate::record::state;

/// Why a child was not attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The parent is cancelled.
    Cancelled,
    /// The parent has ended, is closed, or has only services left.
    Ended,
    /// The parent has as many children as one job may have.
    TooMany,
    /// Its host has no main lane.
    NoMain,
    /// Its host has no pinned lane of number `n`: the host has `lanes` of them.
    NoWorker { n: usize, lanes: u16 },
    /// A future that is not `Send`, on a thread that does not take turns of that
    /// lane of that tree.
    NotHere,
}

/// Links `child` below `parent`. A parent that is cancelled, closed or ended refuses
/// a task, local or not. Two kinds of children are born marked in a cancelled parent:
/// a scope that is not a shield, and an atomic task, which runs to its first point,
/// while the parent's body goes on. A job that shutdown drops by force, marked or
/// not, refuses every task; a scope below it is born with DROP_NOW. Modelled in
/// `force_vs_attach`.
///
/// Race with a cancel of the parent: the mark comes before the walker's lock.
/// If the child is attached before that lock, the walker finds the child. If
/// later, the attacher sees the mark. Modelled in `attach_vs_cancel`.
///
/// # Safety
/// `child` is fresh: made with this parent and unknown to any other code.
/// `task` is what [`Header::was_spawned`] returns. `most` is at most
/// [`MOST_SHARES`](crate::record::header::MOST_SHARES).
#[inline(always)]
pub(crate) unsafe fn attach(
    parent: &Header,
    child: &Header,
    task: bool,
    most: u32,
) -> Result<(), Refusal> {
    // SAFETY: passed on.
    if unsafe { link(parent, child, task, most) }? {
        // The timer of the deadline reaches the child, even if the body never
        // polls again. Set outside the lock.
        deadline::first_child(parent);
    }
    Ok(())
}

/// The answer: true if the parent has a deadline, and no timer for it yet.
///
/// # Safety
/// As for [`attach`].
#[inline(always)]
unsafe fn link(parent: &Header, child: &Header, task: bool, most: u32) -> Result<bool, Refusal> {
    let counted = child.state.peek().has(state::COUNTED);
    if !counted {
        // `loose` lives in the cold part, which is made outside the lock.
        make_cold(parent);
    }
    let mut locked = parent.lock();
    let mut st = parent.state.load();
    if !st.has(state::HAS_SHARES) {
        // From now on a thread that changes the parent's word knows of a child.
        st = parent.state.will_share(locked.evidence());
    }
    let shares = locked.shares();
    if st.ended() || shares == NO_SHARES || (task && st.has(state::NO_NEW_CHILDREN)) {
        return Err(Refusal::Ended);
    }
    let mut unarmed = false;
    if st.must_look() || st.has(state::DROP_NOW) {
        if st.has(state::DROP_NOW) {
            if task {
                return Err(Refusal::Cancelled);
            }
            child.state.drop_now();
        }
        if st.effective() && task {
            if !takes_atomic(parent, child, st) {
                return Err(Refusal::Cancelled);
            }
            be_born_marked(parent, child);
        }
        if !child.is_shield() {
            inherit(parent, child, st);
        }
        unarmed = st.has(state::DEADLINE) && deadline::is_unarmed(&mut locked, st);
    }
    let loose = locked.loose();
    // One of `shares` is the body's.
    if u64::from(shares) + u64::from(loose) > u64::from(most) {
        return Err(Refusal::TooMany);
    }
    // SAFETY: H1, the parent's lock guards its list, its count and the
    // siblings' links; the head is alive (H2).
    unsafe {
        let head = parent.first.get();
        child.next.set(head);
        if let Some(head) = head.as_ref() {
            head.prev.set(child);
        }
        parent.first.set(child);
    }
    if counted {
        locked.set_shares(shares + 1);
    } else if let Some(cold) = locked.cold() {
        cold.loose += 1;
    }
    Ok(unarmed)
}

#[cold]
fn make_cold(parent: &Header) {
    parent.with_cold(|_, _| {});
}

/// True if a cancelled job accepts this child nevertheless: an atomic task,
/// which runs to its first point, while the body goes on and is not dropped by
/// force.
#[cold]
fn takes_atomic(parent: &Header, child: &Header, st: state::Snapshot) -> bool {
    child.is_atomic()
        && !parent.is_body_over(st)
        && !st.has(state::DROP_NOW | state::DROP_IF_IDLE | state::WAS_DROPPED)
}

/// The child of a cancelled job is cancelled from birth.
fn be_born_marked(parent: &Header, child: &Header) {
    child.origin.store(parent.origin_to_hand_on(), Relaxed);
    child.state.born_cancelled();
}

/// A child is attached to a job that is cancelled or interrupted, or in which
/// points read the clock. A child that is polled with the job inherits this; a
/// task does not.
#[cold]
fn inherit(parent: &Header, child: &Header, st: state::Snapshot) {
    if child.is_task() {
        return;
    }
    if !child.was_spawned() {
        if st.effective() {
            be_born_marked(parent, child);
        }
        if st.has(state::INTERRUPTED) {
            child.state.hint_interrupt();
        }
    }
    if st.has(state::DEADLINE) {
        child.state.watch_clock();
    }
}
