//! [`OwnTime`]: the time of one host, that of its clock, and from its shutdown on real time. The
//! clock itself is left alone: it is the program's, and other hosts may have it too.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::base::clock::Clock;

/// The time of one host: that of its clock, and from its shutdown on real time. For authors
/// of hosts.
pub struct OwnTime {
    clock: Arc<dyn Clock>,
    /// Set when the runtime shuts down: what its time was then, and the real time.
    runs_from: OnceLock<(Instant, Instant)>,
}

/// A shutdown must be able to count at least as far.
const ROOM: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl OwnTime {
    /// That of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> OwnTime {
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
    pub fn run(&self) {
        if !self.clock.is_system() {
            self.run_from(None);
        }
    }

    /// The same, of any clock, and from `least` at the least.
    pub fn run_from(&self, least: Option<Instant>) {
        if self.runs_from.get().is_some() {
            return;
        }
        let real = Instant::now();
        let shown = self.clock.now();
        let shown = least.map_or(shown, |least| shown.max(least));
        let shown = shown.checked_add(ROOM).map_or(real, |_| shown);
        let _ = self.runs_from.set((shown, real));
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Instant {
        match self.runs_from.get() {
            None => self.clock.now(),
            Some((shown, real)) => shown.checked_add(real.elapsed()).unwrap_or(*shown),
        }
    }

    /// As [`Clock::is_system`].
    pub fn is_system(&self) -> bool {
        self.clock.is_system()
    }

    /// As [`Clock::is_virtual`].
    pub fn is_virtual(&self) -> bool {
        self.clock.is_virtual()
    }

    /// How long to sleep in real time until it is `at`; none if it stands still.
    pub fn real_time_until(&self, at: Instant) -> Option<Duration> {
        match self.runs_from.get() {
            None => self.clock.real_time_until(at),
            Some(_) => Some(at.saturating_duration_since(self.now())),
        }
    }

    /// As [`Clock::on_change`].
    pub fn on_change(&self, listener: Box<dyn Fn() -> bool + Send + Sync>) {
        self.clock.on_change(listener);
    }

    /// As [`Clock::advance_to`].
    pub fn advance_to(&self, at: Instant) -> bool {
        self.clock.advance_to(at)
    }

    /// As [`Clock::idle`]; false once it runs by itself.
    pub fn idle(&self, next: Option<Instant>) -> bool {
        self.runs_from.get().is_none() && self.clock.idle(next)
    }
}

impl std::fmt::Debug for OwnTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnTime")
            .field("runs", &self.runs_from.get().is_some())
            .finish_non_exhaustive()
    }
}
