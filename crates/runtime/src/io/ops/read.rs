use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, IoBufMut, IoHandle, Offset, Operation, Request};

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
        Request::Read {
            fd: self.fd.raw(),
            len: length(self.buf.room()),
            buf: self.buf.ptr_mut(),
            offset: self.offset,
        }
    }

    fn finish(mut self, result: io::Result<u32>) -> Self::Output {
        let result = result.map(|bytes| {
            let bytes = bytes as usize;
            // SAFETY: the system says that it has written them.
            unsafe { self.buf.set_filled(bytes) };
            bytes
        });
        (result, self.buf)
    }
}
