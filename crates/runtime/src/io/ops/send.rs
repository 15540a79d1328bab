use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, IoBuf, IoHandle, Operation, Request};

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
        Request::Send {
            fd: self.fd.raw(),
            buf: self.buf.ptr(),
            len: length(self.buf.filled()),
            flags: self.flags,
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}
