//! What an ignore guard does: while one is held, a cancel of its job has no effect and
//! the walk to its children waits. See the guard's race in `CANCELLING.md`.

use std::panic::Location;

use crate::base::observe::{EventKind, Interests};
use crate::engine::interrupts;
use crate::engine::pin;
use crate::engine::walk;
use crate::record::header::Header;
use crate::record::state::{self, Marked};

/// A guard is made at `site`; false if the job is cancelled already.
pub(crate) fn enter(h: &Header, site: &'static Location<'static>) -> bool {
    let entered = h.with_cold(|cold, _| {
        if cold.guards == 0 {
            if !h.state.enter_guard() {
                return false;
            }
            cold.guarded_at = Some(site);
        }
        cold.guards += 1;
        true
    });
    if entered {
        // SAFETY: being polled, so not ended.
        let tree = unsafe { h.tree() };
        tree.emit_for(Interests::CAUSES, h.id, EventKind::GuardEntered { site });
    }
    entered
}

/// The guard that was made at `site` is dropped; all guards, if no site is
/// given.
pub(crate) fn leave(h: &Header, site: Option<&'static Location<'static>>) {
    // None: it has ended, and its guards lapsed before that.
    let Some(tree) = pin::tree_of(h) else { return };
    let mut left = false;
    // Before the mark, as for a request.
    let before = match tree.wants(Interests::CAUSES) {
        true => tree.nanos(),
        false => 0,
    };
    let marked = h
        .if_cold(|cold, _| {
            if cold.guards == 0 {
                return Marked::No;
            }
            cold.guards = if site.is_none() { 0 } else { cold.guards - 1 };
            if cold.guarded_at == site {
                cold.guarded_at = None;
            }
            left = true;
            if cold.guards == 0 {
                h.state.leave_guard(h.is_task())
            } else {
                Marked::No
            }
        })
        .unwrap_or(Marked::No);
    if left && tree.wants(Interests::CAUSES) {
        tree.emit(h.id, EventKind::GuardLeft);
        if marked != Marked::No {
            tree.emit_late_hop(h, before);
        }
    }
    walk::go(&tree, h, marked);
    if marked == Marked::No {
        interrupts::guard_left(h);
    }
}

/// The body of `h` has ended: its guards have no effect any more.
pub(crate) fn lapse(h: &Header) {
    if h.state.load().has(state::GUARD) {
        leave(h, None);
    }
}
