//! One timer of ours at the host: set, still the right one, given up. Counted
//! as set once and as fired or cancelled once.

use std::task::Waker;
use std::time::Instant;

use crate::host::TimerKey;
use crate::observe::Count;
use crate::tree::Shared;

pub(crate) struct Alarm {
    key: TimerKey,
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
    pub(crate) fn set(tree: &Shared, at: Instant, waker: &Waker) -> Alarm {
        let (data, vtable) = identity(waker);
        let key = tree.host.set_timer(at, waker.clone());
        tree.counters.add(Count::TimerSet);
        Alarm { key, data, vtable }
    }

    /// When it is due.
    pub(crate) fn at(&self) -> Instant {
        self.key.at
    }

    /// True if it will wake this waker at that time.
    pub(crate) fn serves(&self, at: Instant, waker: &Waker) -> bool {
        self.key.at == at && identity(waker) == (self.data, self.vtable)
    }

    /// It is needed no more. Firing and giving up are told apart by the host,
    /// once.
    pub(crate) fn clear(self, tree: &Shared) {
        match tree.host.clear_timer(self.key) {
            Some(waker) => {
                tree.counters.add(Count::TimerCancelled);
                crate::unwind::contained(move || drop(waker));
            }
            None => tree.counters.add(Count::TimerFired),
        }
    }
}
