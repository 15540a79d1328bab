//! What only Linux has, and what stands in for it elsewhere.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use socket2::{Domain, Protocol, Socket, Type};

/// What an operation needs to describe its submission queue entry; see [`on_ring`].
#[cfg(target_os = "linux")]
pub(crate) mod ring {
    pub(crate) use io_uring::opcode;
    pub(crate) use io_uring::squeue::Entry;
    pub(crate) use io_uring::types::{Fd as RingFd, FsyncFlags};

    use crate::io::Offset;

    /// A request as a submission queue entry.
    pub(crate) trait Sqe {
        /// The operation of io_uring, which the kernel must support.
        const CODE: u8;

        /// The entry.
        fn sqe(&self) -> Entry;
    }

    /// Offsets as io_uring wants them: all ones is the current position.
    pub(crate) fn sqe_offset(offset: Offset) -> u64 {
        match offset {
            // All ones as a number: out of range, as the kernel says of its neighbour.
            Offset::At(u64::MAX) => u64::MAX - 1,
            Offset::At(at) => at,
            Offset::Current => u64::MAX,
        }
    }
}

/// Items for the ring driver, with [`ring`] in scope. Elsewhere than on Linux they do not
/// exist, so that the files of the operations need no `cfg` and import nothing of Linux.
#[cfg(target_os = "linux")]
macro_rules! on_ring {
    ($($item:item)*) => {
        const _: () = {
            #[allow(unused_imports)] // Each operation needs a few of them.
            use crate::linux::ring::*;
            $($item)*
        };
    };
}

/// As above.
#[cfg(not(target_os = "linux"))]
macro_rules! on_ring {
    ($($item:item)*) => {};
}

pub(crate) use on_ring;

/// How late the threads of this program are woken, as we have found it.
#[cfg(target_os = "linux")]
static USUAL: std::sync::OnceLock<u64> = std::sync::OnceLock::new();

#[cfg(target_os = "linux")]
fn slack() -> u64 {
    // SAFETY: PR_GET_TIMERSLACK touches no memory.
    let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    u64::try_from(slack).unwrap_or(50_000)
}

#[cfg(target_os = "linux")]
fn set_slack(nanos: u64) {
    // SAFETY: PR_SET_TIMERSLACK takes one number and touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, nanos);
    }
}

/// Asks the kernel to wake this thread when its time has come, and not up to
/// 50 µs later.
pub(crate) fn precise_timers() {
    #[cfg(target_os = "linux")]
    {
        USUAL.get_or_init(slack);
        set_slack(1);
    }
}

/// Takes that back: threads and processes inherit it from the thread that starts them.
pub(crate) fn usual_timers() {
    #[cfg(target_os = "linux")]
    if let Some(usual) = USUAL.get() {
        set_slack(*usual);
    }
}

/// Starts a process, which does not inherit [`precise_timers`]. On this side of the
/// start: a `pre_exec` would cost the short way to start one.
pub(crate) fn with_usual_timers<R>(start: impl FnOnce() -> R) -> R {
    #[cfg(target_os = "linux")]
    let ours = slack();
    usual_timers();
    let started = start();
    #[cfg(target_os = "linux")]
    set_slack(ours);
    started
}

/// A clock of milliseconds that is read in a few nanoseconds and is a few
/// milliseconds coarse; none elsewhere.
#[cfg(target_os = "linux")]
pub(crate) fn coarse_millis() -> Option<u64> {
    let mut at = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut at) };
    (failed == 0).then(|| at.tv_sec as u64 * 1000 + u64::from(at.tv_nsec as u32 / 1_000_000))
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn coarse_millis() -> Option<u64> {
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
/// `path` points to a string that ends with a zero byte, and the answer is valid for writes.
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
/// Both pointers are valid for writes, and the size is that of the room for the address.
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

/// A socket that child processes do not inherit.
pub(crate) fn socket(
    domain: Domain,
    kind: Type,
    protocol: Option<Protocol>,
    nonblocking: bool,
) -> io::Result<Socket> {
    #[cfg(target_os = "linux")]
    return Socket::new_raw(domain, kind_of_socket(kind, nonblocking), protocol);
    #[cfg(not(target_os = "linux"))]
    {
        let socket = Socket::new(domain, kind, protocol)?;
        socket.set_nonblocking(nonblocking)?;
        Ok(socket)
    }
}

/// Two connected Unix sockets that child processes do not inherit.
pub(crate) fn socket_pair(kind: Type, nonblocking: bool) -> io::Result<(Socket, Socket)> {
    #[cfg(target_os = "linux")]
    return Socket::pair_raw(Domain::UNIX, kind_of_socket(kind, nonblocking), None);
    #[cfg(not(target_os = "linux"))]
    {
        let (one, other) = Socket::pair(Domain::UNIX, kind, None)?;
        one.set_nonblocking(nonblocking)?;
        other.set_nonblocking(nonblocking)?;
        Ok((one, other))
    }
}

/// On Linux both come with the call that makes the socket.
#[cfg(target_os = "linux")]
fn kind_of_socket(kind: Type, nonblocking: bool) -> Type {
    let kind = kind.cloexec();
    match nonblocking {
        true => kind.nonblocking(),
        false => kind,
    }
}

/// The bits of `st_mode` that say what a file is; their type differs from system to system.
#[allow(clippy::unnecessary_cast)] // It is none elsewhere.
pub(crate) mod mode {
    /// Which bits those are.
    pub(crate) const KIND: u32 = libc::S_IFMT as u32;
    pub(crate) const FILE: u32 = libc::S_IFREG as u32;
    pub(crate) const DIR: u32 = libc::S_IFDIR as u32;
    pub(crate) const LINK: u32 = libc::S_IFLNK as u32;
    pub(crate) const SOCKET: u32 = libc::S_IFSOCK as u32;
}

/// A moment: seconds since 1970, and nanoseconds.
pub(crate) type TimeSpec = (i64, u32);

/// What a [`StatBuf`] says, in one form for all systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) len: u64,
    /// What it is, and who may do what with it.
    pub(crate) mode: u32,
    pub(crate) links: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) inode: u64,
    pub(crate) device: (u32, u32),
    pub(crate) accessed: TimeSpec,
    pub(crate) modified: TimeSpec,
    pub(crate) changed: TimeSpec,
    /// Not every file system knows.
    pub(crate) created: Option<TimeSpec>,
}

#[cfg(target_os = "linux")]
impl Facts {
    pub(crate) fn of(stat: &StatBuf) -> Facts {
        let moment = |at: libc::statx_timestamp| (at.tv_sec, at.tv_nsec);
        Facts {
            len: stat.stx_size,
            mode: u32::from(stat.stx_mode),
            links: u64::from(stat.stx_nlink),
            user: stat.stx_uid,
            group: stat.stx_gid,
            inode: stat.stx_ino,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            accessed: moment(stat.stx_atime),
            modified: moment(stat.stx_mtime),
            changed: moment(stat.stx_ctime),
            created: (stat.stx_mask & libc::STATX_BTIME != 0).then(|| moment(stat.stx_btime)),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Facts {
    pub(crate) fn of(stat: &StatBuf) -> Facts {
        Facts {
            len: stat.st_size as u64,
            mode: stat.st_mode as u32,
            links: stat.st_nlink as u64,
            user: stat.st_uid,
            group: stat.st_gid,
            inode: stat.st_ino as u64,
            device: (
                libc::major(stat.st_dev) as u32,
                libc::minor(stat.st_dev) as u32,
            ),
            accessed: (stat.st_atime as i64, stat.st_atime_nsec as u32),
            modified: (stat.st_mtime as i64, stat.st_mtime_nsec as u32),
            changed: (stat.st_ctime as i64, stat.st_ctime_nsec as u32),
            created: None,
        }
    }
}

/// For [`Request::Stat`](crate::io::Request::Stat): the file itself, not a path.
#[cfg(target_os = "linux")]
pub(crate) const EMPTY_PATH: i32 = libc::AT_EMPTY_PATH;

/// As above; the driver takes an empty path for it.
#[cfg(not(target_os = "linux"))]
pub(crate) const EMPTY_PATH: i32 = 0;

/// For [`Request::SyncRange`](crate::io::Request::SyncRange): all of it is
/// written out, and waited for.
#[cfg(target_os = "linux")]
pub(crate) const SYNC_RANGE: u32 = libc::SYNC_FILE_RANGE_WAIT_BEFORE
    | libc::SYNC_FILE_RANGE_WRITE
    | libc::SYNC_FILE_RANGE_WAIT_AFTER;

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) const SYNC_RANGE: u32 = 0;

/// For [`Request::Allocate`](crate::io::Request::Allocate): a hole in a file, whose length
/// stays.
#[cfg(target_os = "linux")]
pub(crate) const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// As above; elsewhere there is no such call.
#[cfg(not(target_os = "linux"))]
pub(crate) const PUNCH_HOLE: i32 = 3;

/// Past the cache of the system.
#[cfg(target_os = "linux")]
pub(crate) const DIRECT: i32 = libc::O_DIRECT;

/// As above; elsewhere there is no such flag.
#[cfg(not(target_os = "linux"))]
pub(crate) const DIRECT: i32 = 0;

/// A file that stands for a process of ours that was not waited for, and can be
/// read once it has ended.
#[cfg(target_os = "linux")]
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: two numbers, no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0_u32) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor of our own.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pidfd_open(_pid: u32) -> io::Result<OwnedFd> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sends a signal to the process that `pidfd` stands for, and to no other that
/// has got its number since.
#[cfg(target_os = "linux")]
pub(crate) fn pidfd_send_signal(pidfd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: without a siginfo there is no memory to read.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            signal,
            none,
            0_u32,
        )
    };
    match sent {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pidfd_send_signal(_pidfd: BorrowedFd<'_>, _signal: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, not(loom), target_os = "linux"))]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn the_coarse_clock_keeps_up_with_the_fine_one() {
        let (fine, coarse) = (Instant::now(), coarse_millis().expect("on Linux"));
        while fine.elapsed() < Duration::from_millis(60) {
            std::hint::spin_loop();
        }
        let apart = coarse_millis().expect("on Linux") - coarse;
        let fine = fine.elapsed().as_millis() as u64;
        assert!(
            apart.abs_diff(fine) < 30,
            "{apart} ms by the coarse one, {fine} by the fine"
        );
    }
}
