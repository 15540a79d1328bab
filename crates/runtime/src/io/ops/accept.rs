use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::{SockAddr, SockAddrStorage};

use crate::io::arrivals::Arrivals;
use crate::io::{Arrival, Fd, Hub, Operation, Request, failure};

/// Waits for a connection. Accepted for nobody, it is closed again.
pub(crate) struct Accept {
    fd: Fd,
    addr: SockAddrStorage,
    len: libc::socklen_t,
    /// What a series has brought before.
    taken: Option<Arrival>,
}

impl Accept {
    pub(crate) fn new(fd: Fd) -> Accept {
        Accept {
            fd,
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

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let arrivals = self.fd.known_arrivals();
        match arrivals.is_some_and(|arrivals| arrivals.must_wait(cx.waker())) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        self.taken = self.fd.known_arrivals().and_then(Arrivals::take);
        if self.taken.is_some() {
            return Request::Nop;
        }
        self.len = self.addr.size_of();
        Request::Accept {
            fd: self.fd.raw(),
            addr: (&raw mut self.addr).cast(),
            len: &raw mut self.len,
        }
    }

    fn answered(&mut self, _result: i32) -> bool {
        self.taken.is_none()
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        match self.taken {
            Some(Arrival::Connection(fd)) => {
                let addr = fd.hub().system().peer_addr(fd.raw());
                return Ok((fd, addr.unwrap_or_else(|_| nobody())));
            }
            Some(Arrival::Failed(failed)) => return Err(failure(failed)),
            // Nothing else arrives where somebody listens.
            Some(_) | None => {}
        }
        let accepted = Fd::new(result? as RawFd, self.fd.hub().clone());
        let len = self.len.min(self.addr.size_of());
        // SAFETY: all of it was zeroed, and the system has written an address of
        // this length.
        let addr = unsafe { SockAddr::new(self.addr, len) };
        Ok((accepted, addr))
    }
}
