use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::length;
use crate::io::in_flight::to_result;
use crate::io::series::queue::SocketWaiter;
use crate::io::{Fd, IoBufMut, IoHandle, Operation, Request, Start};

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
                // SAFETY: there is room for so many, and nobody else uses it.
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
        Request::Recv {
            fd: self.socket.fd.raw(),
            len: length(self.buf.room()),
            buf: self.buf.ptr_mut(),
            flags: 0,
        }
    }

    fn finish(mut self, result: io::Result<u32>) -> Self::Output {
        let result = self.taken.map_or(result, to_result).map(|bytes| {
            let bytes = bytes as usize;
            // SAFETY: the system says that it has written them, or they were
            // copied.
            unsafe { self.buf.set_filled(bytes) };
            bytes
        });
        (result, self.buf)
    }
}
