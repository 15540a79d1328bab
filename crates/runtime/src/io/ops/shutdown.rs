use std::io;
use std::net::Shutdown as How;
use std::sync::Arc;

use crate::io::{Fd, Hub, Operation, Request};

/// Ends one direction of a socket, or both.
pub(crate) struct Shutdown {
    fd: Fd,
    how: How,
}

impl Shutdown {
    pub(crate) fn new(fd: Fd, how: How) -> Shutdown {
        Shutdown { fd, how }
    }
}

impl Operation for Shutdown {
    type Output = io::Result<()>;

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        let how = match self.how {
            How::Read => libc::SHUT_RD,
            How::Write => libc::SHUT_WR,
            How::Both => libc::SHUT_RDWR,
        };
        Request::Shutdown {
            fd: self.fd.raw(),
            how,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
