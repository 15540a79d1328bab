use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use socket2::{SockAddr, SockAddrStorage};

use crate::io::{Fd, Hub, Operation, Request};

/// Waits for a connection. Accepted for nobody, it is closed again.
pub(crate) struct Accept {
    fd: Fd,
    addr: SockAddrStorage,
    len: libc::socklen_t,
}

impl Accept {
    pub(crate) fn new(fd: Fd) -> Accept {
        Accept {
            fd,
            addr: SockAddrStorage::zeroed(),
            len: 0,
        }
    }
}

impl Operation for Accept {
    type Output = io::Result<(Fd, SockAddr)>;

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        self.len = self.addr.size_of();
        Request::Accept {
            fd: self.fd.raw(),
            addr: (&raw mut self.addr).cast(),
            len: &raw mut self.len,
        }
    }

    fn finish(self, result: io::Result<u32>) -> Self::Output {
        let accepted = Fd::new(result? as RawFd, self.fd.hub().clone());
        let len = self.len.min(self.addr.size_of());
        // SAFETY: all of it was zeroed, and the system has written an address of
        // this length.
        let addr = unsafe { SockAddr::new(self.addr, len) };
        Ok((accepted, addr))
    }
}
