//! What only Linux has, and what stands in for it elsewhere.

use std::time::Duration;

/// Asks the kernel to wake this thread when its time has come, and not up to
/// 50 µs later.
pub(crate) fn precise_timers() {
    #[cfg(target_os = "linux")]
    // SAFETY: PR_SET_TIMERSLACK takes one number and touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
    }
}

/// A clock that is read in a few nanoseconds and is a few milliseconds coarse;
/// none elsewhere.
#[cfg(target_os = "linux")]
pub(crate) fn coarse_time() -> Option<Duration> {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut at) };
    (failed == 0).then(|| Duration::new(at.tv_sec as u64, at.tv_nsec as u32))
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn coarse_time() -> Option<Duration> {
    None
}

/// What the system says of a file.
#[cfg(target_os = "linux")]
pub type StatBuf = libc::statx;

/// As above.
#[cfg(not(target_os = "linux"))]
pub type StatBuf = libc::stat;
