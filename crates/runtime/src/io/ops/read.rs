use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, Hub, IoBufMut, Operation, Place, Request};

/// Bytes from a file into a buffer.
pub(crate) struct Read<B> {
    fd: Fd,
    buf: B,
    place: Place,
}

impl<B: IoBufMut> Read<B> {
    pub(crate) fn new(fd: Fd, buf: B, place: Place) -> Read<B> {
        Read { fd, buf, place }
    }
}

impl<B: IoBufMut> Operation for Read<B> {
    type Output = (io::Result<usize>, B);

    fn hub(&self) -> Option<&Arc<Hub>> {
        Some(self.fd.hub())
    }

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        Request::Read {
            fd: self.fd.raw(),
            len: length(self.buf.room()),
            buf: self.buf.ptr_mut(),
            place: self.place,
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
