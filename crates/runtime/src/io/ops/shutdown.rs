use std::io;
use std::net::Shutdown as How;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux::on_ring;

/// Ends one direction of a socket, or both.
pub(crate) struct ShutdownSocket {
    fd: Fd,
    how: How,
}

impl ShutdownSocket {
    pub(crate) fn new(fd: Fd, how: How) -> ShutdownSocket {
        ShutdownSocket { fd, how }
    }
}

impl Operation for ShutdownSocket {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let how = match self.how {
            How::Read => libc::SHUT_RD,
            How::Write => libc::SHUT_WR,
            How::Both => libc::SHUT_RDWR,
        };
        Request::Shutdown(ShutdownArgs {
            fd: self.fd.raw(),
            how,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}

/// Ends one direction of a socket, or both.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownArgs {
    /// The socket.
    pub fd: RawFd,
    /// As for `shutdown`.
    pub how: i32,
}

impl RequestArgs for ShutdownArgs {
    fn class(&self) -> Class {
        Class::Bounded
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Now
    }

    unsafe fn call(&self) -> i32 {
        // SAFETY: no pointers.
        again(|| unsafe { libc::shutdown(self.fd, self.how) } as isize)
    }
}

on_ring! {
    impl Sqe for ShutdownArgs {
        const CODE: u8 = opcode::Shutdown::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Shutdown::new(RingFd(self.fd), self.how).build()
        }
    }
}
