//! The virtual clock: it stands still until every task is blocked, then jumps
//! to the next timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kinfolk_core::Clock;

use crate::lab::IdleWaiters;

/// A clock that jumps when every task is blocked. Clones share the time.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    start: Instant,
    /// Nanoseconds since `start`.
    elapsed: Arc<AtomicU64>,
    idle: IdleWaiters,
}

impl VirtualClock {
    /// A clock at its start.
    pub fn new() -> VirtualClock {
        VirtualClock {
            start: Instant::now(),
            elapsed: Arc::default(),
            idle: IdleWaiters::default(),
        }
    }

    /// The instant at which the clock began.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Virtual time since the clock began.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed.load(Ordering::SeqCst))
    }

    /// Moves the clock to `elapsed` after its start; never backwards.
    pub fn move_to(&self, elapsed: Duration) {
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        self.elapsed.fetch_max(nanos, Ordering::SeqCst);
    }

    /// How far `at` is from the start, in nanoseconds; none if that is more than
    /// the clock can count, 584 years. Such an instant is never reached.
    pub(crate) fn reach(&self, at: Instant) -> Option<u64> {
        u64::try_from(at.saturating_duration_since(self.start).as_nanos()).ok()
    }

    /// The waits until every task is blocked.
    pub fn idle_waiters(&self) -> &IdleWaiters {
        &self.idle
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        VirtualClock::new()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Instant {
        self.start + self.elapsed()
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn advance_to(&self, at: Instant) -> bool {
        self.move_to(at.saturating_duration_since(self.start));
        true
    }

    fn idle(&self, next: Option<Instant>) -> bool {
        if self.idle.everything_is_blocked() {
            return true;
        }
        match next.and_then(|at| self.reach(at)) {
            Some(nanos) => {
                self.move_to(Duration::from_nanos(nanos));
                true
            }
            None => false,
        }
    }
}
