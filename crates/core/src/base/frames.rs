//! The frames of a host that owns the main loop: how many there were, and what waits for
//! the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::base::list::List;
use crate::base::unwind::{KeptWaker, wake};

/// The frames of one tree.
pub(crate) struct Frames {
    number: AtomicU64,
    waiting: Mutex<List<KeptWaker>>,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            number: AtomicU64::new(0),
            waiting: Mutex::new(List::that_stays()),
        }
    }
}

impl Frames {
    /// The waits for the next one.
    pub(crate) fn waiting(&self) -> MutexGuard<'_, List<KeptWaker>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many have begun.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// A frame begins: whoever has waited for it is woken.
    pub(crate) fn begin(&self) {
        self.number.fetch_add(1, Ordering::SeqCst);
        // Those who come from now on wait for the next one.
        let there = self.waiting().len();
        for _ in 0..there {
            let Some(waker) = self.waiting().pop() else {
                return;
            };
            wake(waker.into_inner());
        }
    }
}
