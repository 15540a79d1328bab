use std::io;
use std::sync::Arc;

use socket2::{SockAddr, SockAddrStorage};

use super::message::MsgHeader;
use crate::io::{Fd, IoBufMut, IoHandle, Operation, Request};

/// A message from a socket, and whom it is from.
pub(crate) struct RecvFrom<B> {
    fd: Fd,
    buf: B,
    addr: SockAddrStorage,
    header: MsgHeader,
}

impl<B: IoBufMut> RecvFrom<B> {
    pub(crate) fn new(fd: Fd, buf: B) -> RecvFrom<B> {
        RecvFrom {
            fd,
            buf,
            addr: SockAddrStorage::zeroed(),
            header: MsgHeader::new(),
        }
    }
}

impl<B: IoBufMut> Operation for RecvFrom<B> {
    type Output = (io::Result<(usize, SockAddr)>, B);

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        let room = self.buf.room();
        let part = (self.buf.ptr_mut(), room);
        self.header.set_parts([part].into_iter());
        self.header.set_room_for_addr(&mut self.addr);
        Request::RecvMsg {
            fd: self.fd.raw(),
            msg: self.header.as_mut_ptr(),
            flags: 0,
        }
    }

    fn finish(mut self, result: io::Result<u32>) -> Self::Output {
        let result = result.map(|bytes| {
            let bytes = bytes as usize;
            // SAFETY: the system says that it has written them.
            unsafe { self.buf.set_filled(bytes) };
            let len = self.header.addr_len().min(self.addr.size_of());
            // SAFETY: all of it was zeroed, and the system has written an
            // address of this length.
            (bytes, unsafe { SockAddr::new(self.addr, len) })
        });
        (result, self.buf)
    }
}
