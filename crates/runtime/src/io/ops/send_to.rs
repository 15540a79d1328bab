use std::io;
use std::sync::Arc;

use socket2::SockAddr;

use super::message::MsgHeader;
use crate::io::{Fd, IoBuf, IoHandle, Operation, Request};

/// A message to somebody.
pub(crate) struct SendTo<B> {
    fd: Fd,
    buf: B,
    addr: SockAddr,
    header: MsgHeader,
}

impl<B: IoBuf> SendTo<B> {
    pub(crate) fn new(fd: Fd, buf: B, addr: SockAddr) -> SendTo<B> {
        SendTo {
            fd,
            buf,
            addr,
            header: MsgHeader::new(),
        }
    }
}

impl<B: IoBuf> Operation for SendTo<B> {
    type Output = (io::Result<usize>, B);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let part = (self.buf.ptr().cast_mut(), self.buf.filled());
        self.header.set_parts([part].into_iter());
        self.header.set_addr(&self.addr);
        Request::SendMsg {
            fd: self.fd.raw(),
            msg: self.header.as_mut_ptr(),
            flags: 0,
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}
