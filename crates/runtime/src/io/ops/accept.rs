use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::{SockAddr, SockAddrStorage};

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls::again;
use crate::io::series::queue::SocketWaiter;
use crate::io::{Fd, IoHandle, Operation, Request, SeriesItem, Start, failure};
use crate::linux;
use crate::linux::on_ring;

/// Waits for a connection. If its future was dropped, the connection is closed again.
pub(crate) struct Accept {
    socket: SocketWaiter,
    addr: SockAddrStorage,
    len: libc::socklen_t,
    /// What a series has brought before.
    taken: Option<SeriesItem>,
}

impl Accept {
    pub(crate) fn new(fd: Fd) -> Accept {
        Accept {
            socket: SocketWaiter::new(fd),
            addr: SockAddrStorage::zeroed(),
            len: 0,
            taken: None,
        }
    }
}

/// The address of one who has gone already.
fn nobody() -> SockAddr {
    SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into()
}

impl Operation for Accept {
    type Output = io::Result<(Fd, SockAddr)>;

    fn poll_start(&mut self, cx: &mut Context<'_>) -> Poll<Start> {
        if let Some((queue, key)) = self.socket.queue() {
            self.taken = ready!(queue.poll_take(key, cx.waker()));
        }
        Poll::Ready(match self.taken {
            Some(_) => Start::Answered,
            None => Start::Ask,
        })
    }

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        self.len = self.addr.size_of();
        Request::Accept(AcceptArgs {
            fd: self.socket.fd.raw(),
            addr: (&raw mut self.addr).cast(),
            len: &raw mut self.len,
        })
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        match self.taken {
            Some(SeriesItem::Connection(fd)) => {
                let addr = fd.handle().system().peer_addr(fd.raw());
                return Ok((fd, addr.unwrap_or_else(|_| nobody())));
            }
            Some(SeriesItem::Failed { result, .. }) => return Err(failure(result)),
            // Nothing else arrives where somebody listens.
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => {}
        }
        let accepted = Fd::new(result? as RawFd, self.socket.fd.handle().clone());
        let len = self.len.min(self.addr.size_of());
        // SAFETY: all of it was zeroed, and the system has written an address of
        // this length.
        let addr = unsafe { SockAddr::new(self.addr, len) };
        Ok((accepted, addr))
    }
}

/// Waits for a connection; the answer is its file.
#[derive(Clone, Copy, Debug)]
pub struct AcceptArgs {
    /// The socket that listens.
    pub fd: RawFd,
    /// Where the address of the other side goes.
    pub addr: *mut libc::sockaddr_storage,
    /// How much room there is, and how long it is.
    pub len: *mut libc::socklen_t,
}

impl RequestArgs for AcceptArgs {
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
        again(|| unsafe { linux::accept(self.fd, self.addr.cast(), self.len) } as isize)
    }
}

on_ring! {
    impl Sqe for AcceptArgs {
        const CODE: u8 = opcode::Accept::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::Accept::new(RingFd(self.fd), self.addr.cast(), self.len)
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
    }
}

/// A series: waits for connections, one after the other; each answer is the
/// file of one.
#[derive(Clone, Copy, Debug)]
pub struct AcceptManyArgs {
    /// The socket that listens.
    pub fd: RawFd,
}

impl RequestArgs for AcceptManyArgs {
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
        // One of them: a series may end after each answer.
        // SAFETY: it leads nowhere.
        again(|| unsafe { linux::accept(self.fd, null_mut(), null_mut()) } as isize)
    }
}

on_ring! {
    impl Sqe for AcceptManyArgs {
        const CODE: u8 = opcode::AcceptMulti::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::AcceptMulti::new(RingFd(self.fd))
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
    }
}
