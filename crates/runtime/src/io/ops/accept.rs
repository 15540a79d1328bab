use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use socket2::{SockAddr, SockAddrStorage};

use crate::io::series::queue::SocketWaiter;
use crate::io::{Fd, IoHandle, Operation, Request, SeriesItem, Start, failure};

/// Waits for a connection. Accepted for nobody, it is closed again.
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
        Request::Accept {
            fd: self.socket.fd.raw(),
            addr: (&raw mut self.addr).cast(),
            len: &raw mut self.len,
        }
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
