use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use socket2::SockAddr;

use super::message::MsgHeader;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBuf, IoHandle, Operation, Request};
use crate::linux::on_ring;

/// A message to an address.
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
        Request::SendMsg(SendMsgArgs {
            fd: self.fd.raw(),
            msg: self.header.as_mut_ptr(),
            flags: 0,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        (result.map(|bytes| bytes as usize), self.buf)
    }
}

/// A message to a socket.
#[derive(Clone, Copy, Debug)]
pub struct SendMsgArgs {
    /// The socket.
    pub fd: RawFd,
    /// As for `sendmsg`.
    pub msg: *const libc::msghdr,
    /// As for `sendmsg`.
    pub flags: i32,
}

impl RequestArgs for SendMsgArgs {
    fn class(&self) -> Class {
        Class::Output
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Writable(self.fd)
    }

    unsafe fn call(&self) -> i32 {
        let flags = self.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: as the caller says.
        again(|| unsafe { libc::sendmsg(self.fd, self.msg, flags) })
    }
}

on_ring! {
    impl Sqe for SendMsgArgs {
        const CODE: u8 = opcode::SendMsg::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::SendMsg::new(RingFd(self.fd), self.msg)
                .flags((self.flags | libc::MSG_NOSIGNAL) as u32)
                .build()
        }
    }
}
