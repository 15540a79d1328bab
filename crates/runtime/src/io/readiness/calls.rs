//! Requests as system calls.

use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;

use crate::io::request::{Offset, Request};
use crate::linux;

fn error() -> i32 {
    -io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// The answer of a call that says -1 if it has failed.
fn answer(done: isize) -> i32 {
    match done {
        -1 => error(),
        // No call is asked to move more than fits.
        done => done as i32,
    }
}

/// Calls until no signal comes in between.
fn again(mut call: impl FnMut() -> isize) -> i32 {
    loop {
        match answer(call()) {
            interrupted if interrupted == -libc::EINTR => {}
            result => return result,
        }
    }
}

/// Whether a call on this file comes back rather than wait.
pub(super) fn never_blocks(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Whether a call may wait for another side, for ever: opening a FIFO or a device
/// does. It is a guess, as names go: somebody may give it to another file now.
///
/// # Safety
/// As for [`call`].
pub(super) unsafe fn may_last(request: &Request) -> bool {
    let Request::Open { path, flags, .. } = *request else {
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
pub(super) fn poll(fd: RawFd, events: u32) -> i32 {
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
/// As for [`call`], of the request that began it.
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
        unsafe { call(request) };
    }
    Some(result)
}

/// Carries out a request; the answer is as kernels give it. Sockets say `EAGAIN`
/// rather than wait; so do other files, if they are [so](never_blocks).
///
/// # Safety
/// What the request leads to is there, and nobody else uses it meanwhile.
pub(super) unsafe fn call(request: &Request) -> i32 {
    // SAFETY: all pointers are those of the request.
    unsafe {
        match *request {
            Request::Nop => 0,
            Request::Read {
                fd,
                buf,
                len,
                offset,
            } => again(|| match offset {
                Offset::At(at) => libc::pread(fd, buf.cast(), len as usize, at as libc::off_t),
                Offset::Current => libc::read(fd, buf.cast(), len as usize),
            }),
            Request::Write {
                fd,
                buf,
                len,
                offset,
            } => write(fd, buf, len, offset),
            Request::Sync {
                fd,
                data_only: true,
            } => again(|| linux::sync_data(fd) as isize),
            Request::Sync { fd, .. } => again(|| libc::fsync(fd) as isize),
            Request::Open { path, flags, mode } => {
                again(|| libc::open(path, flags, mode as libc::c_uint) as isize)
            }
            Request::ReadVectored {
                fd,
                parts,
                count,
                offset,
            } => again(|| match offset {
                Offset::At(at) => libc::preadv(fd, parts, count as i32, at as libc::off_t),
                Offset::Current => libc::readv(fd, parts, count as i32),
            }),
            Request::WriteVectored {
                fd,
                parts,
                count,
                offset,
            } => again(|| match offset {
                Offset::At(at) => libc::pwritev(fd, parts, count as i32, at as libc::off_t),
                Offset::Current => libc::writev(fd, parts, count as i32),
            }),
            Request::WriteThenSync {
                fd,
                buf,
                len,
                offset,
            } => match write(fd, buf, len, offset) {
                all if all >= 0 && all as u32 == len => {
                    match again(|| linux::sync_data(fd) as isize) {
                        failed if failed < 0 => failed,
                        _ => all,
                    }
                }
                short_or_failed => short_or_failed,
            },
            Request::SyncRange { fd, at, len, flags } => {
                again(|| linux::sync_range(fd, at, len, flags) as isize)
            }
            Request::Allocate { fd, mode, at, len } => {
                again(|| linux::allocate(fd, mode, at, len) as isize)
            }
            Request::Stat {
                fd,
                path,
                flags,
                out,
            } => again(|| linux::stat(fd, path, flags, out) as isize),
            Request::Rename { from, to } => again(|| libc::rename(from, to) as isize),
            Request::Unlink { path, dir: true } => again(|| libc::rmdir(path) as isize),
            Request::Unlink { path, .. } => again(|| libc::unlink(path) as isize),
            Request::MakeDir { path, mode } => {
                again(|| libc::mkdir(path, mode as libc::mode_t) as isize)
            }
            Request::Accept { fd, addr, len } => {
                again(|| linux::accept(fd, addr.cast(), len) as isize)
            }
            // One of them: a series may end after each answer.
            Request::AcceptMany { fd } => {
                again(|| linux::accept(fd, null_mut(), null_mut()) as isize)
            }
            Request::Connect { fd, addr, len } => {
                // Not again: the connection goes on without us.
                answer(libc::connect(fd, addr.cast(), len) as isize)
            }
            Request::Recv {
                fd,
                buf,
                len,
                flags,
            } => again(|| libc::recv(fd, buf.cast(), len as usize, flags | libc::MSG_DONTWAIT)),
            // Nothing that could be called offload: it is no file that blocks.
            Request::RecvMany { .. } => -libc::EINVAL,
            Request::Send {
                fd,
                buf,
                len,
                flags,
            } => {
                let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                again(|| libc::send(fd, buf.cast(), len as usize, flags))
            }
            Request::RecvMsg { fd, msg, flags } => {
                again(|| libc::recvmsg(fd, msg, flags | libc::MSG_DONTWAIT))
            }
            Request::SendMsg { fd, msg, flags } => {
                let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                again(|| libc::sendmsg(fd, msg, flags))
            }
            Request::Shutdown { fd, how } => again(|| libc::shutdown(fd, how) as isize),
            Request::Poll { fd, events } => match poll(fd, events) {
                0 => -libc::EAGAIN,
                result => result,
            },
            Request::Close { fd } => match answer(libc::close(fd) as isize) {
                // It is closed all the same, and must not be closed again.
                interrupted if interrupted == -libc::EINTR => 0,
                result => result,
            },
        }
    }
}

/// # Safety
/// As for [`call`].
unsafe fn write(fd: RawFd, buf: *const u8, len: u32, offset: Offset) -> i32 {
    // SAFETY: as the caller says.
    again(|| unsafe {
        match offset {
            Offset::At(at) => libc::pwrite(fd, buf.cast(), len as usize, at as libc::off_t),
            Offset::Current => libc::write(fd, buf.cast(), len as usize),
        }
    })
}
