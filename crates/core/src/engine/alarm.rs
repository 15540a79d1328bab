//! One timer of ours at the host: set, still the right one, given up. Counted
//! as set once and as fired or cancelled once.

use std::task::Waker;
use std::time::Instant;

use crate::base::observe::Count;
use crate::base::timer_queue::TimerKey;
use crate::base::unwind::discard;
use crate::engine::tree::Shared;

pub(crate) struct Alarm {
    /// The parts of its key. Apart: a key is written in pieces, and what was
    /// just written is slow to copy as a whole.
    at: Instant,
    number: u64,
    /// The waker it will wake; compared, never used.
    data: usize,
    vtable: usize,
}

fn identity(waker: &Waker) -> (usize, usize) {
    (
        waker.data().addr(),
        std::ptr::from_ref(waker.vtable()).addr(),
    )
}

impl Alarm {
    #[inline]
    pub(crate) fn set(tree: &Shared, at: Instant, waker: &Waker) -> Alarm {
        let (data, vtable) = identity(waker);
        let TimerKey { at, number } = tree.host.set_timer(at, waker.clone());
        tree.counters.add(Count::TimerSet);
        Alarm {
            at,
            number,
            data,
            vtable,
        }
    }

    /// When it is due.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// True if it will wake this waker at that time.
    pub(crate) fn serves(&self, at: Instant, waker: &Waker) -> bool {
        self.at == at && identity(waker) == (self.data, self.vtable)
    }

    /// What the host knows it by.
    #[inline]
    pub(crate) fn key(&self) -> TimerKey {
        TimerKey {
            at: self.at,
            number: self.number,
        }
    }
}

/// An alarm that was taken out is needed no more. Firing and giving up are told
/// apart by the host, once.
#[inline]
pub(crate) fn clear(tree: &Shared, key: TimerKey) {
    match tree.host.clear_timer(key) {
        Some(waker) => {
            tree.counters.add(Count::TimerCancelled);
            discard(waker);
        }
        None => tree.counters.add(Count::TimerFired),
    }
}
