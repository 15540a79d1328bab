use std::io;
use std::sync::Arc;

use super::MOST;
use crate::io::{Fd, IoBuf, IoBufMut, IoHandle, Offset, Operation, Request};

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
        Request::ReadVectored {
            fd: self.fd.raw(),
            parts: self.parts.0.as_ptr(),
            count: self.parts.0.len() as u32,
            offset: self.offset,
        }
    }

    fn finish(mut self, result: io::Result<u32>) -> Self::Output {
        let result = result.map(|bytes| {
            let mut left = bytes as usize;
            for buf in &mut self.bufs {
                let filled = left.min(buf.room());
                left -= filled;
                // SAFETY: the system says that it has written them, one buffer
                // after the other.
                unsafe { buf.set_filled(filled) };
            }
            bytes as usize
        });
        (result, self.bufs)
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
        Request::WriteVectored {
            fd: self.fd.raw(),
            parts: self.parts.0.as_ptr(),
            count: self.parts.0.len() as u32,
            offset: self.offset,
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.bufs)
    }
}
