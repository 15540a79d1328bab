use std::io;
use std::sync::Arc;

use crate::io::{Fd, IoHandle, Operation, Request};
use crate::linux::SYNC_RANGE;

/// A part of what was written is written out.
pub(crate) struct SyncRange {
    fd: Fd,
    at: u64,
    len: u32,
}

impl SyncRange {
    pub(crate) fn new(fd: Fd, at: u64, len: u32) -> SyncRange {
        SyncRange { fd, at, len }
    }
}

impl Operation for SyncRange {
    type Output = io::Result<()>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::SyncRange {
            fd: self.fd.raw(),
            at: self.at,
            len: self.len,
            flags: SYNC_RANGE,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<()> {
        result.map(drop)
    }
}
