//! With virtual time: how much is runnable, running or otherwise on its way.
//! When nothing is, the clock may jump. With the system's clock this counts
//! nothing and costs one look at a flag.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Busy {
    counts: bool,
    count: AtomicUsize,
    /// One jump at a time: who is let go by it is counted before the next.
    jump: Mutex<()>,
}

impl Busy {
    pub(crate) fn new(counts: bool) -> Busy {
        Busy {
            counts,
            count: AtomicUsize::new(0),
            jump: Mutex::new(()),
        }
    }

    pub(crate) fn counts(&self) -> bool {
        self.counts
    }

    pub(crate) fn add(&self, more: usize) {
        if self.counts {
            self.count.fetch_add(more, Ordering::SeqCst);
        }
    }

    /// One is done. True if it was the last: the clock may jump.
    #[must_use]
    pub(crate) fn done(&self) -> bool {
        self.counts && self.count.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// Runs `jump` while nothing is busy and it moves something.
    pub(crate) fn when_idle(&self, mut jump: impl FnMut() -> bool) {
        if std::ptr::eq(JUMPING.get(), self) {
            // Called by somebody whom the jump lets go: the loop below, further
            // down our stack, looks again.
            return;
        }
        let _jumping = Jumping(JUMPING.replace(self));
        let _one = self
            .jump
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        while self.count.load(Ordering::SeqCst) == 0 && jump() {}
    }
}

std::thread_local! {
    /// Whose clock this thread lets jump.
    static JUMPING: Cell<*const Busy> = const { Cell::new(std::ptr::null()) };
}

/// Puts back whose it was before.
struct Jumping(*const Busy);

impl Drop for Jumping {
    fn drop(&mut self) {
        JUMPING.set(self.0);
    }
}
