use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use super::{Class, Fallback, RequestArgs};
use crate::io::readiness::calls;
use crate::io::{IoHandle, Operation, Request};
use crate::linux::on_ring;

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
        Request::Poll(PollArgs {
            fd: self.file.as_fd().as_raw_fd(),
            events: self.events,
        })
    }

    fn finish(self, result: io::Result<u32>) -> io::Result<u32> {
        result
    }
}

/// Waits until a file can be read or written; the answer says which.
#[derive(Clone, Copy, Debug)]
pub struct PollArgs {
    /// The file.
    pub fd: RawFd,
    /// As for `poll`.
    pub events: u32,
}

impl RequestArgs for PollArgs {
    fn class(&self) -> Class {
        Class::Input
    }

    fn fd(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    fn fallback(&self) -> Fallback {
        Fallback::Polled(self.fd, self.events)
    }

    unsafe fn call(&self) -> i32 {
        match calls::poll(self.fd, self.events) {
            0 => -libc::EAGAIN,
            result => result,
        }
    }
}

on_ring! {
    impl Sqe for PollArgs {
        const CODE: u8 = opcode::PollAdd::CODE;

        #[inline]
        fn sqe(&self) -> Entry {
            opcode::PollAdd::new(RingFd(self.fd), self.events).build()
        }
    }
}
