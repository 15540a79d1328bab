//! Linking a child below its parent, and being refused.

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
    /// Its host has no pinned lane of number `n`, but `lanes`.
    NoWorker { n: usize, lanes: u16 },
    /// A future that stays where it is, on a thread that does not turn that lane
    /// of that tree.
    NotHere,
}

/// Links `child` below `parent`. A task, local or not, is refused by a parent that is
/// cancelled, closed or ended; a scope is born marked in a cancelled one (a
/// shield is not), and so is a task that reaches its first point, while the body
/// of that one goes on. A job that shutdown forces, marked or not, refuses every
/// task; a scope below it is forced from birth. Modelled in `force_vs_attach`.
///
/// Race with a cancel of the parent: the mark comes before the walker's lock.
/// Attached before that lock: the walker finds the child. After: we see the
/// mark. Modelled in `attach_vs_cancel`.
///
/// # Safety
/// `child` is fresh: made with this parent and seen by nobody else. `task` says
/// what [`Header::was_spawned`] would. `most` is
/// [`MOST_SHARES`](crate::record::header::MOST_SHARES) at the most.
#[inline(always)]
pub(crate) unsafe fn attach(
    parent: &Header,
    child: &Header,
    task: bool,
    most: u32,
) -> Result<(), Refusal> {
    // SAFETY: passed on.
    if unsafe { link(parent, child, task, most) }? {
        // Its timer tells the child, whatever the body is busy with. Set outside
        // the lock.
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
        // From now on whoever changes the parent's word knows of a child.
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

/// True if a job that is cancelled takes this child all the same: one that
/// reaches its first point, while the body goes on and is not forced.
#[cold]
fn takes_atomic(parent: &Header, child: &Header, st: state::Snapshot) -> bool {
    child.is_atomic()
        && !parent.is_body_over(st)
        && !st.has(state::DROP_NOW | state::DROP_IF_IDLE | state::WAS_DROPPED)
}

/// The child of a job that is cancelled is so from birth.
fn be_born_marked(parent: &Header, child: &Header) {
    child.origin.store(parent.origin_to_hand_on(), Relaxed);
    child.state.born_cancelled();
}

/// A child comes into a job that is cancelled or interrupted, or in which points
/// look at the clock. What is polled with it inherits that; a task has only its
/// own.
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
