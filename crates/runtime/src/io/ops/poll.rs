use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use crate::io::{IoHandle, Operation, Request};

/// Waits until a file can be read or written. It is kept open meanwhile.
pub(crate) struct Poll<T> {
    file: Arc<T>,
    events: u32,
}

impl<T: AsFd> Poll<T> {
    /// `events` as for `poll`.
    pub(crate) fn new(file: Arc<T>, events: u32) -> Poll<T> {
        Poll { file, events }
    }
}

impl<T: AsFd + Send + std::marker::Sync + 'static> Operation for Poll<T> {
    type Output = io::Result<u32>;

    fn request(&mut self, _handle: &Arc<IoHandle>) -> Request {
        Request::Poll {
            fd: self.file.as_fd().as_raw_fd(),
            events: self.events,
        }
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<u32> {
        result
    }
}
