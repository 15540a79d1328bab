//! The time of one runtime: that of its clock, and from its shutdown on real time. The
//! clock itself is left alone: it is the program's, and other runtimes may have it too.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kinfolk_core::Clock;

pub(crate) struct OwnTime {
    clock: Arc<dyn Clock>,
    /// Set when the runtime shuts down: what its time was then, and the real time.
    runs_from: OnceLock<(Instant, Instant)>,
}

/// A shutdown must be able to count at least as far.
const ROOM: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl OwnTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> OwnTime {
        OwnTime {
            clock,
            runs_from: OnceLock::new(),
        }
    }

    /// From here on it runs as the system's clock does, from what the clock shows now.
    /// A clock that is paused, that stands still or runs fast changes nothing any more:
    /// the grace is what it says, and the shutdown ends.
    ///
    /// Another thread that asks the clock in this moment may be told a later time than
    /// the first one after it.
    pub(crate) fn run(&self) {
        if self.clock.is_system() {
            return;
        }
        let real = Instant::now();
        let shown = self.clock.now();
        let shown = shown.checked_add(ROOM).map_or(real, |_| shown);
        let _ = self.runs_from.set((shown, real));
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self.runs_from.get() {
            None => self.clock.now(),
            Some((shown, real)) => shown.checked_add(real.elapsed()).unwrap_or(*shown),
        }
    }

    pub(crate) fn is_system(&self) -> bool {
        self.clock.is_system()
    }

    pub(crate) fn is_virtual(&self) -> bool {
        self.clock.is_virtual()
    }

    /// How long to sleep in real time until it is `at`; none if it stands still.
    pub(crate) fn real_time_until(&self, at: Instant) -> Option<Duration> {
        match self.runs_from.get() {
            None => self.clock.real_time_until(at),
            Some(_) => Some(at.saturating_duration_since(self.now())),
        }
    }

    pub(crate) fn on_change(&self, listener: Box<dyn Fn() -> bool + Send + Sync>) {
        self.clock.on_change(listener);
    }

    pub(crate) fn advance_to(&self, at: Instant) -> bool {
        self.clock.advance_to(at)
    }

    /// As [`Clock::idle`]; false once it runs by itself.
    pub(crate) fn idle(&self, next: Option<Instant>) -> bool {
        self.runs_from.get().is_none() && self.clock.idle(next)
    }
}
