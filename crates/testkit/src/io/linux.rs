//! What only Linux has, and the replacement on other systems.

use kinfolk_runtime::io::StatBuf;

use super::memory::FileFacts;

/// Room is made without changing the length.
#[cfg(target_os = "linux")]
pub(crate) const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) const KEEP_SIZE: i32 = 1;

/// A part becomes zeroes.
#[cfg(target_os = "linux")]
pub(crate) const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE;

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) const PUNCH_HOLE: i32 = 2;

/// The system's answer about a file.
#[cfg(target_os = "linux")]
pub(crate) fn stat(about: &FileFacts) -> StatBuf {
    // SAFETY: plain numbers: all zero is one.
    let mut stat: StatBuf = unsafe { std::mem::zeroed() };
    stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    stat.stx_mode = about.mode as u16;
    stat.stx_nlink = about.links;
    stat.stx_ino = about.number;
    stat.stx_size = about.size;
    stat.stx_blksize = 4096;
    stat.stx_blocks = about.size.div_ceil(512);
    for time in [
        &mut stat.stx_mtime,
        &mut stat.stx_ctime,
        &mut stat.stx_atime,
    ] {
        time.tv_sec = about.changed.as_secs() as i64;
        time.tv_nsec = about.changed.subsec_nanos();
    }
    stat
}

/// As above.
#[cfg(not(target_os = "linux"))]
pub(crate) fn stat(about: &FileFacts) -> StatBuf {
    // SAFETY: plain numbers: all zero is one.
    let mut stat: StatBuf = unsafe { std::mem::zeroed() };
    stat.st_mode = about.mode as libc::mode_t;
    stat.st_nlink = about.links as _;
    stat.st_ino = about.number as _;
    stat.st_size = about.size as libc::off_t;
    stat.st_mtime = about.changed.as_secs() as libc::time_t;
    stat
}

/// How many parts a message has; the type of the field differs from system to system.
#[allow(clippy::unnecessary_cast)] // It is none elsewhere.
pub(crate) fn part_count(msg: &libc::msghdr) -> usize {
    msg.msg_iovlen as usize
}

/// The bits of `st_mode` that say what a file is; their type differs from system to system.
#[allow(clippy::unnecessary_cast)] // It is none elsewhere.
pub(crate) mod mode {
    pub(crate) const FILE: u32 = libc::S_IFREG as u32;
    pub(crate) const DIR: u32 = libc::S_IFDIR as u32;
    pub(crate) const SOCKET: u32 = libc::S_IFSOCK as u32;
    pub(crate) const FIFO: u32 = libc::S_IFIFO as u32;
}
