//! What a job inherits from its ancestors: the patience that was set nearest, the shield or
//! service around it, the nearest scope that set a [local](crate::surface::local). All of
//! this is decided when a job is made, and does not change while a job below it lives.
//!
//! A search climbs from parent to parent. So that a deep tree is not climbed to its
//! root again and again, every 64th job from the root keeps what a search found
//! above it: a *waymark*. After the first search a climb ends at the next waymark,
//! at most 64 steps up. A tree that is less deep has no waymark.

use std::ptr;

use crate::base::patience::Patience;
use crate::record::cold::Above;
use crate::record::header::Header;

/// The distance between two waymarks.
const EVERY: u32 = 64;

impl Above {
    const NOTHING: Above = Above {
        patience: None,
        barrier: ptr::null(),
        local: ptr::null(),
    };

    /// What a job itself sets.
    fn of(h: &Header) -> Above {
        let here = |is: bool| if is { ptr::from_ref(h) } else { ptr::null() };
        let (patience, local) = h
            .if_cold(|cold, _| (cold.patience, cold.local.is_some()))
            .unwrap_or_default();
        Above {
            patience,
            barrier: here(h.is_barrier()),
            local: here(local),
        }
    }

    /// This, completed by what ancestors set.
    fn or(self, above: Above) -> Above {
        let or = |near: *const Header, far| if near.is_null() { far } else { near };
        Above {
            patience: self.patience.or(above.patience),
            barrier: or(self.barrier, above.barrier),
            local: or(self.local, above.local),
        }
    }
}

/// What `h` sets or inherits, at least until `enough` is satisfied.
///
/// # Safety
/// `h` is linked.
unsafe fn climb(h: &Header, enough: impl Fn(&Above) -> bool) -> Above {
    let mut found = Above::NOTHING;
    // Waymarks on the way that no search has filled, and what was found between
    // each and the next.
    let mut fresh: Vec<(&Header, Above)> = Vec::new();
    let mut known = Above::NOTHING;
    let mut at = Some(h);
    while let Some(job) = at {
        if job.depth().is_multiple_of(EVERY) && job.depth() > 0 {
            if let Some(kept) = job.if_cold(|cold, _| cold.above).flatten() {
                known = kept;
                break;
            }
            fresh.push((job, Above::NOTHING));
        }
        match fresh.last_mut() {
            Some((_, piece)) => *piece = piece.or(Above::of(job)),
            None => {
                found = found.or(Above::of(job));
                if enough(&found) {
                    return found;
                }
            }
        }
        // SAFETY: linked (H3).
        at = unsafe { job.parent() };
    }
    for (job, piece) in fresh.into_iter().rev() {
        known = piece.or(known);
        job.with_cold(|cold, _| cold.above = Some(known));
    }
    found.or(known)
}

/// The patience set nearest, at `h` or above; none if only the tree's applies.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn patience(h: &Header) -> Option<Patience> {
    // SAFETY: passed on.
    unsafe { climb(h, |found| found.patience.is_some()) }.patience
}

/// The nearest shield or service, `h` or above.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn barrier(h: &Header) -> Option<&Header> {
    // SAFETY: passed on. The answer is `h` or an ancestor: alive (H3).
    unsafe { climb(h, |found| !found.barrier.is_null()).barrier.as_ref() }
}

/// The nearest scope with a local, `h` or above.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn local(h: &Header) -> Option<&Header> {
    // SAFETY: passed on. The answer is `h` or an ancestor: alive (H3).
    unsafe { climb(h, |found| !found.local.is_null()).local.as_ref() }
}
