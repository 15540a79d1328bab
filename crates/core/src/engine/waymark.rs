//! What a job has from those above it: the patience that was set nearest, the
//! shield or service it is in, the nearest scope that set a [local](crate::surface::local).
//! All of it is decided when a job is made, and stays while anything is below.
//!
//! To find it is to climb. So that a deep tree does not climb to its root again
//! and again, every 64th job from the root keeps what was found there: a *waymark*.
//! A climb takes at most so many steps, once one climb has come by. A tree that is
//! less deep has none.

use std::ptr;

use crate::base::patience::Patience;
use crate::record::cold::Above;
use crate::record::header::Header;

/// How far waymarks are apart.
const EVERY: u32 = 64;

impl Above {
    const NOTHING: Above = Above {
        patience: None,
        barrier: ptr::null(),
        local: ptr::null(),
    };

    /// What a job has by itself.
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

    /// This, and what it has not from further up.
    fn or(self, above: Above) -> Above {
        let or = |near: *const Header, far| if near.is_null() { far } else { near };
        Above {
            patience: self.patience.or(above.patience),
            barrier: or(self.barrier, above.barrier),
            local: or(self.local, above.local),
        }
    }
}

/// What `h` has, from itself or from above, as far as `enough` asks for it.
///
/// # Safety
/// `h` is linked.
unsafe fn climb(h: &Header, enough: impl Fn(&Above) -> bool) -> Above {
    let mut found = Above::NOTHING;
    // Waymarks on the way that nobody has come by, and what was found from each
    // to the next.
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

/// The patience set nearest, at `h` or above; none if that is the tree's.
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
    // SAFETY: passed on. What was found is `h` or an ancestor: alive (H3).
    unsafe { climb(h, |found| !found.barrier.is_null()).barrier.as_ref() }
}

/// The nearest scope with a local, `h` or above.
///
/// # Safety
/// `h` is linked.
pub(crate) unsafe fn local(h: &Header) -> Option<&Header> {
    // SAFETY: passed on. What was found is `h` or an ancestor: alive (H3).
    unsafe { climb(h, |found| !found.local.is_null()).local.as_ref() }
}
