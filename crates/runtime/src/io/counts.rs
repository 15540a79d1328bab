//! How the operations of one thread have ended. Its own thread writes, with
//! loads and stores; others read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use kinfolk_core::IoGauges;

/// The counts of one thread; a cache line begins with them.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counts {
    submitted: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    in_flight: AtomicUsize,
}

/// Only the thread's own thread writes.
fn raise(count: &AtomicU64) {
    count.store(count.load(Relaxed) + 1, Relaxed);
}

impl Counts {
    pub(crate) fn submitted(&self) {
        raise(&self.submitted);
    }

    /// One is over, with this answer.
    pub(crate) fn completed(&self, result: i32) {
        raise(&self.completed);
        if result == -libc::ECANCELED {
            raise(&self.cancelled);
        }
    }

    /// So many are with the driver.
    pub(crate) fn in_driver(&self, count: usize) {
        self.in_flight.store(count, Relaxed);
    }

    pub(crate) fn add_to(&self, sum: &mut IoGauges) {
        // In this order: what is over was begun, also if some begin meanwhile.
        let cancelled = self.cancelled.load(Relaxed);
        let completed = self.completed.load(Relaxed);
        let in_flight = self.in_flight.load(Relaxed);
        let submitted = self.submitted.load(Relaxed);
        let under_way = usize::try_from(submitted.saturating_sub(completed)).unwrap_or(usize::MAX);
        sum.submitted += submitted;
        sum.completed += completed;
        sum.cancelled += cancelled;
        sum.in_flight += in_flight;
        sum.waiting += under_way.saturating_sub(in_flight);
    }
}
