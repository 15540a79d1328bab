use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use kinfolk_core::host::Contained;

use super::MOST;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBuf, IoBufMut, IoHandle, Offset, Operation, Request};
use crate::linux::on_ring;

/// How many parts the kernel takes at once.
const MOST_PARTS: usize = 1024;

/// Where the parts lie, as the system wants it.
#[derive(Default)]
struct Parts(Vec<libc::iovec>);

// SAFETY: it leads into buffers that lie in the same operation.
unsafe impl Send for Parts {}

impl Parts {
    /// Takes no more than one operation moves.
    fn set(&mut self, parts: impl Iterator<Item = (*mut u8, usize)>) {
        let mut left = MOST;
        self.0.clear();
        for (at, len) in parts.take(MOST_PARTS) {
            let len = len.min(left);
            left -= len;
            self.0.push(libc::iovec {
                iov_base: at.cast(),
                iov_len: len,
            });
        }
    }
}

/// Bytes from a file into several buffers, one after the other.
pub(crate) struct ReadVectored<B> {
    fd: Fd,
    bufs: Vec<B>,
    parts: Parts,
    offset: Offset,
}

impl<B: IoBufMut> ReadVectored<B> {
    pub(crate) fn new(fd: Fd, bufs: Vec<B>, offset: Offset) -> ReadVectored<B> {
        ReadVectored {
            fd,
            bufs,
            parts: Parts::default(),
            offset,
        }
    }
}

impl<B: IoBufMut> Operation for ReadVectored<B> {
    type Output = (io::Result<usize>, Vec<B>);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let bufs = self.bufs.iter_mut();
        self.parts.set(bufs.map(|buf| (buf.ptr_mut(), buf.room())));
        Request::ReadVectored(ReadVectoredArgs {
            fd: self.fd.raw(),
            parts: self.parts.0.as_ptr(),
            count: self.parts.0.len() as u32,
            offset: self.offset,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        let mut bufs = Contained::new(self.bufs);
        let result = result.map(|bytes| {
            let mut left = bytes as usize;
            for buf in bufs.iter_mut() {
                let filled = left.min(buf.room());
                left -= filled;
                // SAFETY: the system says that it has written them, one buffer
                // after the other.
                unsafe { buf.set_filled(filled) };
            }
            bytes as usize
        });
        (result, bufs.into_inner())
    }
}

/// Bytes from several buffers to a file, one after the other.
pub(crate) struct WriteVectored<B> {
    fd: Fd,
    bufs: Vec<B>,
    parts: Parts,
    offset: Offset,
}

impl<B: IoBuf> WriteVectored<B> {
    pub(crate) fn new(fd: Fd, bufs: Vec<B>, offset: Offset) -> WriteVectored<B> {
        WriteVectored {
            fd,
            bufs,
            parts: Parts::default(),
            offset,
        }
    }
}

impl<B: IoBuf> Operation for WriteVectored<B> {
    type Output = (io::Result<usize>, Vec<B>);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let bufs = self.bufs.iter();
        self.parts
            .set(bufs.map(|buf| (buf.ptr().cast_mut(), buf.filled())));
        Request::WriteVectored(WriteVectoredArgs {
            fd: self.fd.raw(),
            parts: self.parts.0.as_ptr(),
            count: self.parts.0.len() as u32,
            offset: self.offset,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.bufs)
    }
}

/// As [`ReadArgs`](super::read::ReadArgs), into several buffers.
#[derive(Clone, Copy, Debug)]
pub struct ReadVectoredArgs {
    /// The file.
    pub fd: RawFd,
    /// Where the bytes go.
    pub parts: *const libc::iovec,
    /// How many parts.
    pub count: u32,
    /// Where they are.
    pub offset: Offset,
}

impl RequestArgs for ReadVectoredArgs {
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
                libc::preadv(self.fd, self.parts, self.count as i32, at as libc::off_t)
            },
            // SAFETY: as above.
            Offset::Current => unsafe { libc::readv(self.fd, self.parts, self.count as i32) },
        })
    }
}

on_ring! {
    impl Sqe for ReadVectoredArgs {
        const CODE: u8 = opcode::Readv::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Readv::new(RingFd(self.fd), self.parts, self.count)
                .offset(sqe_offset(self.offset))
                .build()
        }
    }
}

/// As [`WriteArgs`](super::write::WriteArgs), from several buffers.
#[derive(Clone, Copy, Debug)]
pub struct WriteVectoredArgs {
    /// The file.
    pub fd: RawFd,
    /// Where the bytes are.
    pub parts: *const libc::iovec,
    /// How many parts.
    pub count: u32,
    /// Where they go.
    pub offset: Offset,
}

impl RequestArgs for WriteVectoredArgs {
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
                libc::pwritev(self.fd, self.parts, self.count as i32, at as libc::off_t)
            },
            // SAFETY: as above.
            Offset::Current => unsafe { libc::writev(self.fd, self.parts, self.count as i32) },
        })
    }
}

on_ring! {
    impl Sqe for WriteVectoredArgs {
        const CODE: u8 = opcode::Writev::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Writev::new(RingFd(self.fd), self.parts, self.count)
                .offset(sqe_offset(self.offset))
                .build()
        }
    }
}
