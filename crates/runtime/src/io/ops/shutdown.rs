use std::io;
use std::net::Shutdown as How;
use std::sync::Arc;

use crate::io::{Fd, IoHandle, Operation, Request};

/// Ends one direction of a socket, or both.
pub(crate) struct ShutdownSocket {
    fd: Fd,
    how: How,
}

impl ShutdownSocket {
    pub(crate) fn new(fd: Fd, how: How) -> ShutdownSocket {
        ShutdownSocket { fd, how }
    }
}

impl Operation for ShutdownSocket {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
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
