//! What only Linux has, and what stands in for it elsewhere.

use std::os::fd::RawFd;
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

/// As `statx` or `fstatat`.
///
/// # Safety
/// A path that ends with a zero, and room for the answer.
pub(crate) unsafe fn stat(
    fd: RawFd,
    path: *const libc::c_char,
    flags: i32,
    out: *mut StatBuf,
) -> i32 {
    #[cfg(target_os = "linux")]
    let mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: as the caller says.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::statx(fd, path, flags, mask, out);
        #[cfg(not(target_os = "linux"))]
        return match *path {
            0 => libc::fstat(fd, out),
            _ => libc::fstatat(fd, path, out, flags),
        };
    }
}

/// The bytes of a file reach the disk; elsewhere its times as well.
pub(crate) fn sync_data(fd: RawFd) -> i32 {
    // SAFETY: no pointers.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::fdatasync(fd);
        #[cfg(not(target_os = "linux"))]
        return libc::fsync(fd);
    }
}

/// A part of a file begins its way to the disk; elsewhere all of it gets there.
pub(crate) fn sync_range(fd: RawFd, at: u64, len: u32, flags: u32) -> i32 {
    // SAFETY: no pointers.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::sync_file_range(fd, at as i64, i64::from(len), flags);
        #[cfg(not(target_os = "linux"))]
        return {
            let _ = (at, len, flags);
            libc::fsync(fd)
        };
    }
}

/// Room for a part of a file; elsewhere there is no such call.
pub(crate) fn allocate(fd: RawFd, mode: i32, at: u64, len: u64) -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: no pointers.
    return unsafe { libc::fallocate(fd, mode, at as i64, len as i64) };
    #[cfg(not(target_os = "linux"))]
    return {
        let _ = (fd, mode, at, len);
        // SAFETY: the error number of this thread.
        unsafe { *libc::__error() = libc::ENOTSUP };
        -1
    };
}

/// Takes a connection, which does not block, and which other programs do not
/// inherit.
///
/// # Safety
/// Room for the address, and its size.
pub(crate) unsafe fn accept(
    fd: RawFd,
    addr: *mut libc::sockaddr,
    len: *mut libc::socklen_t,
) -> i32 {
    #[cfg(target_os = "linux")]
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: as the caller says.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::accept4(fd, addr, len, flags);
        #[cfg(not(target_os = "linux"))]
        return {
            let fd = libc::accept(fd, addr, len);
            if fd >= 0 {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
                libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
            }
            fd
        };
    }
}
