use std::io;
use std::sync::Arc;

use super::length;
use crate::io::{Fd, Hub, IoBufMut, Operation, Request};

/// Bytes from a socket into a buffer.
pub(crate) struct Recv<B> {
    fd: Fd,
    buf: B,
}

impl<B: IoBufMut> Recv<B> {
    pub(crate) fn new(fd: Fd, buf: B) -> Recv<B> {
        Recv { fd, buf }
    }
}

impl<B: IoBufMut> Operation for Recv<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        Request::Recv {
            fd: self.fd.raw(),
            len: length(self.buf.room()),
            buf: self.buf.ptr_mut(),
            flags: 0,
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
