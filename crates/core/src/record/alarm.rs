//! One timer of ours at the host, as the job or the wait that has set it keeps it.

use std::task::Waker;
use std::time::Instant;

use crate::base::timer_queue::TimerKey;

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
    /// The timer that the host knows by `key` and that wakes `waker`.
    #[inline]
    pub(crate) fn of(key: TimerKey, waker: &Waker) -> Alarm {
        let (data, vtable) = identity(waker);
        let TimerKey { at, number } = key;
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
