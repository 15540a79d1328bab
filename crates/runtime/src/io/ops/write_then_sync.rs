use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, IoBuf, IoHandle, Offset, Operation, Request};

/// Bytes from a buffer to a file, and if those were all, to the disk.
pub(crate) struct WriteThenSync<B> {
    fd: Fd,
    buf: B,
    at: u64,
}

impl<B: IoBuf> WriteThenSync<B> {
    pub(crate) fn new(fd: Fd, buf: B, at: u64) -> WriteThenSync<B> {
        WriteThenSync { fd, buf, at }
    }
}

impl<B: IoBuf> Operation for WriteThenSync<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::WriteThenSync {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            offset: Offset::At(self.at),
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}
