//! Requests as system calls.

use std::io;
use std::os::fd::RawFd;

use crate::io::request::{OpenArgs, Request};

fn error() -> i32 {
    -io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// The answer of a call that says -1 if it has failed.
pub(in crate::io) fn answer(done: isize) -> i32 {
    match done {
        -1 => error(),
        // No call is asked to move more than fits.
        done => done as i32,
    }
}

/// Calls until no signal comes in between.
pub(in crate::io) fn again(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        match answer(call()) {
            interrupted if interrupted == -libc::EINTR => {}
            result => return result,
        }
    }
}

/// Whether a call on this file comes back rather than wait.
pub(in crate::io) fn never_blocks(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Whether a call may wait for another side, for ever: opening a FIFO or a device
/// does. It is a guess, as names go: the name may belong to another file by now.
///
/// # Safety
/// As for [`Request::call`].
pub(super) unsafe fn may_last(request: &Request) -> bool {
    let Request::Open(OpenArgs { path, flags, .. }) = *request else {
        return false;
    };
    // Told so, it does not wait; and a file that is made is a plain one.
    if flags & (libc::O_NONBLOCK | libc::O_EXCL) != 0 {
        return false;
    }
    // SAFETY: plain numbers.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends with a zero, and room for the answer.
    let known = unsafe { libc::stat(path, &raw mut about) } == 0;
    known && !matches!(about.st_mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR)
}

/// What can be done with a file just now; 0 if nothing of that.
pub(in crate::io) fn poll(fd: RawFd, events: u32) -> i32 {
    let mut asked = libc::pollfd {
        fd,
        events: events as libc::c_short,
        revents: 0,
    };
    // SAFETY: one of them, and no wait.
    match again(|| unsafe { libc::poll(&raw mut asked, 1, 0) } as isize) {
        count if count > 0 && asked.revents & libc::POLLNVAL != 0 => -libc::EBADF,
        count if count > 0 => i32::from(asked.revents),
        result => result,
    }
}

/// How the connection that was begun on a socket went; none if it is not over.
///
/// # Safety
/// As for [`Request::call`], of the request that began it.
pub(super) unsafe fn connected(fd: RawFd, request: &Request) -> Option<i32> {
    match poll(fd, libc::POLLOUT as u32) {
        0 => return None,
        result if result < 0 => return Some(result),
        _ => {}
    }
    let mut went: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: a offset for a number, and its size.
    let result = answer(unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut went).cast(),
            &raw mut len,
        )
    } as isize);
    let result = if result < 0 { result } else { -went };
    if result == 0 {
        // Linux wants to be asked once more before it takes a socket for
        // connected in every respect. The answer is known.
        // SAFETY: as the caller says.
        unsafe { request.call() };
    }
    Some(result)
}
