use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::length;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBuf, IoHandle, Operation, Request};
use crate::linux::on_ring;

/// Bytes from a buffer to a socket.
pub(crate) struct Send<B> {
    fd: Fd,
    buf: B,
    flags: i32,
}

impl<B: IoBuf> Send<B> {
    pub(crate) fn new(fd: Fd, buf: B) -> Send<B> {
        Send { fd, buf, flags: 0 }
    }

    /// All of them, as far as the driver can see to that: it may be fewer.
    pub(crate) fn all(fd: Fd, buf: B) -> Send<B> {
        let flags = libc::MSG_WAITALL;
        Send { fd, buf, flags }
    }
}

impl<B: IoBuf> Operation for Send<B> {
    type Output = (io::Result<usize>, B);

    fn handle(&self) -> Option<&Arc<IoHandle>> {
        Some(self.fd.handle())
    }

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Send(SendArgs {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            flags: self.flags,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}

/// Bytes to a socket.
#[derive(Clone, Copy, Debug)]
pub struct SendArgs {
    /// The socket.
    pub fd: RawFd,
    /// Where the bytes are.
    pub buf: *const u8,
    /// How many.
    pub len: u32,
    /// As for `send`.
    pub flags: i32,
}

impl RequestArgs for SendArgs {
    fn class(&self) -> Class {
        Class::Output
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Writable(self.fd)
    }

    unsafe fn call(&self) -> i32 {
        let flags = self.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: as the caller says.
        again(|| unsafe { libc::send(self.fd, self.buf.cast(), self.len as usize, flags) })
    }
}

on_ring! {
    impl Sqe for SendArgs {
        const CODE: u8 = opcode::Send::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Send::new(RingFd(self.fd), self.buf, self.len)
                .flags(self.flags | libc::MSG_NOSIGNAL)
                .build()
        }
    }
}
