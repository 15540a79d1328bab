use std::io;
use std::sync::Arc;

use crate::io::{Fd, IoHandle, Operation, Request};

/// Room for a part of a file.
pub(crate) struct Allocate {
    fd: Fd,
    at: u64,
    len: u64,
}

impl Allocate {
    pub(crate) fn new(fd: Fd, at: u64, len: u64) -> Allocate {
        Allocate { fd, at, len }
    }
}

impl Operation for Allocate {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Allocate {
            fd: self.fd.raw(),
            mode: 0,
            at: self.at,
            len: self.len,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
