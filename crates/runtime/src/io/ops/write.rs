use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::length;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBuf, IoHandle, Offset, Operation, Request};
use crate::linux::on_ring;

/// Bytes from a buffer to a file.
pub(crate) struct Write<B> {
    fd: Fd,
    buf: B,
    offset: Offset,
}

impl<B: IoBuf> Write<B> {
    pub(crate) fn new(fd: Fd, buf: B, offset: Offset) -> Write<B> {
        Write { fd, buf, offset }
    }
}

impl<B: IoBuf> Operation for Write<B> {
    type Output = (io::Result<usize>, B);

    fn handle(&self) -> Option<&Arc<IoHandle>> {
        Some(self.fd.handle())
    }

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Write(WriteArgs {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            offset: self.offset,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}

/// Bytes from `buf` to `fd`.
#[derive(Clone, Copy, Debug)]
pub struct WriteArgs {
    /// The file.
    pub fd: RawFd,
    /// Where the bytes are.
    pub buf: *const u8,
    /// How many.
    pub len: u32,
    /// Where they go.
    pub offset: Offset,
}

impl RequestArgs for WriteArgs {
    fn class(&self) -> Class {
        Class::at(self.offset, Class::Output)
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::write(self.fd, self.offset)
    }

    unsafe fn call(&self) -> i32 {
        again(|| match self.offset {
            // SAFETY: as the caller says; here and below.
            Offset::At(at) => unsafe {
                libc::pwrite(
                    self.fd,
                    self.buf.cast(),
                    self.len as usize,
                    at as libc::off_t,
                )
            },
            // SAFETY: as above.
            Offset::Current => unsafe { libc::write(self.fd, self.buf.cast(), self.len as usize) },
        })
    }
}

on_ring! {
    impl Sqe for WriteArgs {
        const CODE: u8 = opcode::Write::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Write::new(RingFd(self.fd), self.buf, self.len)
                .offset(sqe_offset(self.offset))
                .build()
        }
    }
}
