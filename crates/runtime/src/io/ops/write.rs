use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, Hub, IoBuf, Operation, Place, Request};

/// Bytes from a buffer to a file.
pub(crate) struct Write<B> {
    fd: Fd,
    buf: B,
    place: Place,
}

impl<B: IoBuf> Write<B> {
    pub(crate) fn new(fd: Fd, buf: B, place: Place) -> Write<B> {
        Write { fd, buf, place }
    }
}

impl<B: IoBuf> Operation for Write<B> {
    type Output = (io::Result<usize>, B);

    fn hub(&self) -> Option<&Arc<Hub>> {
        Some(self.fd.hub())
    }

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        Request::Write {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            place: self.place,
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}
