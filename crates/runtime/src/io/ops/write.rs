use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, IoBuf, IoHandle, Offset, Operation, Request};

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
        Request::Write {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            offset: self.offset,
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}
