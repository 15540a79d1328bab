//! A clock for ages and the like: a few nanoseconds to read, a few
//! milliseconds coarse.

use std::time::{Duration, Instant};

/// The system's coarse clock, where it has one.
pub(crate) struct CoarseClock {
    start: Instant,
    offset: Duration,
}

impl CoarseClock {
    pub(crate) fn new() -> CoarseClock {
        CoarseClock {
            start: Instant::now(),
            offset: read().unwrap_or_default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        match read() {
            Some(now) => self.start + now.saturating_sub(self.offset),
            None => Instant::now(),
        }
    }
}

#[cfg(target_os = "linux")]
fn read() -> Option<Duration> {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut at) };
    (failed == 0).then(|| Duration::new(at.tv_sec as u64, at.tv_nsec as u32))
}

#[cfg(not(target_os = "linux"))]
fn read() -> Option<Duration> {
    None
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
