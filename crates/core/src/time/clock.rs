//! Where a host takes the time from.

use std::time::Instant;

/// A clock: the system's, or a virtual one that jumps when everything is idle.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;

    /// True if it only moves when told to.
    fn is_virtual(&self) -> bool {
        false
    }

    /// No job of the host is runnable or being polled, and nothing else is in
    /// flight. A virtual clock may let somebody go on who waited for that
    /// (true), or else jump to `next`, the first timer (true if it moved).
    fn idle(&self, next: Option<Instant>) -> bool {
        let _ = next;
        false
    }
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}
