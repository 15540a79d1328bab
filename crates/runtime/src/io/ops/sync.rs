use std::io;
use std::sync::Arc;

use crate::io::{Fd, IoHandle, Operation, Request};

/// What was written reaches the disk.
pub(crate) struct Fsync {
    fd: Fd,
    data_only: bool,
}

impl Fsync {
    pub(crate) fn new(fd: Fd, data_only: bool) -> Fsync {
        Fsync { fd, data_only }
    }
}

impl Operation for Fsync {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Sync {
            fd: self.fd.raw(),
            data_only: self.data_only,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
