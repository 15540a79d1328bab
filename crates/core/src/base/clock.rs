//! Where a host takes the time from.

use std::time::{Duration, Instant};

/// A clock: the system's, or a virtual one that jumps when everything is idle.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;

    /// True if it only moves when told to.
    fn is_virtual(&self) -> bool {
        false
    }

    /// True if it is the system's own, so that cheaper ways to read it will do.
    fn is_system(&self) -> bool {
        false
    }

    /// How long to sleep in real time until it shows `at`; none if it stands
    /// still.
    fn real_time_until(&self, at: Instant) -> Option<Duration> {
        Some(at.saturating_duration_since(self.now()))
    }

    /// Calls `listener` whenever the answer of
    /// [`real_time_until`](Clock::real_time_until) changes but by the passing
    /// of time, until it has returned false: then its host is gone. A call too many does
    /// no harm.
    fn on_change(&self, listener: Box<dyn Fn() -> bool + Send + Sync>) {
        drop(listener);
    }

    /// Moves it on to `at`, never backwards; false if it is not for its host to
    /// set.
    fn advance_to(&self, at: Instant) -> bool {
        let _ = at;
        false
    }

    /// No job of the host is runnable or being polled, and nothing else is in
    /// flight. A virtual clock may let a thread go on that waited for that
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
    fn is_system(&self) -> bool {
        true
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
