//! One timer at the host, as the job or the wait that has set it keeps it.

use std::task::Waker;
use std::time::Instant;

use crate::base::timer_queue::TimerKey;

pub(crate) struct Alarm {
    /// The parts of its key, stored separately: a key is written in parts, and
    /// reading it as a whole right after that would wait for the stores (a
    /// store-forwarding stall).
    at: Instant,
    number: u64,
    /// The waker that the timer will wake; compared, never used.
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
    /// The timer that has this `key` at the host and wakes `waker`.
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

    /// When the timer is due.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// True if the timer will wake this waker at that time.
    pub(crate) fn serves(&self, at: Instant, waker: &Waker) -> bool {
        self.at == at && identity(waker) == (self.data, self.vtable)
    }

    /// The host's key of the timer.
    #[inline]
    pub(crate) fn key(&self) -> TimerKey {
        TimerKey {
            at: self.at,
            number: self.number,
        }
    }
}
