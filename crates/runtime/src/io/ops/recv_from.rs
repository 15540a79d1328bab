use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use socket2::{SockAddr, SockAddrStorage};

use kinfolk_core::host::Contained;

use super::message::MsgHeader;
use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::{Fd, IoBufMut, IoHandle, Operation, Request};
use crate::linux::on_ring;

/// A message from a socket, and the address it is from.
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
        Request::RecvMsg(RecvMsgArgs {
            fd: self.fd.raw(),
            msg: self.header.as_mut_ptr(),
            flags: 0,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        let mut buf = Contained::new(self.buf);
        let result = result.map(|bytes| {
            let bytes = bytes as usize;
            // SAFETY: the system says that it has written them.
            unsafe { buf.set_filled(bytes) };
            let len = self.header.addr_len().min(self.addr.size_of());
            // SAFETY: all of it was zeroed, and the system has written an
            // address of this length.
            (bytes, unsafe { SockAddr::new(self.addr, len) })
        });
        (result, buf.into_inner())
    }
}

/// A message from a socket.
#[derive(Clone, Copy, Debug)]
pub struct RecvMsgArgs {
    /// The socket.
    pub fd: RawFd,
    /// As for `recvmsg`.
    pub msg: *mut libc::msghdr,
    /// As for `recvmsg`.
    pub flags: i32,
}

impl RequestArgs for RecvMsgArgs {
    fn class(&self) -> Class {
        Class::Input
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Readable(self.fd)
    }

    unsafe fn call(&self) -> i32 {
        // SAFETY: as the caller says.
        again(|| unsafe { libc::recvmsg(self.fd, self.msg, self.flags | libc::MSG_DONTWAIT) })
    }
}

on_ring! {
    impl Sqe for RecvMsgArgs {
        const CODE: u8 = opcode::RecvMsg::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::RecvMsg::new(RingFd(self.fd), self.msg)
                .flags(self.flags as u32)
                .build()
        }
    }
}
