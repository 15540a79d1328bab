use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use kinfolk_core::host::Contained;

use super::length;
use super::{Class, Fallback, RequestArgs};
use crate::io::BufferGroup;
use crate::io::in_flight::to_result;
use crate::io::readiness::calls::again;
use crate::io::series::queue::SocketWaiter;
use crate::io::{Fd, IoBufMut, IoHandle, Operation, Request, Start};
use crate::linux::on_ring;

/// Bytes from a socket into a buffer.
pub(crate) struct Recv<B> {
    socket: SocketWaiter,
    buf: B,
    /// What a series has brought before, as kernels answer.
    taken: Option<i32>,
}

impl<B: IoBufMut> Recv<B> {
    pub(crate) fn new(fd: Fd, buf: B) -> Recv<B> {
        Recv {
            socket: SocketWaiter::new(fd),
            buf,
            taken: None,
        }
    }
}

impl<B: IoBufMut> Operation for Recv<B> {
    type Output = (io::Result<usize>, B);

    fn handle(&self) -> Option<&Arc<IoHandle>> {
        Some(self.socket.fd.handle())
    }

    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Start> {
        if let Some((queue, key)) = self.socket.queue() {
            let (room, to) = (length(self.buf.room()) as usize, self.buf.ptr_mut());
            let copy = |bytes: &[u8]| {
                let taken = bytes.len().min(room);
                // SAFETY: there is room for so many, and no other code uses it.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, taken) };
                taken
            };
            self.taken = ready!(queue.poll_bytes(key, cx.waker(), copy));
        }
        Poll::Ready(match self.taken {
            Some(_) => Start::Answered,
            None => Start::Ask,
        })
    }

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Recv(RecvArgs {
            fd: self.socket.fd.raw(),
            len: length(self.buf.room()),
            buf: self.buf.ptr_mut(),
            flags: 0,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        let mut buf = Contained::new(self.buf);
        let result = self.taken.map_or(result, to_result).map(|bytes| {
            let bytes = bytes as usize;
            // SAFETY: the system says that it has written them, or they were
            // copied.
            unsafe { buf.set_filled(bytes) };
            bytes
        });
        (result, buf.into_inner())
    }
}

/// Bytes from a socket.
#[derive(Clone, Copy, Debug)]
pub struct RecvArgs {
    /// The socket.
    pub fd: RawFd,
    /// Where the bytes go.
    pub buf: *mut u8,
    /// How many there is room for.
    pub len: u32,
    /// As for `recv`.
    pub flags: i32,
}

impl RequestArgs for RecvArgs {
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
        let flags = self.flags | libc::MSG_DONTWAIT;
        // SAFETY: as the caller says.
        again(|| unsafe { libc::recv(self.fd, self.buf.cast(), self.len as usize, flags) })
    }
}

on_ring! {
    impl Sqe for RecvArgs {
        const CODE: u8 = opcode::Recv::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Recv::new(RingFd(self.fd), self.buf, self.len)
                .flags(self.flags)
                .build()
        }
    }
}

/// A series: bytes from a socket, in buffers of a group; 0 bytes are the end.
/// `ENOBUFS` if there is no buffer left.
#[derive(Clone, Copy, Debug)]
pub struct RecvManyArgs {
    /// The socket.
    pub fd: RawFd,
    /// Where the buffers are.
    pub group: *const Arc<BufferGroup>,
}

impl RequestArgs for RecvManyArgs {
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
        // Drivers receive into the group by themselves, and offload nothing of it: a
        // socket is no file that blocks.
        -libc::EINVAL
    }
}

on_ring! {
    impl Sqe for RecvManyArgs {
        const CODE: u8 = opcode::RecvMulti::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            {
            // The ring submits it by itself, with the number of the group.
            opcode::Nop::new().build()
        }
        }
    }
}
