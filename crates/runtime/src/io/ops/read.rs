use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use kinfolk_core::host::Contained;

use super::length;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBufMut, IoHandle, Offset, Operation, Request};
use crate::linux::on_ring;

/// Bytes from a file into a buffer.
pub(crate) struct Read<B> {
    fd: Fd,
    buf: B,
    offset: Offset,
}

impl<B: IoBufMut> Read<B> {
    pub(crate) fn new(fd: Fd, buf: B, offset: Offset) -> Read<B> {
        Read { fd, buf, offset }
    }
}

impl<B: IoBufMut> Operation for Read<B> {
    type Output = (io::Result<usize>, B);

    fn handle(&self) -> Option<&Arc<IoHandle>> {
        Some(self.fd.handle())
    }

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Read(ReadArgs {
            fd: self.fd.raw(),
            len: length(self.buf.room()),
            buf: self.buf.ptr_mut(),
            offset: self.offset,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        let mut buf = Contained::new(self.buf);
        let result = result.map(|bytes| {
            let bytes = bytes as usize;
            // SAFETY: the system says that it has written them.
            unsafe { buf.set_filled(bytes) };
            bytes
        });
        (result, buf.into_inner())
    }
}

/// Bytes from `fd` into `buf`.
#[derive(Clone, Copy, Debug)]
pub struct ReadArgs {
    /// The file.
    pub fd: RawFd,
    /// Where the bytes go.
    pub buf: *mut u8,
    /// How many there is room for.
    pub len: u32,
    /// Where they are.
    pub offset: Offset,
}

impl RequestArgs for ReadArgs {
    fn class(&self) -> Class {
        Class::at(self.offset, Class::Input)
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::read(self.fd, self.offset)
    }

    unsafe fn call(&self) -> i32 {
        again(|| match self.offset {
            // SAFETY: as the caller says; here and below.
            Offset::At(at) => unsafe {
                libc::pread(
                    self.fd,
                    self.buf.cast(),
                    self.len as usize,
                    at as libc::off_t,
                )
            },
            // SAFETY: as above.
            Offset::Current => unsafe { libc::read(self.fd, self.buf.cast(), self.len as usize) },
        })
    }
}

on_ring! {
    impl Sqe for ReadArgs {
        const CODE: u8 = opcode::Read::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Read::new(RingFd(self.fd), self.buf, self.len)
                .offset(sqe_offset(self.offset))
                .build()
        }
    }
}
