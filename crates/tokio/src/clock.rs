//! The clock that a root has unless it is given another: tokio's; and what holds it where a
//! test has paused it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kinfolk_core::Clock;

/// Tokio's clock: the system's, unless a test has paused it. Outside every tokio
/// runtime it is the system's.
pub(crate) struct TokioClock;

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

/// How many things hold tokio's clock where it is paused. A blocking call of tokio's waits
/// while there are any: the clock does not jump meanwhile.
#[derive(Default)]
pub(crate) struct PausedClock {
    held: Mutex<Holders>,
    changed: Condvar,
}

#[derive(Default)]
struct Holders {
    many: usize,
    /// A call waits for the last of them.
    waits: bool,
    /// Nothing holds it any more.
    over: bool,
}

impl PausedClock {
    fn held(&self) -> MutexGuard<'_, Holders> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more holds it. True if a call is to [wait](PausedClock::wait).
    pub(crate) fn hold(&self) -> bool {
        let mut held = self.held();
        held.many += 1;
        !held.over && !std::mem::replace(&mut held.waits, true)
    }

    /// One has let go.
    pub(crate) fn release(&self) {
        let mut held = self.held();
        held.many -= 1;
        if held.many == 0 {
            self.changed.notify_one();
        }
    }

    /// All are as if they had.
    pub(crate) fn let_go(&self) {
        self.held().over = true;
        self.changed.notify_one();
    }

    /// Waits until nothing holds it.
    pub(crate) fn wait(&self) {
        let held = self.held();
        let waited = self
            .changed
            .wait_while(held, |held| held.many > 0 && !held.over);
        waited.unwrap_or_else(PoisonError::into_inner).waits = false;
    }
}
