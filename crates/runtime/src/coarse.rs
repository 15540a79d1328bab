//! A clock for ages and the like: a few nanoseconds to read, a few
//! milliseconds coarse.

use std::time::{Duration, Instant};

use crate::linux;

/// The system's coarse clock, where it has one.
pub(crate) struct CoarseClock {
    start: Instant,
    offset: Duration,
}

impl CoarseClock {
    pub(crate) fn new() -> CoarseClock {
        CoarseClock {
            start: Instant::now(),
            offset: linux::coarse_time().unwrap_or_default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        match linux::coarse_time() {
            Some(now) => self.start + now.saturating_sub(self.offset),
            None => Instant::now(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keeps_up_with_the_fine_one() {
        let coarse = CoarseClock::new();
        let until = Instant::now() + Duration::from_millis(30);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        let (fine, coarse) = (Instant::now(), coarse.now());
        let apart = fine.max(coarse) - fine.min(coarse);
        assert!(apart < Duration::from_millis(20), "{apart:?} apart");
    }
}
