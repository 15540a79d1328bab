use std::io;
use std::sync::Arc;

use crate::io::{Fd, Hub, Operation, Request};

/// What was written reaches the disk.
pub(crate) struct Sync {
    fd: Fd,
    data_only: bool,
}

impl Sync {
    pub(crate) fn new(fd: Fd, data_only: bool) -> Sync {
        Sync { fd, data_only }
    }
}

impl Operation for Sync {
    type Output = io::Result<()>;

    fn request(&mut self, _hub: &Arc<Hub>) -> Request {
        Request::Sync {
            fd: self.fd.raw(),
            data_only: self.data_only,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
